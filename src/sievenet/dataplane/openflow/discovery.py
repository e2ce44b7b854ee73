"""Finding out what network there is: link discovery (LLDP) over switches that connect to us.

Every switch is told to send, by each of its ports, a frame that says whose port that is.  A neighbour gives it back to
us and so tells where it came in: a link.  A port that is up and from which nothing was heard leads to a host.

    [1] port 2 ── "I am 1, port 2" ──▶ port 1 [2]        so 1:2 is linked with 2:1
    [2] port 3 ── "I am 2, port 3" ──▶ a host            so 2:3 leads to a host

`Discovery` is pure; `Scout` is the shell around it, which listens until the switches are known and lets them go again:
they connect anew to the plane that is made from what was found.  Switches are called s1, s2, … in the order of their
datapath numbers, and hosts h1, h2, … in the order of their ports.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from functools import partial
from typing import Final, NamedTuple

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import oxm, pipeline
from sievenet.dataplane.openflow.channel import Channel
from sievenet.dataplane.openflow.numbers import CONTROLLER, LOCAL, Multipart
from sievenet.errors import CodecError, InvalidInput, Unavailable
from sievenet.network.link import Link
from sievenet.network.topology import CLIENT_PORTS, Topology

__all__ = ["Discovery", "Found", "Scout", "lldp", "read_lldp"]

_HEAD: Final = bytes.fromhex("0180c200000e" + "025356000000" + "88cc")
_PREFIX: Final = b"\x07sv:"
_LONGEST: Final = 1600


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def lldp(datapath: int, port: int) -> bytes:
    """The frame that says whose port it left by."""
    who = _tlv(1, _PREFIX + f"{datapath:016x}".encode())
    frame = _HEAD + who + _tlv(2, b"\x07" + str(port).encode()) + _tlv(3, struct.pack(">H", 120)) + _tlv(0, b"")
    return frame.ljust(60, b"\0")


def read_lldp(frame: bytes) -> tuple[int, int] | None:
    """Datapath and port of a frame of ours; None for somebody else's.  `CodecError` if it is none at all."""
    if not len(_HEAD) <= len(frame) <= _LONGEST or frame[12:14] != _HEAD[12:]:
        raise CodecError(expected="a link discovery frame", got=f"`{len(frame)} bytes`", where="packet in")
    found: dict[int, bytes] = {}
    at = len(_HEAD)
    while at + 2 <= len(frame):
        (head,) = struct.unpack_from(">H", frame, at)
        kind, size = head >> 9, head & 0x1FF
        if kind == 0:
            break
        value = frame[at + 2 : at + 2 + size]
        if len(value) != size:
            raise CodecError(expected=f"{size} bytes", got=len(value), where="link discovery")
        found.setdefault(kind, value)
        at += 2 + size
    who, port = found.get(1, b""), found.get(2, b"")
    if not who.startswith(_PREFIX):
        return None
    try:
        return int(who[len(_PREFIX) :], 16), int(port[1:])
    except ValueError:
        raise CodecError(expected="numbers", got=f"`{who[:40]!r}, {port[:40]!r}`", where="link discovery") from None


class Found(NamedTuple):
    """A network that was found: its topology, and which switch a datapath is."""

    topology: Topology
    datapaths: dict[int, str]


