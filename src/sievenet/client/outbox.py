"""From events to packets: check, number, encode. No I/O.

An event travels once per code that the category's plan gives it (usually one), every copy with the same publisher,
incarnation and sequence number. Only what is advertised may be published: the control plane has made paths for that
and nothing else.
"""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from sievenet.client.catalog import Catalog, Category
from sievenet.client.offers import Offers
from sievenet.client.ports.burst import Burst
from sievenet.client.ports.port import DataPort
from sievenet.content.batch import EventBatch
from sievenet.content.codec import encode_event
from sievenet.content.event import Event
from sievenet.content.layout import layout_of
from sievenet.content.schema import Schema
from sievenet.dataplane.packet import FRONT, KIND, Packet
from sievenet.errors import EventError

__all__ = ["Outbox"]

#: Events published in batches from which on the batch encoder is worth loading.
_WORTHWHILE: Final = 2_000
#: Events that are worth a matrix.
_SEVERAL: Final = 8
#: What a datagram of one packet has before its body: what is the same in all of a schema, and what differs.
_ALONE: Final = struct.Struct(f">{len(FRONT) + KIND.size}s16sQQQQ")


class _Way(NamedTuple):
    """What single events of a schema need on their way out, found once for as long as nothing changes."""

    schema: Schema
    #: How often the catalogue and the offers had changed.
    changes: int
    number: int
    #: Whether only a part of the schema is advertised.
    limited: bool
    body: Callable[[Event], bytes | None]
    #: The code of an event that has one by any means; else None, and `codes`.
    code: Callable[[tuple[Any, ...]], int] | None
    codes: Callable[[Event], list[int]]


#: What those need that are equally long, have one code and are all advertised: schema, changes, number, bytes of an
#: event, what its datagram begins with, and from its values to its bytes and to its code.
_Lane = tuple[Schema, int, int, int, bytes, Callable[..., bytes], Callable[[tuple[Any, ...]], int]]

