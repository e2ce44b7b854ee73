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

from sievenet.matcher import kernels as k
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
    def cuts(self) -> Sequence[Sequence[Any]]:
        """The cuts of each ranked attribute; none for others."""


class Pending:
    """A growing store without structure."""

    def __init__(self, attributes: int) -> None:
        self._buffer: Ints = np.empty(1024, np.int64)
        self._size = 0
        self._view: Level | None = None
        #: Numbers of the cuts of each ranked attribute, in order of first use.
        self.numbers: list[Intern] = [{} for _ in range(attributes)]
        #: Records that live, and all there are.
        self.live = self.built = 0

    @property
    def words(self) -> Ints:
        """The records so far."""
        return self._buffer[: self._size]

    @property
    def cuts(self) -> list[list[Any]]:
        """The cuts by number."""
        return [list(each) for each in self.numbers]

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return self._buffer.nbytes

    def append(self, words: list[int], records: int) -> int:
        """Add whole records; the place of the first."""
        at, end = self._size, self._size + len(words)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), np.int64)
            grown[:at] = self._buffer[:at]
            self._buffer = grown
        self._buffer[at:end] = words
        self._size = end
        self.live += records
        self.built += records
        self._view = None
        return at

    def changed(self) -> None:
        """Forget what was derived from the records."""
        self._view = None

    def level(self, attributes: int) -> Level:
        """The same records as a level without structure, kept until something changes."""
        if self._view is None:
            if any(self.numbers):
                words, _, cuts = merged([self], attributes)
                self._view = unbuilt(words, cuts, attributes, self.live)
            else:
                self._view = unbuilt(self.words, [[]] * attributes, attributes, self.live)
        return self._view


def merged(stores: Sequence[Store], attributes: int) -> tuple[Ints, Ints, list[list[Any]]]:
    """The live records of several stores in one array, their places, and the sorted cuts they use."""
    sizes = [k.live_size(store.words) for store in stores]
    words = np.empty(sum(size for _, size in sizes), np.int64)
    places = np.empty(sum(count for count, _ in sizes), np.int64)
    ends = [0]
    row = 0
    for store in stores:
        end, row = k.copy_live(store.words, words, ends[-1], places, row)
        ends.append(end)
    cuts: list[list[Any]] = [[] for _ in range(attributes)]
    every = [store.cuts for store in stores]
    if any(any(each) for each in every):
        _unite(stores, every, cuts, words, ends)
    return words, places, cuts


def _unite(
    stores: Sequence[Store],
    every: Sequence[Sequence[Sequence[Any]]],
    cuts: list[list[Any]],
    words: Ints,
    ends: list[int],
) -> None:
    """Sort the cuts in use into `cuts` and translate the records to ranks among them."""
    united: list[set[Any]] = [set() for _ in cuts]
    bases = []
    for store, theirs in zip(stores, every, strict=True):
        sizes = [len(each) for each in theirs] + [0] * (len(cuts) - len(theirs))
        base = np.cumsum([0, *sizes])[:-1]
        base[np.array(sizes) == 0] = -1
        used = np.zeros(sum(sizes), np.bool_)
        k.mark_used(store.words, base, used)
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
        k.translate(words[ends[i] : ends[i + 1]], 0, bases[i], np.array(ranks, np.int64))


def merge(stores: Sequence[Store], attributes: int) -> Level:
    """One level of everything that lives in several stores."""
    words, places, cuts = merged(stores, attributes)
    return build(words, places, cuts, attributes)
