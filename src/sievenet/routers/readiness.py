"""Whether tables are complete: only then are events routed by them, and otherwise they go to everybody.

The graph changes (a router joins, a link breaks or returns), and with it the tree. Routers learn of that at different
times, and fill their tables again while events go on. Tables that are not complete lose events, and no router can see
from its own table alone that something is missing. So each says how far it is:

    graph    a digest of all links in this part of the network. From equal graphs follow equal trees and paths
    level    to neighbour Y on the tree, about everything but Y's side:
             1   all advertisements from there are told
             2   all subscriptions too

A leaf of the tree is at level 1 at once. Any other router reaches a level towards Y when all *other* neighbours on the
tree have it, so levels travel from the leaves inwards and back out again. Level 2 towards Y also takes level 1 from Y:
what Y offers decides what it is told. `Ready` follows what was told on the link before; and it is taken back *before*
anything is that a change of the graph removes from the tables.

    a ──2──▶ b ──2──▶ c            c knows all of a and b: an event at c is routed by tables
    a ◀──1── b ◀──1── c

A router is *ready* if it hears all its neighbours say level 2 for its own graph. Then

* events that enter here carry the number of the graph, and each router that is ready in the same graph routes them by
  its tables. Any other router turns them into *flooded* events (graph 0), which go to all neighbours, whether on the
  tree or not, and also back to the one that had routed them by tables. A router delivers an event once, and passes it
  on twice at most: by tables, then to everybody (`Seen`);
* waves (`settlement`) begin here and pass only routers of the same graph. So "settled" means that every router that
  could route an event by tables knows the subscription.

**What holds**: an event that was flooded anywhere reaches every router to which there is a path of links that are up.
One that never was met complete tables of one and the same tree at every step. In both cases it reaches all settled
subscribers. What a link takes with it when it breaks is flooded by its other end (`retransmission`). No scheme takes
part in the argument, except that it says when all is told: tree schemes when their channels are in step, broadcasting
ones (CBCB) when a wave that followed their broadcast is back (`placed`).

The cost: after each change of the graph, events go over every link for a few times the network's diameter, and three
small messages over each link of the tree.
"""

from __future__ import annotations

from collections.abc import Collection

from sievenet.routers.intake import Intake
from sievenet.routers.messages import Ready
from sievenet.routers.routing import Context, Routing

__all__ = ["COMPLETE", "Readiness"]

#: The level at which events are routed by tables.
COMPLETE = 2


class Readiness:
    """``heard`` are the neighbours of now."""

    def __init__(self, context: Context, routing: Routing, intake: Intake, heard: Collection[str]) -> None:
        self._context, self._routing, self._intake, self._heard = context, routing, intake, heard
        #: Whether events may be routed by tables here.
        self.ready = False
        #: Whether what this router broadcasts is in place everywhere; of no matter where nothing is broadcast.
        self.placed = True
        #: Of the link states that the graph follows from.
        self._version = -1
        self._near: tuple[str, ...] = ()
        #: Graph and level that each neighbour said last, and that it was told last.
        self._said: dict[str, tuple[int, int]] = {}
        self._stated: dict[str, tuple[int, int]] = {}
        #: What clients have to place in the table, before level 2 is told.
        self._marks: dict[str, dict[int, int]] = {}

    def follow(self) -> bool:
        """Work by the graph of now; whether it is another one."""
        context = self._context
        self._version = context.states.version
        graph = context.states.overlay.graph(context.name)
        if graph == context.graph:
            return False
        context.past.append(context.graph)
        context.graph = graph
        self._near = context.states.overlay.tree_neighbours(context.name)
        self._marks.clear()
        self.placed = not self._routing.broadcasts
        self.ready = False
        return True

    @property
    def current(self) -> bool:
        """Whether link states are those of the graph."""
        return self._version == self._context.states.version

    def routes(self, graph: int) -> bool:
        """Whether events that follow a graph are routed by tables here."""
        return graph == self._context.graph and self.ready and self.current

    @property
    def linked(self) -> bool:
        """Whether all neighbours hear this router as it hears them, as far as is known."""
        context = self._context
        return set(self._heard) == set(context.states.overlay.links.get(context.name, ()))

    def hear(self, neighbour: str, graph: int, level: int) -> None:
        """What a neighbour says."""
        self._said[neighbour] = graph, level

    def lost(self, neighbour: str) -> None:
        """A neighbour is gone."""
        self._said.pop(neighbour, None)
        self._stated.pop(neighbour, None)

    def level(self, neighbour: str) -> int:
        """The level that a neighbour was told."""
        graph, level = self._stated.get(neighbour, (0, 0))
        return level if graph == self._context.graph else 0

    def _of(self, neighbour: str) -> int:
        graph, level = self._said.get(neighbour, (0, 0))
        return level if graph == self._context.graph and self._routing.in_step(neighbour) else 0

    def _due(self) -> dict[str, int]:
        """The level to tell each neighbour."""
        own = self.placed and self.linked
        levels = {neighbour: self._of(neighbour) for neighbour in self._near}
        self.ready = own and all(level == COMPLETE for level in levels.values())
        if not own:
            self._marks.clear()
            return {}
        due: dict[str, int] = {}
        for neighbour in self._near:
            due[neighbour] = min((level for n, level in levels.items() if n != neighbour), default=COMPLETE)
            if due[neighbour] == COMPLETE and not (levels[neighbour] and self._reached(neighbour)):
                due[neighbour] = 1
            if due[neighbour] < COMPLETE and not levels[neighbour]:
                self._marks.pop(neighbour, None)
        return due

    def _reached(self, neighbour: str) -> bool:
        """Whether all filters that count are in the table, not on their way through clients."""
        marks = self._marks.get(neighbour)
        if marks is None:
            marks = self._marks[neighbour] = self._intake.marks()
        return self._intake.reached(marks)

    def lower(self) -> None:
        """Take back what is no longer so, before anything is told in consequence."""
        due, graph = self._due(), self._context.graph
        for neighbour, (before, level) in list(self._stated.items()):
            now = due.get(neighbour, 0) if before == graph else 0
            if level > now:
                self._state(neighbour, now)

    def rise(self) -> None:
        """Tell what has become so, after everything that it is about."""
        for neighbour, level in self._due().items():
            if neighbour in self._heard and level > self.level(neighbour):
                self._state(neighbour, level)

    def _state(self, neighbour: str, level: int) -> None:
        self._stated[neighbour] = self._context.graph, level
        self._context.send(neighbour, Ready(self._context.graph, level))
