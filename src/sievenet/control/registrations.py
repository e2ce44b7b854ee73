"""Registrations: who wants and who offers which dz, and the flow tables that follow.

**Definition.**  A publisher that advertises a and a subscriber that wants w, where one dz
covers the other, put a *registration* (d, out port) on every switch of the path between
them, d being the longer of the two.  The table of a switch follows from its
registrations: the ports at d are those of all registrations whose dz covers d; a flow
exists at d iff d carries a registration and its ports differ from those of the nearest
flow above; its priority is its length.

**How it is computed.**  Not switch by switch and path by path: that touches a hundred
switches per request.  One prefix tree holds, per dz, the clients that want it and those
that offer it, counted.  Let W(d) and A(d) be all clients that want, or offer, d or a dz
above it.  Then the out ports of *all* switches for content in d are one mask (`wires`):

    P(d) = to(W(d)) & frm(A(d))

for a registration of port p covers d iff somebody behind p wants d or more, somebody
before p offers d or more: the longer of those two dz is the registration, and it covers
d.  P only grows from d to the dz below.  So a flow exists at (switch, d) exactly where P(d)
has a wire of the switch that P(parent of d) has not; and d carries a registration then,
because P can change only where somebody registered.

    root   W={}        A={h1}    P = -                 s1: -            s2: -
     └ 10   W={h2}     A={h1}    P = {s1→s2, s2→h2}    s1: 10 → s2      s2: 10 → h2
        └ 101  W={h2,h3} A={h1}  P = {…, s2→h3}        s1: no new wire  s2: 101 → h2,h3

A registration that those above cover already changes nothing: one climb, a few subset tests.
Of the others the node remembers what was (`Node.was`), and nothing else happens until
`changes` is asked, so any number of requests become one difference, and what one adds
and another removes never shows.

**The walk.**  `changes` goes down from the root once, carrying the ways to those who want, from those who offer,
before and after (T, F, T', F').  It goes where a node remembers something, and into other
subtrees only if something may change there.  That can be told from above, by the ways
registered anywhere in the subtree (t, f):

    N  = (T|t)&(F|f) less T&F  or  (T'|t)&(F'|f) less T'&F'    the wires that flows are there for, at most
    X  = ((T^T')|(F^F')) & (T|T'|t) & (F|F'|f)                 the wires whose use may have changed

If no switch has wires of both, then no switch with a flow there sees any change, and the subtree
is left alone, however large.  A new subscriber of a broad dz concerns the many narrow
ones below only at switches where that subscriber's port and theirs meet: few.

**Two steps.**  `changes` gives two, and they never lose an event, whatever order the switches
carry them out in.  With P before and P' after, every dz that has a flow before or
after has ports P | P' between the steps (less the wires that are dead).

Departure from PLEROMA: it looks at the flows of each switch on each path and tells five
cases apart when adding, and more when removing; the tables are the same.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from sievenet.control.changes import Changes, Difference
from sievenet.control.node import Node, Tree, dz_of
from sievenet.control.wires import Routes, Wires
from sievenet.network import Flow, Match

__all__ = ["Registrations"]

#: A node, then T, F, T', F' and P, P' of what is above it.
_Visit = tuple[Node, int, int, int, int, int, int]


class Registrations:
    """The registrations of one category's dz under one prefix, on one spanning tree."""

    def __init__(self, category: int, wires: Wires, routes: Routes) -> None:
        self.category = category
        self.routes = routes
        self._wires = wires
        self._tree = Tree()
        #: Nodes that nobody may be registered at any more.  They stay until the next `changes`,
        #: because their flows have to be taken away.
        self._idle: list[Node] = []
        #: Wires that must not be used even in between.
        self._dead = 0
        #: Registered dz, counted with multiplicity.
        self.count = 0

    # -- registering -----------------------------------------------------------------------

    def want(self, wire: int, key: int) -> Node:
        """Somebody behind the wire wants a dz; give the node back to `unwant`."""
        node = self._tree.node(key)
        self.count += 1
        wants = node.wants
        if wants is None:
            node.wants = {wire: 1}
        elif wire in wants:
            wants[wire] += 1
            return node
        else:
            wants[wire] = 1
        to = self.routes.to[wire]
        if not _wanted_above(node, to & ~node.to):
            node.touch()
        node.to |= to
        node.widen()
        return node

    def unwant(self, wire: int, node: Node) -> None:
        """The opposite of `want`."""
        wants = node.wants
        assert wants is not None
        self.count -= 1
        if wants[wire] > 1:
            wants[wire] -= 1
            return
        del wants[wire]
        rest = reduce(or_, map(self.routes.to.__getitem__, wants), 0)
        if not _wanted_above(node, node.to & ~rest):
            node.touch()
        node.to = rest
        node.narrow()
        if not wants:
            node.wants = None
            if not node.offers:
                self._idle.append(node)

    def offer(self, wire: int, key: int) -> Node:
        """Somebody behind the wire will publish in a dz; give the node back to `withdraw`."""
        node = self._tree.node(key)
        self.count += 1
        offers = node.offers
        if offers is None:
            node.offers = {wire: 1}
        elif wire in offers:
            offers[wire] += 1
            return node
        else:
            offers[wire] = 1
        node.touch()
        node.frm |= self.routes.frm[wire]
        node.widen()
        return node

    def withdraw(self, wire: int, node: Node) -> None:
        """The opposite of `offer`."""
        offers = node.offers
        assert offers is not None
        self.count -= 1
        if offers[wire] > 1:
            offers[wire] -= 1
            return
        del offers[wire]
        node.touch()
        node.frm = reduce(or_, map(self.routes.frm.__getitem__, offers), 0)
        node.narrow()
        if not offers:
            node.offers = None
            if not node.wants:
                self._idle.append(node)

    def reroute(self, routes: Routes, dead: int = 0) -> None:
        """Use another tree.  `dead` are wires that carry nothing any more."""
        self.routes = routes
        self._dead |= dead
        nodes = list(self._tree)
        for node in nodes:
            node.touch()
            node.to = reduce(or_, map(routes.to.__getitem__, node.wants or ()), 0)
            node.frm = reduce(or_, map(routes.frm.__getitem__, node.offers or ()), 0)
        for node in reversed(nodes):  # children before their parents
            node.sum_up()

    # -- tables ----------------------------------------------------------------------------

    def table(self, switch: str) -> list[Flow]:
        """The flows that a switch should have."""
        out = self._wires.out[switch]
        ports = self._wires.ports
        flows: list[Flow] = []
        stack = [(self._tree.root, 0, 0, 0)]
        while stack:
            node, to, frm, above = stack.pop()
            to |= node.to & out
            frm |= node.frm & out
            here = to & frm
            if here != above:
                flows.append(Flow(self._match(node), ports(here), node.length))
            stack += [
                (child, to, frm, here)
                for child in (node.zero, node.one)
                if child is not None and (to | child.sub_to & out) & (frm | child.sub_frm) != here
            ]
        return flows

    def used(self) -> int:
        """Every wire that some flow uses."""
        used = 0
        stack = [(self._tree.root, 0, 0)]
        while stack:
            node, to, frm = stack.pop()
            to |= node.to
            frm |= node.frm
            used |= to & frm
            stack += [
                (child, to, frm)
                for child in (node.zero, node.one)
                if child is not None and (to | child.sub_to) & (frm | child.sub_frm) & ~used
            ]
        return used

    def nodes(self) -> int:
        """How many dz the prefix tree holds."""
        return len(self._tree)

    def _match(self, node: Node) -> Match:
        match = node.match
        if match is None:
            match = node.match = Match(self.category, dz_of(node.key))
        return match

    # -- changes ---------------------------------------------------------------------------

    def changes(self) -> Changes:
        """What the switches must be told since the last time, in two steps."""
        difference = Difference(self._wires, self._dead)
        self._dead = 0
        root = self._tree.root
        calm: list[tuple[Node, int, int]] = [(root, 0, 0)] if root.stale else []
        while calm:  # nothing changed above: on to where something does
            node, to, frm = calm.pop()
            if node.was is not None:
                self._changed(node, to, frm, difference, calm)
                continue
            node.stale = False
            if node.to:
                to |= node.to
            if node.frm:
                frm |= node.frm
            child = node.zero
            if child is not None and child.stale:
                calm.append((child, to, frm))
            child = node.one
            if child is not None and child.stale:
                calm.append((child, to, frm))
        for node in self._idle:
            self._tree.prune(node)
        self._idle.clear()
        return difference.changes()

    def _changed(
        self, node: Node, to: int, frm: int, difference: Difference, calm: list[tuple[Node, int, int]]
    ) -> None:
        """Visit a node that changed, and those below as far as they may have changed; `calm` where nothing did."""
        sphere = difference.sphere
        above = to & frm
        stack: list[_Visit] = [(node, to, frm, to, frm, above, above)]
        while stack:
            node, to, frm, to2, frm2, above, above2 = stack.pop()
            node.stale = False
            was = node.was
            if was is None:
                if node.to:
                    to, to2 = to | node.to, to2 | node.to
                if node.frm:
                    frm, frm2 = frm | node.frm, frm2 | node.frm
            else:
                node.was = None
                if was[0]:
                    to |= was[0]
                if node.to:
                    to2 |= node.to
                if was[1]:
                    frm |= was[1]
                if node.frm:
                    frm2 |= node.frm
            same_frm = frm is frm2 or frm == frm2
            here, here2 = to & frm, to2 & frm2
            new, new2 = here ^ above, here2 ^ above2  # both only grow
            if (new or new2) and (here != here2 or new != new2):
                difference.add(self._match(node), node.length, here, here2, new, new2)
            if same_frm and to == to2:
                calm += [(child, to, frm) for child in (node.zero, node.one) if child is not None and child.stale]
                continue
            if same_frm and not node.sub_frm:  # the usual case, with less to work out
                reach = sphere[here ^ here2] & frm & ~(to & to2)
                stack += [
                    (child, to, frm, to2, frm2, here, here2)
                    for child in (node.zero, node.one)
                    if child is not None and (child.stale or child.sub_to & reach)
                ]
                continue
            changed = (to ^ to2 | frm ^ frm2) & (to | to2 | node.sub_to) & (frm | frm2 | node.sub_frm)
            for child in (node.zero, node.one):
                if child is None:
                    continue
                if not child.stale:  # may be nothing to see there
                    sub_to, sub_frm = child.sub_to, child.sub_frm
                    flows = (to | sub_to) & (frm | sub_frm) & ~here | (to2 | sub_to) & (frm2 | sub_frm) & ~here2
                    if not flows & sphere[changed]:
                        continue
                stack.append((child, to, frm, to2, frm2, here, here2))


def _wanted_above(node: Node, mask: int) -> bool:
    """Whether those above want all of it, and did when `changes` was last asked."""
    above = node.parent
    while mask and above is not None:
        if above.to:
            mask &= ~(above.to if above.was is None else above.to & above.was[0])
        above = above.parent
    return not mask
