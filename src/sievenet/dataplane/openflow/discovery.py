"""Finding out what network there is: link discovery (LLDP) over switches that connect to us.

Every switch is told to send, by each of its ports, a frame that says whose port that is.  A neighbour gives it back to
us and so tells where it came in: a link.  A port that is up and from which nothing was heard leads to a host.

    [1] port 2 ── "I am 1, port 2" ──▶ port 1 [2]        so 1:2 is linked with 2:1
    [2] port 3 ── "I am 2, port 3" ──▶ a host            so 2:3 leads to a host

`Discovery` is pure; `Scout` is the shell around it, which listens until the switches are known and lets them go again:
they connect anew to the plane that is made from what was found, and that goes on looking (`growth`).  Switches are
called s1, s2, … in the order of their datapath numbers, and hosts h1, h2, … in the order of their ports; what comes
later gets the next name.  Frames are signed, so that no host can say that it is a switch.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import oxm, translation
from sievenet.dataplane.openflow.channel import Channel, doors, listening
from sievenet.dataplane.openflow.numbers import CONTROLLER, LOCAL, Multipart
from sievenet.errors import CodecError, InvalidInput, Unavailable
from sievenet.network.link import Link
from sievenet.network.topology import CLIENT_PORTS, Topology
from sievenet.session.lifetime import Tasks

__all__ = ["SILENCE", "DiscoveredNetwork", "Discovery", "Names", "Scout", "is_lldp", "lldp", "read_lldp"]

_HEAD: Final = bytes.fromhex("0180c200000e" + "025356000000" + "88cc")
_PREFIX: Final = b"\x07sv:"
_LONGEST: Final = 1600
#: What our own field of a frame begins with: an organisation that is nobody's, and which field of it this is.
_SIGNED: Final = b"\x02SV\x01"
#: Seconds that nothing is heard from a port before it leads to a host.
SILENCE: Final = 2.5


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def _signature(datapath: int, port: int, key: bytes) -> bytes:
    """So that no host can say that it is a switch."""
    return blake2b(struct.pack(">QI", datapath, port), key=key[:64], digest_size=16, person=b"sievenet-lldp").digest()


def lldp(datapath: int, port: int, key: bytes = b"") -> bytes:
    """The frame that says whose port it left by."""
    who = _tlv(1, _PREFIX + f"{datapath:016x}".encode()) + _tlv(2, b"\x07" + str(port).encode())
    rest = _tlv(3, struct.pack(">H", 120)) + _tlv(127, _SIGNED + _signature(datapath, port, key)) + _tlv(0, b"")
    return (_HEAD + who + rest).ljust(60, b"\0")


def is_lldp(frame: bytes) -> bool:
    """Whether a frame is for link discovery, ours or not."""
    return frame[12:14] == _HEAD[12:]


def read_lldp(frame: bytes, key: bytes = b"") -> tuple[int, int] | None:
    """Datapath and port of a frame of ours; None for somebody else's.  `CodecError` if it is none at all."""
    if not len(_HEAD) <= len(frame) <= _LONGEST or not is_lldp(frame):
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
        end = int(who[len(_PREFIX) :], 16), int(port[1:])
    except ValueError:
        raise CodecError(expected="numbers", got=f"`{who[:40]!r}, {port[:40]!r}`", where="link discovery") from None
    if not (0 <= end[0] < 1 << 64 and 0 <= end[1] < 1 << 32):
        raise CodecError(expected="numbers of a datapath and a port", got=f"`{end}`", where="link discovery")
    return end if found.get(127) == _SIGNED + _signature(*end, key) else None


_End: TypeAlias = tuple[int, int]
_Cable: TypeAlias = tuple[_End, _End]


class Names(NamedTuple):
    """What switches and hosts are called, by datapath number and by (datapath, port)."""

    switches: dict[int, str]
    hosts: dict[_End, str]

    @classmethod
    def load(cls, file: Path | None) -> Names:
        """Those of an earlier life, so that clients that the journal knows find their hosts again."""
        if file is None or not file.exists():
            return cls({}, {})
        try:
            known = msgspec.json.decode(file.read_bytes(), type=_Remembered)
            hosts = {(int(end.split(":")[0], 16), int(end.split(":")[1])): name for end, name in known.hosts.items()}
            names = cls({int(number, 16): name for number, name in known.switches.items()}, hosts)
        except (msgspec.MsgspecError, ValueError, IndexError) as error:
            raise InvalidInput(
                f"Expected the names of switches and hosts, got {error}: repair or remove it", where=str(file)
            ) from None
        for letter, given in (("s", names.switches.values()), ("h", names.hosts.values())):
            if len(set(given)) != len(given) or not all(re.fullmatch(rf"{letter}[1-9][0-9]{{0,8}}", n) for n in given):
                raise InvalidInput(
                    expected=f"names {letter}1, {letter}2, …, each once", got=sorted(given), where=str(file)
                )
        return names

    def save(self, file: Path | None) -> None:
        """For a later life; all of it or nothing."""
        if file is None:
            return
        known = _Remembered(
            {f"{number:x}": name for number, name in self.switches.items()},
            {f"{number:x}:{port}": name for (number, port), name in self.hosts.items()},
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1))
        fresh.replace(file)


class _Remembered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    switches: dict[str, str]
    hosts: dict[str, str]


class DiscoveredNetwork(NamedTuple):
    """A network that was found: its topology, and which switch a datapath is."""

    topology: Topology
    datapaths: dict[int, str]


