"""`Matches`: which keys each event of a batch matched, as flat arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LevelStatistics", "Matches", "Statistics"]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Event i matched ``keys[offsets[i]:offsets[i + 1]]``, ascending, each key once."""

    offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> npt.NDArray[np.int64]:
        """The keys that event i matched."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"expected an event from 0 to {len(self) - 1}, got {i}")
        i %= len(self)
        return self.keys[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return (self[i] for i in range(len(self)))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many keys each event matched."""
        return np.diff(self.offsets)

    @property
    def events(self) -> npt.NDArray[np.int64]:
        """The event of each of `keys`: with them, the matches as pairs."""
        return np.repeat(np.arange(len(self)), self.counts)


@dataclass(frozen=True, slots=True)
class LevelStatistics:
    """One level: its records, how they are filed, what it takes."""

    filters: int
    removed: int
    blocks: int
    #: Blocks that every event visits.
    unclustered: int
    #: Filled slots: one per filter and copy.
    slots: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a matcher holds."""

    subscriptions: int
    filters: int
    #: Filters added since the last merge.
    pending: int
    #: Everything: records, structure, cuts and the dictionary of keys.
    bytes: int
    levels: tuple[LevelStatistics, ...]
