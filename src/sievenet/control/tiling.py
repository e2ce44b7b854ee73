"""Tilings: which dz the partitions of an event space are, and where the keys of requests lie.

Partitions are equal, dz of one length, or the *tiles* of the plan (`ControlConfig.tiling`): there are more of them
where more is registered, so that each has about as much to do.

    equal      000 001 010 011 100 101 110 111
    balanced   0──────────────────────────10────────110──────1110 11110 11111     most of what there is lies in 111

A plan that is applied gets its tiles by what is registered then, and keeps them in the journal: tables depend on them,
since a dz that is larger than a tile becomes all tiles inside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from sievenet.control.config import ControlConfig
from sievenet.index import Plan
from sievenet.index.tiles import MAX_TILE

__all__ = ["Parts", "Tiling", "balanced"]

Parts = list[tuple[int, Sequence[int]]]


class Tiling:
    """Partitions, in the order of the space.

    >>> tiling = Tiling([0b10, 0b110, 0b111])
    >>> tiling.split([0b1011, 0b11, 0b1101])
    [(0, [11]), (1, [6, 13]), (2, [7])]
    """

    def __init__(self, tiles: Sequence[int]) -> None:
        #: Their keys.
        self.tiles = tuple(tiles)
        self._width = max(tile.bit_length() for tile in tiles)
        self._first = 1 << self._width - 1
        #: Whose each dz is, of those as short as the shortest can be without being larger than a tile.
        self._whose = [i for i, tile in enumerate(tiles) for _ in range(1 << self._width - tile.bit_length())]

    @classmethod
    def of(cls, config: ControlConfig, plan: Plan) -> Tiling:
        """Those of a plan, if the settings say so and it has some that trees can be shared out among."""
        fine = all(tile >= config.spread for tile in plan.tiles)
        return cls(plan.tiles) if config.tiling == "balanced" and plan.tiles and fine else cls.equal(config.partitions)

    @classmethod
    def equal(cls, count: int) -> Tiling:
        """So many of one length, a power of two."""
        return cls(range(count, 2 * count))

    def split(self, keys: Sequence[int]) -> Parts:
        """Keys by partition; one that is larger than a partition becomes all partitions inside it."""
        if len(self.tiles) == 1:
            return [(0, keys)] if keys else []
        found: dict[int, list[int]] = {}
        width, whose, first = self._width, self._whose, self._first
        for key in keys:
            gap = key.bit_length() - width
            if gap >= 0:
                i = whose[(key >> gap) - first]
            else:
                start = (key << -gap) - first
                i, last = whose[start], whose[start + (1 << -gap) - 1]
                if i != last:
                    for each in range(i, last + 1):
                        found.setdefault(each, []).append(self.tiles[each])
                    continue
            if i in found:
                found[i].append(key)
            else:
                found[i] = [key]
        return list(found.items())


def balanced(keys: Iterable[int], count: int, fewest: int = 1) -> tuple[int, ...]:
    """So many tiles with about as many keys inside each: the one with most is halved, again and again.

    Both numbers are powers of two; no tile is larger than one of the `fewest` equal ones.

    >>> [f"{tile:b}"[1:] for tile in balanced([0b11111, 0b111111, 0b111011, 0b1110, 0b10], 4)]
    ['0', '10', '110', '111']
    """
    rows = sorted((_place(key), key.bit_length()) for key in keys)
    places, widths = np.array(rows, np.int64).reshape(-1, 2).T

    def halvable(tile: int) -> tuple[int, int]:
        """Less than others, if more keys lie in one half of it; one that is no smaller lies in both halves."""
        size = 1 << MAX_TILE + 1 - tile.bit_length()
        start, end = np.searchsorted(places, (_place(tile), _place(tile) + size))
        return -int((widths[start:end] > tile.bit_length()).sum()), tile

    heap, smallest = [halvable(tile) for tile in range(fewest, 2 * fewest)], list[int]()
    heapq.heapify(heap)
    while heap and len(heap) + len(smallest) < count:
        tile = heapq.heappop(heap)[1]
        if tile >> MAX_TILE:
            smallest.append(tile)
        else:
            heapq.heappush(heap, halvable(2 * tile))
            heapq.heappush(heap, halvable(2 * tile + 1))
    return tuple(sorted((*smallest, *(tile for _, tile in heap)), key=_place))


def _place(key: int) -> int:
    """The smallest tile that a dz begins in."""
    gap = key.bit_length() - 1 - MAX_TILE
    return key >> gap if gap > 0 else key << -gap
