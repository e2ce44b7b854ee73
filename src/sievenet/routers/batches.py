"""Filters that enter a table together, and share what finding their places takes.

Filters come in crowds: many in one subscription, all that a neighbour tells, a batch that clients did not help with.
If f covers g, what was found for f says much about g:

    forest    f is where to begin        g goes somewhere below f: the way down to f is not walked again
    poset     Pred(f) ⊂ Pred(g)          nothing above f is an immediate predecessor of g, since f lies between
              Succ(g) ⊂ Succ(f)          nothing below g is an immediate successor of f, since g lies between

In an order in which no filter comes before one that covers it, the forest needs half of its covering tests. In the
poset all places are found before anything is changed. With A(g) and B(g) for all entries above and below g, and the
others of the batch that cover it (up) and that it covers (down),

    ImPred(g) = lowest of A(g) − ⋃ A(f), f ∈ up(g)      and the lowest of up(g) with no entry between: A(g) ∩ B(f) = ∅
    ImSucc(g) = highest of B(g) − ⋃ B(h), h ∈ down(g)   and those of the batch that g is an immediate predecessor of

where lowest and highest are set arithmetic (`Poset.immediate`) on what is left of the sets. An old link from p to s
ends if some of the batch lie between: then p is an immediate predecessor of the first of them and s an immediate
successor of the last, so for each g the links end from ImPred(g) to the immediate successors of g and of all down(g).
Levels are settled once.

That needs an index of bounds, which names A and B; if one of its candidates turns out wrong (sets with gaps), and in
posets that walk, filters enter one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from sievenet.content.filter import Filter
from sievenet.content.valueset import Cut
from sievenet.errors import InvalidInput
from sievenet.routers.bounds import Bounds
from sievenet.routers.forest import Forest, Node
from sievenet.routers.poset import Poset, Vertex

__all__ = ["Item", "Items", "enter_forest", "enter_poset"]

#: A filter, and the interface that wants it.
Item = tuple[Filter, Hashable]
Items = Sequence[Item]
Entered = Callable[[Vertex, Hashable], None] | None
#: So many are compared with each other.
_TOGETHER: Final = 16


def enter_forest(forest: Forest, items: Items) -> None:
    """Enter filters into a forest."""
    if len(items) < 2 or forest.balanced:
        # Balance asks at every step of the way down.
        for wanted, interface in items:
            forest.subscribe(wanted, interface)
        return
    placed: deque[Node] = deque(maxlen=_TOGETHER)
    for wanted, interface in _widest_first(items):
        start = None
        for node in reversed(placed):
            # Elimination may have taken it out again.
            if forest.covers(node.filter, wanted) and node.id in forest.nodes:
                start = node.id
                break
        found = forest.subscribe(wanted, interface, start)
        if found is not None:
            placed.append(found)


def _widest_first(items: Items) -> list[Item]:
    """By where they begin on one attribute: whatever covers a filter begins no later, and equal ones may be swapped."""
    name = next(iter(items[0][0].constraints), "")

    def begin(item: Item) -> Cut:
        values = item[0].constraints.get(name)
        return () if values is None or not values.cuts else values.cuts[0]

    return sorted(items, key=begin)


def enter_poset(poset: Poset, items: Items, entered: Entered = None) -> None:
    """Enter filters into a poset; ``entered`` is told of each when it is in it."""
    for wanted, _ in items:
        if wanted.empty:
            raise InvalidInput(expected="a filter that something matches", got=wanted)
    if len(items) > 1 and poset.bounds is not None:
        items = _widest_first(items)
        for first in range(0, len(items), _TOGETHER):
            _enter_few(poset, items[first : first + _TOGETHER], poset.bounds, entered)
    else:
        _enter_each(poset, items, entered)


def _enter_few(poset: Poset, items: Items, bounds: Bounds, entered: Entered) -> None:
    fresh = list(dict.fromkeys(wanted for wanted, _ in items if wanted not in poset))
    if len(fresh) > 1:
        _link(poset, _places(poset, fresh, bounds))
    _enter_each(poset, items, entered)


def _enter_each(poset: Poset, items: Items, entered: Entered) -> None:
    for wanted, interface in items:
        # Linked entries have no subscribers until their turn, so listeners do not see them yet.
        entry = poset.subscribe(wanted, interface)
        assert entry is not None
        if entered is not None:
            entered(entry, interface)


@dataclass(slots=True)
class _Place:
    """Where a filter belongs: entries of the poset, and others of the batch by their place in it."""

    wanted: Filter
    preds: set[int]
    succs: set[int]
    #: Those of the batch that cover it, those of them that do so immediately, and those that it covers.
    up: set[int]
    lowest: set[int]
    down: set[int]


def _places(poset: Poset, fresh: list[Filter], bounds: Bounds) -> list[_Place]:
    """The places of all; none if bounds lied of one of them."""
    covers = poset.covers
    up: list[set[int]] = [set() for _ in fresh]
    down: list[set[int]] = [set() for _ in fresh]
    for i, one in enumerate(fresh):
        for j, other in enumerate(fresh):
            if i != j and i not in down[j] and covers(one, other):
                up[j].add(i)
                down[i].add(j)
    above = [set(bounds.above(each)) for each in fresh]
    below = [set(bounds.below(each)) for each in fresh]
    entries, found = poset.entries, []
    for i, wanted in enumerate(fresh):
        preds, succs = poset.immediate(
            above[i].difference(*[above[j] for j in up[i]]), below[i].difference(*[below[j] for j in down[i]])
        )
        if not all(covers(entries[p].filter, wanted) for p in preds):
            return []
        if not all(covers(wanted, entries[s].filter) for s in succs):
            return []
        nearest = up[i].difference(*[up[j] for j in up[i]])
        lowest = {j for j in nearest if above[i].isdisjoint(below[j])}
        found.append(_Place(wanted, preds, succs, up[i], lowest, down[i]))
    return found


def _link(poset: Poset, places: list[_Place]) -> None:
    """Put filters where they belong, from the top down: who covers another has fewer that cover it."""
    numbers: dict[int, int] = {}
    for i in sorted(range(len(places)), key=lambda i: len(places[i].up)):
        place = places[i]
        ended = place.succs.union(*[places[j].succs for j in place.down])
        entry = poset.enter(place.wanted, place.preds | {numbers[j] for j in place.lowest}, place.succs, ended)
        numbers[i] = entry.id
    poset.settle((), new=tuple(numbers.values()))
