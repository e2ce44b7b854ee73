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

A dz that is already wanted over the same wires changes nothing: one descent, one
subset test.  A dz that changes something costs what it changes: the prefix tree below is
walked only as far as masks differ, and flow changes are made only for switches
whose bits differ.  There is no case analysis of covering and being covered.

**Changes.**  `changes` gives what happened since it was last asked, so any number of
requests become one difference, in two steps that never lose an event, whatever order the
switches carry them out in.  With P before and P' after, every dz that has a flow
before or after has ports P | P' between the steps (less the wires that are dead).

Departure from PLEROMA: it looks at the flows of each switch on each path and tells five
cases apart when adding, and more when removing; the tables are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

import msgspec

from sievenet.control.node import Node, dz_of
from sievenet.control.wires import Routes, Wires
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Changes", "Registrations"]


class Changes(msgspec.Struct):
    """What to tell the switches: everything of `first` before anything of `second`."""

    #: What adds delivery.
    first: dict[str, list[FlowChange]] = {}
    #: What takes away what nobody needs any more.
    second: dict[str, list[FlowChange]] = {}
    #: The flows that `second` will change or delete, as they are until then.
    between: dict[str, list[Flow]] = {}
    #: Every wire in use where anything changed.
    used: int = 0

    def __bool__(self) -> bool:
        return bool(self.first or self.second)


