"""Switches on several machines, each with an agent, and perhaps one on this machine: a network for the plane.

The topology is given, not found out: it says which switch has which ports, and an agent says whose it is. A switch
counts as up once its agent has answered, and as lost when its agent has been away for longer than `grace`: it goes on
forwarding meanwhile, with the tables that it has. Whenever an agent comes (back), the control plane is told that the
switch is up, and reads and repairs its table: the agent may have found the switch as it was, or made a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sievenet.access.identity import Credentials, Gate, OpenGate, Role
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.handle import Handle, Listener, LocalSwitch
from sievenet.dataplane.kernel.machine import Machine
from sievenet.dataplane.local import MTU, address_of
from sievenet.dataplane.plane import SwitchCounters
from sievenet.dataplane.roster import Place
from sievenet.errors import CodecError, InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import Alive, Done, Failure, Goodbye, failure, raised

__all__ = ["Fleet", "RemoteSwitch"]

log = logging.getLogger("sievenet.kernel")

_CHUNK: Final = 1 << 18
#: Seconds for a hello, and for an answer.
_HELLO: Final = 5.0
_ANSWER: Final = 10.0


class RemoteSwitch:
    """A switch of another machine, through its agent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._writer: asyncio.StreamWriter | None = None
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._request = 0
        #: What it said last.
        self._counters = SwitchCounters({}, {})
        self._reasons: Mapping[str, int] = {}
        #: Of each port what its agent said last: whether up, whether it carries packets.
        self.states: dict[int, tuple[bool, bool]] = {}
        #: When its agent was heard last.
        self.heard = 0.0

    @property
    def connected(self) -> bool:
        """Whether its agent is there."""
        return self._writer is not None

    def connect(self, writer: asyncio.StreamWriter) -> None:
        """Its agent speaks through this from now on."""
        self.disconnect("another agent speaks for it")
        self._writer = writer

    def disconnect(self, reason: str) -> None:
        """Its agent is gone, and with it whatever was asked."""
        self._writer = None
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"Switch {self.name}: {reason}"))
                answer.exception()  # whoever waits is told; nobody has to

    def speaks(self, writer: asyncio.StreamWriter) -> bool:
        """Whether this is its agent's connection."""
        return self._writer is writer

    def answered(self, message: Done | Failure) -> None:
        """An answer has come."""
        answer = self._open.pop(message.request, None)
        if answer is None or answer.done():
            return
        if isinstance(message, Done):
            answer.set_result(message.answer)
        else:
            answer.set_exception(raised(message))
            answer.exception()

    def _ask(self, kind: Any, *arguments: Any) -> asyncio.Future[Any]:
        if self._writer is None:
            raise Unavailable(f"Switch {self.name}: its agent is not connected")
        self._request = self._request % 0xFFFFFFFF + 1
        answer = self._open[self._request] = asyncio.get_running_loop().create_future()
        self._writer.write(frame(kind(self._request, *arguments)))
        return answer

    async def ask(self, kind: Any, *arguments: Any) -> Any:
        """Ask its agent; `Unavailable` if there is no answer."""
        answer = self._ask(kind, *arguments)
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
        found = msgspec.convert(await self.ask(p.Read), list[p.WireFlow])
        return FlowTable(map(p.unpacked, found))

    async def counters(self) -> SwitchCounters:
        """What it has counted."""
        found = msgspec.convert(await self.ask(p.Read, True), p.Counted)
        self._counters, self._reasons = p.counters_of(found), found.reasons
        return self._counters

    def counters_now(self) -> SwitchCounters:
        """What it said last."""
        return self._counters

    def reasons(self) -> Mapping[str, int]:
        """Packets dropped, by reason, as it said last."""
        return self._reasons

    def received(self, port: int) -> int:
        """Packets that came in by a port, or from a client, as it said last."""
        found = self._counters.ports.get(port)
        return 0 if found is None else found.received.packets

    async def admit(self, client: p.Client) -> None:
        """Let a client send, or change what it may do."""
        await self.ask(p.Permit, client)

    async def dismiss(self, number: int) -> None:
        """A client has left."""
        await self.ask(p.Leave, number)

    def keep_only(self, numbers: set[int]) -> None:
        """Its agent was told all clients when it came, and forgot the others."""

    async def permit(self, client: p.Client) -> bool:
        """Change what a client may do; an agent that is away is told when it comes back."""
        with contextlib.suppress(Unavailable):
            await self.ask(p.Permit, client)
        return True


