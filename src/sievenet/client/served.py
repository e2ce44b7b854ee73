"""The subscriptions that a matcher serves in one category: matched exactly, each with its recipient and its side."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.client.audience import Audience, homed, place_of, side_of
from sievenet.client.component import DirectedSender
from sievenet.client.parcel import parcels
from sievenet.client.ports.burst import Burst
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_subscription
from sievenet.content.filter import Filter
from sievenet.content.layout import layout_of
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet
from sievenet.control import protocol as p
from sievenet.matcher import Matcher
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Served", "load"]

#: Subscriptions up to which a matcher puts them in order at one go: of more that would keep everybody waiting.
_TIDY: Final = 20_000
#: Filters that make a matcher use all of its code.
_LOAD: Final = 1000


class Served:
    """The subscriptions of one category."""

    def __init__(self, schema: Schema, sender: DirectedSender) -> None:
        self.schema, self.sender = schema, sender
        self.matcher = Matcher(schema)
        self.window = DuplicateWindow(span=1 << 17)  # as wide as what is sent again when another one fails
        self.audience = Audience(schema, self.matcher, self.window)
        #: Recipients are numbers of 32 bits; each has a place here.
        self.recipients = np.zeros(0, np.uint32)
        self._places: dict[int, int] = {}
        #: By the daemon's key of a subscription: the key that it is matched under (`homed`).
        self._keys: dict[int, int] = {}
        self.publishers: dict[int, int] = {}
        #: Whether subscriptions have come since the last look, and since they were put in order.
        self._coming = self._untidy = False

    def enter(self, interests: list[p.Interest]) -> None:
        """Match these from now on."""
        wanted = [decode_subscription(self.schema, each.content) for each in interests]
        keys = []
        for each in interests:
            place = self._places.setdefault(each.recipient, len(self._places))
            keys.append(homed(each.key, place, each.side))
        if len(self._places) > len(self.recipients):
            self.recipients = np.fromiter(self._places, np.uint32, len(self._places))
        self.matcher.add_many(keys, wanted)
        for each, key in zip(interests, keys, strict=True):
            if self._keys.get(each.key, key) != key:  # it has another recipient, or side
                self.matcher.remove(self._keys[each.key])
            self._keys[each.key] = key
        self._coming = self._untidy = True

    def drop(self, key: int) -> None:
        """Match a subscription no more, if it is."""
        if (matched := self._keys.pop(key, None)) is not None:
            self.matcher.remove(matched)

    def tidy(self) -> None:
        """Called now and then: when no more subscriptions come, those there are are put in order."""
        if self._untidy and not self._coming and len(self.matcher) <= _TIDY:
            self.matcher.compact()
            self._untidy = False
        self._coming = False

    def everybody(self) -> list[int]:
        """All recipients."""
        keys = np.fromiter(self.matcher, np.int64, len(self.matcher))
        return sorted(set(self.recipients[place_of(keys)].tolist()))

    def targets(
        self, batch: EventBatch, publishers: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], int]:
        """Rows of events and whom to send them to, in order, each pair once; and how many events nobody wants."""
        found = self.matcher.match_batch(batch)
        counts = np.diff(found.offsets)
        wanted = int(np.count_nonzero(counts))
        unwanted = len(batch) - wanted
        if not wanted:
            return np.zeros(0, np.int64), np.zeros(0, np.uint32), unwanted
        single = len(found.keys) == wanted
        rows = np.flatnonzero(counts) if single else np.repeat(np.arange(len(batch)), counts)
        keys = found.keys
        to, sides = self.recipients[place_of(keys)], side_of(keys)
        if sides.any() and self.publishers:
            away = (sides == 0) | (sides != self._origins(publishers, rows))
            if not away.all():
                rows, to = rows[away], to[away]
        if single:
            return rows, to, unwanted
        pairs = np.unique(rows.astype(np.uint64) << np.uint64(32) | to.astype(np.uint64))
        return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32), unwanted

    def _origins(self, publishers: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | int:
        """The sides that the events of rows came from; usually they are of one publisher."""
        if (publishers == publishers[0]).all():
            return self.publishers.get(int(publishers[0]), 0)
        known, which = np.unique(publishers, return_inverse=True)
        return np.array([self.publishers.get(each, 0) for each in known.tolist()], np.int32)[which][rows]


def load() -> None:
    """Load compiled code now: in the middle of things it would keep everybody waiting."""
    schema = Schema("load", (Attribute("x", "int", lo=0, hi=9),))
    matcher = Matcher(schema)
    matcher.add_many(range(_LOAD), [Filter(schema, {"x": ValueSet.of(i % 10)}) for i in range(_LOAD)])
    batch = EventBatch.of(schema, {"x": [i % 10 for i in range(10)]})
    matcher.match_batch(batch)
    if (layout := layout_of(schema)) is not None and (bodies := layout.encode(batch)) is not None:
        zeros = np.zeros(len(batch), np.uint64)
        rows = Burst(0, zeros, zeros, bodies)
        rows.stamp(0, 0, np.arange(len(batch), dtype=np.uint64), 0)
        audience = Audience(schema, matcher, DuplicateWindow())
        # Bytes as they were received cannot be written to, which to a compiler is another type.
        for matrix in (rows.matrix, np.frombuffer(rows.matrix.tobytes(), np.uint8).reshape(rows.matrix.shape)):
            found = audience.targets(matrix, {}, np.zeros(1, np.uint32))
            parcels(0, 0, 0, lambda count: 0, 0, matrix, found)