class Registrations:
    """The registrations of one category's dz under one prefix, on one spanning tree."""

    def __init__(self, category: int, wires: Wires, routes: Routes) -> None:
        self.category = category
        self.routes = routes
        self._wires = wires
        self._root = Node(1, 0, None)
        self._nodes: dict[int, Node] = {1: self._root}
        #: P and new wires, as they were at the last `changes`, of every node where they may differ now.
        self._was: dict[Node, tuple[int, int]] = {}
        #: Nodes that nobody may be registered at any more.  They stay until the next `changes`,
        #: because a dz below that is new by then was served by them.
        self._idle: list[Node] = []
        #: Wires that must not be used even in between.
        self._dead = 0
        #: Registered dz, counted with multiplicity.
        self.count = 0

    # -- registering -----------------------------------------------------------------------

    def want(self, wire: int, key: int) -> Node:
        """Somebody behind the wire wants a dz; give the node back to `unwant`."""
        node = self._node(key)
        wants = node.wants
        self.count += 1
        held = wants.get(wire)
        if held is not None:
            wants[wire] = held + 1
            return node
        wants[wire] = 1
        to = self.routes.to[wire]
        node.to |= to
        if to & ~node.all_to:
            self._settle(node)
        return node

    def unwant(self, wire: int, node: Node) -> None:
        """The opposite of `want`."""
        wants = node.wants
        self.count -= 1
        held = wants[wire]
        if held > 1:
            wants[wire] = held - 1
            return
        del wants[wire]
        rest = reduce(or_, map(self.routes.to.__getitem__, wants), 0)
        if rest != node.to:
            node.to = rest
            self._settle(node)
        if not wants and not node.offers:
            self._idle.append(node)

    def offer(self, wire: int, key: int) -> Node:
        """Somebody behind the wire will publish in a dz; give the node back to `withdraw`."""
        node = self._node(key)
        offers = node.offers
        self.count += 1
        held = offers.get(wire)
        if held is not None:
            offers[wire] = held + 1
            return node
        offers[wire] = 1
        frm = self.routes.frm[wire]
        node.frm |= frm
        if frm & ~node.all_frm:
            self._settle(node)
        return node

    def withdraw(self, wire: int, node: Node) -> None:
        """The opposite of `offer`."""
        offers = node.offers
        self.count -= 1
        held = offers[wire]
        if held > 1:
            offers[wire] = held - 1
            return
        del offers[wire]
        rest = reduce(or_, map(self.routes.frm.__getitem__, offers), 0)
        if rest != node.frm:
            node.frm = rest
            self._settle(node)
        if not offers and not node.wants:
            self._idle.append(node)

    def reroute(self, routes: Routes, dead: int = 0) -> None:
        """Use another tree.  `dead` are wires that carry nothing any more."""
        self.routes = routes
        self._dead |= dead
        for node in self._walk():  # parents first, so each finds its parent's old state noted
            self._note(node)
        for node in self._walk():
            node.to = reduce(or_, map(routes.to.__getitem__, node.wants), 0)
            node.frm = reduce(or_, map(routes.frm.__getitem__, node.offers), 0)
            above = node.parent
            node.all_to = node.to if above is None else node.to | above.all_to
            node.all_frm = node.frm if above is None else node.frm | above.all_frm

    # -- the prefix tree -------------------------------------------------------------------

    def _node(self, key: int) -> Node:
        """The node of a dz, made if there is none."""
        known = self._nodes.get(key)
        if known is not None:
            return known
        length = key.bit_length() - 1
        node = self._root
        while True:
            child = node.one if key >> (length - node.length - 1) & 1 else node.zero
            if child is None:
                return self._hang(node, key, length)
            gap = length - child.length
            if gap >= 0 and key >> gap == child.key:
                node = child
                continue
            shared = child.length if gap > 0 else length
            mine, theirs = key >> (length - shared), child.key >> (child.length - shared)
            differing = (mine ^ theirs).bit_length()
            fork = self._hang(node, mine >> differing, shared - differing)
            child.parent = fork
            if child.key >> (child.length - fork.length - 1) & 1:
                fork.one = child
            else:
                fork.zero = child
            return fork if fork.length == length else self._hang(fork, key, length)

    def _hang(self, above: Node, key: int, length: int) -> Node:
        """A new node on the proper side of `above`; what it has is what `above` has."""
        node = self._nodes[key] = Node(key, length, above)
        if key >> (length - above.length - 1) & 1:
            above.one = node
        else:
            above.zero = node
        was = self._was.get(above)
        if was is not None:
            self._was[node] = was[0], 0
        return node

    def _prune(self, node: Node) -> None:
        """Take out a node that nobody registered at, if nothing parts there."""
        while not node.wants and not node.offers:
            above = node.parent
            child = node.zero or node.one
            if above is None or (node.zero is not None and node.one is not None):
                return
            if self._nodes.pop(node.key, None) is None:
                return  # out already
            if above.one is node:
                above.one = child
            else:
                above.zero = child
            if child is not None:
                child.parent = above
                return
            node = above

    def _settle(self, node: Node) -> None:
        """The masks of a node changed: bring those below in line, noting what was."""
        was = self._was
        stack = [node]
        while stack:
            node = stack.pop()
            above = node.parent
            all_to, all_frm = node.all_to, node.all_frm
            if above is None:
                to, frm = node.to, node.frm
                if node not in was:
                    here = all_to & all_frm
                    was[node] = here, here
            else:
                to, frm = node.to | above.all_to, node.frm | above.all_frm
                if node not in was:  # as `_note`, here for speed
                    here = all_to & all_frm
                    before = was.get(above)
                    was[node] = here, here & ~(above.all_to & above.all_frm if before is None else before[0])
            if to != all_to or frm != all_frm:
                node.all_to, node.all_frm = to, frm
                # Children are noted even if their own masks turn out to be the same: the wires new
                # at a child depend on its parent's.  Nothing further below does then.
                if node.zero is not None:
                    stack.append(node.zero)
                if node.one is not None:
                    stack.append(node.one)

    def _note(self, node: Node) -> None:
        """Remember a node's ports before they change for the first time."""
        was = self._was
        if node in was:
            return
        here = node.all_to & node.all_frm
        above = node.parent
        if above is None:
            was[node] = here, here
        else:
            before = was.get(above)
            was[node] = here, here & ~(above.all_to & above.all_frm if before is None else before[0])

    def _walk(self) -> Iterator[Node]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            yield node
            if node.zero is not None:
                stack.append(node.zero)
            if node.one is not None:
                stack.append(node.one)

    # -- tables ----------------------------------------------------------------------------

    def table(self, switch: str) -> list[Flow]:
        """The flows that a switch should have."""
        out = self._wires.out[switch]
        ports = self._wires.ports
        flows: list[Flow] = []
        for node in self._walk():
            here = node.all_to & node.all_frm & out
            above = node.parent
            if here and (above is None or here & ~(above.all_to & above.all_frm)):
                flows.append(Flow(Match(self.category, dz_of(node.key)), ports(here), node.length))
        return flows

    def used(self) -> int:
        """Every wire that some flow uses."""
        return reduce(or_, (node.all_to & node.all_frm for node in self._walk()), 0)

    def nodes(self) -> int:
        """How many dz the prefix tree holds."""
        return len(self._nodes)

    def changes(self) -> Changes:
        """What the switches must be told since the last time, in two steps."""
        was, self._was = self._was, {}
        dead, self._dead = self._dead, 0
        result = Changes()
        out, ports, switches = self._wires.out, self._wires.ports, self._wires.switches
        for node in sorted(was, key=_length):
            old, old_new = was[node]
            above = node.parent
            now = now_new = node.all_to & node.all_frm
            if above is not None:
                now_new &= ~(above.all_to & above.all_frm)
            # A switch is concerned if it has a flow here before or after and anything differs.
            either = old_new | now_new
            if not either:
                continue
            differing = old ^ now | old_new ^ now_new
            if not differing:
                continue
            result.used |= now
            match: Match | None = None
            length = node.length
            fewer, other = (either, differing) if either.bit_count() < differing.bit_count() else (differing, either)
            for switch in switches(fewer):
                mask = out[switch]
                if not other & mask:
                    continue
                before, after = old & mask, now & mask
                had, has = bool(old_new & mask), bool(now_new & mask)
                if had and has and before == after:
                    continue
                if match is None:
                    match = Match(self.category, dz_of(node.key))
                between = before & ~dead | after
                if has:
                    if not had:
                        _put(result.first, switch, Add(Flow(match, ports(between), length)))
                    elif between != before:
                        _put(result.first, switch, Modify(Flow(match, ports(between), length)))
                    if between != after:
                        _put(result.second, switch, Modify(Flow(match, ports(after), length)))
                        result.between.setdefault(switch, []).append(Flow(match, ports(between), length))
                elif between == after:
                    # What takes over sends to at least as many: deleting adds delivery.
                    _put(result.first, switch, Delete(Flow(match, ports(before), length)))
                else:
                    if between != before:
                        _put(result.first, switch, Modify(Flow(match, ports(between), length)))
                    _put(result.second, switch, Delete(Flow(match, ports(between), length)))
                    result.between.setdefault(switch, []).append(Flow(match, ports(between), length))
        for changes in result.first.values():
            changes.sort(key=_order)
        for node in self._idle:
            self._prune(node)
        self._idle.clear()
        return result


def _length(node: Node) -> int:
    return node.length


def _put(changes: dict[str, list[FlowChange]], switch: str, change: FlowChange) -> None:
    of = changes.get(switch)
    if of is None:
        changes[switch] = [change]
    else:
        of.append(change)


def _order(change: FlowChange) -> int:
    """Additions first, then modifications, then deletions with the shorter dz before the longer (a stable sort)."""
    return 0 if isinstance(change, Add) else 1 if isinstance(change, Modify) else 2