class Fleet:
    """The switches of a topology: those with agents, and this machine's own."""

    def __init__(
        self,
        topology: Topology,
        *,
        machine: Machine | None = None,
        capacity: int | None = None,
        grace: float = 3.0,
        gate: Gate | None = None,
    ) -> None:
        self.topology = topology
        self.mtu = MTU
        self._machine = machine
        self._capacity = capacity
        self._grace = grace
        self._gate = gate or OpenGate()
        self.remote = {
            name: RemoteSwitch(name) for name in topology.switches if machine is None or name != machine.name
        }
        self.handles: dict[str, Handle] = dict(self.remote)
        self._listener: Listener | None = None
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: set[str] = set(self.remote)
        self._all = asyncio.Event()
        self.address: tuple[str, int] = ("", 0)

    def place(self, host: str) -> Place:
        """Where a host's clients open their sockets: at its own address, in its own network."""
        return address_of(self.topology, host), ""

    def ports_of(self, switch: str) -> tuple[p.Port, ...]:
        """What a switch has to be."""
        found = []
        for number, peer in sorted(self.topology.ports(switch).items()):
            bandwidth = self.topology.link(switch, peer).settings.bandwidth or 0.0
            host = not self.topology.is_switch(peer)
            found.append(p.Port(number, host, 0.0 if host else bandwidth))
        return tuple(found)

    # -- life ------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, doors: Sequence[socket.socket] = ()) -> None:
        """Make this machine's own switch, if it is one, and listen for agents, there or at sockets that listen."""
        if self._machine is not None:
            machine = self._machine
            machine.prepare()
            self.mtu = min(self.mtu, machine.mtu())
            machine.up(self.ports_of(machine.name), self._capacity)
            self.handles[machine.name] = LocalSwitch(machine.switch)
        if self.remote:
            for door in doors:
                self._servers.append(await asyncio.start_server(self._accepted, sock=door))
            if not doors:
                self._servers.append(await asyncio.start_server(self._accepted, host, port))
            self.address = self._servers[0].sockets[0].getsockname()[:2]
            self._spawn(self._look())
        else:
            self._all.set()

    async def connected(self, timeout: float) -> None:
        """Wait until all agents have come, or for so long; who is missing then is down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._all.wait()
        for name in sorted(self._lost):
            log.warning("switch %s has no agent yet: it counts as down", name)

    async def close(self) -> None:
        """Take leave of the agents; switches go on with what they have."""
        for server in self._servers:
            server.close()
        for switch in self.remote.values():
            if switch._writer is not None:
                switch._writer.write(frame(Goodbye("the control plane is shutting down")))
                switch._writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def watch(self, listener: Listener) -> None:
        """Tell somebody of everything from now on."""
        self._listener = listener
        if self._machine is not None:
            name = self._machine.name
            self._machine.watch(lambda port, up, carries: listener.told(name, port, up, carries))
        for name, switch in self.remote.items():
            for port, state in switch.states.items():
                listener.told(name, port, *state)
        for name in self._lost:
            listener.lost(name)

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._listener = None
        if self._machine is not None:
            self._machine.unwatch()

    # -- agents ----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Say that we are here, and give up agents that have been silent for too long."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(self._grace / 4)
            now = loop.time()
            stood = now - last > self._grace / 2  # we did: nobody could be heard meanwhile
            last = now
            for switch in self.remote.values():
                if stood:
                    switch.heard = now
                if switch._writer is not None:
                    switch._writer.write(frame(Alive()))
                    if now - switch.heard > self._grace:
                        switch._writer.transport.abort()
                        switch.disconnect("its agent is silent")
                if not switch.connected and switch.name not in self._lost and now - switch.heard > self._grace:
                    self._lost.add(switch.name)
                    log.warning("switch %s is lost: its agent has been away for %.1f s", switch.name, self._grace)
                    if self._listener is not None:
                        self._listener.lost(switch.name)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        switch: RemoteSwitch | None = None
        try:
            framer = p.AGENTS.listening()
            async with asyncio.timeout(_HELLO):
                hello = await _first(reader, framer)
            switch = self._welcomed(hello, writer)
            framer.limit = p.AGENTS.largest[Role.COMPONENT]
            while data := await reader.read(_CHUNK):
                switch.heard = asyncio.get_running_loop().time()
                for message in framer.feed(data):
                    if not switch.speaks(writer):
                        raise Rejected(f"Another agent speaks for switch {switch.name}")
                    self._heard(switch, message)
        except (SievenetError, TimeoutError) as error:
            log.warning("an agent was refused: %s", error if isinstance(error, SievenetError) else "no hello came")
            if isinstance(error, SievenetError) and not writer.is_closing():
                writer.write(frame(failure(0, error)))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if switch is not None and switch.speaks(writer):
                switch.disconnect("its agent is gone")
            writer.close()
            self._tasks.discard(task)

    def _welcomed(self, hello: Any, writer: asyncio.StreamWriter) -> RemoteSwitch:
        if not isinstance(hello, p.Hello):
            raise CodecError(expected="an agent's hello", got=type(hello).__name__, where="agent")
        if hello.protocol != p.PROTOCOL:
            raise Rejected(f"Expected an agent that speaks protocol {p.PROTOCOL}, got {hello.protocol}")
        peer = writer.get_extra_info("peername") or ("",)
        identity = self._gate.admit(
            Credentials(hello.role, hello.name, hello.token, writer.get_extra_info("peercert"), str(peer[0]))
        )
        if identity.role is not Role.COMPONENT:
            raise Rejected(f"Expected a component as the agent of a switch, got {identity.role}")
        switch = self.remote.get(hello.name or "")
        if switch is None:
            known = ", ".join(self.remote)
            raise InvalidInput(expected=f"a switch that needs an agent ({known})", got=hello.name, where="agent")
        ports = self.ports_of(switch.name)
        if hello.interfaces != len(ports):
            links = ", ".join(f"{n} to {peer}" for n, peer in sorted(self.topology.ports(switch.name).items()))
            raise InvalidInput(
                expected=f"{len(ports)} interfaces for switch {switch.name} ({links})",
                got=hello.interfaces,
                where="agent",
            )
        self.mtu = min(self.mtu, hello.mtu)
        if switch.connected and switch._writer is not None:
            switch._writer.write(frame(failure(0, Rejected(f"Another agent speaks for switch {switch.name}"))))
        switch.connect(writer)
        switch.heard = asyncio.get_running_loop().time()
        writer.write(frame(p.Welcome(p.PROTOCOL, switch.name, b"", self._grace, ports, self._capacity)))
        return switch

    def _heard(self, switch: RemoteSwitch, message: Any) -> None:
        match message:
            case Done() | Failure():
                switch.answered(message)
            case p.Carrier():
                switch.states[message.port] = message.up, message.carries
                if self._listener is not None:
                    self._listener.told(switch.name, message.port, message.up, message.carries)
            case p.Ready():
                self._spawn(self._settle(switch))
            case Goodbye():
                raise Unavailable(message.reason)
            case Malformed():
                log.warning("switch %s: its agent said something else than expected: %s", switch.name, message.error)
            case _:
                pass

    async def _settle(self, switch: RemoteSwitch) -> None:
        """A switch has come (back): let it know its clients, then count it as up."""
        clients = () if self._listener is None else self._listener.clients_at(switch.name)
        try:
            await switch.ask(p.Clients, clients)
            await switch.counters()
        except SievenetError as error:
            log.warning("switch %s: %s", switch.name, error)
            return
        log.info("switch %s is there", switch.name)
        self._lost.discard(switch.name)
        if self._listener is not None:
            self._listener.found(switch.name)
        if not self._lost:
            self._all.set()


async def _first(reader: asyncio.StreamReader, framer: Any) -> Any:
    while data := await reader.read(_CHUNK):
        for message in framer.feed(data):
            if isinstance(message, Malformed):
                raise message.error
            return message
    raise Unavailable("the connection was closed before a hello")
