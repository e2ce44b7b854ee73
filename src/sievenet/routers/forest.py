"""The poset-derived forest: each filter below at most one that covers it.

    x < 100                 y > 3, x < 80          two trees; the roots are the root set
     ├── x < 50             (its other place, below x < 100, is not kept: one parent each)
     └── 60 < x < 90

It keeps a part of the covering relation only, and is cheap to change: adding asks the children of one path. Held at all
times:

* a parent covers its children, and a node has at most one parent;
* *sibling-purity*: no two children of a node are related, nor two roots, so a filter sits as deep as its path allows;
* hence *maximality*: the roots are exactly the filters that no other covers, known at all times.

Nodes carry the interfaces that subscribed. Each node also counts the interfaces below it (`below`), which serves two
ends: *balance*, filters of one interface gather in one subtree, and *elimination*. Elimination drops an interface from
filters that another filter of the same interface covers: ``"none"``, ``"path"`` (what adding meets on its way, as in
the multi-interface forest) or ``"all"`` (non-redundant; the search goes where the counts and overlaps allow only).

What covers a filter lies on paths of covering nodes; so with all predecessors and successors given (`attach`), a place
is found by set arithmetic alone, as in the poset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.routers.bounds import Bounds

__all__ = ["Elimination", "Forest", "Node"]

Elimination = Literal["none", "path", "all"]
#: Told that a node moved: its number, the level it had, the level it has; ``None`` for not in the forest.
OnLevel = Callable[[int, int | None, int | None], None]
#: Covering tests that take as long as asking an index, at most.
_LONG: Final = 512


@dataclass(slots=True, eq=False)
class Node:
    """One filter of the forest."""

    id: int
    filter: Filter
    parent: int | None = None
    children: set[int] = field(default_factory=set)
    #: Interfaces that subscribed with exactly this filter; in insertion order.
    subscribers: dict[Hashable, None] = field(default_factory=dict)
    #: How often each interface occurs in this subtree, this node included.
    below: Counter[Hashable] = field(default_factory=Counter)
    level: int = 0


class Forest:
    """Filters of one schema (or of none) in trees."""

    def __init__(
        self,
        *,
        balanced: bool = False,
        eliminate: Elimination = "none",
        on_level: OnLevel | None = None,
        index: bool = True,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self._numbers: dict[Filter, int] = {}
        self._roots: set[int] = set()
        self._next = 0
        self.bounds = Bounds() if index else None
        #: Children that are rather compared one by one, in a small table.
        self.few = 64
        #: Whether filters of one interface gather.
        self.balanced = balanced
        self._eliminate = eliminate
        #: Told of every change of a level.
        self.on_level = on_level
        #: Covering tests, and nodes whose level changed, since the beginning.
        self.tests = 0
        self.moves = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, wanted: object) -> bool:
        return wanted in self._numbers

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def watch(self, on_level: OnLevel | None) -> None:
        """Tell of every change of a level, beginning with what is there."""
        self.on_level = on_level
        if on_level is not None:
            for each in self.nodes.values():
                on_level(each.id, None, each.level)

    def get(self, wanted: Filter) -> Node | None:
        """The node of an equal filter."""
        number = self._numbers.get(wanted)
        return None if number is None else self.nodes[number]

    @property
    def roots(self) -> Collection[int]:
        """The numbers of the nodes that no other covers: known at all times."""
        return self._roots

    def root_filters(self) -> list[Filter]:
        """The smallest set of filters that covers all."""
        return [self.nodes[i].filter for i in sorted(self._roots)]

    # -- subscriptions --------------------------------------------------------------------

    def subscribe(self, wanted: Filter, interface: Hashable, start: int | None = None) -> Node | None:
        """Enter a filter for an interface, below ``start`` if that is known to cover it; ``None`` if elimination finds
        it needless.
        """
        if wanted.empty:
            raise InvalidInput(expected="a filter that something matches", got=wanted)
        found = self.get(wanted)
        if found is not None:
            if interface in found.subscribers:
                return found
            if self._eliminate != "none" and self._served_above(found, interface):
                return None
        else:
            if self._eliminate == "all" and self._served(wanted, interface):
                return None
            found = self._add(wanted, interface, start)
            if found is None:
                return None
        self._join(found, interface)
        if self._eliminate != "none":
            self._drop_covered(found, interface)
        return found

    def attach(self, wanted: Filter, interface: Hashable, preds: set[int], succs: set[int]) -> Node | None:
        """Enter a new filter, given all that cover it and all that it covers: no covering test."""
        if self._eliminate != "none" and any(interface in self.nodes[p].subscribers for p in preds):
            return None
        parent = self.under(preds, interface)
        node = self._insert(wanted, parent, self._children(parent) & succs)
        self._join(node, interface)
        if self._eliminate != "none":
            gone = [s for s in succs if interface in self.nodes[s].subscribers]
            for number in gone:
                self._leave(self.nodes[number], interface)
        return node

    def under(self, preds: set[int], interface: Hashable) -> int | None:
        """The node below which a filter goes that these cover; ``None`` for none."""
        parent: int | None = None
        while covering := self._children(parent) & preds:
            parent = self._choice(sorted(covering), interface)
        return parent

    @property
    def eliminates(self) -> bool:
        """Whether interfaces lose what another of their filters covers."""
        return self._eliminate != "none"

    def unsubscribe(self, wanted: Filter, interface: Hashable) -> bool:
        """Take an interface from a filter, and the filter out if nobody is left; False if it was not there."""
        found = self.get(wanted)
        if found is None or interface not in found.subscribers:
            return False
        self._leave(found, interface)
        return True

    def _join(self, node: Node, interface: Hashable) -> None:
        node.subscribers[interface] = None
        self._count(node.id, Counter((interface,)))

    def _leave(self, node: Node, interface: Hashable) -> None:
        del node.subscribers[interface]
        self._count(node.id, Counter({interface: -1}))
        if not node.subscribers:
            self._remove(node)

    def _count(self, number: int | None, change: Counter[Hashable]) -> None:
        """Add to the counts of a node and of all above it."""
        while number is not None:
            node = self.nodes[number]
            for interface, by in change.items():
                node.below[interface] += by
                if not node.below[interface]:
                    del node.below[interface]
            number = node.parent

    # -- elimination ----------------------------------------------------------------------

    def _served_above(self, node: Node, interface: Hashable) -> bool:
        number = node.parent
        while number is not None:
            upper = self.nodes[number]
            if interface in upper.subscribers:
                return True
            number = upper.parent
        return self._eliminate == "all" and self._served(node.filter, interface)

    def _served(self, wanted: Filter, interface: Hashable) -> bool:
        """Whether a filter of the interface covers this one, anywhere: such lie on covering paths only."""
        waiting = list(self._roots)
        while waiting:
            node = self.nodes[waiting.pop()]
            if node.filter != wanted and interface in node.below and self.covers(node.filter, wanted):
                if interface in node.subscribers:
                    return True
                waiting += node.children
        return False

    def _drop_covered(self, top: Node, interface: Hashable) -> None:
        """Take an interface from what a node covers: below it, or with ``"all"`` everywhere."""
        waiting = list(top.children if self._eliminate == "path" else self._roots)
        gone: list[int] = []
        while waiting:
            number = waiting.pop()
            node = self.nodes[number]
            if interface not in node.below:
                continue
            if self._eliminate == "all" and not node.filter.overlaps(top.filter):
                continue
            waiting += node.children
            mine = number != top.id and interface in node.subscribers
            if mine and (self._eliminate == "path" or self.covers(top.filter, node.filter)):
                gone.append(number)
        for number in gone:
            self._leave(self.nodes[number], interface)

    # -- the trees ------------------------------------------------------------------------

    def covers(self, one: Filter, other: Filter) -> bool:
        """A covering test, counted."""
        self.tests += 1
        return one.covers(other)

    def _children(self, number: int | None) -> set[int]:
        return self._roots if number is None else self.nodes[number].children

    def _choice(self, covering: list[int], interface: Hashable | None) -> int:
        """The subtree to go down: with balance, the one with most of the same interface."""
        if self.balanced and len(covering) > 1:
            return max(covering, key=lambda n: self.nodes[n].below[interface])
        return covering[0]

    def _descend(self, wanted: Filter, start: int | None, interface: Hashable | None) -> tuple[int | None, bool]:
        """The node under which a filter belongs, and whether a filter of the interface was on the way."""
        current, served = start, False
        near: set[int] | None = None
        while True:
            children = self._children(current)
            if (index := self._index(children)) is not None:
                near = set(index.above(wanted)) if near is None else near
                children = children & near
            if self.balanced:
                covering = [n for n in sorted(children) if self.covers(self.nodes[n].filter, wanted)]
            else:
                first = (n for n in children if self.covers(self.nodes[n].filter, wanted))
                covering = [n for n in (next(first, None),) if n is not None]
            if not covering:
                return current, served
            current = self._choice(covering, interface)
            served = served or interface in self.nodes[current].subscribers

    def _add(self, wanted: Filter, interface: Hashable, start: int | None) -> Node | None:
        current, served = self._descend(wanted, start, interface)
        if self._eliminate != "none":
            if start is not None:
                upper = self.nodes[start]
                served = served or interface in upper.subscribers or self._served_above(upper, interface)
            if served:
                return None
        covered = {n for n in self._below(wanted, current) if self.covers(wanted, self.nodes[n].filter)}
        return self._insert(wanted, current, covered)

    def _below(self, wanted: Filter, parent: int | None) -> set[int]:
        """The children of a node that a filter can cover."""
        children = self._children(parent)
        index = self._index(children)
        return children if index is None else children.intersection(index.below(wanted))

    def _index(self, children: set[int]) -> Bounds | None:
        """What narrows children down, if they are so many that it is quicker; it takes longer in a larger table."""
        return self.bounds if len(children) >= self.few + min(len(self.nodes) >> 5, _LONG) else None

    def _insert(self, wanted: Filter, parent: int | None, covered: set[int]) -> Node:
        """A new node under a parent, which takes over those of its children that it covers."""
        number = self._next
        self._next += 1
        level = 0 if parent is None else self.nodes[parent].level + 1
        node = self.nodes[number] = Node(number, wanted, parent, level=level)
        self._numbers[wanted] = number
        if self.bounds is not None:
            self.bounds.add(number, wanted)
        siblings = self._children(parent)
        siblings -= covered
        siblings.add(number)
        node.children |= covered
        for child in covered:
            self.nodes[child].parent = number
            node.below.update(self.nodes[child].below)
        if self.on_level is not None:
            self.on_level(number, None, level)
        self._settle(covered)
        return node

    def _remove(self, node: Node) -> None:
        del self.nodes[node.id], self._numbers[node.filter]
        if self.bounds is not None:
            self.bounds.remove(node.id)
        self._children(node.parent).discard(node.id)
        if self.on_level is not None:
            self.on_level(node.id, node.level, None)
        for child in sorted(node.children):
            # Its counts leave with it, and come again where it is put.
            orphan = self.nodes[child]
            self._count(node.parent, Counter({i: -n for i, n in orphan.below.items()}))
            orphan.parent = None
            self._graft(orphan, node.parent)

    def _graft(self, node: Node, start: int | None) -> None:
        """Put a subtree somewhere below ``start``; what it covers there goes below it, and may have to go deeper."""
        interface = next(iter(node.below), None)
        current, _ = self._descend(node.filter, start, interface)
        siblings = self._children(current)
        near = self._below(node.filter, current) - {node.id}
        covered = sorted(n for n in near if self.covers(node.filter, self.nodes[n].filter))
        siblings.add(node.id)
        node.parent = current
        self._count(current, node.below)
        self._settle((node.id,))
        for number in covered:
            lower = self.nodes[number]
            siblings.discard(number)
            self._count(current, Counter({i: -n for i, n in lower.below.items()}))
            lower.parent = None
            self._graft(lower, node.id)

    def rebuild(self) -> None:
        """Enter every filter anew: for links that somebody else made, and made wrong."""
        every = list(self.nodes.values())
        self.nodes.clear()
        self._numbers.clear()
        self._roots.clear()
        self.bounds = Bounds() if self.bounds is not None else None
        for node in every:
            for interface in node.subscribers:
                self.subscribe(node.filter, interface)

    def _settle(self, changed: Collection[int]) -> None:
        """Bring the levels of these subtrees up to date."""
        waiting = list(changed)
        while waiting:
            node = self.nodes[waiting.pop()]
            level = 0 if node.parent is None else self.nodes[node.parent].level + 1
            if level != node.level:
                self.moves += 1
                was, node.level = node.level, level
                if self.on_level is not None:
                    self.on_level(node.id, was, level)
                waiting += node.children
