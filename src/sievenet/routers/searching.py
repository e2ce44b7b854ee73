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

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sievenet.content.filter import Filter
from sievenet.routers.bounds import Bounds

if TYPE_CHECKING:
    from sievenet.routers.poset import Poset

__all__ = ["find_down", "find_up", "walk_down", "walk_up"]

_level: Final = attrgetter("level")


def find_up(poset: Poset, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
    """The immediate predecessors among those whose bounds enclose the filter's."""
    entries = poset.entries
    near = set(bounds.above(wanted))
    lowest = near.difference(*[entries[n].preds for n in near])
    sure = {n for n in lowest if _covers(poset, known, n, entries[n].filter, wanted)}
    if len(sure) == len(lowest):
        return lowest
    held: set[int] = set()
    immediate: set[int] = set()
    for entry in sorted([entries[n] for n in near], key=_level, reverse=True):
        if not held.isdisjoint(entry.succs):
            held.add(entry.id)
        elif entry.id in sure or (entry.id not in lowest and _covers(poset, known, entry.id, entry.filter, wanted)):
            held.add(entry.id)
            immediate.add(entry.id)
    return immediate


def find_down(poset: Poset, wanted: Filter, bounds: Bounds, known: Mapping[int, bool]) -> set[int]:
    """The immediate successors among those whose bounds the filter's enclose."""
    entries = poset.entries
    near = set(bounds.below(wanted))
    highest = near.difference(*[entries[n].succs for n in near])
    sure = {n for n in highest if _covers(poset, known, n, wanted, entries[n].filter)}
    if len(sure) == len(highest):
        return highest
    held: set[int] = set()
    immediate: set[int] = set()
    for entry in sorted([entries[n] for n in near], key=_level):
        if not held.isdisjoint(entry.preds):
            held.add(entry.id)
        elif entry.id in sure or (entry.id not in highest and _covers(poset, known, entry.id, wanted, entry.filter)):
            held.add(entry.id)
            immediate.add(entry.id)
    return immediate


def _covers(poset: Poset, known: Mapping[int, bool], number: int, one: Filter, other: Filter) -> bool:
    found = known.get(number)
    return poset.covers(one, other) if found is None else found


def walk_up(poset: Poset, wanted: Filter, known: Mapping[int, bool]) -> set[int]:
    """The immediate predecessors, from the roots down."""
    entries = poset.entries
    seen = set(poset.roots)
    waiting = list(seen)
    covering: list[int] = []
    while waiting:
        number = waiting.pop()
        entry = entries[number]
        inside = known.get(number)
        if inside is None:
            inside = poset.covers(entry.filter, wanted)
        if inside:
            covering.append(number)
            fresh = entry.succs - seen
            seen |= fresh
            waiting += fresh
    held = set(covering)
    return {number for number in covering if entries[number].succs.isdisjoint(held)}


def walk_down(poset: Poset, wanted: Filter, preds: set[int], known: Mapping[int, bool]) -> set[int]:
    """The immediate successors, from below the predecessors down."""
    entries = poset.entries
    if preds:
        start: Iterable[int] = entries[min(preds, key=lambda p: len(entries[p].succs))].succs
    else:
        start = poset.roots
    seen = set(start)
    waiting = list(seen)
    covered: dict[int, bool] = {}
    found: list[int] = []
    while waiting:
        number = waiting.pop()
        entry = entries[number]
        inside = known.get(number)
        if inside is None:
            inside = poset.covers(wanted, entry.filter)
        covered[number] = inside
        if inside:
            found.append(number)
        elif not poset.prune or wanted.overlaps(entry.filter):
            fresh = entry.succs - seen
            seen |= fresh
            waiting += fresh
    # Reached past an entry that is not covered, one can still lie below another that is.
    kept = set()
    for number in found:
        for pred in entries[number].preds:
            inside = covered.get(pred, known.get(pred))
            if inside is None:
                inside = pred not in preds and poset.covers(wanted, entries[pred].filter)
                covered[pred] = inside
            if inside:
                break
        else:
            kept.add(number)
    return kept