#: Of each packet the event's row, and the halves of its code.
_Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class Outbox:
    """One node's publishing side."""

    def __init__(self, catalog: Catalog) -> None:
        #: Given by the data plane when the node attaches.
        self.publisher = 0
        #: Which life of that publisher this is: unique without anybody's help, so that nothing has to be remembered.
        self.incarnation = secrets.randbits(64)
        self._catalog = catalog
        #: The next event's.
        self._sequence = 0
        #: What this node may publish (confirmed by the daemon).
        self.offers = Offers()
        #: Largest encoded event that the data plane takes, in bytes.
        self.max_event = 0
        self.published = 0
        self._way: _Way | None = None
        self._lane: _Lane | None = None
        self._batched = 0
        #: Loads the batch encoder.
        self._encoder: threading.Thread | None = None
        #: Events that no filter can want under the plan of now, and that were therefore not sent.
        self.unwanted = 0

    def packets(self, event: Event, now: int) -> list[Packet]:
        """The packets of one event published at ``now`` (nanoseconds since the epoch)."""
        way = self._way
        changes = self._catalog.changes + self.offers.changes
        if way is None or type(event) is not Event or event.schema is not way.schema or way.changes != changes:
            way = self._way = self._found(event, changes)
        if way.limited:
            self.offers.check(way.schema.name, (event,))
        body = way.body(event)
        if body is None:
            body = encode_event(event)
        if len(body) > self.max_event > 0:
            self._too_long(event, body)
        number, publisher, life = way.number, self.publisher, self.incarnation
        if way.code is not None:
            packet = Packet(number, way.code(event.values), publisher, self._sequence, now, 0, body, life)
            self._sequence += 1
            self.published += 1
            return [packet]
        codes = way.codes(event)
        sequence = self._next()
        if not codes:
            self.unwanted += 1
        return [Packet(number, code, publisher, sequence, now, 0, body, life) for code in codes]

    def sent(self, event: Event, port: DataPort, now: int) -> list[Packet] | None:
        """Send one event alone; if that cannot be, its packets, which are still to be sent.

        In few steps, and with few objects: a process that has just woken up has forgotten each of them.
        """
        if self._lane is None:
            return self.packets(event, now)
        schema, changes, number, size, start, body_of, code_of = self._lane
        if event.schema is not schema or changes != self._catalog.changes + self.offers.changes or event.payload:
            return self.packets(event, now)
        if size > self.max_event > 0:
            return self.packets(event, now)
        values, sequence = event.values, self._sequence
        body, code = body_of(*values), code_of(values).to_bytes(16, "big")
        self._sequence = sequence + 1
        self.published += 1
        head = _ALONE.pack(start, code, self.publisher, self.incarnation, sequence, now)
        if port.send_alone(head + body, number, code):
            return None
        whole = int.from_bytes(code, "big")
        return [Packet(number, whole, self.publisher, sequence, now, 0, body, self.incarnation)]

    def _found(self, event: Event, changes: int) -> _Way:
        category = self._category(event)
        layout, encoder = layout_of(event.schema), category.plan.encoder
        limited, self._lane = not self.offers.unlimited(category.schema), None
        if not limited and layout is not None and layout.writer is not None and encoder.only is not None:
            start = FRONT + KIND.pack(layout.size, category.number, 0, 0)
            self._lane = event.schema, changes, category.number, layout.size, start, layout.writer, encoder.only
        return _Way(
            event.schema,
            changes,
            category.number,
            limited,
            encode_event if layout is None else layout.encode_one,
            encoder.only,
            category.plan.codes,
        )

    def batch_packets(self, events: EventBatch | Sequence[Event], clock: Callable[[], int]) -> Iterable[list[Packet]]:
        """The packets of many events of one schema, encoded together; all are checked before the first is sent."""
        if not len(events):
            return []
        first = events[0]
        category = self._category(first)
        batch = events if isinstance(events, EventBatch) else EventBatch.from_events(first.schema, events)
        rows = list(batch)
        self.offers.check(category.schema.name, rows)
        bodies = [self._body(event) for event in rows]
        return self._stamped(category.number, bodies, self._codes(category, batch, rows), clock)

    def many(self, events: EventBatch | Sequence[Event], clock: Callable[[], int]) -> list[Packet] | Burst:
        """The packets of many events of one schema, in whichever form is quicker."""
        burst = self.burst(events, clock())
        if burst is not None:
            return burst
        return [packet for packets in self.batch_packets(events, clock) for packet in packets]

    def burst(self, events: EventBatch | Sequence[Event], now: int) -> Burst | None:
        """The packets of many events, published at ``now``, as one matrix; None if that cannot be: see `batch_packets`.

        It can if the events are equally long (`layout`), and everything of their schema is advertised.
        """
        if len(events) < _SEVERAL:
            return None
        first = events[0]
        category = self._category(first)
        layout = layout_of(category.schema)
        if layout is None or not self.offers.unlimited(category.schema) or 0 < self.max_event < layout.size:
            return None
        batch = events if isinstance(events, EventBatch) else EventBatch.from_events(category.schema, events)
        bodies = layout.encode(batch)
        if bodies is None:
            return None
        row, hi, lo = self._code_columns(category, batch)
        burst = Burst(category.number, hi, lo, bodies if len(row) == len(batch) else bodies[row])
        start = self._sequence
        self._sequence += len(batch)
        self.published += len(batch)
        # Rows are in order.
        self.unwanted += len(batch) - (int(np.count_nonzero(row[1:] != row[:-1])) + 1 if len(row) else 0)
        burst.stamp(self.publisher, self.incarnation, row.astype(np.uint64) + np.uint64(start), now)
        return burst

    def _code_columns(self, category: Category, batch: EventBatch) -> _Columns:
        if self._encoder_ready(category, batch):
            codes = category.plan.encode_batch(batch)
            # An event's codes together, events in order: every event in its turn, whatever the plan makes of it.
            order = np.argsort(codes.row, kind="stable")
            return codes.row[order], codes.hi[order], codes.lo[order]
        found = [(row, code) for row, e in enumerate(batch) for code in category.plan.codes(e)]
        low = (1 << 64) - 1
        return (
            np.fromiter((row for row, _ in found), np.int64, len(found)),
            np.fromiter((code >> 64 for _, code in found), np.uint64, len(found)),
            np.fromiter((code & low for _, code in found), np.uint64, len(found)),
        )

    def _encoder_ready(self, category: Category, batch: EventBatch) -> bool:
        """Whether the batch encoder is loaded; that takes a while, is begun when it pays, and nobody waits for it."""
        self._batched += len(batch)
        if self._encoder is None and self._batched >= _WORTHWHILE:
            few = batch.take(slice(0, 1))
            self._encoder = threading.Thread(target=category.plan.encode_batch, args=(few,), daemon=True)
            self._encoder.start()
        return self._encoder is not None and not self._encoder.is_alive()

    def _codes(self, category: Category, batch: EventBatch, rows: list[Event]) -> list[list[int]]:
        if not self._encoder_ready(category, batch):
            return [category.plan.codes(event) for event in rows]
        codes = category.plan.encode_batch(batch)
        own: list[list[int]] = [[] for _ in rows]
        for row, high, low in zip(codes.row.tolist(), codes.hi.tolist(), codes.lo.tolist(), strict=True):
            own[row].append(high << 64 | low)
        return own

    def _stamped(
        self, number: int, bodies: list[bytes], codes: list[list[int]], clock: Callable[[], int]
    ) -> Iterable[list[Packet]]:
        publisher, incarnation = self.publisher, self.incarnation
        for body, own in zip(bodies, codes, strict=True):
            sequence = self._next()
            if not own:
                self.unwanted += 1
            now = clock()
            yield [Packet(number, code, publisher, sequence, now, 0, body, incarnation) for code in own]

    @property
    def next(self) -> int:
        """The number of the next event."""
        return self._sequence

    def reserve(self, count: int) -> int:
        """The first of so many numbers, for packets that are made elsewhere."""
        self._sequence += count
        return self._sequence - count

    def _next(self) -> int:
        """The number of the event that is published now."""
        self._sequence += 1
        self.published += 1
        return self._sequence - 1

    def _category(self, event: Event) -> Category:
        if not isinstance(event, Event):
            raise EventError(expected="an event", got=event, where="publish")
        return self._catalog.known(event.schema)

    def check(self, events: Iterable[Event]) -> None:
        """Raise if one of these may not be published: not of the schema as registered, or not advertised."""
        for event in events:
            self.offers.check(self._category(event).schema.name, (event,))

    def _body(self, event: Event) -> bytes:
        layout = layout_of(event.schema)
        body = (None if layout is None else layout.encode_one(event)) or encode_event(event)
        if len(body) > self.max_event > 0:
            self._too_long(event, body)
        return body

    def _too_long(self, event: Event, body: bytes) -> NoReturn:
        raise EventError(
            f"Expected an event of at most {self.max_event} bytes, got {len(body)}", where=event.schema.name
        )
