"""OpenFlow switches as a `DataPlane`.

Switches connect to us.  Each is known by its datapath number; when it has introduced itself, it is given the entries
around content (`translation`), the groups of the clients that are attached there, and only then counts as up:

    connected ──▶ ports, groups, limits read ──▶ entries and groups set right ──▶ up
       ▲                                                                          │
       └───────────── down, after a little grace ◀──── connection lost ◀──────────┘

A connection that is lost and made again within the grace is not a failure: the switch went on forwarding.  Whoever
listens is told `SwitchUp` alone, which means "look at its table again".  The same is told of a switch whose tables hold
another number of entries than after our own last change: somebody has been at it.

What a switch refuses is `Rejected`, with the change and the reason (`Refused`), and nothing was carried out; without
bundles some of it may have been, and then the state is undefined, as after a timeout.  With `rounds`, a change counts
as acknowledged when it is in effect (`effect`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv6Address
from typing import Final

from sievenet.dataplane.notices import Notices
from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.audit import audit
from sievenet.dataplane.openflow.channel import Channel, doors, listening
from sievenet.dataplane.openflow.discovery import Discovery
from sievenet.dataplane.openflow.effect import Settling
from sievenet.dataplane.openflow.growth import Growth
from sievenet.dataplane.openflow.handle import SwitchHandle
from sievenet.dataplane.openflow.numbers import CONTROLLER
from sievenet.dataplane.packet import DATAGRAM_HEADER, PACKET_HEADER
from sievenet.dataplane.plane import (
    Attached,
    LinkDown,
    LinkUp,
    Notice,
    PlaneStatistics,
    Redrawn,
    SwitchCounters,
    SwitchDown,
    SwitchUp,
)
from sievenet.dataplane.roster import Place, Roster
from sievenet.errors import InvalidInput, Rejected, SievenetError, Unavailable
from sievenet.network.flow import FlowChange
from sievenet.network.link import Link
from sievenet.network.table import FlowTable
from sievenet.network.topology import Topology
from sievenet.session.lifetime import Tasks

__all__ = ["OpenFlowDataPlane"]

log = logging.getLogger("sievenet.openflow")


class OpenFlowDataPlane:
    """Real switches."""

    def __init__(
        self,
        topology: Topology,
        datapaths: Mapping[int, str],
        *,
        place: Callable[[str], Place] | None = None,
        rounds: Settling | None = None,
        secret: bytes | None = None,
        ack_timeout: float = 5.0,
        grace: float = 3.0,
        audit: float = 1.0,
        mtu: int = 1500,
        discovery: Discovery | None = None,
        generation: int | None = None,
    ) -> None:
        self._topology = topology
        #: Switches obey the controller of the highest generation alone; None if there is only one controller.
        self._generation = generation
        #: Bytes of the largest encoded event: it travels in one packet, behind 48 bytes of IPv6 and UDP.
        self.max_body: Final = mtu - 48 - DATAGRAM_HEADER - PACKET_HEADER
        self._datapaths = dict(datapaths)
        self._rounds = rounds
        #: Seconds to wait for an acknowledgement.
        self._ack_timeout = ack_timeout
        #: Seconds without a connection after which a switch counts as down.
        self._grace = grace
        #: Seconds between looks at how many entries the switches hold.
        self._audit_every = audit
        self._loop = asyncio.get_running_loop()
        self._switches = {name: _handle(topology, name, rounds) for name in topology.switches}
        #: Switches that listeners believe to be down, and links.
        self._down_switches: set[str] = set()
        self._down_links: set[tuple[str, str]] = set()
        self._notices = Notices()
        self._roster = Roster(place, secret)
        self._servers: list[asyncio.Server] = []
        self._graces: dict[str, asyncio.TimerHandle] = {}
        #: Looks at tables, and for what is new.
        self._tasks = Tasks()
        self._changed = asyncio.Event()
        self._counted: dict[str, SwitchCounters] = {}
        #: Looks for what is new in a network that was found rather than made.
        self.growth = None if discovery is None else Growth(discovery, topology, self._adopt, rounds)
        #: Called with every packet that a switch gives us: switch, packet.
        self.on_packet: Callable[[str, m.PacketIn], None] | None = None
        #: Packets that switches did not read, on connections that are gone.
        self._unsent = 0
        #: Connections of switches that nobody knows.
        self.strangers = 0
        self._doors = doors()
        #: Times that somebody else was found to have changed a table.
        self.tampered = 0

    @property
    def topology(self) -> Topology:
        """The whole network, what is down included."""
        return self._topology

    @property
    def per_port(self) -> bool:
        """Whether every switch that is connected has enough tables for cells under masks."""
        return all(switch.masked for switch in self._switches.values() if switch.channel is not None)

    # -- life --------------------------------------------------------------------------------------

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 6653,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[str, int]:
        """Listen for switches; returns where."""
        server = await listening(self._accept, host, port, sock, tls)
        self._servers.append(server)
        if not self._tasks:
            self._tasks.begin(audit(self._switches, self._audit_every, self._tampered))
            if self.growth is not None:
                self._tasks.begin(self.growth.run(), "openflow growth")
        address = server.sockets[0].getsockname()
        return address[0], address[1]

    async def connected(self, timeout: float = 10.0) -> None:
        """Wait until every switch is up; `Unavailable`, naming those that are not, if that takes too long."""
        missing: list[str] = []
        try:
            async with asyncio.timeout(timeout):
                while missing := [s.name for s in self._switches.values() if s.channel is None]:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unavailable(f"Switches {', '.join(missing)} did not connect within {timeout:g} s") from None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Channel(reader, writer, self, self._ack_timeout).run(self._tasks, self._doors)

    async def close(self) -> None:
        """Stop listening; the switches go on with what they have."""
        self._notices.close()
        for server in self._servers:
            server.close()
        await self._tasks.close()
        for timer in self._graces.values():
            timer.cancel()
        for server in self._servers:
            await server.wait_closed()

    # -- what channels tell --------------------------------------------------------------------------

    async def introduced(self, channel: Channel, features: m.Features) -> None:
        """A switch has connected: set it right, and use it."""
        if self._generation is not None:
            lead = partial(m.role_request, channel.version, generation=self._generation)
            await channel.change([lead], atomic=False)
        name = self._datapaths.get(features.datapath)
        if name is None:
            self.strangers += 1
            if self.growth is not None:
                await self.growth.stranger(channel, features.datapath)
                return
            raise Rejected(f"Expected a switch of the topology, got datapath {features.datapath:#x}")
        channel.name = name
        switch = self._switches[name]
        await switch.set_right(channel)
        old, switch.channel = switch.channel, channel
        if old is not None and old is not channel:
            await old.close()
        await switch.count()
        if self.growth is not None:
            self.growth.seen(channel, features.datapath, switch)
        timer = self._graces.pop(name, None)
        if timer is not None:
            timer.cancel()
        self._down_switches.discard(name)
        log.info("switch %s is up", name)
        self._notices.tell(SwitchUp(name))
        self._compare_links(name)
        self._changed.set()

    def port_changed(self, channel: Channel, status: m.PortStatus) -> None:
        """A port came, went or changed."""
        if self.growth is not None:
            self.growth.port_changed(channel, status)
        switch = self._switches.get(channel.name)
        if switch is None:
            return
        switch.port_changed(status)
        if switch.channel is channel:
            self._compare_links(channel.name)

    def packet_came(self, channel: Channel, packet: m.PacketIn) -> None:
        """A switch gives us a packet."""
        if self.growth is not None and self.growth.heard(channel, packet):
            return
        if self.on_packet is not None and channel.name in self._switches:
            self.on_packet(channel.name, packet)

    def closed(self, channel: Channel, reason: str) -> None:
        """A connection is gone."""
        self._unsent += channel.unsent
        if self.growth is not None:
            self.growth.closed(channel)
        switch = self._switches.get(channel.name)
        if switch is None or switch.channel is not channel:
            return
        log.info("switch %s: %s", channel.name, reason)
        switch.channel = None
        self._graces[channel.name] = self._loop.call_later(self._grace, self._given_up, channel.name)
        self._changed.set()

    def _given_up(self, name: str) -> None:
        self._graces.pop(name, None)
        if self._switches[name].channel is None and name not in self._down_switches:
            self._down_switches.add(name)
            self._notices.tell(SwitchDown(name))

    def _adopt(self, topology: Topology, fresh: Mapping[int, SwitchHandle]) -> None:
        """The network is another from now on; its new switches are set right."""
        self._topology = topology
        self._datapaths |= {number: switch.name for number, switch in fresh.items()}
        self._switches |= {switch.name: switch for switch in fresh.values()}
        self._down_links &= {link.id for link in topology.links}
        for client in [each for each in self._roster if each.host not in topology.hosts]:
            log.warning("client %s is cut off: the port of its host %s has become a link", client.client, client.host)
            self._tasks.begin(self.detach(client.client))
        self._notices.tell(Redrawn(topology))
        for switch in fresh.values():
            self._notices.tell(SwitchUp(switch.name))
        for name in self._switches:
            self._compare_links(name)

    def _compare_links(self, name: str) -> None:
        """Tell of the links at a switch that are not as listeners believe."""
        for port, peer in self._topology.ports(name).items():
            link = self._topology.link(name, peer)
            down = port in self._switches[name].down_ports or self._far_end_down(link, name)
            if down and link.id not in self._down_links:
                self._down_links.add(link.id)
                self._notices.tell(LinkDown(*link.id))
            elif not down and link.id in self._down_links:
                self._down_links.discard(link.id)
                self._notices.tell(LinkUp(*link.id))

    def _far_end_down(self, link: Link, name: str) -> bool:
        peer, port = (link.b, link.b_port) if link.a == name else (link.a, link.a_port)
        far = self._switches.get(peer)
        return far is not None and far.channel is not None and port in far.down_ports

    def _tampered(self, name: str) -> None:
        self.tampered += 1
        self._notices.tell(SwitchUp(name))

    # -- the data plane --------------------------------------------------------------------------------

    def _at(self, switch: str) -> SwitchHandle:
        try:
            return self._switches[switch]
        except KeyError:
            raise InvalidInput(expected="a switch", got=switch, where="data plane") from None

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes; returns when the switch has acknowledged them (see `DataPlane.apply`)."""
        await self._at(switch).apply(changes)

    async def table(self, switch: str) -> FlowTable:
        """What the switch holds."""
        return await self._at(switch).table()

    async def counters(self, switch: str) -> SwitchCounters:
        """What the switch has counted; Open vSwitch as we start it brings its counts up to date every 2 s."""
        found = self._counted[switch] = await self._at(switch).counters()
        return found

    def capacity(self, switch: str) -> int | None:
        """How many flows the switch holds, beside the entry that counts what nobody wants."""
        limit = self._at(switch).limit
        return None if limit is None else max(1, limit - 1)

    def counters_now(self, switch: str) -> SwitchCounters:
        """What the switch had counted when it was asked last."""
        self._at(switch)
        return self._counted.get(switch, SwitchCounters({}, {}))

    def statistics(self) -> PlaneStatistics:
        """What clients have sent, as of the last look at the counters; what else there is, switches do not tell."""
        sent = sum(counted.clients.received.packets for counted in self._counted.values())
        unsent = self._unsent + sum(s.channel.unsent for s in self._switches.values() if s.channel is not None)
        return PlaneStatistics(
            datagrams=sent, packets=sent, malformed=0, unknown=0, forged=0, dropped=0, lost=0, unsent=unsent
        )

    @property
    def confirm(self) -> bool:
        """Whether a change counts as acknowledged only when it is in effect (where `rounds` can tell)."""
        return any(switch.rounds is not None for switch in self._switches.values())

    @confirm.setter
    def confirm(self, wanted: bool) -> None:
        for switch in self._switches.values():
            switch.rounds = self._rounds if wanted else None

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """None: there is no one place for events, each goes where its content says."""
        return None

    def notices(self) -> AsyncIterator[Notice]:
        """What fails and comes back, from the call on."""
        return self._notices.listen()

    def down(self) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
        """The switches and links that are down now."""
        unknown = {s.name for s in self._switches.values() if s.channel is None and s.name not in self._graces}
        return frozenset(self._down_switches | unknown), frozenset(self._down_links)

    # -- clients ---------------------------------------------------------------------------------------

    async def attach(self, host: str, client: str, port: int | None = None) -> Attached:
        """Give a client a port number (see `DataPlane.attach`)."""
        known = self._roster.known(client, host)
        if known is not None:
            return known
        place = self._topology.attachment(host)
        switch = self._switches[place.switch]
        if self._topology.link(host, place.switch).id in self._down_links:
            raise Unavailable(f"Host {host} is cut off: its link is down")
        switch.connected()
        attached = self._roster.add(self._topology, host, client, port)
        assert attached.endpoint is not None
        try:
            await switch.attach(attached.port, place.port, int(IPv6Address(attached.endpoint[0])) or None)
        except BaseException:
            self._roster.remove(client)
            raise
        return attached

    async def detach(self, client: str) -> None:
        """Take a client's port number away."""
        attached = self._roster.remove(client)
        if attached is not None:
            with contextlib.suppress(SievenetError):
                await self._switches[attached.switch].detach(attached.port)

    async def permit(self, client: str, categories: frozenset[int]) -> None:
        """Switches do not check this: entries for each client and category would fill their tables."""

    def clients(self) -> dict[str, Attached]:
        """Who is attached where."""
        return self._roster.all()

    def send_packet(self, switch: str, port: int, data: bytes) -> None:
        """Let a switch send a packet by one of its ports."""
        channel = self._at(switch).channel
        if channel is not None:
            channel.send_packet(CONTROLLER, oxm.output(port), data)


def _handle(topology: Topology, name: str, rounds: Settling | None) -> SwitchHandle:
    ports = topology.ports(name)
    return SwitchHandle(name, (port for port, peer in ports.items() if topology.is_switch(peer)), ports, rounds)
