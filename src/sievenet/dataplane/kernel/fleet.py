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
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from sievenet.access.identity import Gate, Identity, Role
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.handle import Handle, Listener, LocalSwitch
from sievenet.dataplane.kernel.machine import Machine
from sievenet.dataplane.local import MTU, address_of
from sievenet.dataplane.plane import SwitchCounters
from sievenet.dataplane.roster import Place
from sievenet.errors import InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology
from sievenet.session.connection import Connection
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener as Doors
from sievenet.session.listener import Service
from sievenet.session.message import raised

__all__ = ["Fleet", "RemoteSwitch"]

log = logging.getLogger("sievenet.kernel")

#: Seconds of silence after which an agent is given up, at least: a machine without power says nothing more.
_LEASE: Final = 3.0
#: Bytes of the packet that every IPv6 link carries.
_SMALLEST: Final = 1280
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
        #: Whether its agent has made it what it has to be.
        self.ready = False
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


class Fleet(Service[AgentConnection]):
    """The switches of a topology: those with agents, and this machine's own."""

    def __init__(
        self,
        topology: Topology,
        *,
        machine: Machine | None = None,
        capacity: int | None = None,
        grace: float = 3.0,
        gate: Gate | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.topology = topology
        self.mtu = MTU
        self._machine = machine
        self.capacity = capacity
        self._grace = grace
        self._gate, self._tls = gate, tls
        self.remote = {
            name: RemoteSwitch(name) for name in topology.switches if machine is None or name != machine.name
        }
        self.handles: dict[str, Handle] = dict(self.remote)
        #: Of each port what was said last: whether up, whether it carries packets; and which are cabled otherwise.
        self.states: dict[str, dict[int, tuple[bool, bool]]] = {name: {} for name in topology.switches}
        self._miswired: set[tuple[str, int]] = set()
        self._listener: Listener | None = None
        self._doors: Doors[AgentConnection] | None = None
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
            machine.up(self.ports_of(machine.name), self.capacity)
            self.handles[machine.name] = LocalSwitch(machine.switch)
        if self.remote:
            limits = Limits(connections=4 * len(self.remote) + 256)  # strangers too
            self._doors = Doors(
                p.AGENTS,
                self,
                limits,
                AgentConnection,
                host=host,
                port=port,
                gate=self._gate,
                tls=self._tls,
                pause=self._grace / 4,
            )
            await self._doors.start()
            for door in doors:
                await self._doors.add_door(door, "")
            self.address = self._doors.address
        else:
            self._all.set()

    async def connected(self, timeout: float) -> None:
        """Wait until all agents have come, or for so long; who is missing then is down."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._all.wait()
        for name in sorted(self._lost):
            log.warning("switch %s has no agent yet: it counts as down", name)

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Meet agents with these files from now on."""
        if self._doors is not None:
            self._doors.tls = tls

    async def close(self) -> None:
        """Take leave of the agents; switches go on with what they have."""
        if self._doors is not None:
            for connection in list(self._doors.connections):
                connection.goodbye("the control plane is shutting down")
            await self._doors.close()

    def watch(self, listener: Listener) -> None:
        """Tell somebody of everything from now on."""
        self._listener = listener
        if self._machine is not None:
            name = self._machine.name

            def told(port: int, up: bool, carries: bool) -> None:
                self.states[name][port] = up, carries
                self._tell(name, port)

            self._machine.watch(told, lambda port, other: self._cabled(name, port, other.switch, other.port))
        for name, ports in self.states.items():
            for port in ports:
                self._tell(name, port)
        for name in self._lost:
            listener.lost(name)

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._listener = None
        if self._machine is not None:
            self._machine.unwatch()

    # -- agents ----------------------------------------------------------------------------------------

    async def hello(self, connection: AgentConnection, hello: p.Hello, identity: Identity) -> p.Welcome:
        """Accept an agent, or say what is wrong with it."""
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
        if hello.mtu < _SMALLEST:
            where = f"agent of switch {switch.name}"
            raise InvalidInput(expected=f"interfaces with an MTU of at least {_SMALLEST}", got=hello.mtu, where=where)
        self.mtu = min(self.mtu, hello.mtu)
        connection.switch = switch
        switch.connect(connection)
        return p.Welcome(p.PROTOCOL, switch.name, b"", max(_LEASE, self._grace), ports, self.capacity)

    def take(self, connection: AgentConnection, messages: list[tuple[Any, int]]) -> None:
        """What an agent says."""
        switch = connection.switch
        assert switch is not None
        for message, _ in messages:
            match message:
                case p.Carried() | p.Refused():
                    switch.answered(message)
                case p.Carrier():
                    self.states[switch.name][message.port] = message.up, message.carries
                    if not message.carries:
                        self._miswired.discard((switch.name, message.port))
                    self._tell(switch.name, message.port)
                case p.Cabled():
                    self._cabled(switch.name, message.port, message.switch, message.other)
                case p.Ready():
                    assert self._doors is not None
                    switch.ready = True
                    self._doors.begin(self._settle(switch))

    def _cabled(self, switch: str, port: int, other: str, at: int) -> None:
        """Compare a cable with the topology: one that leads elsewhere carries nothing of ours."""
        if port not in self.topology.ports(switch):
            return
        peer = self.topology.ports(switch)[port]
        wanted = (peer, self.topology.port(peer, switch)) if self.topology.is_switch(peer) else (peer, 0)
        if (other, at) == wanted:
            if (switch, port) in self._miswired:
                log.warning("port %d of switch %s is cabled as the topology says now", port, switch)
                self._miswired.discard((switch, port))
                self._tell(switch, port)
            return
        if (switch, port) in self._miswired:
            return
        expected = f"port {wanted[1]} of switch {peer}" if wanted[1] else f"host {peer}"
        log.error(
            "port %d of switch %s leads to port %d of switch %s, expected %s: check the cable, or the order of "
            "--interfaces; the link counts as down",
            *(port, switch, at, other, expected),
        )
        self._miswired.add((switch, port))
        self._tell(switch, port)

    def _tell(self, switch: str, port: int) -> None:
        """What is known of a port of a switch."""
        up, carries = self.states[switch].get(port, (True, True))
        if self._listener is not None:
            self._listener.told(switch, port, up, carries and (switch, port) not in self._miswired)

    async def lost(self, connection: AgentConnection) -> None:
        """An agent is gone; its switch is not, for a while."""
        if connection.switch is not None:
            connection.switch.disconnect(connection)

    def beat(self, now: float, slept: float) -> None:
        """Give up switches whose agents have been away for too long."""
        for switch in self.remote.values():
            switch.seen += slept  # nobody could come meanwhile
            if not switch.connected and switch.name not in self._lost and now - switch.seen > self._grace:
                self._lost.add(switch.name)
                log.warning("switch %s is lost: its agent has been away for %.1f s", switch.name, self._grace)
                if self._listener is not None:
                    self._listener.lost(switch.name)

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