class Discovery:
    """Collects what switches say; names stay with datapath numbers and ports, also when others come."""

    def __init__(self, key: bytes = b"", names: Names | None = None) -> None:
        self._key = key
        #: Ports that are up, by datapath.
        self.ports: dict[int, frozenset[int]] = {}
        #: Since when they are.
        self._since: dict[_End, float] = {}
        #: Both directions of every link heard of.
        self._links: dict[_End, _End] = {}
        self.names: Final = names or Names({}, {})
        #: The switches that are part of the network; None before it was looked at.
        self._members: set[int] | None = None
        #: Of several links between two switches the one in use.
        self._used: dict[frozenset[int], _Cable] = {}

    def frame(self, datapath: int, port: int) -> bytes:
        """What a switch is to send by a port."""
        return lldp(datapath, port, self._key)

    def switch(self, datapath: int, ports: frozenset[int], now: float = 0.0) -> None:
        """A switch is there, with these ports up."""
        self.ports[datapath] = frozenset(port for port in ports if 0 < port < CLIENT_PORTS)
        for end in [end for end in self._since if end[0] == datapath and end[1] not in self.ports[datapath]]:
            del self._since[end]
        for port in self.ports[datapath]:
            self._since.setdefault((datapath, port), now)

    def forget(self, datapath: int) -> None:
        """A switch that was no part of the network is gone."""
        self.ports.pop(datapath, None)
        for end in [end for end in self._since if end[0] == datapath]:
            del self._since[end]
        for end in [end for end, peer in self._links.items() if datapath in (end[0], peer[0])]:
            del self._links[end]

    def heard(self, datapath: int, port: int, frame: bytes) -> bool:
        """A frame came in there; whether that is news."""
        origin, here = read_lldp(frame, self._key), (datapath, port)
        if origin is None or origin[0] not in self.ports or port not in self.ports.get(datapath, ()):
            return False
        if self._links.get(here) == origin and self._links.get(origin) == here:
            return False
        for end in (here, origin):  # a cable that was moved
            old = self._links.pop(end, None)
            if old is not None and self._links.get(old) == end:
                del self._links[old]
        self._links[here] = origin
        self._links[origin] = here
        return True

    def found(self, now: float = inf) -> DiscoveredNetwork:
        """The network so far: the switches that are linked with those it has, and a host where nothing is heard."""
        members = self._members = self._linked()
        names, known = self.names
        for datapath in sorted(members - names.keys()):
            names[datapath] = _next("s", names.values())
        links: list[Link] = []
        self._used = self._cables(members)
        for a, b in self._used.values():
            links.append(Link(names[a[0]], a[1], names[b[0]], b[1]))
        hosts: list[str] = []
        for end in sorted({*self._since, *known}):
            if end[0] not in members or end in self._links:
                continue
            if end not in known:
                if now - self._since[end] < SILENCE:
                    continue
                known[end] = _next("h", known.values())
            hosts.append(known[end])
            links.append(Link(names[end[0]], end[1], known[end], 1))
        numbers = {datapath: names[datapath] for datapath in sorted(members)}
        return DiscoveredNetwork(Topology(numbers.values(), hosts, links), numbers)

    def _linked(self) -> set[int]:
        """The switches that the network has, and those that can be reached from there."""
        if self._members is None:
            return set(self.ports)
        members = set(self._members)
        row = sorted(members)
        for datapath in row:
            near = {peer[0] for end, peer in self._links.items() if end[0] == datapath and peer[0] in self.ports}
            row += sorted(near - members)
            members |= near
        return members

    def _cables(self, members: set[int]) -> dict[frozenset[int], _Cable]:
        """One link for each pair of switches that are linked: one that is up, the one in use, the lowest ports."""
        best: dict[frozenset[int], _Cable] = {}
        for a, b in sorted(self._links.items()):
            if a[0] >= b[0] or not {a[0], b[0]} <= members:
                continue
            pair = frozenset((a[0], b[0]))
            if pair not in best or self._rank(pair, (a, b)) < self._rank(pair, best[pair]):
                best[pair] = a, b
        return best

    def _rank(self, pair: frozenset[int], cable: _Cable) -> tuple[bool, bool, _Cable]:
        up = all(port in self.ports.get(datapath, ()) for datapath, port in cable)
        return not up, self._used.get(pair) != cable, cable


def _next(letter: str, taken: Iterable[str]) -> str:
    return f"{letter}{max((int(name[1:]) for name in taken), default=0) + 1}"


class Scout:
    """Listens for switches for a while and looks how they are linked."""

    def __init__(self, discovery: Discovery | None = None, *, ack_timeout: float = 5.0) -> None:
        self.discovery: Final = discovery or Discovery()
        self._timeout = ack_timeout
        self._channels: dict[int, Channel] = {}
        self._by_channel: dict[Channel, int] = {}
        self._runs, self._doors = Tasks(), doors()
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
    ) -> DiscoveredNetwork:
        """Wait for so many switches, listen to them, and say what network they are."""
        if switches < 1:
            raise InvalidInput(expected="at least 1 switch", got=switches, where="discovery")
        server = await listening(self._accept, host, port, sock, tls)
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
            await self._runs.close()
            await server.wait_closed()

    def _send(self) -> None:
        for datapath, channel in self._channels.items():
            for port in self.discovery.ports[datapath]:
                channel.send_packet(CONTROLLER, oxm.output(port), self.discovery.frame(datapath, port))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Channel(reader, writer, self, self._timeout).run(self._runs, self._doors)

    async def introduced(self, channel: Channel, features: m.Features) -> None:
        """A switch is there: it is to give us link discovery frames."""
        ports = m.read_ports(channel.version, await channel.ask(Multipart.PORT_DESC))
        await channel.change([partial(translation.punt, channel.version, kind="discovery")], atomic=False)
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
