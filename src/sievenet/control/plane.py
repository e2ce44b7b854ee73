"""ControlPlane: the shell around the controller: tasks, the journal, the data plane, the clock.

Every instruction becomes an action, and what comes of it a stimulus; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from sievenet.content import Schema, Subscription, encode_subscription
from sievenet.control import signals
from sievenet.control.commands import (
    Advertise,
    Announced,
    Command,
    Join,
    Leave,
    Remove,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    registration,
    takes_long,
)
from sievenet.control.config import ControlConfig
from sievenet.control.consultant import Consultant
from sievenet.control.controller import Controller
from sievenet.control.courier import Courier
from sievenet.control.grains import with_grain
from sievenet.control.journal import Journal
from sievenet.control.layout import check_kind
from sievenet.control.recovery import cover_all, cover_recovered
from sievenet.control.state import Category
from sievenet.control.status import Member, Placement, Status, mistake
from sievenet.control.tiles import with_tiles
from sievenet.control.transition import TransitionReport
from sievenet.control.worker import Worker
from sievenet.dataplane.plane import Attached, DataPlane, LinkDown, LinkUp, Redrawn, SwitchDown, SwitchUp
from sievenet.errors import InvalidInput, Rejected, SchemaError, SievenetError, Unavailable
from sievenet.index import Plan
from sievenet.session.lifetime import Tasks

__all__ = ["ControlPlane", "Member", "Placement", "Status"]

logger = logging.getLogger(__name__)


class ControlPlane(Consultant):
    """Advertise, subscribe, change plans; see `docs/topics/control-plane.md`."""

    def __init__(
        self, dataplane: DataPlane, journal: Journal, config: ControlConfig, controller: Controller, worker: Worker
    ) -> None:
        super().__init__(controller)
        self._dataplane = dataplane
        self._courier = Courier(dataplane, self._handle)
        self._journal = journal
        self.config = config
        #: Does what takes long, beside the event loop.
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._ticket = 0
        self._tasks = Tasks()
        self._attached: dict[str, Attached] = {}
        self._before_plan: list[Callable[[int], Awaitable[None]]] = []
        self._on_plan: list[Callable[[Category], Awaitable[None]]] = []
        #: Done as soon as somebody listens to changes of plans.
        self._heard: asyncio.Future[None] = self._loop.create_future()
        #: Categories whose plan was being changed when an earlier control plane died.
        self._resumed: frozenset[int] = frozenset()
        self._on_expired: list[Callable[[str], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._closed = False
        self._listening: asyncio.Task[None] | None = None

    # -- starting and stopping -------------------------------------------------------------

    @classmethod
    async def start(
        cls, dataplane: DataPlane, journal: Journal, config: ControlConfig | None = None, worker: Worker | None = None
    ) -> ControlPlane:
        """Replay the journal, read the switches and repair them."""
        config = config or ControlConfig()
        worker = worker or Worker(config.covering)
        notices = dataplane.notices()  # from here on, so that nothing is missed
        switches, links = dataplane.down()
        sizes = {s: config.limit(s, dataplane.capacity(s)) for s in dataplane.topology.switches}
        check_kind(config.kind, dataplane)
        controller = Controller(dataplane.topology, config, journal.load(), switches, links, sizes)
        plane = cls(dataplane, journal, config, controller, worker)
        for client in list(controller.state.clients.values()):
            await plane._place(client.name, client.host)
        plane._resumed = frozenset(controller.state.moving)
        covered = await cover_recovered(controller, worker)
        instructions = controller.start(plane._loop.time(), covered)
        for each in controller.aside:
            logger.error("set aside, since it cannot be carried out: %s (%s)", each.what, each.error)
        journal.set_aside(controller.aside)
        plane._carry_out(instructions)
        plane._listening = plane._tasks.begin(plane._listen(notices))
        deadline = plane._loop.time() + config.recovery
        while plane._loop.time() < deadline and any(not s.idle for s in controller.spaces.values()):
            await asyncio.sleep(0.001)
        return plane

    async def _place(self, client: str, host: str) -> Attached | None:
        try:
            attached = await self._dataplane.attach(host, client)
        except (Unavailable, InvalidInput):
            return None  # it gets its place when it comes back
        self._attached[client] = attached
        self._handle(signals.Placed(client, attached.switch, attached.port))
        await self._permit(client)
        return attached

    async def _permit(self, client: str) -> None:
        """Tell the plane in which categories a client advertises."""
        known = self._controller.state.clients.get(client)
        if known is not None:
            await self._dataplane.permit(client, frozenset(e.category for e in known.entries() if not e.wants))

    async def close(self) -> None:
        """Stop deciding; switches keep what they have."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        for future in self._tickets.values():
            if not future.done():
                future.set_exception(Unavailable("The control plane is closing"))
        self._tickets.clear()
        await self._journal.close()

    # -- schemas and plans -----------------------------------------------------------------

    async def register_schema(self, schema: Schema, bits: int = 0) -> Category:
        """Make a schema known, or confirm that it is; with a plan of dz and so many bits, if not as usual."""
        what = (schema, bits or self.config.bits, "dz" if bits else self.config.kind, self.config.budget)
        command = await self.worker.run(registration, *what) if takes_long(schema) else registration(*what)
        return self._controller.state.categories[(await self._ask(command)).number]

    async def announced(self, number: int) -> None:
        """All subscribers concerned have confirmed this version of a schema."""
        await self._ask(Announced(number))

    async def remove(self, number: int, force: bool = False) -> None:
        """End a category; with `force` even if something is registered in it."""
        await self._ask(Remove(number, force))

    async def apply_plan(self, category: str, plan: Plan) -> TransitionReport:
        """Change a category's plan under traffic; returns when no trace of the old one is left."""
        check_kind(plan.kind, self._dataplane)
        numbers = [each.number for each in self.versions(category) if each.schema == plan.schema]
        number = numbers[0] if numbers else self.category(category).number
        for callback in self._before_plan:
            await callback(number)
        plan = await with_grain(self._controller.state, number, plan, self.worker)
        plan = await with_tiles(self._controller.state, number, plan, self.config, self.worker)
        future = self._future()
        self._handle(signals.PlanRequest(self._ticket, number, plan))
        report: TransitionReport = await future
        return report

    def before_plan(self, callback: Callable[[int], Awaitable[None]]) -> None:
        """Call with a category's number before its plan is changed; what it does comes first."""
        self._before_plan.append(callback)

    def on_plan(self, callback: Callable[[Category], Awaitable[None]]) -> None:
        """Call when publishers must use a category's plan; it returns when all do, or are gone."""
        self._on_plan.append(callback)
        if not self._heard.done():
            self._heard.set_result(None)

    def on_expired(self, callback: Callable[[str], None]) -> None:
        """Call when a client's lease has ended."""
        self._on_expired.append(callback)

    def merge(self, chosen: Mapping[int, Mapping[str, Collection[Any]]]) -> None:
        """Have these merges in tables that do not fit (`traffic`)."""
        self._handle(signals.Merged(chosen))

    # -- clients ---------------------------------------------------------------------------

    async def join(self, client: str, host: str, resume: bool = False) -> Placement:
        """Give a client a place; with `resume` a known one takes its session over again."""
        known = self._controller.state.clients.get(client)
        if known is not None:
            if not resume:
                raise Rejected(f"The name {client} is taken (until its holder leaves, or is silent for a lease)")
            self._handle(signals.Renewed(client))
            attached = await self._dataplane.attach(known.host, client)
            self._attached[client] = attached
            self._handle(signals.Placed(client, attached.switch, attached.port))
            await self._permit(client)
            return Placement(client, known.host, self.config.lease, attached)
        attached = await self._dataplane.attach(host, client)
        try:
            await self._ask(Join(client, host, secrets.randbits(48)))
        except SievenetError:
            if client not in self._controller.state.clients:
                await self._dataplane.detach(client)
            raise
        self._attached[client] = attached
        self._handle(signals.Placed(client, attached.switch, attached.port))
        await self._permit(client)
        return Placement(client, host, self.config.lease, attached)

    async def renew(self, client: str) -> None:
        """Renew the lease."""
        if client not in self._controller.state.clients:
            raise Rejected(f"Nobody is known as {client}: join first (the lease may have ended)")
        self._handle(signals.Renewed(client))

    def cut_off(self, client: str) -> str:
        """The switch of a client, if that is down: nothing comes to the client, or from it; else nothing."""
        attached, down = self._attached.get(client), self._controller.fleet.trees.down_switches
        return attached.switch if attached is not None and attached.switch in down else ""

    async def leave(self, client: str) -> None:
        """Take everything of a client back."""
        await self._ask(Leave(client))

    async def advertise(self, client: str, id: int, subscription: Subscription, content: bytes | None = None) -> None:
        """A client will publish this (``content``: as bytes, if they are known); returns when the switches know."""
        category = self._known(subscription)
        content = content or encode_subscription(subscription)
        await self._ask(Advertise(client, id, category.number, content), subscription)
        await self._permit(client)

    async def unadvertise(self, client: str, id: int) -> None:
        """Take an advertisement back."""
        await self._ask(Unadvertise(client, id))
        await self._permit(client)

    async def subscribe(self, client: str, id: int, subscription: Subscription, content: bytes | None = None) -> None:
        """A client wants this (``content``: as bytes, if they are known).

        When it returns, whatever is published from now on is delivered.
        """
        category = self._known(subscription)
        content = content or encode_subscription(subscription)
        await self._ask(Subscribe(client, id, category.number, content), subscription)

    async def unsubscribe(self, client: str, id: int) -> None:
        """Take a subscription back."""
        await self._ask(Unsubscribe(client, id))

    def _known(self, subscription: Subscription) -> Category:
        schema = subscription.schema
        if schema is None:
            raise SchemaError("Expected content of a registered category, got some without a schema")
        for category in self.versions(schema.name):
            if category.schema is schema or category.schema == schema:
                return category
        known = self.category(schema.name)
        raise SchemaError(
            expected=f"the registered schema {schema.name}, version {known.schema.version}",
            got=f"`another one, version {schema.version}`",
        )

    # -- the shell -------------------------------------------------------------------------

    def _future(self) -> asyncio.Future[Any]:
        if self._closed:
            raise Unavailable("The control plane is closed")
        self._ticket += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._tickets[self._ticket] = future
        return future

    async def _ask(self, command: Command, said: Subscription | None = None) -> Any:
        future = self._future()
        self._handle(signals.Request(self._ticket, command, said))
        return await future

    def _handle(self, stimulus: signals.Stimulus) -> None:
        if self._closed:
            return
        try:
            instructions = self._controller.handle(stimulus, self._loop.time())
        except Exception as error:
            # A mistake of ours.  Whom it concerns cannot be told here; nobody shall wait for ever.
            logger.exception("The controller failed at %s", type(stimulus).__name__)
            self._controller.abandon()
            for ticket in list(self._tickets):
                self._answer(ticket, mistake(error), None)
        else:
            self._carry_out(instructions)

    def _carry_out(self, instructions: list[signals.Instruction]) -> None:
        for each in instructions:
            if type(each) is signals.Reply:  # the frequent ones first
                self._answer(each.ticket, each.error, each.result)
                continue
            if type(each) is signals.Apply:
                self._tasks.begin(self._courier.apply(each))
                continue
            match each:
                case signals.Soon():
                    if not self._soon:
                        self._soon = True
                        self._loop.call_soon(self._again)
                case signals.Consult():
                    self._consult(each)
                case signals.Write():
                    self._tasks.begin(self._write(each))
                case signals.Read():
                    self._tasks.begin(self._courier.read(each))
                case signals.Cover():
                    self._tasks.begin(self._cover(each))
                case signals.Tell(number, epoch):
                    self._tasks.begin(self._tell(number, epoch))
                case signals.Detach(client):
                    self._attached.pop(client, None)
                    self._tasks.begin(self._dataplane.detach(client))
                case signals.Expired(client):
                    for callback in self._on_expired:
                        callback(client)
        self._set_timer()

    def _answer(self, ticket: int, error: SievenetError | None, result: object) -> None:
        self._answered += 1
        self._refused += error is not None
        future = self._tickets.pop(ticket, None)
        if future is None or future.done():
            return  # whoever asked has gone
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _again(self) -> None:
        self._soon = False
        self._handle(signals.Tick())

    def _set_timer(self) -> None:
        deadline = self._controller.next_deadline()
        if self._timer is not None:
            if deadline is not None and self._timer.when() <= deadline and not self._timer.cancelled():
                return  # it rings early enough, and is set anew then
            self._timer.cancel()
            self._timer = None
        if deadline is not None and not self._closed:
            self._timer = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._handle(signals.Tick())

    async def _write(self, order: signals.Write) -> None:
        try:
            await self._journal.append(order.records, order.replace)
        except SievenetError as error:
            self._handle(signals.NotWritten(order.serial, error))
        else:
            self._handle(signals.Written(order.serial))

    async def _cover(self, order: signals.Cover) -> None:
        try:
            found = await self.worker.run(cover_all, order.coverer, order.contents)
        except SievenetError as error:
            found = [error] * len(order.contents)
        self._handle(signals.Covered(order.serial, found))

    async def _tell(self, number: int, epoch: int) -> None:
        if number in self._resumed and not self._on_plan:
            # Begun by an earlier life: its publishers come back within their leases, or are gone.
            await asyncio.wait((self._heard,), timeout=self.config.lease)
        category = self._controller.state.categories[number]
        for failure in await asyncio.gather(*(tell(category) for tell in self._on_plan), return_exceptions=True):
            if isinstance(failure, Exception):
                logger.error("Telling the clients of a plan failed", exc_info=failure)
        self._handle(signals.Adopted(number, epoch))

    async def _listen(self, notices: Any) -> None:
        async for notice in notices:
            match notice:
                case SwitchUp(switch):
                    self._handle(signals.Sized(switch, self.config.limit(switch, self._dataplane.capacity(switch))))
                    self._handle(signals.SwitchChanged(switch, True))
                case SwitchDown(switch):
                    self._handle(signals.SwitchChanged(switch, False))
                case LinkUp(a, b):
                    self._handle(signals.LinkChanged(a, b, True))
                case LinkDown(a, b):
                    self._handle(signals.LinkChanged(a, b, False))
                case Redrawn(topology):
                    self._handle(signals.Redrawn(topology))
            if isinstance(notice, SwitchUp | LinkUp | Redrawn):
                for client in list(self._controller.state.clients.values()):
                    if client.wire is None:
                        await self._place(client.name, client.host)
