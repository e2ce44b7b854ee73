"""Space: a category's event space, tiled into partitions with a lane each.

The partitions are the dz of one length.  A request is split at their borders into parts,
one per lane it touches; a dz larger than a partition becomes all partitions inside it.
Groups of neighbouring lanes share a spanning tree (`ControlConfig.spread`); with
one group, as by default, a category's catch-all flow is one per switch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from sievenet.control.config import ControlConfig
from sievenet.control.deployment import Rooms
from sievenet.control.lane import Lane
from sievenet.control.rollout import Outlet
from sievenet.control.routes import Routes, Wires
from sievenet.index import Dz
from sievenet.network import Flow

__all__ = ["Space", "tree_of"]


def tree_of(number: int, group: int, count: int) -> int:
    """Which of so many trees a group of lanes of a category uses."""
    return (number + group) % count


class Space:
    """The lanes of a category."""

    def __init__(
        self,
        number: int,
        outlet: Outlet,
        wires: Wires,
        config: ControlConfig,
        rooms: Rooms,
        *,
        rest: Callable[[Space], None],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.number = number
        self.catch: list[int] | None = None
        self.held = False
        #: New requests wait (`postponed`), so that the lanes run empty.
        self.closed = False
        self.postponed: deque[Callable[[], None]] = deque()
        self.later = later
        self.rooms = rooms
        self._rest = rest
        self._outlet = outlet
        self._wires = wires
        self._config = config
        self._depth = config.partitions.bit_length() - 1
        self.lanes: list[Lane] = []

    def rest(self) -> None:
        """A lane has come to rest."""
        self._rest(self)

    def uses(self, lane: Lane) -> bool:
        """Whether a lane is one of those in use, not one of an earlier plan."""
        return lane in self.lanes

    def new_lanes(self, routes: Sequence[Routes]) -> list[Lane]:
        """A fresh set of lanes, without registrations."""
        config = self._config
        depth = config.spread.bit_length() - 1
        lanes = []
        for i in range(config.partitions):
            group = i * config.spread // config.partitions
            lanes.append(
                Lane(
                    self,
                    self._outlet,
                    self._wires,
                    self.routes_of(routes, group),
                    prefix=config.partitions | i,
                    group=group,
                    group_dz=Dz(group, depth),
                    batch=config.batch,
                )
            )
            for switch in self.rooms.capacity:
                lanes[-1].holdings.open(switch, ())
        return lanes

    def use(self, lanes: list[Lane]) -> None:
        """These are the lanes from now on."""
        self.lanes = lanes
        for lane in lanes:
            self.rooms.join(lane.holdings.who, lane)

    def leave(self) -> None:
        """The category is no more."""
        for lane in self.lanes:
            self.rooms.leave(lane.holdings.who)

    def routes_of(self, routes: Sequence[Routes], group: int) -> Routes:
        """The tree of a group of lanes."""
        return routes[tree_of(self.number, group, len(routes))]

    def reroute(self, routes: Sequence[Routes], dead: int) -> None:
        """Use other trees."""
        for i, lane in enumerate(self.lanes):
            lane.reroute(self.routes_of(routes, i * self._config.spread // len(self.lanes)), dead)

    @property
    def idle(self) -> bool:
        """Whether no lane has anything to do."""
        return all(lane.idle and not lane.queue for lane in self.lanes)

    def open(self) -> None:
        """Let requests in again, those that waited first."""
        self.closed = self.held = False
        postponed, self.postponed = self.postponed, deque()
        for each in postponed:
            each()
        self.pump()

    def catch_flows(self, switch: str) -> list[Flow]:
        """The catch-all flows of a switch, while the plan changes."""
        if self.catch is None:
            return []
        each = len(self.lanes) // len(self.catch)
        flows = [lane.catch_all(switch) for lane in self.lanes[::each]]
        return [flow for flow in flows if flow.ports]

    def table(self, switch: str) -> list[Flow]:
        """All flows of a switch in this category."""
        return [flow for lane in self.lanes for flow in lane.table(switch)] + self.catch_flows(switch)

    def pump(self) -> None:
        """Let every lane begin what it can."""
        for lane in self.lanes:
            lane.pump()

    def split(self, keys: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
        """The keys by lane."""
        depth = self._depth
        if not depth:
            return [(0, keys)] if keys else []
        found: dict[int, list[int]] = {}
        count = 1 << depth
        for key in keys:
            gap = key.bit_length() - 1 - depth
            if gap >= 0:
                found.setdefault((key >> gap) - count, []).append(key)
            else:
                first = (key << -gap) - count
                for i in range(first, first + (1 << -gap)):
                    found.setdefault(i, []).append(count | i)
        return list(found.items())
