"""The outlook of a piece: what it and its entries would come to, if it were divided further.

Under a plan with a grain an entry has a price, and the cover with the least ``volume + grain · entries`` is looked for.
A split that saves nothing by itself may be the first step to much, and one that saves most at once may be in the way of
better ones.  So a split is judged by the best *product* that both parts could become: each axis cut into one to four
atoms, independent of the others.

    two axes, cut in 2 and 3          volume = sum of atoms · sum of atoms
    ┌──┬──┬─┐                         entries = 2 · 3
    ├──┼──┼─┤                         where some parts do better than the others, the search goes on from there:
    └──┴──┴─┘                         a product is what it could do at least

How long the atoms of an axis are, by their number, depends on the interval alone.  It is kept in a small table, for
the parts of a box have most of their sides in common.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sievenet.index.cover.kernels import bit_length, hull, start_of
from sievenet.jit import compiled, inlined

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

#: Cuts are tried at multiples of this many bits below the length of the target.
FINE = 4
#: Cuts of an axis that are looked into, and the most atoms of an axis.
CUTS, ATOMS = 3, 4
#: Intervals that are remembered.  A row of the one table has the interval and its cuts, -1 behind the last; of the
#: other the length of its atom, and then per step to more atoms: the part that is saved per entry more, the part of the
#: length that is kept, and how many times as many entries there are.  A last row is scratch.
KNOWN, PLACES, STEPS = 256, 2 + CUTS, 1 + 3 * ATOMS


@inlined
def _both(lo: int, cut: int, hi: int, gray: bool) -> int:
    """The coordinates that both parts of ``[lo, hi]`` keep; an overlap counts half."""
    left, right = hull(lo, cut - 1, gray), hull(cut, hi, gray)
    twice = max(0, start_of(lo, left, gray) + (1 << left) - start_of(cut, right, gray))
    return (1 << left) + (1 << right) - (twice >> 1)


@inlined
def _level(lo: int, hi: int, gray: bool) -> int:
    """Cuts lie at multiples of two to this power; without Gray code there is one."""
    return max(0, bit_length(hi - lo) - FINE) if gray else bit_length(lo ^ hi) - 1


@compiled
def best_cut(lo: int, hi: int, gray: bool) -> tuple[int, int]:
    """Where to cut ``[lo, hi]`` in two, and how many coordinates both parts keep."""
    if 1 << hull(lo, hi, gray) == hi - lo + 1:
        return hi, hi - lo + 1  # nothing to save
    best, best_kept = 0, 1 << 62
    level = _level(lo, hi, gray)
    cut = ((lo >> level) + 1) << level
    while cut <= hi:
        kept = _both(lo, cut, hi, gray)
        if kept < best_kept:
            best, best_kept = cut, kept
        cut += 1 << level
    return best, best_kept


@compiled
def known(places: _Ints, steps: _Floats, lo: int, hi: int, gray: bool) -> int:
    """The row of an interval."""
    at = (lo * 31 + hi * 17) % KNOWN
    if places[at, 0] == lo and places[at, 1] == hi:
        return at
    places[at, 0], places[at, 1] = lo, hi
    found, one = 0, 1 << hull(lo, hi, gray)
    if one > hi - lo + 1:
        level = _level(lo, hi, gray)
        cut = ((lo >> level) + 1) << level
        while cut <= hi:
            kept = _both(lo, cut, hi, gray)
            place = found
            while place and places[KNOWN, place - 1] > kept:
                place -= 1
            if place < CUTS:
                found = min(found + 1, CUTS)
                for i in range(found - 1, place, -1):
                    places[at, 2 + i], places[KNOWN, i] = places[at, 1 + i], places[KNOWN, i - 1]
                places[at, 2 + place], places[KNOWN, place] = cut, kept
            cut += 1 << level
    if found < CUTS:
        places[at, 2 + found] = -1
    two = three = four = one
    for i in range(found):
        cut = places[at, 2 + i]
        left, right = 1 << hull(lo, cut - 1, gray), 1 << hull(cut, hi, gray)
        left_two, right_two = min(left, best_cut(lo, cut - 1, gray)[1]), min(right, best_cut(cut, hi, gray)[1])
        two = min(two, places[KNOWN, i])
        three = min(three, left_two + right, left + right_two)
        four = min(four, left_two + right_two)
    _note(steps, at, float(one), float(two), float(min(two, three)), float(min(two, three, four)))
    return at


@inlined
def _note(steps: _Floats, at: int, one: float, two: float, three: float, four: float) -> None:
    steps[at, 0] = steps[KNOWN, 0] = one
    steps[KNOWN, 1], steps[KNOWN, 2], steps[KNOWN, 3] = two, three, four
    have, to = 0, 1
    while True:
        saved, more = 0.0, 0
        for step in range(1, min(3, ATOMS - have)):
            each = (1.0 - steps[KNOWN, have + step] / steps[KNOWN, have]) * (have + 1) / step
            if each > saved:
                saved, more = each, step
        steps[at, to] = saved
        if not more:
            break
        steps[at, to + 1] = steps[KNOWN, have + more] / steps[KNOWN, have]
        steps[at, to + 2] = (have + 1 + more) / (have + 1)
        have, to = have + more, to + 3


@compiled
def outlook(steps: _Floats, at: _Ints, scale: float, grain: float) -> float:
    """The least volume and price of a product: the steps of each axis, ``scale`` is the share of one coordinate."""
    axes = at.size
    volume, count = scale, 1.0
    for d in range(axes):
        volume *= steps[d, 0]
        at[d] = 1
    best: float = volume + grain
    while True:
        saved, axis = 0.0, -1
        for d in range(axes):
            if steps[d, at[d]] > saved:
                saved, axis = steps[d, at[d]], d
        if axis < 0:
            return best
        to = at[axis]
        volume *= steps[axis, to + 1]
        count *= steps[axis, to + 2]
        at[axis] = to + 3
        best = min(best, volume + grain * count)
        if grain * count >= best:
            return best


@compiled
def priced(
    lo: _Ints, hi: _Ints, bits: _Ints, gray: bool, share: float, grain: float, places: _Ints, steps: _Floats
) -> tuple[float, int, int]:
    """The best split of a piece with one box in it: what it saves, by the outlook of its parts; its axis and cut.

    It is worth its price if it saves more than the grain.
    """
    axes = lo.size
    volume, wanted, scale = share, share, share
    for d in range(axes):
        one = 1.0 / (1 << bits[d])
        scale *= one
        volume *= (1 << hull(lo[d], hi[d], gray)) * one
        wanted *= (hi[d] - lo[d] + 1) * one
    if volume - wanted <= grain:
        return -1.0, -1, 0  # no split can be worth it
    # Of each axis, for the table may forget any row for another.
    mine, cuts, at = np.empty((axes + 1, STEPS)), np.empty((axes, CUTS), np.int64), np.empty(axes, np.int64)
    for d in range(axes):
        row = known(places, steps, lo[d], hi[d], gray)
        mine[d, :] = steps[row]
        cuts[d, :] = places[row, 2:]
    best, axis, where = volume + grain, -1, 0
    for d in range(axes):
        mine[axes, :] = mine[d]
        for cut in cuts[d]:
            if cut < 0:
                break
            both = 0.0
            for side in range(2):
                first, last = (lo[d], cut - 1) if side == 0 else (cut, hi[d])
                mine[d, :] = steps[known(places, steps, first, last, gray)]
                both += outlook(mine, at, scale, grain)
                if both + (1 - side) * grain >= best:
                    break
            else:
                best, axis, where = both, d, cut
        mine[d, :] = mine[axes]
    return volume + 2 * grain - best, axis, where
