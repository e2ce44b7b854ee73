"""A switch of another machine, as the control plane has it: orders to its agent, and the answers.

An agent that comes (back) keeps the clients that its switch lets in, but for those that have left: a control plane that
has just started does not know all of them yet, and their events go on meanwhile. Once it does (`keep_only`), whoever is
not among them has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.plane import SwitchCounters
from sievenet.errors import Rejected, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.session.connection import Connection
from sievenet.session.message import raised

__all__ = ["AgentConnection", "RemoteSwitch"]

_T = TypeVar("_T")
#: Seconds for an answer.
_ANSWER: Final = 10.0


class AgentConnection(Connection):
    """The connection of an agent."""

    switch: RemoteSwitch | None = None

    def __str__(self) -> str:
        return self.address if self.switch is None else f"switch {self.switch.name}"


class RemoteSwitch:
    """A switch of another machine, through its agent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._connection: AgentConnection | None = None
        #: Whether its agent has made it what it has to be, and whether all its clients are known here: until then those
        #: of an earlier control plane go on.
        self.ready = self.surveyed = False
        #: Clients that have left while its agent was away.
        self._left: set[int] = set()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._order = 0
        #: What it said last.
        self._counters = SwitchCounters({}, {})
        self._reasons: Mapping[str, int] = {}
        #: When its agent was there last.
        self.seen = 0.0

    @property
    def connected(self) -> bool:
        """Whether its agent is there."""
        return self._connection is not None

    def connect(self, connection: AgentConnection) -> None:
        """Its agent speaks through this from now on; one that spoke before is told, and sent away."""
        if self._connection is not None:
            self._connection.end(Rejected(f"Another agent speaks for switch {self.name}"))
        self._forget("another agent speaks for it")
        self._connection, self.ready = connection, False

    def disconnect(self, connection: AgentConnection) -> None:
        """A connection is gone, and with it whatever was asked on it."""
        if self._connection is connection:
            self._connection, self.ready = None, False
            self.seen = time.monotonic()
            self._forget("its agent is gone")

    def _forget(self, reason: str) -> None:
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"Switch {self.name}: {reason}"))
                answer.exception()  # whoever waits is told; nobody has to

    def answered(self, message: p.Carried | p.Refused) -> None:
        """An answer has come."""
        answer = self._open.pop(message.order, None)
        if answer is None or answer.done():
            return
        if isinstance(message, p.Carried):
            answer.set_result(message.answer)
        else:
            answer.set_exception(raised(message.reason))
            answer.exception()

    async def ask(self, kind: Any, *arguments: Any) -> Any:
        """Give its agent an order; `Unavailable` if there is no answer."""
        if self._connection is None or not self.ready:
            raise Unavailable(f"Switch {self.name}: its agent is not connected")
        self._order = self._order % 0xFFFFFFFF + 1
        answer = self._open[self._order] = asyncio.get_running_loop().create_future()
        self._connection.send(kind(self._order, *arguments))
        try:
            async with asyncio.timeout(_ANSWER):
                return await answer
        except TimeoutError:
            raise Unavailable(f"Switch {self.name}: its agent does not answer") from None

    async def apply(self, changes: Sequence[FlowChange]) -> None:
        """Carry out changes; in effect when this returns."""
        await self.ask(p.Apply, p.wire_changes(changes))

    async def table(self) -> FlowTable:
        """What it holds."""
        return FlowTable(map(p.unpacked, self._read(await self.ask(p.Read), list[p.WireFlow])))

    async def counters(self) -> SwitchCounters:
        """What it has counted."""
        found = self._read(await self.ask(p.Read, True), p.Counted)
        self._counters, self._reasons = p.counters_of(found), found.reasons
        return self._counters

    def _read(self, answer: Any, kind: type[_T]) -> _T:
        """What an agent has answered; `Unavailable` if it is something else."""
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise Unavailable(f"Switch {self.name}: its agent answers with something else: {error}") from None

    def counters_now(self) -> SwitchCounters:
        """What it said last."""
        return self._counters

    def reasons(self) -> Mapping[str, int]:
        """Packets dropped, by reason, as it said last."""
        return self._reasons

    def received(self) -> int:
        """Packets that came from clients, those that have left included, as it said last."""
        return self._counters.clients.received.packets

    async def admit(self, client: p.Client) -> None:
        """Let a client send, or change what it may do."""
        await self.ask(p.Permit, client)
        self._left.discard(client.number)

    async def dismiss(self, number: int) -> None:
        """A client has left."""
        self._left.add(number)
        await self.ask(p.Leave, number)
        self._left.discard(number)

    def keep_only(self, clients: Sequence[p.Client]) -> None:
        """Clients that are not among these have left; an agent that is away is told when it comes back."""
        self.surveyed = True
        self._left.clear()
        if self._connection is not None and self.ready:
            self._order = self._order % 0xFFFFFFFF + 1
            self._connection.send(p.Clients(self._order, tuple(clients)))

    async def welcome(self, clients: Sequence[p.Client]) -> None:
        """Its agent has come (back): these are its clients, or some of them."""
        if self.surveyed:
            await self.ask(p.Clients, clients)
            self._left.clear()
            return
        for number in sorted(self._left - {client.number for client in clients}):
            await self.dismiss(number)
        for client in clients:
            await self.admit(client)

    async def permit(self, client: p.Client) -> bool:
        """Change what a client may do; an agent that is away is told when it comes back."""
        with contextlib.suppress(Unavailable):
            await self.ask(p.Permit, client)
        return True
