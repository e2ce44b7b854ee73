"""Events on their way through a router: of one publisher and category, with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import decode_batch, encode_batch
from sievenet.content.codec import decode_record, encode_record
from sievenet.content.event import Event, Record
from sievenet.content.schema import Schema
from sievenet.errors import CodecError
from sievenet.routers.messages import Carried

__all__ = ["MAX_ROWS", "MAX_SEQUENCE", "Octets", "Shipment", "numbers"]

#: Most events in one shipment; the memory of what was seen (`Seen`) is longer.
MAX_ROWS = 8192
#: Largest number of an event, so that twice as much stays well within 64 signed bits.
MAX_SEQUENCE = 1 << 61

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Shipment:
    """Some events; rows are chosen with `take`."""

    #: The router where they entered.
    source: str
    publisher: int
    category: int
    sequences: Ints
    #: Nanoseconds since the epoch when they were published.
    departures: Ints
    events: EventBatch | tuple[Record, ...]
    hops: int = 0
    destinations: tuple[str, ...] | None = None
    #: A row of bits for each event, if the first router made them (edge routing).
    bits: Octets | None = None
    #: The graph whose tree or paths they follow; 0: they go to everybody.
    graph: int = 0

    def __len__(self) -> int:
        return len(self.sequences)

    def take(self, rows: Ints) -> Shipment:
        """The chosen events."""
        if len(rows) == len(self):
            return self
        if isinstance(self.events, EventBatch):
            events: EventBatch | tuple[Record, ...] = self.events.take(rows)
        else:
            events = tuple(self.events[i] for i in rows.tolist())
        bits = None if self.bits is None else self.bits[rows]
        return replace(self, sequences=self.sequences[rows], departures=self.departures[rows], events=events, bits=bits)

    def cut(self, rows: int) -> tuple[Shipment, Shipment | None]:
        """The first so many events, and the others if there are any."""
        if len(self) <= rows:
            return self, None
        every = np.arange(len(self))
        return self.take(every[:rows]), self.take(every[rows:])

    def onward(self, destinations: tuple[str, ...] | None = None) -> Shipment:
        """The same, one hop further."""
        return replace(self, hops=self.hops + 1, destinations=destinations)

    def flooded(self) -> Shipment:
        """The same, one hop further, for everybody."""
        return replace(self, hops=self.hops + 1, destinations=None, bits=None, graph=0)

    def rows(self) -> list[Event] | tuple[Record, ...]:
        """The events one by one."""
        return list(self.events) if isinstance(self.events, EventBatch) else self.events

    def message(self) -> Carried:
        """As a message."""
        batch = encode_batch(self.events) if isinstance(self.events, EventBatch) else b""
        records = () if isinstance(self.events, EventBatch) else tuple(map(encode_record, self.events))
        return Carried(
            self.source,
            self.publisher,
            self.category,
            self.sequences.astype("<i8").tobytes(),
            self.departures.astype("<i8").tobytes(),
            batch,
            records,
            self.hops,
            self.destinations,
            b"" if self.bits is None else self.bits.tobytes(),
            self.graph,
        )

    @staticmethod
    def of(message: Carried, schema: Schema | None) -> Shipment:
        """From a message, checked."""
        sequences = numbers(message)
        departures = np.frombuffer(message.departures, "<i8").astype(np.int64)
        events: EventBatch | tuple[Record, ...]
        if schema is None:
            events = tuple(map(decode_record, message.records))
        else:
            events = decode_batch(schema, message.batch)
        if len(events) != len(sequences):
            raise CodecError(expected=f"{len(sequences)} events, as numbered", got=len(events), where="events")
        if (departures < 0).any():
            raise CodecError(expected="times after 1970", got=int(departures.min()), where="events")
        bits: Octets | None = None
        if message.bits:
            if len(message.bits) % len(events):
                raise CodecError(expected="as many bits for each event", got=len(message.bits), where="events")
            bits = np.frombuffer(message.bits, np.uint8).reshape(len(events), -1)
        return Shipment(
            message.source,
            message.publisher,
            message.category,
            sequences,
            departures,
            events,
            message.hops,
            message.destinations,
            bits,
            message.graph,
        )

    @staticmethod
    def publish(
        source: str,
        publisher: int,
        category: int,
        first: int,
        now_ns: int,
        events: EventBatch | Sequence[Record],
    ) -> Shipment:
        """New events, numbered from ``first``."""
        count = len(events)
        return Shipment(
            source,
            publisher,
            category,
            np.arange(first, first + count, dtype=np.int64),
            np.full(count, now_ns, np.int64),
            events if isinstance(events, EventBatch) else tuple(events),
        )

    @staticmethod
    def joined(parts: Sequence[Shipment]) -> list[Shipment]:
        """Shipments of one publisher in order, as few as may be: what came together is matched together."""
        found: list[list[Shipment]] = []
        rows = 0
        for each in parts:
            last = found[-1][-1] if found else None
            fits = last is not None and last.category == each.category and rows + len(each) <= MAX_ROWS
            if last is not None and fits and last.sequences[-1] < each.sequences[0]:
                found[-1].append(each)
                rows += len(each)
            else:
                found.append([each])
                rows = len(each)
        return [_one(group) for group in found]


def numbers(message: Carried) -> Ints:
    """The numbers of the events in a message, checked."""
    if len(message.sequences) % 8 or len(message.sequences) != len(message.departures):
        raise CodecError(expected="a number and a time for each event", got=len(message.sequences), where="events")
    found = np.frombuffer(message.sequences, "<i8").astype(np.int64)
    if not 0 < len(found) <= MAX_ROWS:
        raise CodecError(expected=f"1 to {MAX_ROWS} events, numbered", got=len(found), where="events")
    if found[0] < 0 or found[-1] > MAX_SEQUENCE or (found[1:] <= found[:-1]).any():
        raise CodecError(expected="ascending numbers from 0 to 2^61", got=int(found[-1]), where="events")
    return found


def _one(group: list[Shipment]) -> Shipment:
    first = group[0]
    if len(group) == 1:
        return first
    if isinstance(first.events, EventBatch):
        batches = [each.events for each in group if isinstance(each.events, EventBatch)]
        events: EventBatch | tuple[Record, ...] = EventBatch.concat(batches)
    else:
        events = tuple(record for each in group for record in each.events if isinstance(record, Record))
    sequences = np.concatenate([each.sequences for each in group])
    departures = np.concatenate([each.departures for each in group])
    return replace(first, sequences=sequences, departures=departures, events=events)