class Discovery:
    """Collects what switches say."""

    def __init__(self) -> None:
        #: Ports that are up, by datapath.
        self.ports: dict[int, frozenset[int]] = {}
        #: Both directions of every link heard of.
        self._links: dict[tuple[int, int], tuple[int, int]] = {}

    def switch(self, datapath: int, ports: frozenset[int]) -> None:
        """A switch is there, with these ports up."""
        self.ports[datapath] = frozenset(port for port in ports if 0 < port < CLIENT_PORTS)

    def heard(self, datapath: int, port: int, frame: bytes) -> None:
        """A frame came in there."""
        origin = read_lldp(frame)
        if origin is not None and origin[0] in self.ports and datapath in self.ports:
            self._links[datapath, port] = origin
            self._links[origin] = (datapath, port)

    def found(self) -> Found:
        """The network so far.  Of several links between two switches the one with the lowest ports counts."""
        names = {datapath: f"s{i}" for i, datapath in enumerate(sorted(self.ports), 1)}
        links: list[Link] = []
        hosts: list[str] = []
        joined: set[frozenset[int]] = set()
        for datapath in sorted(self.ports):
            for port in sorted(self.ports[datapath]):
                peer = self._links.get((datapath, port))
                if peer is None:
                    hosts.append(f"h{len(hosts) + 1}")
                    links.append(Link(names[datapath], port, hosts[-1], 1))
                elif peer[0] != datapath and frozenset((datapath, peer[0])) not in joined:
                    joined.add(frozenset((datapath, peer[0])))
                    links.append(Link(names[datapath], port, names[peer[0]], peer[1]))
        return Found(Topology(names.values(), hosts, links), names)


class Scout:
    """Listens for switches for a while and looks how they are linked."""

    def __init__(self, *, ack_timeout: float = 5.0) -> None:
        self.discovery: Final = Discovery()
        self._timeout = ack_timeout
        self._channels: dict[int, Channel] = {}
        self._by_channel: dict[Channel, int] = {}
        self._runs: set[asyncio.Task[None]] = set()
        #: Frames that were no link discovery.
        self.malformed = 0

    async def look(
        self,
        switches: int,
        host: str = "127.0.0.1",
        port: int = 6653,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        listen: float = 1.0,
    ) -> Found:
        """Wait for so many switches, listen to them, and say what network they are."""
        if switches < 1:
            raise InvalidInput(expected="at least 1 switch", got=switches, where="discovery")
        try:
            if sock is not None:
                server = await asyncio.start_server(self._accept, sock=sock, ssl=tls)
            else:
                server = await asyncio.start_server(self._accept, host, port, ssl=tls)
        except OSError as error:
            raise Unavailable(f"Cannot listen for switches on {host}:{port}: {error.strerror or error}") from None
        try:
            try:
                async with asyncio.timeout(timeout):
                    while len(self._channels) < switches:
                        await asyncio.sleep(0.02)
            except TimeoutError:
                known = len(self._channels)
                raise Unavailable(f"{known} of {switches} switches connected within {timeout:g} s") from None
            # All of them listen now: whoever sent before the last one was there sends again.
            for _ in range(3):
                self._send()
                await asyncio.sleep(listen / 3)
            return self.discovery.found()
        finally:
            server.close()
            for run in list(self._runs):
                run.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)
            await server.wait_closed()

    def _send(self) -> None:
        for datapath, channel in self._channels.items():
            for port in self.discovery.ports[datapath]:
                channel.send_packet(CONTROLLER, oxm.output(port), lldp(datapath, port))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._runs.add(task)
        try:
            await Channel(reader, writer, self, self._timeout).run()
        finally:
            self._runs.discard(task)

    async def introduced(self, channel: Channel, features: m.Features) -> None:
        """A switch is there: it is to give us link discovery frames."""
        ports = m.read_ports(channel.version, await channel.ask(Multipart.PORT_DESC))
        await channel.change([partial(pipeline.punt, channel.version, number=0)], atomic=False)
        channel.name = f"{features.datapath:#x}"
        up = frozenset(port.number for port in ports if port.up and port.number != LOCAL)
        self.discovery.switch(features.datapath, up)
        self._by_channel[channel] = features.datapath
        self._channels[features.datapath] = channel

    def port_changed(self, channel: Channel, status: m.PortStatus) -> None:
        """The plane that comes after will see to it."""

    def packet_came(self, channel: Channel, packet: m.PacketIn) -> None:
        """A frame that a neighbour sent."""
        datapath = self._by_channel.get(channel)
        if datapath is None:
            return
        try:
            self.discovery.heard(datapath, packet.in_port, packet.data)
        except CodecError:
            self.malformed += 1

    def closed(self, channel: Channel, reason: str) -> None:
        """A switch is gone again."""
        datapath = self._by_channel.pop(channel, None)
        if datapath is not None and self._channels.get(datapath) is channel:
            del self._channels[datapath]
