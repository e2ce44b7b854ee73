"""Arrays that matching works in, kept between calls: for a single event, and for many together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.matcher import scan
from sievenet.matcher.level import Level
from sievenet.matcher.reader import Reader

__all__ = ["Room", "Scratch"]

Ints = npt.NDArray[np.int64]


class Room:
    """Arrays for matching many events together."""

    def __init__(self) -> None:
        self.buckets = np.zeros((0, 0), np.uint8)
        #: Matches in any order: event and key.
        self.events, self.keys = np.empty(0, np.int32), np.empty(0, np.int64)
        #: By event: where its keys begin, and all keys, of which so many are found.
        self.starts, self.out = np.empty(0, np.int64), np.empty(0, np.int64)
        self.kept = 0

    def fit(self, events: int, attributes: int) -> None:
        """Make room for so many events."""
        if len(self.buckets) < events or self.buckets.shape[1] != attributes:
            self.buckets = np.zeros((events, attributes), np.uint8)
            self.events, self.keys = np.empty(32 * events, np.int32), np.empty(32 * events, np.int64)
            self.starts, self.out = np.empty(events + 1, np.int64), np.empty(32 * events, np.int64)

    def empty(self, events: int) -> None:
        """There are no matches."""
        self.starts[: events + 1], self.kept = 0, 0

    def found(self, xs: Ints, events: int, level: Level, count: int) -> int:
        """Add the matches among a level's filters; how many there are with those before."""
        while True:
            matches = self.events, self.keys, count, self.starts, self.out
            found, self.kept = scan.match_level(  # type: ignore[call-arg]
                xs, self.buckets, events, level.edges, *level.arrays, *matches
            )
            if found <= len(self.keys):
                return int(found)
            self.events = np.concatenate((self.events, np.empty(2 * found - len(self.events), np.int32)))
            self.keys = np.concatenate((self.keys, np.empty(2 * found - len(self.keys), np.int64)))
            self.out = np.empty(len(self.keys), np.int64)


class Scratch:
    """Arrays for matching a single event, kept between calls."""

    def __init__(self) -> None:
        self.attributes = -1
        self.found = np.empty(256, np.int32), np.empty(256, np.int64)

    def fit(self, reader: Reader) -> None:
        """Make room for the attributes there are."""
        self.attributes = n = reader.attributes
        raw = np.zeros(n, np.int64)
        self.raw = memoryview(raw.data).cast("B").cast("q")
        #: What `match_one` takes first: packed values, which are doubles, keys, buckets.
        self.one = raw, reader.floats, np.zeros((1, n), np.int64), np.zeros((1, n), np.uint8)

    def grow(self, found: int) -> None:
        """Make room for so many matches, keeping those found."""
        events, keys = self.found
        self.found = np.resize(events, 2 * found), np.resize(keys, 2 * found)
