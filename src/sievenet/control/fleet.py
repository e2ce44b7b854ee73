"""The fleet: which switches and links work, and the trees over them.

                 down                         clean
    in use ───────────────▶ down ──▶ joining ──────────▶ in use
       ▲   taken out of        up    read and emptied       trees mended,
       │   the trees                 before anybody uses it  lanes move over

A switch that comes back may hold anything.  It is emptied before it is part of a tree again, for
old flows would send packets astray, perhaps in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sievenet.control.config import ControlConfig
from sievenet.control.configurators.desk import Desk
from sievenet.control.configurators.turns import Turns
from sievenet.control.deployment import Rooms
from sievenet.control.diversions import Diversions
from sievenet.control.lane import Lane
from sievenet.control.layout import UNITED
from sievenet.control.rollout import Rollout
from sievenet.control.routes import Routes, Wires
from sievenet.control.signals import Divert, Reply
from sievenet.control.space import Space
from sievenet.control.switchboard import Switchboard
from sievenet.control.trees import Links, TreeKeeper
from sievenet.errors import Rejected
from sievenet.network import Flow, FlowTable, Topology, link_id

__all__ = ["Fleet"]


class Fleet:
    """Switches and links, as the controller knows them."""

    def __init__(
        self,
        topology: Topology,
        trees: TreeKeeper,
        spaces: Mapping[int, Space],
        config: ControlConfig,
        remember: Callable[[tuple[Links, ...]], None],
    ) -> None:
        self.wires = Wires(topology)
        self.trees = trees
        self.routes = [Routes(self.wires, tree) for tree in trees.trees]
        self.board = Switchboard(self.up, config.retry, self._saw)
        #: Who works out what changes, if not this process; and how many partitions have their turn, if not all.
        self.desk = Desk(self.board, self.wires, config) if config.mode in ("sna", "sna-lb") else None
        self.turns = Turns(config.staff) if config.mode == "sea" else None
        self.rooms = Rooms()
        self.diversions = Diversions(self.board, self.rooms)
        #: Switches that are back, but not used before they are clean.
        self.joining: set[str] = set()
        #: Switches with limits whose tables nobody has seen since the start, and the lanes of then.
        self._unseen: dict[str, list[Lane]] = {}
        self._spaces = spaces
        self._remember = remember

    def switches(self) -> list[str]:
        """The switches in use."""
        return [s for s in self.wires.out if self.up(s)]

    def up(self, switch: str) -> bool:
        """Whether a switch is in use or being prepared."""
        return switch not in self.trees.down_switches or switch in self.joining

    def switch_changed(self, switch: str, up: bool) -> None:
        """A switch came up or went down."""
        if switch not in self.wires.out:
            return
        self.diversions.end(switches=[switch])
        down = self.trees.down_switches
        if not up:
            self.joining.discard(switch)
            if switch not in down:
                down.add(switch)
                self.reroute()
            for rollout in self._rollouts():
                rollout.gone(switch)
        elif switch in down:
            if switch not in self.joining:
                self.joining.add(switch)
                self.clean([switch], lambda _: True, lambda: self._use(switch))
        else:
            # Nobody saw it go, but it may have forgotten everything.
            for space in self._spaces.values():
                for lane in space.lanes:
                    lane.suspect([switch])

    def clean(self, switches: Iterable[str], scope: Callable[[Flow], bool], done: Callable[[], None]) -> None:
        """Remove all flows in scope."""
        self.board.watch(
            Rollout(self.board, [{}], expected=lambda *_: (), scope=scope, unknown=switches, done=lambda _: done())
        )

    def _use(self, switch: str) -> None:
        if switch in self.joining:
            self.joining.discard(switch)
            self.trees.down_switches.discard(switch)
            self.reroute()

    def _rollouts(self) -> list[Rollout]:
        lanes = [lane for space in self._spaces.values() for lane in space.lanes]
        return self.board.watched + [lane.rollout for lane in lanes if lane.rollout is not None]

    def link_changed(self, a: str, b: str, up: bool) -> None:
        """A link came up or went down."""
        (self.trees.down_links.discard if up else self.trees.down_links.add)(link_id(a, b))
        if self.trees.mend():
            self.reroute()

    def redraw(self, topology: Topology) -> None:
        """Use a new topology; new switches are used once they are up and empty."""
        fresh = set(topology.switches) - self.wires.out.keys()
        self.wires.grow(topology)
        self.trees.redraw(topology, fresh)
        if self.desk is not None:
            self.desk.rewire()
        self.reroute()

    def resize(self, switch: str, capacity: int | None) -> None:
        """Set the capacity of a switch; None for no limit."""
        if self.rooms.capacity.get(switch) != capacity:
            self.rooms.resize(switch, capacity)
            for space in self._spaces.values():
                for lane in space.lanes:
                    lane.limit(switch)

    def _saw(self, switch: str, table: FlowTable) -> None:
        """What a switch holds: the first time, lanes take over the merges that they find there."""
        lanes = self._unseen.pop(switch, ())
        for lane in lanes:
            lane.saw(switch, table)
        for lane in lanes:
            lane.holdings.fit(switch)

    def begin(self) -> None:
        """The tables of the switches are unknown."""
        lanes = [lane for space in self._spaces.values() for lane in space.lanes]
        self._unseen = dict.fromkeys(self.rooms.capacity, lanes)

    def remerge(self, chosen: Mapping[int, Mapping[str, Collection[Any]]]) -> None:
        """Merges were chosen for the whole network; what was chosen for lanes that are gone is forgotten."""
        for space in self._spaces.values():
            for lane in space.lanes:
                lane.remerge(chosen.get(lane.holdings.number, {}))

    def reroute(self) -> None:
        """Adapt trees, routes and lanes to the current network."""
        self.diversions.end()
        self.trees.mend()
        self.routes = [Routes(self.wires, tree) for tree in self.trees.trees]
        self._remember(self.trees.remembered())
        for space in self._spaces.values():
            self.realign(space)

    def realign(self, space: Space) -> None:
        """Move lanes to the current trees."""
        space.reroute(self.routes, self.trees.dead(self.wires))

    def divert(self, order: Divert) -> None:
        """Hand subspaces to matchers, and no others of the category at that switch."""
        number, board = order.number, self.board
        if number not in self._spaces or not self.up(order.switch):
            board.out.append(Reply(order.ticket, Rejected("Expected a known category, and a switch that is up")))
        elif order.wanted and self._spaces[number].layout is not UNITED:
            board.out.append(Reply(order.ticket, Rejected("Expected a category whose plan is of kind dz, got cells")))
        else:
            self.diversions.set(number, order.switch, order.wanted, lambda e: board.out.append(Reply(order.ticket, e)))

    # -- clients ---------------------------------------------------------------------------

    def attach(self, switch: str, port: int) -> int:
        """A client's wire."""
        wire = self.wires.attach(switch, port)
        for routes in self.routes:
            routes.forget(wire)
        return wire

    def detach(self, wire: int) -> None:
        """Release a client's wire."""
        for routes in self.routes:
            routes.forget(wire)
        self.wires.detach(wire)

    @property
    def whole(self) -> bool:
        """Whether every switch in use reaches every other."""
        return all(routes.whole for routes in self.routes)
