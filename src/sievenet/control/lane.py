"""Lanes: one per partition of a category's event space, each with its own queue.

Whatever concerns a partition goes through its lane in the order of arrival.  A lane takes
all that waits (up to a limit), changes its registrations, and rolls the one difference
out to the switches; only when that is done does it take more.

    queue ▶ ▶ ▶ ─── batch ──▶ registrations ──▶ changes ──▶ rollout ──▶ every part of the batch is done
                      ▲                                        │
                      └──────── one at a time ◀── refused ─────┘

What is sent are the changes of *deployed* tables: on a switch with a limit they are made to fit
(`deployment`), and changes begin when there is room for them (`deployment.rooms`).

If a switch refuses all the same, the batch is undone and tried again one by one: the
part that does not fit alone is refused to whoever asked, the others get through.  A part
that only takes something away is never refused: it is answered, stays in the tables
for the time being, and is tried again later.  That may cause false positives, never negatives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from sievenet.control.configurators.desk import Desk
from sievenet.control.configurators.turns import Turns
from sievenet.control.deployment import Holdings, Rooms
from sievenet.control.diversions import is_diversion
from sievenet.control.layout import UNITED, Layout
from sievenet.control.parts import Part, Slices
from sievenet.control.registrations import Changes, Puts, Registrations
from sievenet.control.rollout import Outlet, Rollout
from sievenet.control.routes import Routes, Wires
from sievenet.control.tiling import Tiling
from sievenet.errors import SievenetError
from sievenet.index import Dz
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowChange, FlowTable, Match

__all__ = ["Lane", "LaneOwner"]


class LaneOwner(Protocol):
    """What a lane needs of its category."""

    number: int
    #: Wires of the catch-all flow of each group of lanes, while the plan changes.
    catch: list[int] | None
    #: No lane begins anything.
    held: bool
    #: How much of limited switches everybody has.
    rooms: Rooms
    #: Who works out what changes, if not this process; and how many lanes may work at a time, if not all.
    desk: Desk | None
    turns: Turns | None

    def rest(self) -> None:
        """A lane has become idle."""

    def uses(self, lane: Lane) -> bool:
        """Whether this is still one of its lanes."""

    def later(self, callback: Callable[[], None]) -> None:
        """Call back after a while."""


class Lane:
    """The queue, the registrations and the rollout of one partition."""

    def __init__(
        self,
        owner: LaneOwner,
        outlet: Outlet,
        wires: Wires,
        routes: Routes,
        *,
        prefix: int,
        group: int,
        group_dz: Dz,
        batch: int,
        slice: int,
        layout: Layout,
        tiling: Tiling,
        least: bool = True,
    ) -> None:
        self.owner = owner
        self.layout, self.tiling = layout, tiling
        self.registrations = layout.registrations(owner.number, wires, routes)
        self.prefix, self.group = prefix, group  # lanes of a group have one tree
        cells, who = layout is not UNITED, (owner.number, prefix)
        self.holdings = Holdings(owner.rooms, who, owner.number, prefix, least=least, cells=cells)
        self.queue: deque[Part] = deque()
        self.rollout: Rollout | None = None
        self._outlet, self._wires, self._group_dz = outlet, wires, group_dz
        self._batch, self._slices = batch, Slices(slice if layout is UNITED else 1, self.holds)
        #: How many parts still go one at a time.
        self._single = 0
        self._reroute: tuple[Routes, int] | None = None
        self._unknown: set[str] = set()
        #: Switches where the room is another, and merges that some are to have.
        self._refits: set[str] = set()
        self._merges: dict[str, Collection[Any]] = {}
        #: What a rollout that waits for room carries out.
        self._batch_waiting: tuple[list[Part], set[str]] | None = None
        self._dz = Dz.of_key(prefix)
        self._pumping = False
        #: Somebody else works out what changes.
        self._asked = False

    @property
    def idle(self) -> bool:
        """Whether no rollout is under way."""
        return self.rollout is None and not self._asked

    # -- what to do ------------------------------------------------------------------------

    def put(self, part: Part) -> None:
        """Queue a task behind everything that waits."""
        self.queue.append(part)
        self.pump()

    def reroute(self, routes: Routes, dead: int) -> None:
        """Use another tree as soon as possible."""
        self._reroute = routes, dead
        self.pump()

    def suspect(self, switches: Iterable[str]) -> None:
        """Read these switches and repair their tables."""
        self._unknown.update(switches)
        if self.rollout is not None:
            for switch in self._unknown & self.rollout.waiting:
                self.rollout.suspect(switch)
                self._unknown.discard(switch)
        self.pump()

    def refit(self, switch: str) -> None:
        """The room at a switch is another, or what is put between the ideal table and the deployed one."""
        if switch in self.holdings:
            self._refits.add(switch)
            self.pump()

    def remerge(self, merges: Mapping[str, Collection[Any]]) -> None:
        """Have these merges at switches, chosen for the whole network."""
        self._merges.update((switch, chosen) for switch, chosen in merges.items() if switch in self.holdings)
        self._refits.update(self._merges)
        self.pump()

    def steady(self, switch: str) -> bool:
        """Whether the table there is a single entry for everything."""
        return self.idle and self.holdings.steady(switch)

    def least(self, switch: str) -> int:
        """The fewest entries that its table there may have."""
        return self.holdings.least(switch)

    def put_back(self) -> None:
        """Do not begin what waits for room, but later: others wait for room that this lane has."""
        if self._batch_waiting is not None and self.owner.rooms.cancel(self.holdings.who):
            batch, concerned = self._batch_waiting
            if not batch:
                self._begin()  # another tree cannot be put back; a switch that has no room says so
                return
            self.rollout = self._batch_waiting = None
            self._take_back(batch)
            self._unknown |= concerned
            self._slices.put_back(self.queue, batch)

    def register(self, part: Part) -> None:
        """Change the registrations for a part, at once."""
        entry, wire, r = part.entry, part.wire, self.registrations
        if part.add:
            entry.keys += tuple(part.keys)
            (r.want if entry.wants else r.offer)(wire, part.keys)
        else:
            mine = entry.keys
            if self.prefix == 1:
                entry.keys = ()
            else:
                mine = tuple(key for key in mine if self.holds(key))
                entry.keys = tuple(key for key in entry.keys if not self.holds(key))
            (r.unwant if entry.wants else r.withdraw)(wire, mine)
            part.keys = mine

    def holds(self, key: int) -> bool:
        """Whether a dz or cell lies in this lane's partition."""
        return self.layout.holds(self.prefix, key)

    def pump(self) -> None:
        """Start the next rollout if possible."""
        if self._pumping:
            return  # a rollout that ended at once: the loop below goes on
        self._pumping = True
        try:
            while self.idle and not self.owner.held and self._may_begin():
                self._next()
        finally:
            self._pumping = False
        if self.idle:
            self.owner.rest()

    def _may_begin(self) -> bool:
        """Whether there is something to do, and it is this lane's turn."""
        turns = self.owner.turns
        if self.queue or self._reroute or self._unknown or self._refits:
            # Lanes that share the room of limited switches wait for each other already.
            return turns is None or bool(self.holdings) or turns.enter(self, self.pump)
        if turns is not None:
            turns.leave(self)
        return False

    def _next(self) -> None:
        desk = self.owner.desk
        if self._reroute is not None:
            routes, dead = self._reroute
            self._reroute = None
            self._take_home()
            self.registrations.reroute(routes, dead)
            self._go_on([], dead, self.registrations.changes())
            return
        batch: list[Part] = []
        if not self._refits:
            batch = self._slices.take(self.queue, 1 if self._single else self._batch)
            self._single = max(0, self._single - 1)
        mine = self.registrations
        if desk is None or not desk.open or not isinstance(mine, Registrations):
            self._take_home()
            desk = None
        for part in batch:
            self.register(part)
        if desk is not None and batch and isinstance(mine, Registrations):
            self._asked = True
            puts = Puts.of((not part.entry.wants, part.add, part.wire, part.keys) for part in batch)
            desk.order(self, mine, puts, len(batch), partial(self._told, batch))
        else:
            self._go_on(batch, 0, Changes() if mine.away else mine.changes(self.holdings.switches))

    def _told(self, batch: list[Part], changes: Changes) -> None:
        """What somebody else worked out."""
        self._asked = False
        self._go_on(batch, 0, changes)
        self.pump()

    def _take_home(self) -> None:
        """Work out what changes in this process, for once or from now on; nothing is on its way."""
        if isinstance(self.registrations, Registrations) and self.registrations.away:
            self.registrations.take_home()
            if self.owner.desk is not None:
                self.owner.desk.reload(self)

    def _go_on(self, batch: list[Part], dead: int, changes: Changes) -> None:
        """Tell the switches what changes."""
        needs: dict[str, int] = {}
        if self.holdings:
            refits, self._refits = self._refits, set()
            while self._merges:
                self.holdings.remerge(*self._merges.popitem())
            needs = self.holdings.advance(changes, refits)
        self._follow(changes, dead)
        unknown, self._unknown = self._unknown, set()
        if not changes and not unknown:
            self.holdings.settle(needs)
            for part in batch:
                part.done()
            return
        concerned = {*changes.first, *changes.second, *unknown, *needs}
        self.rollout = Rollout(
            self._outlet,
            [changes.first, changes.second] if changes.second else [changes.first],
            expected=lambda switch, step: self.expected(switch, changes.between if step == 0 else {}),
            scope=self.scope,
            done=lambda error: self._ended(batch, concerned, error),
            unknown=unknown,
            difference=self.holdings.difference,
        )
        if not needs:
            self.rollout.start()
            return
        self._batch_waiting = batch, concerned
        self.owner.rooms.begin(self.holdings.who, needs, self._begin, lambda e: self._ended(batch, concerned, e))

    def _begin(self) -> None:
        """There is room for the rollout."""
        assert self.rollout is not None
        self._batch_waiting = None
        self.rollout.start()

    def _ended(self, batch: list[Part], concerned: set[str], error: SievenetError | None) -> None:
        self.rollout = self._batch_waiting = None
        if self.owner.turns is not None:
            self.owner.turns.leave(self)  # behind those who wait, if there is more to do
        if error is None:
            for part in batch:
                part.done()
        else:
            self._undo(batch, concerned, error)
        if self.holdings:
            self.holdings.settle(concerned)
            self.owner.rooms.retry()
        self.pump()

    def _take_back(self, batch: list[Part]) -> None:
        self._take_home()
        for part in reversed(batch):
            part.add = not part.add
            self.register(part)
            part.add = not part.add
        # Not to be sent: every switch concerned is read instead.
        self.holdings.absorb(self.registrations.changes())

    def _undo(self, batch: list[Part], concerned: set[str], error: SievenetError) -> None:
        self._take_back(batch)
        if not batch:
            # Another tree, or a switch to be put right, does not fit: keep trying.
            self._later(partial(self.suspect, concerned))
            return
        self._unknown |= concerned
        if len(batch) > 1:
            self._slices.put_back(self.queue, batch)
            self._single = len(batch)
            return
        for part in batch:
            if part.add:
                part.done(error)
            else:
                part.done()
                self._later(partial(self.put, Part(part.entry, part.wire, False, (), None)))

    def _later(self, act: Callable[[], None]) -> None:
        """Try something again after a while, unless another plan has come by then."""
        self.owner.later(lambda: act() if self.owner.uses(self) else None)

    # -- tables ----------------------------------------------------------------------------

    def _follow(self, changes: Changes, dead: int) -> None:
        """While the plan changes, the catch-all flows cover whatever comes into use."""
        catch = self.owner.catch
        if catch is None:
            return
        was = catch[self.group]
        now = catch[self.group] = was & ~dead | changes.used
        for switch in self._wires.switches(was ^ now):
            flow = self.catch_all(switch)
            change: FlowChange = Add(flow) if flow.ports else Delete(flow)
            changes.first[switch] = [change, *changes.first.get(switch, ())]

    def catch_all(self, switch: str) -> Flow:
        """The flow for everything of this lane's group."""
        assert self.owner.catch is not None
        mask = self.owner.catch[self.group] & self._wires.out[switch]
        return Flow(Match(self.owner.number, self._group_dz), self._wires.ports(mask), TOP_PRIORITY)

    def table(self, switch: str) -> list[Flow]:
        """The lane's flows on a switch, except catch-all flows."""
        return self.holdings.table(switch) if switch in self.holdings else self.registrations.table(switch)

    def saw(self, switch: str, table: FlowTable) -> None:
        """What a switch holds at the start; merges that are found there and not needed are undone a little later."""
        self.holdings.saw(switch, [flow for flow in table if self.scope(flow)])
        if switch in self.holdings and self.holdings[switch].merged():
            self._later(partial(self.refit, switch))

    def absorb(self) -> None:
        """Follow the registrations without telling switches, whose whole tables are compared instead."""
        self.holdings.absorb(self.registrations.changes())

    def limit(self, switch: str) -> None:
        """A switch has a limit, or another one, or none any more; it is read and put right."""
        if switch not in self.owner.rooms.capacity:
            self.holdings.close(switch)
        elif switch not in self.holdings:
            self.open(switch, self.registrations.table(switch))
        self.suspect([switch])
        self.refit(switch)

    def open(self, switch: str, ideal: Iterable[Flow] = ()) -> None:
        """A switch with a limit gets a deployed table beside the ideal one."""
        self.holdings.open(switch, ideal)

    def expected(self, switch: str, between: Mapping[str, Sequence[Flow]] | None = None) -> list[Flow]:
        """What a switch should hold of this lane."""
        if switch in self.holdings:
            flows = {flow.key: flow for flow in (between or {}).get(switch) or self.holdings.table(switch)}
        else:
            flows = {flow.key: flow for flow in self.registrations.table(switch)}
            for flow in (between or {}).get(switch, ()):
                flows[flow.key] = flow
        if self.owner.catch is not None:
            flow = self.catch_all(switch)
            if flow.ports:
                flows[flow.key] = flow
        return list(flows.values())

    def scope(self, flow: Flow) -> bool:
        """Whether a flow belongs to this lane."""
        match = flow.match
        if match.category != self.owner.number or is_diversion(flow):
            return False
        return match.cell == self._group_dz if flow.priority == TOP_PRIORITY else self.layout.owns(self._dz, flow)
