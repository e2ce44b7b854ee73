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
above it.  Then the out ports of *all* switches for content in d are one mask (`routes`):

    P(d) = to(W(d)) & frm(A(d))

for a registration of port p covers d iff somebody behind p wants d or more, somebody
before p offers d or more: the longer of those two dz is the registration, and it covers
d.  P only grows from d to the dz below.  So a flow exists at (switch, d) exactly where P(d)
has a wire of the switch that P(parent of d) has not; and d carries a registration then,
because P can change only where somebody registered.

    root   W={}        A={h1}    P = -                 s1: -            s2: -
     └ 10   W={h2}     A={h1}    P = {s1→s2, s2→h2}    s1: 10 → s2      s2: 10 → h2
        └ 101  W={h2,h3} A={h1}  P = {…, s2→h3}        s1: no new wire  s2: 101 → h2,h3

A client that is registered above already changes nothing: one climb.  Of the others the node
remembers what was, and nothing else happens until `changes` is asked, so any number of requests become
one difference, and what one adds and another removes never shows.

**The walk.**  `changes` goes down from the root once, with the ways to those who want and from those who offer,
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

The tree is in arrays (`trie`), and all this compiled (`walk`): a tree of a hundred thousand
subscriptions has a million nodes, and a broad dz may concern thousands of them.

Departure from PLEROMA: it looks at the flows of each switch on each path and tells five
cases apart when adding, and more when removing; the tables are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sievenet.control.registrations.changes import Changes, changes_in
from sievenet.control.registrations.trie import Puts, Trie
from sievenet.control.routes import Routes, Wires
from sievenet.index import Dz
from sievenet.network import Flow, Match

__all__ = ["Registrations"]


class Registrations:
    """The registrations of one category's dz under one prefix, on one spanning tree."""

    def __init__(self, category: int, wires: Wires, routes: Routes) -> None:
        self.category = category
        self._wires = wires
        #: The ways of the tree in use.
        self.routes = routes
        self._tree = Trie(wires, routes)
        #: Wires that must not be used even in between.
        self._dead = 0

    @property
    def count(self) -> int:
        """Registered dz, counted with multiplicity."""
        return self._tree.count

    def nodes(self) -> int:
        """How many dz the prefix tree holds."""
        return len(self._tree)

    # -- registering -----------------------------------------------------------------------

    def want(self, wire: int, keys: Iterable[int]) -> None:
        """Somebody behind the wire wants these dz."""
        self._tree.put(wire, keys, wants=True, adding=True)

    def unwant(self, wire: int, keys: Iterable[int]) -> None:
        """The opposite of `want`."""
        self._tree.put(wire, keys, wants=True, adding=False)

    def offer(self, wire: int, keys: Iterable[int]) -> None:
        """Somebody behind the wire will publish in these dz."""
        self._tree.put(wire, keys, wants=False, adding=True)

    def withdraw(self, wire: int, keys: Iterable[int]) -> None:
        """The opposite of `offer`."""
        self._tree.put(wire, keys, wants=False, adding=False)

    def reroute(self, routes: Routes, dead: int = 0) -> None:
        """Use another tree.  `dead` are wires that carry nothing any more."""
        self.routes = routes
        self._tree.reroute(routes)
        self._dead |= dead

    # -- while somebody else works out what changes ----------------------------------------

    @property
    def away(self) -> bool:
        """Whether `changes` are worked out by somebody else."""
        return self._tree.heedless

    def hand_out(self) -> Puts:
        """Everything that is registered, for somebody who works out what changes from now on."""
        self._tree.heedless = True
        self._tree.forget()
        return self._tree.registered()

    def take_home(self, unknown: Puts | None = None) -> None:
        """Work out here what changes, from now on and of what has been put but did not come to the switches yet."""
        if unknown is not None:
            self._tree.put_all(unknown.undone())
        self._tree.forget()
        self._tree.heedless = False
        if unknown is not None:
            self._tree.put_all(unknown)

    # -- tables ----------------------------------------------------------------------------

    def changes(self, apart: Collection[str] = ()) -> Changes:
        """What the switches must be told since the last time, in two steps; `apart` as in `changes_in`."""
        found, wires = self._tree.walked(self._dead), self._wires
        self._dead = 0
        if found is None:
            return Changes()
        used = int.from_bytes(found.used.tobytes(), "little")
        if not len(found.rows):
            return Changes(used=used)
        from sievenet.control.registrations.columns import written

        keys, rows = written(found.places, found.rows, found.masks, wires.exits, len(wires.names))
        return changes_in(self.category, wires.names, keys, rows, used, apart, found.places)

    def table(self, switch: str) -> list[Flow]:
        """The flows that a switch should have."""
        ports = self._wires.ports
        return [self._flow(dz, ports(mask)) for dz, mask in self._tree.table(self._wires.out[switch])]

    def _flow(self, dz: Dz, ports: frozenset[int]) -> Flow:
        return Flow(Match(self.category, dz), ports, dz.length)

    def used(self) -> int:
        """Every wire that some flow uses."""
        used = 0
        for _, mask in self._tree.table(-1):
            used |= mask
        return used
