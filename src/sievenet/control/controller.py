"""The controller: stimuli in, instructions out.

It decides everything and does nothing: no socket, no file, no clock (`now` comes with each
stimulus).  `handle` is the one method that changes anything; the shell (`plane`) carries
out what it returns.  The way of a request:

    Request ──▶ waits ──▶ Write ⋯ Written ──▶ State ──▶ parts ──▶ lanes ──▶ Apply ⋯ Acknowledged ──▶ Reply
                 │ as many as came while           │       cut at the          │  one difference per
                 │ the last write took             │       partitions'         │  switch for all that
                 │ (group commit)                  │       borders             │  waited in the lane
                 └ NotWritten ──▶ Reply(error)     └ refused ──▶ Reply(error)

So a request is on disk before switches hear of it, and both before its client is answered.
The journal failing (a full disk) hurts whoever asked and nobody else.

What the network does: a switch or link that fails is taken out of the trees (`trees`), every
lane moves over in two steps.  A switch that comes back is read and emptied first, and
used after that.  A switch that does not answer stalls the lanes that need it, see `rollout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sievenet.content import Schema, Subscription
from sievenet.control.commands import (
    Advertise,
    Command,
    Join,
    Leave,
    Subscribe,
    Trees,
    Unadvertise,
    Unsubscribe,
    decode_command,
)
from sievenet.control.config import ControlConfig
from sievenet.control.covering import Coverer
from sievenet.control.lane import Job, Part
from sievenet.control.ledger import Entered, Ledger, Then
from sievenet.control.rollout import Rollout
from sievenet.control.signals import (
    Acknowledged,
    Adopted,
    Detach,
    Expired,
    Instruction,
    LinkChanged,
    NotRead,
    NotWritten,
    Placed,
    PlanRequest,
    Refused,
    Renewed,
    Reply,
    Request,
    Stimulus,
    SwitchChanged,
    SwitchTable,
    Tell,
    Tick,
    Undefined,
    Written,
)
from sievenet.control.space import Space
from sievenet.control.state import Category, Client, Entry, State
from sievenet.control.switchboard import Switchboard
from sievenet.control.transition import Transition, TransitionReport
from sievenet.control.trees import TreeKeeper
from sievenet.control.wires import Routes, Wires
from sievenet.errors import PlanError, Rejected, SievenetError
from sievenet.index import Plan
from sievenet.network import Flow, Topology, link_id

__all__ = ["Controller"]


class Controller:
    """Everything that one controller decides."""

    def __init__(
        self,
        topology: Topology,
        config: ControlConfig,
        records: Iterable[bytes] = (),
        down_switches: Iterable[str] = (),
        down_links: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.config = config
        self.state = State()
        for record in records:
            try:
                self.state.execute(decode_command(record), record)
            except SievenetError:  # refused then, refused now
                continue
        self.wires = Wires(topology)
        self.trees = TreeKeeper(topology, config.trees, self.state.trees)
        self.trees.down_switches |= set(down_switches)
        self.trees.down_links |= {link_id(*link) for link in down_links}
        self.trees.mend()
        self.routes = [Routes(self.wires, tree) for tree in self.trees.trees]
        self.spaces: dict[int, Space] = {}
        self.transitions: dict[int, Transition] = {}
        #: Switches that are back, but not used before they are clean.
        self._joining: set[str] = set()
        self.board = Switchboard(self.up, config.retry)
        self._ledger = Ledger(self.state, config.snapshot)
        self._jobs: dict[Entry, Job] = {}
        self._coverers: dict[int, Coverer] = {}
        self._started = False
        #: Requests begun and not answered.
        self.open_requests = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            Request: self._on_request,
            PlanRequest: self._on_plan_request,
            Placed: self._on_placed,
            Renewed: self._on_renewed,
            Written: lambda s: self._on_written(None),
            NotWritten: lambda s: self._on_written(s.error),
            Acknowledged: lambda s: self.board.acknowledged(s.serial),
            Undefined: lambda s: self.board.undefined(s.serial),
            Refused: lambda s: self.board.refused(s.serial, s.error),
            SwitchTable: lambda s: self.board.told(s.serial, s.table),
            NotRead: lambda s: self.board.told(s.serial, None),
            SwitchChanged: self._on_switch,
            LinkChanged: self._on_link,
            Adopted: self._on_adopted,
            Tick: lambda s: self.board.turn(),
        }

    # -- the one way in --------------------------------------------------------------------

    def handle(self, stimulus: Stimulus, now: float) -> list[Instruction]:
        """React to one stimulus."""
        self.board.now = now
        self._handlers[type(stimulus)](stimulus)
        self.board.ring()
        return self._flush()

    def start(self, now: float) -> list[Instruction]:
        """Begin, once the clients that the journal knows are placed: read all switches and put them right."""
        self.board.now = now
        self._started = True
        for number in self.state.categories:
            self._open_space(number)
        for client in self.state.clients.values():
            client.deadline = now + self.config.lease
            self._watch_lease(client)
            if client.wire is not None:
                for entry in client.entries():
                    self._register_now(entry, client.wire)
        for number, space in self.spaces.items():
            for lane in space.lanes:
                lane.registrations.changes()  # whole tables are compared instead
            if number in self.state.moving:
                category = self.state.categories[number]
                transition = Transition(self, space, category.plan, category.epoch, None)
                self.transitions[number] = transition
                transition.resume()
            else:
                for lane in space.lanes:
                    lane.suspect(self.switches())
        self._sweep()
        return self._flush()

    def next_deadline(self) -> float | None:
        """When `Tick` is due at the latest."""
        return self.board.next_deadline()

    def _flush(self) -> list[Instruction]:
        self.board.flush()
        write = self._ledger.next(self.board.serial)
        if write is not None:
            self.board.out.append(write)
        out, self.board.out = self.board.out, []
        return out

    def _sweep(self) -> None:
        """Remove flows that belong to nobody: of categories nobody knows, or of other partitions than there are."""
        self.board.watch(
            Rollout(
                self.board,
                [{}],
                expected=lambda *_: (),
                scope=self._unowned,
                done=lambda _: None,
                unknown=self.switches(),
            )
        )

    def _unowned(self, flow: Flow) -> bool:
        space = self.spaces.get(flow.match.category)
        return space is None or not any(lane.scope(flow) for lane in space.lanes)

    # -- requests and the journal ----------------------------------------------------------

    def _on_request(self, request: Request) -> None:
        if self.open_requests >= self.config.waiting:
            error = Rejected(f"{self.open_requests} requests wait already, which is the limit: try again later")
            self.board.out.append(Reply(request.ticket, error))
            return
        self.open_requests += 1
        self._ledger.enter(request.command, request.said, request.ticket)

    def log(self, command: Command, then: Then) -> None:
        """Put a command into the journal, carry it out, and go on."""
        self._ledger.enter(command, then=then)

    def _on_written(self, error: SievenetError | None) -> None:
        for waiting in self._ledger.finished():
            if error is None:
                self._execute(waiting)
            elif waiting.ticket is not None:
                self._reply(waiting.ticket, error)
            elif waiting.then is not None:
                waiting.then(error)
        if error is None:
            for space in self.spaces.values():
                space.pump()

    def _reply(self, ticket: int, error: SievenetError | None = None, result: object = None) -> None:
        self.open_requests -= 1
        self.board.out.append(Reply(ticket, error, result))

    def _execute(self, waiting: Entered) -> None:
        ticket = waiting.ticket
        try:
            effect = self.state.execute(waiting.command, waiting.record)
        except SievenetError as error:
            if ticket is not None:
                self._reply(ticket, error)
            elif waiting.then is not None:
                waiting.then(error)
            return
        if effect.category is not None:
            self._open_space(effect.category.number)
        tickets = [] if ticket is None else [ticket]
        if effect.same is not None:
            job = self._jobs.get(effect.same)
            if job is not None:
                job.tickets += tickets
            elif ticket is not None:
                self._reply(ticket)
            return
        client = effect.client
        if isinstance(waiting.command, Join) and client is not None:
            client.deadline = self.board.now + self.config.lease
            self._watch_lease(client)
        if client is None or not (effect.added or effect.removed or isinstance(waiting.command, Leave)):
            if ticket is not None:
                self._reply(ticket, None, effect.category)
            if waiting.then is not None:
                waiting.then(None)
            return
        if effect.added:
            entry = next(iter(effect.added))
            job = self._jobs[entry] = Job(tickets, partial(self._added, client, entry, waiting.command))
            self._dispatch(entry, client.wire, True, job, waiting.said)
        else:
            gone = client if isinstance(waiting.command, Leave) else None
            job = Job(tickets, partial(self._removed, gone, waiting.then))
            for entry in effect.removed:
                self._dispatch(entry, client.wire, False, job)
        job.part_done()

    def _dispatch(
        self, entry: Entry, wire: int | None, add: bool, job: Job, said: Subscription | None = None
    ) -> None:
        """Give each lane its part of a request."""
        if wire is None:
            return  # its client has no port yet: registered when it gets one
        space = self.spaces[entry.category]
        job.remaining += 1
        if space.closed:
            space.postponed.append(partial(self._dispatch_now, space, entry, wire, add, job, said))
        else:
            self._dispatch_now(space, entry, wire, add, job, said)

    def _dispatch_now(
        self, space: Space, entry: Entry, wire: int, add: bool, job: Job, said: Subscription | None
    ) -> None:
        transition = self.transitions.get(space.number)
        if add:
            category = self.state.categories[space.number]
            try:
                keys = self._coverer(category).keys(said or entry.subscription(category.schema), entry.wants)
            except SievenetError as error:
                job.part_done(error)
                return
            parts = space.split(keys)
            if transition is not None:
                transition.added(entry, wire)
        else:
            parts = [(i, ()) for i in range(len(space.lanes))]
            if transition is not None:
                transition.removed(entry)
        job.remaining += len(parts)
        for i, share in parts:
            space.lanes[i].queue.append(Part(entry, wire, add, share, job))
        job.part_done()

    def _coverer(self, category: Category) -> Coverer:
        coverer = self._coverers.get(category.number)
        if coverer is None or coverer.plan is not category.plan:
            coverer = self._coverers[category.number] = Coverer(category.plan, category.budget)
        return coverer

    def _register_now(self, entry: Entry, wire: int) -> None:
        """Register without telling switches: at the start, when whole tables are compared."""
        space = self.spaces[entry.category]
        category = self.state.categories[entry.category]
        keys = self._coverer(category).keys(entry.subscription(category.schema), entry.wants)
        for i, share in space.split(keys):
            space.lanes[i].register(Part(entry, wire, True, share, None))

    def _added(self, client: Client, entry: Entry, command: Command, job: Job) -> None:
        self._jobs.pop(entry, None)
        for ticket in job.tickets:
            self._reply(ticket, job.error)
        if job.error is None:
            return
        # Not everywhere: take it back where it is, and in the journal.
        held = client.subscriptions if entry.wants else client.advertisements
        assert isinstance(command, Subscribe | Advertise)
        if held.get(command.id) is entry:
            undo = Unsubscribe if entry.wants else Unadvertise
            self.log(undo(client.name, command.id), lambda _: None)

    def _removed(self, gone: Client | None, then: Then | None, job: Job) -> None:
        if gone is not None and gone.wire is not None:
            for routes in self.routes:
                routes.forget(gone.wire)
            self.wires.detach(gone.wire)
            gone.wire = None
            if gone.name not in self.state.clients:
                self.board.out.append(Detach(gone.name))
        for ticket in job.tickets:
            self._reply(ticket, job.error)
        if then is not None:
            then(None)

    # -- clients ---------------------------------------------------------------------------

    def _on_placed(self, placed: Placed) -> None:
        client = self.state.clients.get(placed.client)
        if client is None or client.wire is not None:
            return
        client.wire = self.wires.attach(placed.switch, placed.port)
        for routes in self.routes:
            routes.forget(client.wire)
        if not self._started:
            return
        if not all(routes.whole for routes in self.routes):
            self._reroute()  # ways from clients list the clients they reach
        job = Job([], lambda _: None)
        for entry in client.entries():
            self._dispatch(entry, client.wire, True, job)
        job.part_done()
        for space in self.spaces.values():
            space.pump()

    def _on_renewed(self, renewed: Renewed) -> None:
        client = self.state.clients.get(renewed.client)
        if client is not None:
            client.deadline = self.board.now + self.config.lease

    def _watch_lease(self, client: Client) -> None:
        self.board.at(client.deadline, partial(self._check_lease, client))

    def _check_lease(self, client: Client) -> None:
        if self.state.clients.get(client.name) is not client:
            return
        if client.deadline > self.board.now:
            self._watch_lease(client)
            return
        client.deadline = self.board.now + self.config.retry  # if the journal is full, once more then
        self._watch_lease(client)
        self.log(Leave(client.name), partial(self._expired, client.name))

    def _expired(self, name: str, error: SievenetError | None) -> None:
        if error is None:
            self.board.out.append(Expired(name))

    # -- categories ------------------------------------------------------------------------

    def _open_space(self, number: int) -> None:
        if number not in self.spaces:
            space = Space(number, self.board, self.wires, self.config, rest=self._rested, later=self.board.later)
            space.lanes = space.new_lanes(self.routes)
            self.spaces[number] = space

    def _rested(self, space: Space) -> None:
        transition = self.transitions.get(space.number)
        if transition is not None:
            transition.rested()

    def _on_plan_request(self, request: PlanRequest) -> None:
        self.open_requests += 1
        number = request.number
        try:
            category = self.state.category(number)
            plan = self._usable(category.schema, request.plan)
            if number in self.transitions:
                raise Rejected(f"The plan of {category.name} is being changed already: wait for the end of that")
        except SievenetError as error:
            self._reply(request.ticket, error)
            return
        transition = Transition(self, self.spaces[number], plan, category.epoch + 1, request.ticket)
        self.transitions[number] = transition
        transition.begin()

    @staticmethod
    def _usable(schema: Schema, plan: Plan) -> Plan:
        if plan.schema != schema:
            raise PlanError(expected=f"a plan for {schema.name} version {schema.version}", got=plan.schema.name)
        if plan.kind != "dz":
            raise PlanError(expected="a plan of kind dz (tables here are united)", got=plan.kind)
        # With a region for every event no subscription has to be refused later.
        return plan if plan.complete else plan.with_rest()

    def _on_adopted(self, adopted: Adopted) -> None:
        transition = self.transitions.get(adopted.number)
        if transition is not None and transition.epoch == adopted.epoch:
            transition.adopted()

    def tell(self, number: int, epoch: int) -> None:
        """Have the publishers of a category told."""
        self.board.out.append(Tell(number, epoch))

    def ended(self, space: Space, ticket: int | None, error: SievenetError | None, report: TransitionReport) -> None:
        """A transition is over."""
        del self.transitions[space.number]
        if ticket is not None:
            self._reply(ticket, error, report)

    def wires_of(self, number: int) -> tuple[set[int], set[int]]:
        """The wires of all who want, and of all who offer, something of a category."""
        wanting, offering = set(), set()
        for client in self.state.clients.values():
            if client.wire is not None:
                if any(e.category == number for e in client.subscriptions.values()):
                    wanting.add(client.wire)
                if any(e.category == number for e in client.advertisements.values()):
                    offering.add(client.wire)
        return wanting, offering

    # -- the network -----------------------------------------------------------------------

    def switches(self) -> list[str]:
        """The switches in use."""
        return [s for s in self.wires.out if self.up(s)]

    def up(self, switch: str) -> bool:
        """Whether a switch is in use, or being made ready for it."""
        return switch not in self.trees.down_switches or switch in self._joining

    def _on_switch(self, change: SwitchChanged) -> None:
        switch = change.switch
        if switch not in self.wires.out:
            return
        down = self.trees.down_switches
        if not change.up:
            self._joining.discard(switch)
            if switch not in down:
                down.add(switch)
                self._reroute()
            self._gone(switch)
        elif switch in down:
            if switch not in self._joining:
                self._joining.add(switch)
                self._clean(switch)
        else:
            # Nobody saw it go, but it may have forgotten everything.
            for space in self.spaces.values():
                for lane in space.lanes:
                    lane.suspect([switch])

    def _clean(self, switch: str) -> None:
        self.board.watch(
            Rollout(
                self.board,
                [{}],
                expected=lambda *_: (),
                scope=lambda _: True,
                unknown=[switch],
                done=lambda _: self._use(switch),
            )
        )

    def _use(self, switch: str) -> None:
        if switch in self._joining:
            self._joining.discard(switch)
            self.trees.down_switches.discard(switch)
            self._reroute()

    def _gone(self, switch: str) -> None:
        for rollout in self._rollouts():
            rollout.gone(switch)

    def _rollouts(self) -> list[Rollout]:
        return self.board.watched + [
            lane.rollout for space in self.spaces.values() for lane in space.lanes if lane.rollout is not None
        ]

    def _on_link(self, change: LinkChanged) -> None:
        link = link_id(change.a, change.b)
        (self.trees.down_links.discard if change.up else self.trees.down_links.add)(link)
        self._reroute(mended=True)

    def _reroute(self, mended: bool = False) -> None:
        """Fit trees, routes and lanes to the network as it is."""
        if not self.trees.mend() and mended:
            return
        self.routes = [Routes(self.wires, tree) for tree in self.trees.trees]
        remembered = self.trees.remembered()
        if remembered != self.state.trees and self._started:
            # Remembered for the next start only; a full disk must not keep the network from working.
            self.log(Trees(remembered), lambda _: None)
        dead = self.trees.dead(self.wires)
        for space in self.spaces.values():
            space.reroute(self.routes, dead)

    def realign(self, space: Space) -> None:
        """Lanes made a while ago follow the trees of now."""
        space.reroute(self.routes, self.trees.dead(self.wires))
