"""Many packets through a matcher at once: whom to send them to.

Nothing is done per packet in Python. A few kernels, each over all rows:

    packets that came ─▶ which source ─▶ new? ─▶ keys of the event ─▶ match ─▶ row and recipient, each pair once
    rows of bytes        `sources`       `note`   `matcher.decoder`            `choose`

`client.parcel` makes packets of them, as rows of bytes again. What does not come in bulk goes packet by packet
(`client.matcher`), with the same outcome.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.client.parcel import INCARNATION, PUBLISHER, SEQUENCE, Targets, load_big
from sievenet.content.layout import Bytes
from sievenet.content.schema import Schema
from sievenet.dataplane.packet import PACKET_HEADER
from sievenet.jit import compiled
from sievenet.matcher import Matcher
from sievenet.matcher.decoder import Decoder
from sievenet.matcher.records import Array
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Audience"]

#: Sources that are told apart at a time.
_SOURCES: Final = 64


@compiled
def sources(rows: Array, start: int, known: Array, which: Array) -> tuple[int, int]:
    """Of which source (a row of ``known``) each packet is, from ``start`` on; how many there are, and where it ended.

    It ends early where there is no room for another source.
    """
    count = 0
    s = 0
    for i in range(start, len(rows)):
        publisher, incarnation = load_big(rows, i, PUBLISHER), load_big(rows, i, INCARNATION)
        # Usually the one before.
        if count == 0 or known[s, 0] != publisher or known[s, 1] != incarnation:
            s = 0
            while s < count and (known[s, 0] != publisher or known[s, 1] != incarnation):
                s += 1
            if s == count:
                if count == len(known):
                    return count, i
                known[s, 0], known[s, 1] = publisher, incarnation
                count += 1
        which[i] = s
    return count, len(rows)


@compiled
def note(
    rows: Array, start: int, end: int, which: Array, s: int, side: int, ring: Array, fresh: Array, origins: Array
) -> tuple[int, int]:
    """Which packets of a source are new, as `DuplicateWindow.fresh` says one by one; how many came again, and late."""
    again = late = 0
    span = np.uint64(len(ring))
    for i in range(start, end):
        if which[i] == s:
            number = load_big(rows, i, SEQUENCE)
            slot = np.int64(number % span)
            found = ring[slot]
            fresh[i] = found <= number
            origins[i] = side
            if found <= number:
                ring[slot] = number + np.uint64(1)
            elif found == number + np.uint64(1):
                again += 1
            else:
                late += 1
    return again, late


@compiled
def choose(
    kept: Array,
    origins: Array,
    offsets: Array,
    keys: Array,
    places: Array,
    sides: Array,
    last: Array,
    rows: Array,
    to: Array,
) -> tuple[int, int]:
    """Rows and places of recipients, each pair once; how many pairs, and how many events nobody wants.

    A recipient on the side that an event came from is left out. ``last`` is scratch: a number for each place.
    """
    count = unwanted = 0
    last[:] = -1
    for e in range(len(kept)):
        i = kept[e]
        unwanted += 1 if offsets[e] == offsets[e + 1] else 0
        for k in range(offsets[e], offsets[e + 1]):
            place, side = places[keys[k]], sides[keys[k]]
            if last[place] == e or (side != 0 and side == origins[i]):
                continue
            last[place] = e
            rows[count], to[count] = i, place
            count += 1
    return count, unwanted


class Audience:
    """Who gets packets of one category: what a matcher knows of duplicates, subscriptions and sides."""

    def __init__(self, schema: Schema, matcher: Matcher, window: DuplicateWindow) -> None:
        self._matcher, self._window = matcher, window
        self._decoder = Decoder(schema)
        self._known = np.zeros((_SOURCES, 2), np.uint64)
        self._which, self._fresh = np.empty(0, np.int64), np.empty(0, np.bool_)
        self._origins, self._kept = np.empty(0, np.int32), np.empty(0, np.int64)
        self._xs = np.empty((0, 0), np.int64)
        self._last = np.empty(0, np.int64)

    def takes(self, rows: Bytes) -> bool:
        """Whether packets of this width are events that can be read here."""
        return self.reads(rows.shape[1] - PACKET_HEADER)

    def reads(self, size: int) -> bool:
        """Whether events of so many bytes can be read here."""
        return self._decoder.possible and size == self._decoder.size

    def targets(
        self,
        rows: Bytes,
        publishers: dict[int, int],
        numbers: npt.NDArray[np.uint32],
        places: npt.NDArray[np.int64],
        sides: npt.NDArray[np.int32],
    ) -> Targets:
        """Whom to send packets to that came.

        ``publishers`` are the sides of publishers, by number; ``places`` and ``sides`` those of subscriptions, by key;
        ``numbers`` the recipients, by place.
        """
        self._fit(len(rows))
        start = 0
        while start < len(rows):
            start = self._note(rows, start, publishers)
        fresh = self._fresh[: len(rows)]
        sound = self._decoder.read(rows, PACKET_HEADER, fresh, self._xs, self._kept)
        malformed = int(np.count_nonzero(fresh)) - sound
        found = self._matcher.match_keys(self._xs, sound)
        if len(self._last) < len(numbers):
            self._last = np.empty(len(numbers), np.int64)
        which, to = np.empty(len(found.keys), np.int64), np.empty(len(found.keys), np.int64)
        count, unwanted = choose(
            self._kept[:sound], self._origins, found.offsets, found.keys, places, sides, self._last, which, to
        )
        return Targets(which[:count], to[:count], numbers, unwanted, malformed)

    def _note(self, rows: Bytes, start: int, publishers: dict[int, int]) -> int:
        """Note from a row on which packets are new, as far as there is room for their sources; where that ends."""
        count, end = sources(rows, start, self._known, self._which)
        for s in range(count):
            source = (int(self._known[s, 0]), int(self._known[s, 1]))
            side, ring = publishers.get(source[0], 0), self._window.ring(source)
            again, late = note(rows, start, end, self._which, s, side, ring, self._fresh, self._origins)
            self._window.count(again, late)
        return end

    def _fit(self, count: int) -> None:
        if len(self._which) < count:
            self._which, self._fresh = np.empty(count, np.int64), np.empty(count, np.bool_)
            self._origins, self._kept = np.empty(count, np.int32), np.empty(count, np.int64)
            self._xs = np.empty((count, self._decoder.attributes), np.int64)
