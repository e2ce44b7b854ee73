"""A client's end of its host link, in the embedded plane; and what its packets are held to if its member is known."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from sievenet.dataplane.hostlink import HostLink
from sievenet.dataplane.packet import PACKET_HEADER, category_of, publisher_of
from sievenet.dataplane.walks import Port

__all__ = ["BUFFER", "Checks", "Endpoint", "judged", "udp_socket"]

#: Bytes of socket buffer to ask for; the system may grant less.
BUFFER: Final = 4 << 20
#: Seconds between looks at what waits.
_LOOK: Final = 0.005


def udp_socket(address: tuple[str, int]) -> socket.socket:
    """A non-blocking UDP socket with large buffers, bound to an address."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        with contextlib.suppress(OSError):  # only the privileged may pass the system's limit
            sock.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), BUFFER)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


class Checks(Protocol):
    """What a client's packets are held to, if its member is known."""

    @property
    def receives_all(self) -> bool:
        """Whether the client may get every event of every category: then there is nothing to ask."""

    def sends_all(self, categories: Iterable[int]) -> bool:
        """Whether the client may publish every event of these categories."""

    def passes(self, packets: int, size: int, now: float) -> bool:
        """Whether so many packets, of so many bytes together, are within the quota."""

    def wait(self, packets: int, size: int, now: float) -> float:
        """Seconds until they would be."""

    def sends(self, category: int, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which of these encoded events the client may publish."""

    def receives(self, category: int, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which of these encoded events the client may get."""


class Server(Protocol):
    """What an endpoint asks of its plane."""

    withheld: int

    def serve(self, client: Endpoint) -> None:
        """Send a client what there is for it, at the end of this turn."""

    def transmit(self, datagram: bytes, address: Any) -> None:
        """Send a datagram."""


class Endpoint:
    """A client's end of its host link, in the plane."""

    __slots__ = (
        "address",
        "categories",
        "checks",
        "dirty",
        "inspected",
        "link",
        "most",
        "over_quota",
        "owing",
        "plane",
        "port",
        "publisher",
        "socket",
        "unchecked",
        "unpermitted",
    )

    def __init__(self, plane: Server, port: Port, token: int) -> None:
        self.plane = plane
        self.port: Final = port
        self.link: Final = HostLink(token)
        self.publisher: Final = publisher_of(token)
        self.address: Any = None
        #: Its own socket, connected to its address; None if it has none, and shares the first one.
        self.socket: socket.socket | None = None
        #: The categories that it may publish in; None: any.
        self.categories: frozenset[int] | None = None
        self.checks: Checks | None = None
        #: What comes for it is asked about; False where it may have everything.
        self.inspected = False
        #: Packets of this client, or for it, that were dropped; told and forgotten by `refused`.
        self.unpermitted = 0
        self.over_quota = 0
        #: Bytes that may wait for it, if its quota says so.
        self.most = 0
        #: Packets that came for it in this turn, and that it perhaps may not have.
        self.unchecked: list[bytes] = []
        #: Whether it is on the list of those to serve at the end of the turn.
        self.dirty = False
        #: Whether it is on the list of those to acknowledge to, later.
        self.owing = False

    @property
    def homeless(self) -> bool:
        """Whether it is heard, but by the socket that all share."""
        return self.socket is None and self.address is not None

    def take(self, packet: bytes, _size: int) -> None:
        """A packet leaves the network here."""
        if self.inspected:
            self.unchecked.append(packet)
        else:
            self.port.dropped += not self.link.push(packet)
        if not self.dirty:
            self.plane.serve(self)

    async def passed(self) -> int:
        """Wait until everything that waits for the client now was sent to it; the number of a datagram behind that."""
        await asyncio.sleep(0)  # the end of the turn
        place = self.link.place
        while self.link.sent_packets < place or self.address is None:
            await asyncio.sleep(_LOOK)
        number, probe = self.link.probe(asyncio.get_running_loop().time())
        self.plane.transmit(probe, self.address)
        return number

    def refused(self) -> tuple[int, int]:
        """Packets of this client, or for it, that were dropped since this was asked: not permitted, over its quota."""
        found = self.unpermitted, self.over_quota
        self.unpermitted = self.over_quota = 0
        return found

    def admit(self) -> None:
        """Of what came in this turn, keep what the client may have."""
        packets, self.unchecked = self.unchecked, []
        if self.checks is None:
            verdicts: Sequence[bool] = [True] * len(packets)
        else:
            verdicts = judged(self.checks.receives, packets)
        for packet, good in zip(packets, verdicts, strict=True):
            if good:
                self.port.dropped += not self.link.push(packet)
            else:
                self.plane.withheld += 1


def judged(check: Callable[[int, Sequence[bytes]], Sequence[bool]], packets: Sequence[bytes]) -> Sequence[bool]:
    """What a check says of packets, those of one category asked together."""
    categories = [category_of(packet) for packet in packets]
    if len(set(categories)) == 1:
        return check(categories[0], [packet[PACKET_HEADER:] for packet in packets])
    verdicts = [False] * len(packets)
    for category in set(categories):
        places = [i for i, each in enumerate(categories) if each == category]
        for i, good in zip(places, check(category, [packets[i][PACKET_HEADER:] for i in places]), strict=True):
            verdicts[i] = good
    return verdicts
