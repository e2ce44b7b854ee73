"""Space: a category's event space, tiled into partitions with a lane each.

Which dz the partitions are is told in `tiling`.  A request is split at their borders into parts, one per lane it
touches.  Groups of neighbouring lanes share a spanning tree (`ControlConfig.spread`); with one group, as by default, a
category's catch-all flow is one per switch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sievenet.control.config import ControlConfig
from sievenet.control.lane import Lane
from sievenet.control.layout import Layout, layout_of
from sievenet.control.rollout import Outlet
from sievenet.control.routes import Routes
from sievenet.index import Dz, Plan
from sievenet.network import Flow

if TYPE_CHECKING:
    from sievenet.control.fleet import Fleet

__all__ = ["Space", "tree_of"]


def tree_of(number: int, group: int, count: int) -> int:
    """The tree that a group of lanes of a category uses."""
    return (number + group) % count


class Space:
    """The lanes of a category."""

    def __init__(
        self,
        number: int,
        fleet: Fleet,
        config: ControlConfig,
        rest: Callable[[Space], None],
    ) -> None:
        self.number = number
        self.catch: list[int] | None = None
        self.held = False
        #: New requests wait (`postponed`), so that the lanes run empty.
        self.closed = False
        self.postponed: deque[Callable[[], None]] = deque()
        self.later = fleet.board.later
        self.rooms, self.desk, self.turns = fleet.rooms, fleet.desk, fleet.turns
        self._rest = rest
        self._outlet: Outlet = fleet.board
        self._wires = fleet.wires
        self._config = config
        self.lanes: list[Lane] = []

    def rest(self) -> None:
        """A lane has become idle."""
        self._rest(self)

    def uses(self, lane: Lane) -> bool:
        """Whether a lane is one of those in use, not one of an earlier plan."""
        return lane in self.lanes

    def new_lanes(self, routes: Sequence[Routes], plan: Plan) -> list[Lane]:
        """New lanes without registrations."""
        config, layout = self._config, layout_of(plan)
        depth, tiling = config.spread.bit_length() - 1, layout.tiling(config, plan)
        lanes = []
        for tile in tiling.tiles:
            group = (tile >> tile.bit_length() - 1 - depth) - config.spread
            lanes.append(
                Lane(
                    self,
                    self._outlet,
                    self._wires,
                    self.routes_of(routes, group),
                    prefix=tile,
                    group=group,
                    group_dz=Dz(group, depth),
                    batch=config.batch,
                    slice=config.slice,
                    layout=layout,
                    tiling=tiling,
                    least=config.at_once == "least",
                )
            )
            for switch in self.rooms.capacity:
                lanes[-1].open(switch)
        return lanes

    def use(self, lanes: list[Lane]) -> None:
        """Replace the lanes."""
        for lane in self.lanes:
            self._dismiss(lane)
        self.lanes = lanes
        for lane in lanes:
            self.rooms.join(lane.holdings.who, lane)

    def forget(self, lanes: Sequence[Lane]) -> None:
        """Give back the room of lanes that are not in use, if those in use have none of it: their number is another."""
        gone = {lane.holdings.who for lane in lanes} - {lane.holdings.who for lane in self.lanes}
        for who in gone:
            self.rooms.leave(who)
        for lane in self.lanes if gone else ():
            for switch in self.rooms.capacity:
                lane.refit(switch)

    def leave(self) -> None:
        """Remove the category."""
        for lane in self.lanes:
            self.rooms.leave(lane.holdings.who)
            self._dismiss(lane)

    def _dismiss(self, lane: Lane) -> None:
        if self.desk is not None:
            self.desk.dismiss(lane)
        if self.turns is not None:
            self.turns.leave(lane)

    def routes_of(self, routes: Sequence[Routes], group: int) -> Routes:
        """The tree of a group of lanes."""
        return routes[tree_of(self.number, group, len(routes))]

    @property
    def layout(self) -> Layout:
        """The form of its tables."""
        return self.lanes[0].layout

    def reroute(self, routes: Sequence[Routes], dead: int) -> None:
        """Use other trees."""
        for lane in self.lanes:
            lane.reroute(self.routes_of(routes, lane.group), dead)

    @property
    def idle(self) -> bool:
        """Whether no lane has anything to do."""
        return all(lane.idle and not lane.queue for lane in self.lanes)

    def open(self) -> None:
        """Accept requests again, waiting ones first."""
        self.closed = self.held = False
        postponed, self.postponed = self.postponed, deque()
        for each in postponed:
            each()
        self.pump()

    def groups(self) -> list[Lane]:
        """A lane of each group, in their order."""
        return list({lane.group: lane for lane in self.lanes}.values())

    def catch_flows(self, switch: str) -> list[Flow]:
        """The catch-all flows of a switch, while the plan changes."""
        if self.catch is None:
            return []
        flows = [lane.catch_all(switch) for lane in self.groups()]
        return [flow for flow in flows if flow.ports]

    def table(self, switch: str) -> list[Flow]:
        """All flows of a switch in this category."""
        return [flow for lane in self.lanes for flow in lane.table(switch)] + self.catch_flows(switch)

    def pump(self) -> None:
        """Start every lane that can start."""
        for lane in self.lanes:
            lane.pump()

    def split(self, keys: Sequence[int], lanes: Sequence[Lane] | None = None) -> list[tuple[int, Sequence[int]]]:
        """The keys by lane, of those in use or of others."""
        lanes = lanes or self.lanes
        return lanes[0].tiling.split(keys)
