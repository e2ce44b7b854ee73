"""Changing a category's index plan under traffic, without losing an event.

The light-weight approach of PLEROMA.  Old and new codes mean different things, so no flow
can serve both; what serves both is a flow that does not look at the code at all:

    covering    the new registrations are worked out beside the old ones, a little at a time
    closing     new requests wait, the lanes run empty
    catching    every switch gets one flow of top priority: all of this category → every
                port in use before or after
    logging     the journal has it: from here on a crash finishes the move
    swapping    old flows are removed, new flows added below; requests go on
    telling     publishers use the new plan, each confirms
    draining    the slowest packet with an old code arrives
    ending      the catch-all flows are removed

Every step ends with the acknowledgements of all switches concerned.  Events in between go too
far (false positives), never astray: all ports of the catch-all lie on one tree.

One catch-all per *switch* is enough, where the paper has one per in-port: a switch never
sends a packet back where it came from, so the flows for its in-ports would differ in nothing
else.  A crash before `logging` rolls back (the catch-all flows are found and removed at
the next start); after it, the start goes through the steps again from `catching` on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from sievenet.content import Schema
from sievenet.control.commands import PlanBegin, PlanEnd
from sievenet.control.covering import Coverer
from sievenet.control.dispatcher import Found
from sievenet.control.lane import Part
from sievenet.control.rollout import Rollout, Step
from sievenet.control.space import Space
from sievenet.control.state import Entry
from sievenet.errors import PlanError, SievenetError
from sievenet.index import Plan
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowChange, Modify

if TYPE_CHECKING:
    from sievenet.control.controller import Controller

__all__ = ["Transition", "TransitionReport", "usable"]

Stage = Literal["covering", "closing", "catching", "logging", "swapping", "telling", "draining", "ending", "aborting"]

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
    """One category on its way to another plan."""

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
        self.work: list[tuple[Entry, int]] = []
        #: What is being covered just now.
        self._flying: dict[Entry, int] = {}
        self._busy = False
        self._shadow: dict[Entry, tuple[Entry, int]] = {}
        self._lanes = space.new_lanes(controller.fleet.routes)
        self._old = space.lanes
        self._flows = (0, 0)
        self._extra = 0
        self._old_category = controller.state.categories[space.number]
        self._coverer = Coverer(plan, self._old_category.budget)

    def _enter(self, stage: Stage) -> None:
        self._seconds[self.stage] = self._seconds.get(self.stage, 0.0) + self._c.board.now - self._since
        self._since = self._c.board.now
        self.stage = stage

    # -- covering --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with everything registered now."""
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
            self._enter("closing")
            self._space.closed = True
            self.rested()

    def _cover(self) -> None:
        """Have a few registrations covered by the new plan, beside the event loop; `_covered` goes on."""
        batch = [self.work.pop() for _ in range(min(_CHUNK, len(self.work)))]
        self._busy, self._flying = True, dict(batch)
        contents = [(entry.content, entry.wants) for entry, _ in batch]

        def then(found: Sequence[Found]) -> None:
            self._covered(list(zip(batch, found, strict=True)))

        self._c.dispatcher.cover(self._coverer, contents, then)

    def _covered(self, found: Sequence[tuple[tuple[Entry, int], Found]]) -> None:
        still, self._busy, self._flying = self._flying, False, {}
        for (entry, wire), keys in found:
            if entry not in still:
                continue  # taken back meanwhile
            if isinstance(keys, SievenetError):
                self._end(keys)
                return
            # A stand-in that collects the dz of the new plan while the entry keeps the old ones.
            twin = Entry(entry.category, entry.wants, entry.record)
            for i, part in self._space.split(keys):
                self._lanes[i].register(Part(twin, wire, True, part, None))
            self._shadow[entry] = twin, wire
        self.step()

    def added(self, entry: Entry, wire: int) -> None:
        """Something was registered meanwhile."""
        if self.stage == "covering":
            self.work.append((entry, wire))
            self.step()

    def removed(self, entry: Entry) -> None:
        """Something was taken back meanwhile."""
        known = self._shadow.pop(entry, None)
        if known is not None:
            twin, wire = known
            for lane in self._lanes:
                lane.register(Part(twin, wire, False, (), None))
        elif self._flying.pop(entry, None) is None:
            self.work = [w for w in self.work if w[0] is not entry]

    # -- the acknowledged steps ------------------------------------------------------------

    def rested(self) -> None:
        """A lane has come to rest; go on if that was waited for."""
        if self._space.held or not self._space.idle:
            return
        if self.stage == "closing":
            self._catch()
        elif self.stage == "ending":
            self._uncatch()

    def _catch(self) -> None:
        self._enter("catching")
        space = self._space
        space.held = True
        old = {s: space.table(s) for s in self._c.fleet.switches()}
        groups = self._c.config.spread
        for i, lane in enumerate(self._lanes):
            lane.registrations.reroute(space.routes_of(self._c.fleet.routes, i * groups // len(self._lanes)))
            lane.registrations.changes()  # nothing to send: whole tables are exchanged
        each = len(self._lanes) // groups
        space.catch = []
        for g in range(groups):
            lanes = space.lanes[g * each : (g + 1) * each] + self._lanes[g * each : (g + 1) * each]
            space.catch.append(reduce(or_, (lane.registrations.used() for lane in lanes)))
        step: Step = {s: [Add(f) for f in space.catch_flows(s)] for s in self._c.fleet.switches()}
        self._flows = sum(map(len, old.values())), 0
        self._extra = max((len(changes) for changes in step.values()), default=0)
        self._roll({s: changes for s, changes in step.items() if changes}, self._caught)

    def _caught(self, error: SievenetError | None) -> None:
        if error is not None:
            self._abort(error)
            return
        self._enter("logging")
        self._c.log(PlanBegin(self._space.number, self.plan.to_json(), self.epoch), self._logged)

    def _logged(self, error: SievenetError | None) -> None:
        if error is not None:
            self._abort(error)
            return
        self._enter("swapping")
        space = self._space
        step: dict[str, list[FlowChange]] = {}
        for switch in self._c.fleet.switches():
            old = {f.key: f for lane in self._old for f in lane.registrations.table(switch)}
            new = {f.key: f for lane in self._lanes for f in lane.registrations.table(switch)}
            changes: list[FlowChange] = [Delete(f) for key, f in old.items() if key not in new]
            changes += [Modify(f) for key, f in new.items() if key in old and old[key] != f]
            changes += [Add(f) for key, f in new.items() if key not in old]
            if changes:
                step[switch] = changes
            self._flows = self._flows[0], self._flows[1] + len(new)
        space.lanes = self._lanes
        self._roll(step, self._swapped)

    def _swapped(self, error: SievenetError | None) -> None:
        if error is not None:
            self._space.lanes = self._old
            old = self._old_category
            self._c.log(PlanBegin(old.number, old.plan.to_json(), old.epoch), lambda _: None)
            self._c.log(PlanEnd(old.number, old.epoch), lambda _: None)
            self._abort(error)
            return
        for entry, (twin, _) in self._shadow.items():
            entry.keys = twin.keys
        self._shadow.clear()
        self._tell()

    def _tell(self) -> None:
        self._enter("telling")
        self._c.fleet.realign(self._space)
        self._c.tell(self._space.number, self.epoch)
        self._space.open()

    def adopted(self) -> None:
        """All publishers use the new plan."""
        if self.stage == "telling":
            self._enter("draining")
            self._c.board.after(self._c.config.forwarding_delay, self._drained)

    def _drained(self) -> None:
        self._enter("ending")
        self._space.closed = True
        self.rested()

    def _uncatch(self) -> None:
        space = self._space
        space.held = True
        step = {s: [Delete(f) for f in flows] for s in self._c.fleet.switches() if (flows := space.catch_flows(s))}
        space.catch = None
        self._roll(step, self._uncaught)

    def _uncaught(self, error: SievenetError | None) -> None:
        self._c.log(PlanEnd(self._space.number, self.epoch), lambda _: self._end(error))

    def _abort(self, error: SievenetError) -> None:
        """Put the old state back and say why."""
        self._enter("aborting")
        self._space.catch = None
        self._roll({}, lambda _: self._end(error), unknown=self._c.fleet.switches())

    def _end(self, error: SievenetError | None) -> None:
        self._enter(self.stage)
        report = TransitionReport(
            self.plan.schema.name, self.epoch, self._seconds, *self._flows, extra_flows=self._extra
        )
        self._c.ended(self._space, self._ticket, error, report)
        self._space.open()

    # -- after a crash ---------------------------------------------------------------------

    def resume(self) -> None:
        """The journal has the plan, but not the end: go through the steps again."""
        self._enter("catching")
        space = self._space
        self._lanes = self._old = space.lanes
        space.closed = space.held = True
        # Nobody knows which ports the old flows used: take all between any publisher and any subscriber.
        wanting, offering = self._c.state.wires_of(space.number)
        groups = self._c.config.spread
        each = len(space.lanes) // groups
        space.catch = []
        for lane in space.lanes[::each]:
            routes = lane.registrations.routes
            to = reduce(or_, map(routes.to.__getitem__, wanting), 0)
            space.catch.append(to & reduce(or_, map(routes.frm.__getitem__, offering), 0))
        step = {s: [Add(f) for f in flows] for s in self._c.fleet.switches() if (flows := space.catch_flows(s))}
        self._extra = max((len(changes) for changes in step.values()), default=0)
        self._roll(step, self._caught_again)

    def _caught_again(self, error: SievenetError | None) -> None:
        self._enter("swapping")
        self._roll({}, lambda _: self._tell(), unknown=self._c.fleet.switches())

    # -- helping ---------------------------------------------------------------------------

    def _roll(self, step: Step, done: Callable[[SievenetError | None], None], unknown: Iterable[str] = ()) -> None:
        catching = self.stage == "catching"
        self._c.board.watch(
            Rollout(
                self._c.board,
                [step],
                expected=self._expected,
                done=done,
                unknown=unknown,
                scope=(lambda f: self._owns(f) and f.priority == TOP_PRIORITY) if catching else self._owns,
            )
        )

    def _owns(self, flow: Flow) -> bool:
        return flow.match.category == self._space.number

    def _expected(self, switch: str, step: int) -> list[Flow]:
        if self.stage == "catching":
            return self._space.catch_flows(switch)
        return self._space.table(switch)


def usable(schema: Schema, plan: Plan) -> Plan:
    """The plan, completed by a region for the rest if need be; `PlanError` if it cannot be used."""
    if plan.schema != schema:
        raise PlanError(expected=f"a plan for {schema.name} version {schema.version}", got=plan.schema.name)
    if plan.kind != "dz":
        raise PlanError(expected="a plan of kind dz (tables here are united)", got=plan.kind)
    # With a region for every event no subscription has to be refused later.
    return plan if plan.complete else plan.with_rest()
