"""Switches on several machines, each with an agent, and perhaps one on this machine: a network for the plane.

The topology is given, not found out: it says which switch has which ports, and an agent says whose it is. A switch
counts as up once its agent has answered, and as lost when its agent has been away for longer than `grace`: it goes on
forwarding meanwhile, with the tables that it has. An agent that takes its switch away says so, and it is lost at once.
Whenever an agent comes (back), the control plane is told that the switch is up, and reads and repairs its table: the
agent may have found the switch as it was, or made a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from sievenet.access.identity import Gate, Identity, Role
from sievenet.dataplane.kernel import protocol as p
from sievenet.dataplane.kernel.handle import Handle, Listener, LocalSwitch
from sievenet.dataplane.kernel.machine import Machine
from sievenet.dataplane.kernel.remote import AgentConnection, RemoteSwitch
from sievenet.dataplane.local import MTU, address_of
from sievenet.dataplane.roster import Place
from sievenet.errors import InvalidInput, Rejected, SievenetError
from sievenet.network.topology import Topology
from sievenet.session.limits import Limits
from sievenet.session.listener import Listener as Doors
from sievenet.session.listener import Service

__all__ = ["Fleet", "RemoteSwitch"]

log = logging.getLogger("sievenet.kernel")

#: Seconds of silence after which an agent is given up, at least: a machine without power says nothing more.
_LEASE: Final = 3.0
#: Bytes of the packet that every IPv6 link carries.
_SMALLEST: Final = 1280


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

    def renew(self, tls: ssl.SSLContext | None, stands: Callable[[Identity], bool]) -> None:
        """Meet agents with these files from now on, and send those away whose login no longer counts."""
        if self._doors is None:
            return
        self._doors.tls = tls
        for connection in list(self._doors.connections):
            if connection.identity is not None and not stands(connection.identity):
                connection.end(Rejected("The login no longer counts, or has another role now"))

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
                case p.Leaving():
                    switch.ready = False
                    self._give_up(switch.name, "its agent takes it away")

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
                self._give_up(switch.name, f"its agent has been away for {self._grace:.1f} s")

    def _give_up(self, switch: str, reason: str) -> None:
        self._lost.add(switch)
        log.warning("switch %s is lost: %s", switch, reason)
        if self._listener is not None:
            self._listener.lost(switch)

    async def _settle(self, switch: RemoteSwitch) -> None:
        """A switch has come (back): let it know its clients, then count it as up."""
        clients = () if self._listener is None else self._listener.clients_at(switch.name)
        try:
            await switch.welcome(clients)
            await switch.counters()
        except SievenetError as error:
            log.warning("switch %s: %s", switch.name, error)
            return
        if not switch.ready:
            return  # it is leaving already
        log.info("switch %s is there", switch.name)
        self._lost.discard(switch.name)
        if self._listener is not None:
            self._listener.found(switch.name)
        if not self._lost:
            self._all.set()
