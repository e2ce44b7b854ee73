"""Changing a category's index plan under traffic, without losing an event.

The light-weight approach of PLEROMA.  Old and new codes mean different things, so no flow
can serve both; what serves both is a flow that does not look at the code at all:

    catch-all    all of this category → every port in use before or after
    below it     old flows are removed, new flows added
    then         publishers use the new plan, old packets arrive, the catch-all is removed

`stages` has the steps as a table; here is what each step does.

Every step ends with the acknowledgements of all switches concerned.  Events in between go too
far (false positives), never astray: all ports of the catch-all lie on one tree.

One catch-all per *switch* is enough, where the paper has one per in-port: a switch never
sends a packet back where it came from, so the flows for its in-ports would differ in nothing
else.  A crash before `logging` rolls back (the catch-all flows are found and removed at
the next start); after it, the start catches again, repairs all tables and goes on with `telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import msgspec

from sievenet.content import Schema
from sievenet.control.commands import PlanBegin, PlanEnd
from sievenet.control.covering import Coverer
from sievenet.control.deployment.passage import under_catch_all
from sievenet.control.dispatcher import Covered
from sievenet.control.parts import Part
from sievenet.control.rollout import Rollout, Step
from sievenet.control.space import Space
from sievenet.control.stages import STAGES, Signal, Stage
from sievenet.control.state import Registration
from sievenet.errors import PlanError, SievenetError
from sievenet.index import Plan
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowChange, Modify

if TYPE_CHECKING:
    from sievenet.control.controller import Controller

__all__ = ["Transition", "TransitionReport", "usable"]

#: Registrations worked out in one go.
_CHUNK: Final = 200


class TransitionReport(msgspec.Struct, frozen=True):
    """How a change of plan went."""

    category: str
    epoch: int
    #: Seconds from one stage to the next.
    stages: dict[str, float]
    #: Flows in the whole network before and after.
    flows_before: int
    flows_after: int
    #: Most extra flows that any switch held at one time.
    extra_flows: int


class Transition:
    """A change of one category's plan."""

    def __init__(self, controller: Controller, space: Space, plan: Plan, epoch: int, ticket: int | None) -> None:
        self._c = controller
        self._space = space
        self.plan = plan
        self.epoch = epoch
        self._ticket = ticket
        self.stage: Stage = "covering"
        self._since = controller.board.now
        self._seconds: dict[str, float] = {}
        #: What is still to be covered, with the wire of its client.
        self.work: list[tuple[Registration, int]] = []
        #: What is being covered just now.
        self._flying: dict[Registration, int] = {}
        self._busy = False
        self._shadow: dict[Registration, tuple[Registration, int]] = {}
        self._lanes = space.new_lanes(controller.fleet.routes, plan)
        self._old = space.lanes
        self._flows = (0, 0)
        self._extra = 0
        #: Whether there is room for the catch-all flows, and who has it.
        self._roomy = True
        self._catcher = ("catch-all", space.number)
        self._old_category = controller.state.categories[space.number]
        self._coverer = Coverer(plan, self._old_category.budget)
        #: Why the change failed.
        self._error: SievenetError | None = None
        #: What each stage begins with.
        self._actions: dict[Stage, Callable[[], None]] = {
            "closing": self._close,
            "catching": self._catch,
            "logging": self._log,
            "swapping": self._swap,
            "telling": self._tell,
            "draining": self._drain,
            "ending": self._close,
            "clearing": self._clear,
            "reverting": self._revert,
            "aborting": self._abort,
            "resuming": self._catch_again,
            "repairing": self._repair,
            "ended": self._end,
        }

    def _happened(self, signal: Signal, error: SievenetError | None = None) -> None:
        """Go to the stage that the table says, if any, and begin it."""
        stage = STAGES[self.stage].get(signal)
        if stage is not None:
            self._error = self._error or error
            self._enter(stage)

    def _enter(self, stage: Stage) -> None:
        self._seconds[self.stage] = self._seconds.get(self.stage, 0.0) + self._c.board.now - self._since
        self._since = self._c.board.now
        self.stage = stage
        self._actions[stage]()

    def _done(self, error: SievenetError | None) -> None:
        """The work of the stage has ended."""
        self._happened("done" if error is None else "failed", error)

    # -- covering --------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin with all current registrations."""
        self._c.fleet.diversions.end([self._space.number])
        waiting = self._c.dispatcher.waiting  # they come by way of `added`
        for client in self._c.state.clients.values():
            if client.wire is not None:
                mine = (e for e in client.entries() if e.category == self._space.number and e not in waiting)
                self.work += [(e, client.wire) for e in mine]
        self.step()

    def step(self) -> None:
        """Cover a few more."""
        if self.stage != "covering" or self._busy:
            return
        if self.work:
            self._cover()
        else:
            self._happened("covered")

    def _cover(self) -> None:
        """Have a few registrations covered by the new plan, beside the event loop; `_covered` goes on."""
        batch = [self.work.pop() for _ in range(min(_CHUNK, len(self.work)))]
        self._busy, self._flying = True, dict(batch)
        contents = [(entry.content, entry.wants) for entry, _ in batch]

        def then(found: Sequence[Covered]) -> None:
            self._covered(list(zip(batch, found, strict=True)))

        self._c.dispatcher.cover(self._coverer, contents, then)

    def _covered(self, found: Sequence[tuple[tuple[Registration, int], Covered]]) -> None:
        still, self._busy, self._flying = self._flying, False, {}
        for (entry, wire), keys in found:
            if entry not in still:
                continue  # taken back meanwhile
            if isinstance(keys, SievenetError):
                self._done(keys)
                return
            # A stand-in that collects the dz of the new plan while the entry keeps the old ones.
            twin = Registration(entry.category, entry.wants, entry.record)
            for i, part in self._space.split(keys, self._lanes):
                self._lanes[i].register(Part(twin, wire, True, part, None))
            self._shadow[entry] = twin, wire
        self.step()

    def added(self, entry: Registration, wire: int) -> None:
        """A registration was added during the change."""
        if self.stage == "covering":
            self.work.append((entry, wire))
            self.step()

    def removed(self, entry: Registration) -> None:
        """A registration was removed during the change."""
        known = self._shadow.pop(entry, None)
        if known is not None:
            twin, wire = known
            for lane in self._lanes:
                lane.register(Part(twin, wire, False, (), None))
        elif self._flying.pop(entry, None) is None:
            self.work = [w for w in self.work if w[0] is not entry]

    # -- the acknowledged steps ------------------------------------------------------------

    def rested(self) -> None:
        """A lane has become idle; continue if the stage waits for it."""
        if self._space.idle and not self._space.held and self._roomy:
            self._happened("rested")

    def adopted(self) -> None:
        """All publishers use the new plan."""
        self._happened("adopted")

    def resume(self) -> None:
        """After a crash: the journal has the plan, but not the end."""
        self._enter("resuming")

    def _close(self) -> None:
        """New requests wait; the first time until every switch has room for the catch-all flows, too."""
        self._space.closed = True
        if self.stage == "closing" and self._limited:
            groups, rooms = self._c.config.spread, self._c.fleet.rooms
            self._roomy = False
            for switch in rooms.capacity:
                rooms.share(switch, self._catcher, groups)
            rooms.begin(self._catcher, dict.fromkeys(rooms.capacity, groups), self._has_room, self._done)
        else:
            self.rested()

    def _has_room(self) -> None:
        self._roomy = True
        self.rested()

    @property
    def _limited(self) -> bool:
        return bool(self._c.fleet.rooms.capacity)

    def _settle(self) -> None:
        for lane in self._space.lanes:
            lane.holdings.settle(self._c.fleet.rooms.capacity)

    def _catch(self) -> None:
        space = self._space
        space.held = True
        old = {s: space.table(s) for s in self._c.fleet.switches()}
        groups = self._c.config.spread
        for lane in self._lanes:
            lane.registrations.reroute(space.routes_of(self._c.fleet.routes, lane.group))
            for switch in self._c.fleet.rooms.capacity:
                lane.open(switch)
            lane.absorb()  # nothing to send: whole tables are exchanged
        space.catch = [0] * groups
        for lane in (*space.lanes, *self._lanes):
            space.catch[lane.group] |= lane.registrations.used()
        step: Step = {s: [Add(f) for f in space.catch_flows(s)] for s in self._c.fleet.switches()}
        self._flows = sum(map(len, old.values())), 0
        self._extra = max((len(changes) for changes in step.values()), default=0)
        self._roll({s: changes for s, changes in step.items() if changes})

    def _log(self) -> None:
        self._c.log(PlanBegin(self._space.number, self.plan.to_json(), self.epoch), self._done)

    def _swap(self) -> None:
        step: dict[str, list[FlowChange]] = {}
        for switch in self._c.fleet.switches():
            old = {f.key: f for lane in self._old for f in lane.table(switch)}
            new = {f.key: f for lane in self._lanes for f in lane.table(switch)}
            changes: list[FlowChange] = [Delete(f) for key, f in old.items() if key not in new]
            changes += [Modify(f) for key, f in new.items() if key in old and old[key] != f]
            changes += [Add(f) for key, f in new.items() if key not in old]
            if changes:
                step[switch] = changes
            self._flows = self._flows[0], self._flows[1] + len(new)
            for lane in self._lanes:
                if switch in lane.holdings:
                    self._c.fleet.rooms.hold(switch, lane.holdings.who, len(lane.holdings[switch]))
        self._space.use(self._lanes)
        self._roll(step)

    def _tell(self) -> None:
        for entry, (twin, _) in self._shadow.items():
            entry.keys = twin.keys
        self._shadow.clear()
        self._settle()
        self._space.forget(self._old)
        self._error = None  # tables that could not be repaired at once are read again by and by
        self._c.fleet.realign(self._space)
        self._c.tell(self._space.number, self.epoch)
        self._space.open()

    def _drain(self) -> None:
        self._c.board.after(self._c.config.forwarding_delay, lambda: self._done(None))

    def _clear(self) -> None:
        space = self._space
        space.held = True
        step = {s: [Delete(f) for f in flows] for s in self._c.fleet.switches() if (flows := space.catch_flows(s))}
        space.catch = None
        self._roll(step, self._cleared)

    def _cleared(self, error: SievenetError | None) -> None:
        self._c.log(PlanEnd(self._space.number, self.epoch), lambda _: self._done(error))

    def _revert(self) -> None:
        self._space.use(self._old)
        old = self._old_category
        self._c.log(PlanBegin(old.number, old.plan.to_json(), old.epoch), lambda _: None)
        self._c.log(PlanEnd(old.number, old.epoch), lambda _: None)
        self._done(None)

    def _abort(self) -> None:
        self._space.catch = None
        self._roll({}, unknown=self._c.fleet.switches())

    def _end(self) -> None:
        report = TransitionReport(
            self.plan.schema.name, self.epoch, self._seconds, *self._flows, extra_flows=self._extra
        )
        self._settle()
        self._space.forget([*self._old, *self._lanes])
        self._c.fleet.rooms.leave(self._catcher)
        self._c.ended(self._space, self._ticket, self._error, report)
        self._space.open()

    # -- after a crash ---------------------------------------------------------------------

    def _catch_again(self) -> None:
        space = self._space
        self._lanes = self._old = space.lanes
        space.closed = space.held = True
        for switch in self._c.fleet.rooms.capacity:
            self._c.fleet.rooms.settle(switch, self._catcher, self._c.config.spread)
            for lane in space.lanes:
                lane.holdings.fit(switch)
        # Nobody knows which ports the old flows used: take all between any publisher and any subscriber.
        wanting, offering = self._c.state.wires_of(space.number)
        space.catch = []
        for lane in space.groups():
            routes = lane.registrations.routes
            to = reduce(or_, map(routes.to.__getitem__, wanting), 0)
            space.catch.append(to & reduce(or_, map(routes.frm.__getitem__, offering), 0))
        step = {s: [Add(f) for f in flows] for s in self._c.fleet.switches() if (flows := space.catch_flows(s))}
        self._extra = max((len(changes) for changes in step.values()), default=0)
        self._roll(step)

    def _repair(self) -> None:
        self._roll({}, unknown=self._c.fleet.switches())

    # -- rollouts --------------------------------------------------------------------------

    def _roll(
        self, step: Step, done: Callable[[SievenetError | None], None] | None = None, unknown: Iterable[str] = ()
    ) -> None:
        self._c.board.watch(
            Rollout(
                self._c.board,
                [step],
                expected=self._expected,
                done=done or self._done,
                unknown=unknown,
                scope=(lambda f: self._owns(f) and f.priority == TOP_PRIORITY) if self._catching else self._owns,
                difference=lambda _, holds, wanted: under_catch_all(holds, wanted),
            )
        )

    @property
    def _catching(self) -> bool:
        return self.stage in ("catching", "resuming")

    def _owns(self, flow: Flow) -> bool:
        return flow.match.category == self._space.number

    def _expected(self, switch: str, step: int) -> list[Flow]:
        if self._catching:
            return self._space.catch_flows(switch)
        return self._space.table(switch)


def usable(schema: Schema, plan: Plan) -> Plan:
    """The plan, completed by a region for the rest if need be; `PlanError` if it cannot be used."""
    if plan.schema != schema:
        raise PlanError(expected=f"a plan for {schema.name} version {schema.version}", got=plan.schema.name)
    # With a region for every event no subscription has to be refused later.
    return plan if plan.complete else plan.with_rest()
