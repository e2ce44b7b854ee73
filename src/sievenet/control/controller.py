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
The journal failing (a full disk) hurts whoever asked and nobody else.  What fails in the network
is the business of `fleet`; a switch that does not answer stalls the lanes that need it, see `rollout`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from sievenet.content import Subscription
from sievenet.control import signals
from sievenet.control.aside import Aside
from sievenet.control.commands import (
    Advertise,
    Command,
    Join,
    Leave,
    Remove,
    Subscribe,
    Trees,
    Unadvertise,
    Unsubscribe,
)
from sievenet.control.config import ControlConfig
from sievenet.control.dispatcher import Covered, Dispatcher
from sievenet.control.fleet import Fleet
from sievenet.control.leases import Leases
from sievenet.control.ledger import Entered, Ledger, Then
from sievenet.control.parts import Job
from sievenet.control.recovery import replay
from sievenet.control.space import Space
from sievenet.control.state import Client, Registration, State
from sievenet.control.status import mistake
from sievenet.control.transition import Transition, TransitionReport, usable
from sievenet.control.trees import Links, TreeKeeper
from sievenet.errors import Rejected, SievenetError
from sievenet.network import Flow, Topology, link_id

__all__ = ["Controller"]

logger = logging.getLogger(__name__)


class Controller:
    """The controller: pure, one stimulus at a time."""

    def __init__(
        self,
        topology: Topology,
        config: ControlConfig,
        records: Iterable[bytes] = (),
        down_switches: Iterable[str] = (),
        down_links: Iterable[tuple[str, str]] = (),
        capacities: Mapping[str, int | None] | None = None,
    ) -> None:
        self.config = config
        self.state = State()
        #: Records of the journal that could not be carried out.
        self.aside = replay(self.state, records)
        self.spaces: dict[int, Space] = {}
        self.transitions: dict[int, Transition] = {}
        trees = TreeKeeper(topology, config.trees, self.state.trees)
        trees.down_switches |= set(down_switches)
        trees.down_links |= {link_id(*link) for link in down_links}
        trees.mend()
        self.fleet = Fleet(topology, trees, self.spaces, config, self._remember)
        self.board = self.fleet.board
        for switch, capacity in (capacities or {}).items():
            self.fleet.resize(switch, capacity)
        self._leases = Leases(self.state, self.board, config, self._lease_ended)
        self._ledger = Ledger(self.state, config.snapshot)
        self.dispatcher = Dispatcher(self.state, self.spaces, self.transitions, self.board, config.share)
        self._jobs: dict[Registration, Job] = {}
        #: Categories that are about to be removed.
        self._closing: set[int] = set()
        self._started = False
        #: Requests begun and not answered.
        self.open_requests = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            signals.Request: self._on_request,
            signals.PlanRequest: self._on_plan_request,
            signals.Placed: self._on_placed,
            signals.Renewed: self._on_renewed,
            signals.Written: lambda s: self._on_written(None),
            signals.NotWritten: lambda s: self._on_written(s.error),
            signals.Acknowledged: lambda s: self.board.acknowledged(s.serials),
            signals.Undefined: lambda s: self.board.undefined(s.serial),
            signals.Refused: lambda s: self.board.refused(s.serial, s.error),
            signals.SwitchTable: lambda s: self.board.told(s.serial, s.table),
            signals.NotRead: lambda s: self.board.told(s.serial, None),
            signals.SwitchChanged: lambda s: self.fleet.switch_changed(s.switch, s.up),
            signals.LinkChanged: lambda s: self.fleet.link_changed(s.a, s.b, s.up),
            signals.Redrawn: lambda s: self.fleet.redraw(s.topology),
            signals.Merged: lambda s: self.fleet.remerge(s.chosen),
            signals.Sized: lambda s: self.fleet.resize(s.switch, s.capacity),
            signals.Adopted: self._on_adopted,
            signals.Covered: lambda s: self.dispatcher.covered(s.serial, s.found),
            signals.Divert: self.fleet.divert,
            signals.Tick: lambda s: self.board.turn(),
            **(self.fleet.desk.handlers() if self.fleet.desk is not None else {}),
        }

    # -- the one way in --------------------------------------------------------------------

    def handle(self, stimulus: signals.Stimulus, now: float) -> list[signals.Instruction]:
        """React to one stimulus."""
        self.board.now = now
        self._handlers[type(stimulus)](stimulus)
        self.board.ring()
        return self._flush(gather=isinstance(stimulus, signals.Request))

    def start(self, now: float, covered: Mapping[Registration, Covered] | None = None) -> list[signals.Instruction]:
        """Begin, once the clients that the journal knows are placed: read all switches and put them right.

        What is registered is covered already, or is set aside.
        """
        self.board.now = now
        self._started = True
        for number in self.state.categories:
            self._open_space(number)
        self.fleet.begin()
        for client in self.state.clients.values():
            self._leases.begin(client)
            for entry in list(client.entries()):
                keys = (covered or {}).get(entry)
                if isinstance(keys, SievenetError):
                    self.aside.append(Aside(entry.record, str(keys)))
                    self.state.strike(client, entry)
                elif client.wire is not None:
                    self.dispatcher.register_now(entry, client.wire, keys)
        for number, space in self.spaces.items():
            for lane in space.lanes:
                lane.absorb()
            if number in self.state.moving:
                category = self.state.categories[number]
                transition = Transition(self, space, category.plan, category.epoch, None)
                self.transitions[number] = transition
                transition.resume()
            else:
                for lane in space.lanes:
                    lane.suspect(self.fleet.switches())
        self._sweep()
        return self._flush()

    def next_deadline(self) -> float | None:
        """When `Tick` is due at the latest."""
        return self.board.next_deadline()

    def _flush(self, gather: bool = False) -> list[signals.Instruction]:
        self.board.flush()
        write = self._ledger.next(self.board.serial, gather)
        if write is not None:
            self.board.out.append(write)
        out, self.board.out = self.board.out, []
        return out

    def _sweep(self) -> None:
        """Remove flows that belong to nobody: of categories nobody knows, or of other partitions than there are."""
        self.fleet.clean(self.fleet.switches(), self._unowned, lambda: None)

    def _unowned(self, flow: Flow) -> bool:
        space = self.spaces.get(flow.match.category)
        return space is None or not any(lane.scope(flow) for lane in space.lanes)

    # -- requests and the journal ----------------------------------------------------------

    def _on_request(self, request: signals.Request) -> None:
        if self.open_requests >= self.config.waiting:
            error = Rejected(f"{self.open_requests} requests wait already, which is the limit: try again later")
            self.board.out.append(signals.Reply(request.ticket, error))
            return
        if isinstance(request.command, Remove):
            if request.command.number in self.transitions:
                error = Rejected("The plan of this category is being changed: try again when that has ended")
                self.board.out.append(signals.Reply(request.ticket, error))
                return
            self._closing.add(request.command.number)
        self.open_requests += 1
        self._ledger.enter(request.command, request.said, request.ticket)

    def log(self, command: Command, then: Then) -> None:
        """Put a command into the journal, carry it out, and go on."""
        self._ledger.enter(command, then=then)

    def _on_written(self, error: SievenetError | None) -> None:
        batch = self._ledger.finished()
        if error is None:
            said: dict[int, list[tuple[bytes, Subscription | None]]] = {}
            for waiting in batch:
                if isinstance(waiting.command, Subscribe | Advertise):
                    said.setdefault(waiting.command.category, []).append((waiting.command.content, waiting.said))
            for number, contents in said.items():
                self.dispatcher.ahead(number, contents)
        for waiting in batch:
            if error is None:
                self._attempt(waiting)
            else:
                self._failed(waiting, error)
        if error is None:
            self.dispatcher.pump()

    def _failed(self, waiting: Entered, error: SievenetError) -> None:
        if isinstance(waiting.command, Remove):
            self._closing.discard(waiting.command.number)
        if waiting.ticket is not None:
            self._reply(waiting.ticket, error)
        elif waiting.then is not None:
            waiting.then(error)

    def _attempt(self, waiting: Entered) -> None:
        """Apply a command; an internal error is reported to its requester alone."""
        try:
            self._execute(waiting)
        except Exception as error:
            logger.exception("A %s could not be carried out", type(waiting.command).__name__)
            self._failed(waiting, mistake(error))

    def abandon(self) -> None:
        """Drop all open requests: the shell has answered them."""
        self.open_requests = 0

    def _reply(self, ticket: int, error: SievenetError | None = None, result: object = None) -> None:
        self.open_requests = max(0, self.open_requests - 1)
        self.board.out.append(signals.Reply(ticket, error, result))

    def _execute(self, waiting: Entered) -> None:
        ticket = waiting.ticket
        try:
            effect = self.state.execute(waiting.command, waiting.record)
        except SievenetError as error:
            self._failed(waiting, error)
            return
        tickets = [] if ticket is None else [ticket]
        if effect.closed is not None:
            job = Job(tickets, partial(self._closed, effect.closed))
            for owner, entry in effect.orphans:
                self.dispatcher.dispatch(entry, owner.wire, False, job)
            job.part_done()
            return
        if effect.category is not None:
            self._open_space(effect.category.number)
        if effect.same is not None:
            if effect.same in self._jobs:
                self._jobs[effect.same].tickets += tickets
            elif ticket is not None:
                self._reply(ticket)
            return
        client = effect.client
        if isinstance(waiting.command, Join) and client is not None:
            self._leases.begin(client)
        if client is None or not (effect.added or effect.removed or isinstance(waiting.command, Leave)):
            if ticket is not None:
                self._reply(ticket, None, effect.category)
            if waiting.then is not None:
                waiting.then(None)
            return
        if effect.added:
            entry = next(iter(effect.added))
            job = self._jobs[entry] = Job(tickets, partial(self._added, client, entry, waiting.command))
            assert isinstance(waiting.command, Subscribe | Advertise)
            self.dispatcher.dispatch(entry, client.wire, True, job, waiting.said, waiting.command.content)
        else:
            gone = client if isinstance(waiting.command, Leave) else None
            job = Job(tickets, partial(self._removed, gone, waiting.then))
            for entry in effect.removed:
                self.dispatcher.dispatch(entry, client.wire, False, job)
        job.part_done()

    def _added(self, client: Client, entry: Registration, command: Command, job: Job) -> None:
        held = client.subscriptions if entry.wants else client.advertisements
        assert isinstance(command, Subscribe | Advertise)
        if job.error is None or held.get(command.id) is not entry:
            self._answered(entry, job)
            return
        # Not everywhere: take it back where it is, and in the journal. Only then is it refused: what was refused must
        # not be there again after a crash, nor must somebody who asks again be told that it stands.
        undo = Unsubscribe if entry.wants else Unadvertise
        self.log(undo(client.name, command.id), lambda _: self._answered(entry, job))

    def _answered(self, entry: Registration, job: Job) -> None:
        self._jobs.pop(entry, None)
        entry.lanes = ()
        for ticket in job.tickets:
            self._reply(ticket, job.error)

    def _removed(self, gone: Client | None, then: Then | None, job: Job) -> None:
        if gone is not None and gone.wire is not None:
            self.fleet.detach(gone.wire)
            gone.wire = None
            if gone.name not in self.state.clients:
                self.board.out.append(signals.Detach(gone.name))
        for ticket in job.tickets:
            self._reply(ticket, job.error)
        if then is not None:
            then(None)

    def _remember(self, trees: tuple[Links, ...]) -> None:
        """Write a record that only the next start needs; a full disk does not stop the network."""
        if trees != self.state.trees and self._started:
            self.log(Trees(trees), lambda _: None)

    # -- clients ---------------------------------------------------------------------------

    def _on_placed(self, placed: signals.Placed) -> None:
        client = self.state.clients.get(placed.client)
        if client is None or client.wire is not None:
            return
        client.wire = self.fleet.attach(placed.switch, placed.port)
        if not self._started:
            return
        if not self.fleet.whole:
            self.fleet.reroute()  # ways from clients list the clients they reach
        job = Job([], self._placed)
        for entry in client.entries():
            self.dispatcher.dispatch(entry, client.wire, True, job)
        job.part_done()
        self.dispatcher.pump()

    @staticmethod
    def _placed(job: Job) -> None:
        if job.error is not None:
            logger.error("A registration of a client that came back does not stand: %s", job.error)

    def _on_renewed(self, renewed: signals.Renewed) -> None:
        if (client := self.state.clients.get(renewed.client)) is not None:
            self._leases.renew(client)

    def _lease_ended(self, client: Client) -> None:
        self.log(Leave(client.name), partial(self._expired, client.name))

    def _expired(self, name: str, error: SievenetError | None) -> None:
        if error is None:
            self.board.out.append(signals.Expired(name))

    # -- categories ------------------------------------------------------------------------

    def _open_space(self, number: int) -> None:
        if number not in self.spaces:
            space = Space(number, self.fleet, self.config, self._rested)
            space.use(space.new_lanes(self.fleet.routes, self.state.categories[number].plan))
            self.spaces[number] = space

    def _closed(self, number: int, job: Job) -> None:
        """The last flow of a category has been removed."""
        self._closing.discard(number)
        if (space := self.spaces.pop(number, None)) is not None:
            space.leave()
        self.dispatcher.forget(number)
        for ticket in job.tickets:
            self._reply(ticket, job.error)

    def _rested(self, space: Space) -> None:
        if (transition := self.transitions.get(space.number)) is not None:
            transition.rested()

    def _on_plan_request(self, request: signals.PlanRequest) -> None:
        self.open_requests += 1
        try:
            category = self.state.category(number := request.number)
            plan = usable(category.schema, request.plan)
            if number in self._closing:
                raise Rejected(f"{category.name} is being removed")
            if number in self.transitions:
                raise Rejected(f"The plan of {category.name} is being changed already: try again when that has ended")
        except SievenetError as error:
            self._reply(request.ticket, error)
            return
        transition = Transition(self, self.spaces[number], plan, category.epoch + 1, request.ticket)
        self.transitions[number] = transition
        transition.begin()

    def _on_adopted(self, adopted: signals.Adopted) -> None:
        transition = self.transitions.get(adopted.number)
        if transition is not None and transition.epoch == adopted.epoch:
            transition.adopted()

    def tell(self, number: int, epoch: int) -> None:
        """Tell the publishers of a category about its plan."""
        self.board.out.append(signals.Tell(number, epoch))

    def ended(self, space: Space, ticket: int | None, error: SievenetError | None, report: TransitionReport) -> None:
        """A transition has ended."""
        del self.transitions[space.number]
        if ticket is not None:
            self._reply(ticket, error, report)
