"""Where a filter belongs in a poset: its immediate predecessors and successors, found with few covering tests.

**By an index of bounds** (`find_up`, `find_down`). The index names all that can be related to f, and a few more:

    candidates above f     . . . .          most need no test: whatever is above an entry that covers f covers f
                            \\|/ \\|
    the lowest of them       m   m'         so these are tested; if all cover f, they are its immediate predecessors
                              \\ /
                               f

The lowest candidates follow by set arithmetic. Bounds lie only for sets with gaps; then one of the tests fails, and
candidates are looked at one by one, from the deepest up: who has one that covers f below it is not tested. Likewise
downwards. So as many tests are made as f has immediate relations, and a few more.

**By walking** (`walk_up`, `walk_down`), as Siena and its kin do, for tables without an index. Predecessors: down from
the roots, only through entries that cover f. Successors of f are below *each* of its predecessors, so the search walks
what is below the one with the fewest; and an entry that does not even overlap f has nothing below it that f covers
(``prune=False`` does not use it).

``known`` tells, of some entries, whether they cover f, or f covers them: what is known is not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sievenet.content.filter import Filter
from sievenet.routers.bounds import Bounds

if TYPE_CHECKING:
    from sievenet.routers.poset import Poset, Vertex

__all__ = ["find_down", "find_up", "walk_down", "walk_up"]

_Test = Callable[["Vertex"], bool]
_Links = Callable[["Vertex"], set[int]]
_level: Final = attrgetter("level")
_preds: Final[_Links] = attrgetter("preds")
_succs: Final[_Links] = attrgetter("succs")


def _covering(poset: Poset, wanted: Filter, known: Mapping[int, bool]) -> _Test:
    """Whether an entry covers the filter."""
    covers = poset.covers
    if not known:
        return lambda entry: covers(entry.filter, wanted)
    return lambda entry: covers(entry.filter, wanted) if (said := known.get(entry.id)) is None else said


def _covered(poset: Poset, wanted: Filter, known: Mapping[int, bool]) -> _Test:
    """Whether the filter covers an entry."""
    covers = poset.covers
    if not known:
        return lambda entry: covers(wanted, entry.filter)
    return lambda entry: covers(wanted, entry.filter) if (said := known.get(entry.id)) is None else said


def find_up(poset: Poset, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
    """The immediate predecessors among those whose bounds enclose the filter's."""
    return _nearest(poset, bounds.above(wanted), _covering(poset, wanted, known), _preds, _succs)


def find_down(poset: Poset, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
    """The immediate successors among those whose bounds the filter's enclose."""
    return _nearest(poset, bounds.below(wanted), _covered(poset, wanted, known), _succs, _preds)


def _nearest(poset: Poset, candidates: list[int], test: _Test, away: _Links, back: _Links) -> set[int]:
    """Those candidates that pass and have no other behind them that does; links lead away from the filter and back."""
    entries, near = poset.entries, set(candidates)
    nearest = near.difference(*map(away, map(entries.__getitem__, near)))
    sure = {number for number in nearest if test(entries[number])}
    if len(sure) == len(nearest):
        return nearest
    held: set[int] = set()
    immediate: set[int] = set()
    # From the nearest to those far away.
    for entry in sorted([entries[number] for number in near], key=_level, reverse=away is _preds):
        if not held.isdisjoint(back(entry)):
            held.add(entry.id)
        elif entry.id in sure or (entry.id not in nearest and test(entry)):
            held.add(entry.id)
            immediate.add(entry.id)
    return immediate


def walk_up(poset: Poset, wanted: Filter, known: Mapping[int, bool]) -> set[int]:
    """The immediate predecessors, from the roots down."""
    entries, test = poset.entries, _covering(poset, wanted, known)
    seen = set(poset.roots)
    waiting = list(seen)
    covering: list[int] = []
    while waiting:
        number = waiting.pop()
        entry = entries[number]
        if test(entry):
            covering.append(number)
            fresh = entry.succs - seen
            seen |= fresh
            waiting += fresh
    held = set(covering)
    return {number for number in covering if entries[number].succs.isdisjoint(held)}


def walk_down(poset: Poset, wanted: Filter, preds: set[int], known: Mapping[int, bool]) -> set[int]:
    """The immediate successors, from below the predecessors down."""
    entries, test = poset.entries, _covered(poset, wanted, known)
    if preds:
        start: Iterable[int] = entries[min(preds, key=lambda p: len(entries[p].succs))].succs
    else:
        start = poset.roots
    seen = set(start)
    waiting = list(seen)
    covered = dict.fromkeys(preds, False)
    found: list[int] = []
    while waiting:
        number = waiting.pop()
        entry = entries[number]
        covered[number] = test(entry)
        if covered[number]:
            found.append(number)
        elif not poset.prune or wanted.overlaps(entry.filter):
            fresh = entry.succs - seen
            seen |= fresh
            waiting += fresh
    # Reached past an entry that is not covered, one can still lie below another that is.
    kept = set()
    for number in found:
        for pred in entries[number].preds:
            if pred not in covered:
                covered[pred] = test(entries[pred])
            if covered[pred]:
                break
        else:
            kept.add(number)
    return kept
