"""What was added last, and the merging of stores.

New filters are appended to a `Pending` store: records in the order they came, with cuts of ranked attributes by number
of first use.  Matching walks over them, until there are too many: then they are merged with the smaller levels into a
new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sievenet.matcher import records
from sievenet.matcher.level import Level, build, unbuilt
from sievenet.matcher.lines import Intern

__all__ = ["Pending", "Store", "merged"]

Ints = npt.NDArray[np.int64]


class Store(Protocol):
    """Records, and the cuts that their ranks or numbers stand for."""

    @property
    def words(self) -> Ints:
        """The records."""

    @property
    def alive(self) -> npt.NDArray[np.uint8]:
        """Which of them live, by number."""

    @property
    def cuts(self) -> Sequence[Sequence[Any]]:
        """The cuts of each ranked attribute; none for others."""


class Pending:
    """A growing store without structure."""

    def __init__(self, attributes: int) -> None:
        self._buffer: Ints = np.empty(0, np.int64)
        #: Words behind those of the buffer; a list grows faster than an array.
        self._fresh: list[int] = []
        self._gone: list[int] = []
        self._view: Level | None = None
        #: Numbers of the cuts of each ranked attribute, in order of first use.
        self.numbers: list[Intern] = [{} for _ in range(attributes)]
        #: Records that live, and all there are.
        self.live = self.built = 0

    @property
    def words(self) -> Ints:
        """The records so far."""
        if self._fresh:
            self._buffer = np.concatenate((self._buffer, np.array(self._fresh, np.int64)))
            self._fresh.clear()
        return self._buffer

    @property
    def alive(self) -> npt.NDArray[np.uint8]:
        """Which of them live."""
        alive = np.ones(self.built, np.uint8)
        alive[self._gone] = 0
        return alive

    @property
    def cuts(self) -> list[list[Any]]:
        """The cuts by number."""
        return [list(each) for each in self.numbers]

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return self.words.nbytes

    def append(self, words: list[int], records: int) -> int:
        """Add whole records; the number of the first."""
        first = self.built
        self._fresh += words
        self.live += records
        self.built += records
        self._view = None
        return first

    def kill(self, number: int) -> None:
        """Remove a record."""
        self._gone.append(number)
        self.live -= 1
        self._view = None

    def level(self, attributes: int) -> Level:
        """The live records as a level without structure, kept until something changes."""
        if self._view is None:
            words, places, cuts = merged([self], attributes)
            self._view = unbuilt(words, np.ones(len(places), np.uint8), cuts, attributes)
        return self._view


def merged(stores: Sequence[Store], attributes: int) -> tuple[Ints, Ints, list[list[Any]]]:
    """The live records of several stores in one array, their places, and the sorted cuts they use."""
    alive = [store.alive for store in stores]
    sizes = [records.live_size(store.words, flags) for store, flags in zip(stores, alive, strict=True)]
    words = np.empty(sum(size for _, size in sizes), np.int64)
    places = np.empty(sum(count for count, _ in sizes), np.int64)
    ends = [0]
    row = 0
    for store, flags in zip(stores, alive, strict=True):
        end, row = records.copy_live(store.words, flags, words, ends[-1], places, row)
        ends.append(end)
    cuts: list[list[Any]] = [[] for _ in range(attributes)]
    every = [store.cuts for store in stores]
    if any(any(each) for each in every):
        _unite(every, cuts, words, ends)
    return words, places, cuts


def _unite(
    every: Sequence[Sequence[Sequence[Any]]],
    cuts: list[list[Any]],
    words: Ints,
    ends: list[int],
) -> None:
    """Sort the cuts in use into `cuts` and translate the records to ranks among them."""
    united: list[set[Any]] = [set() for _ in cuts]
    bases = []
    for i, theirs in enumerate(every):
        sizes = [len(each) for each in theirs] + [0] * (len(cuts) - len(theirs))
        base = np.cumsum([0, *sizes])[:-1]
        base[np.array(sizes) == 0] = -1
        used = np.zeros(sum(sizes), np.bool_)
        records.mark_used(words[ends[i] : ends[i + 1]], base, used)
        flags = used.tolist()
        for attr, each in enumerate(theirs):
            if each:
                united[attr].update(compress(each, flags[base[attr] : base[attr] + len(each)]))
        bases.append(base)
    places: list[Intern] = []
    for attr, wanted in enumerate(united):
        cuts[attr] = sorted(wanted)
        places.append({cut: i for i, cut in enumerate(cuts[attr])})
    for i, theirs in enumerate(every):
        # Cuts that no live record uses get any rank: nothing refers to it.
        ranks = [places[attr].get(cut, 0) for attr, each in enumerate(theirs) for cut in each]
        records.translate(words[ends[i] : ends[i + 1]], bases[i], np.array(ranks, np.int64))


def merge(stores: Sequence[Store], attributes: int) -> Level:
    """One level of everything that lives in several stores."""
    words, places, cuts = merged(stores, attributes)
    return build(words, places, cuts, attributes)
