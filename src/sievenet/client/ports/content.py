"""A data port whose packets are addressed by what they say: IPv6 and UDP, for networks of real switches.

    to    fd0e:<category>:<code>  UDP 0x8000 (see `dataplane.openflow.translation`)
    from  the host's own address, and the client's own UDP port, which is also where its packets arrive

Nothing between client and network could keep a secret or a window: the switch knows the client by the port and
host that it sends from, and lets nobody else send from there.  So that is what a publisher's number follows from
(`publisher_at`), and whoever receives a packet checks it against where the packet comes from: what claims to be of
somebody else is dropped and counted.

What is too fast is lost.  So the port paces itself: bursts are spread over time at a rate that software switches keep
up with.  Where the system can, many packets are sent and read with one call (`mmsg`).

The socket has to be in the host's network.  A client that was started there (`sievenet host`) opens it; one that was
started elsewhere on the same machine, and may, enters the host's namespace for that moment.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.access.quota import Bucket
from sievenet.client.ports import mmsg
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.client.ports.datagrams import (
    Target,
    arrivals_of,
    count_in,
    outlets_of,
    owner_at,
    owners_of,
    sender_of,
    target_of,
)
from sievenet.client.ports.identity import publisher_number
from sievenet.client.ports.pacing import BURST, FIRST, MANY, RATE, TURN, Gathering, weight
from sievenet.client.ports.port import DataPort, Deliver, enlarge
from sievenet.control.protocol import DataEndpoint
from sievenet.dataplane import namespaces
from sievenet.dataplane.packet import (
    DATAGRAM_HEADER,
    FRONT,
    Packet,
    datagram_alone,
    encode_packet,
    header,
    packet_alone,
    packets_of,
)
from sievenet.errors import CodecError, Unavailable
from sievenet.index.address import CONTENT_PORT, CONTENT_PREFIX, TOGETHER

__all__ = ["ContentPort"]

#: Packets that may wait here before a publisher has to wait too.
_AHEAD: Final = 4096
_BUFFER: Final = 32 << 20
#: Bytes of the longest packet that comes by a link: jumbo frames, and a little.
_WIDEST: Final = 9216
#: The shortest nap of the event loop that is worth it.
_NAP: Final = 0.001

#: Packets that come together from which on the rest is read with one call.
_SEVERAL: Final = 4
#: Single packets that are paid for at once.
_AT_ONCE: Final = 32
#: Seconds that a packet may take through the network.
_FLIGHT: Final = 0.05

#: A content address: prefix, category and as much of a code; and how a code ends that has no more.
_PLACE: Final = struct.Struct(">HH12s")
_SHORT: Final = bytes(4)


def _check_address(address: str) -> None:
    """`Unavailable` unless this machine has the address that its switch lets this host send from."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            raise Unavailable(
                f"Expected this machine to have the host's address {address}, got none such: "
                f"make it a host with `sievenet host --prepare DEVICE --address {address}`"
            ) from None


class ContentPort(DataPort):
    """A client's socket in its host's network."""

    independent = single = True

    def __init__(
        self, sock: socket.socket, publisher: int, deliver: Deliver, room: int = 0, whole: bool = False
    ) -> None:
        super().__init__(sock, deliver)
        #: Where the last datagram came from that came alone, and the only publisher number that its packet may have.
        self._source: tuple[str, int, int, int] | None = None
        self._owner = 0
        #: Bytes of the longest datagram of several packets; 0 if switches take single ones alone.
        self._room = room
        self._publisher = publisher
        self._pace = Bucket(RATE, BURST)
        #: Single packets and bursts, in order, and how many packets that is.
        self._queue: deque[tuple[bytes, Target, int] | mmsg.Outlet] = deque()
        self._queued = 0
        self._last = 0.0
        #: Whether single packets have left since, and how many more are paid for.
        self._lately, self._paid = False, 0
        #: Reads again, if it does not read at once when something comes.
        self._reading: asyncio.TimerHandle | None = None
        #: Whether all that waits is read with one call, for whom groups matter more than the first packet.
        self._whole = whole
        self._gathering = Gathering()
        self._inlet = mmsg.Inlet(TURN, _WIDEST) if mmsg.available else None

    @classmethod
    async def open(cls, endpoint: DataEndpoint, deliver: Deliver, whole: bool = False) -> ContentPort:
        """A socket in the network of the endpoint's host, reading."""

        def make() -> socket.socket:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            try:
                sock.setblocking(False)
                enlarge(sock, _BUFFER)
                sock.bind(("::", endpoint.port))
            except OSError:
                sock.close()
                raise
            return sock

        where = endpoint.namespace
        if not where:
            _check_address(endpoint.address)
        try:
            sock = make() if not where or namespaces.current(where) else namespaces.inside(where, make)
        except OSError as error:
            raise Unavailable(f"UDP port {endpoint.port} of {endpoint.address}: {error.strerror or error}") from None
        port = cls(sock, publisher_number(endpoint), deliver, endpoint.room, whole)
        port.resume()
        return port

    async def greet(self, timeout: float) -> None:
        """Nothing to do: the switch was told of this port by the control plane."""

    # -- sending --------------------------------------------------------------------------

    def send(self, packets: Iterable[Packet] | Burst) -> bool:
        """Send packets, as fast as is good for them."""
        queue = self._queue
        if type(packets) is list and len(packets) == 1 and not queue:
            [packet] = packets
            with suppress(struct.error, OverflowError):  # then it is said below what is wrong
                if self.send_alone(datagram_alone(packet), packet.category, packet.code.to_bytes(16, "big")):
                    return True
        if self._closed:
            raise Unavailable("The data port is closed")
        if isinstance(packets, Burst):
            outlets = outlets_of(packets, self._together(packets)) if mmsg.available and len(packets) else None
            if outlets is not None:
                self._queue.extend(outlets)
                return self._queue_more(len(packets))
            packets = Arrivals(packets.matrix)
        before = len(queue)
        for packet in packets:
            target, dscp = target_of(packet.category, packet.code)
            queue.append((FRONT + encode_packet(packet), target, dscp))
        return self._queue_more(len(queue) - before)

    def send_alone(self, datagram: bytes, category: int, code: bytes) -> bool:
        """Send a packet at once, if nothing waits in front of it and it may go; False otherwise.

        In few steps: a process that has just woken up has forgotten each of them.
        """
        if self._queue or not (self._paid or self._pay()) or not code.endswith(_SHORT):
            return False
        try:
            # Not `inet_ntop`, which takes as long as all else here.
            self._socket.sendto(datagram, (_PLACE.pack(CONTENT_PREFIX, category, code).hex(":", 2), CONTENT_PORT))
        except OSError:
            return False  # then it waits in the queue, which knows what to do
        self._paid -= 1
        self._lately = True
        return True

    def _pay(self) -> bool:
        """Pay for some single packets to come, so that not each has to ask for the time."""
        if self._closed or not self._pace.take(_AT_ONCE, time.monotonic()):
            return False
        self._paid = _AT_ONCE
        return True

    def _together(self, burst: Burst) -> int:
        """How many packets of a burst may share a datagram."""
        if burst.apart:
            return 1
        return max(1, min(TOGETHER, (self._room - DATAGRAM_HEADER) // int(burst.matrix.shape[1])))

    def _queue_more(self, count: int) -> bool:
        self._queued += count
        self._departures.given += count
        self._flush()
        return self._queued <= _AHEAD

    def _flush(self) -> None:
        now = time.monotonic()
        budget = left = self._pace.left(now)
        while self._queue and left >= 1.0:
            first = self._queue[0]
            together = first.together if isinstance(first, mmsg.Outlet) else 1
            heavy = weight(together)
            try:
                sent = self._send_some(first, max(1, int(left / heavy)))
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.refused += together
                sent = 1
                if isinstance(first, mmsg.Outlet):
                    first.skip()
            left -= sent * heavy
            self._queued -= sent * together
            if not isinstance(first, mmsg.Outlet) or not len(first):
                self._queue.popleft()
        if left < budget:
            self._pace.charge(budget - left, now)
            self._last = time.monotonic()
        if self._queued and self._timer is None:
            self._timer = self._loop.call_later(_NAP, self._again)
        self._departures.queued(self._queued)

    def _send_some(self, first: tuple[bytes, Target, int] | mmsg.Outlet, most: int) -> int:
        """Send up to so many datagrams of what is first in the queue; returns how many."""
        if isinstance(first, mmsg.Outlet):
            return first.send(self._socket, min(most, TURN))
        data, target, dscp = first
        if dscp:
            self._send_marked(data, target, dscp)
        else:
            self._socket.sendto(data, target)
        return 1

    def _send_marked(self, data: bytes, target: Target, dscp: int) -> None:
        mark = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("i", dscp << 2))
        self._socket.sendmsg([data], [mark], 0, target)

    def _again(self) -> None:
        self._timer = None
        if not self._closed:
            self._flush()

    async def flushed(self, ahead: int = _AHEAD // 2) -> None:
        """Wait until no more than ``ahead`` of the packets given to `send` so far wait here."""
        if self._queued > ahead:
            await self._departures.wait(ahead)
        if not ahead:
            # Whoever asks for this is about to change what packets under way still rely on.
            if self._lately:
                self._lately, self._last = False, time.monotonic()
            await asyncio.sleep(self._last + _FLIGHT - time.monotonic())

    async def arrived(self) -> None:
        """Wait until what was given to `send` so far has left: switches say nothing about what they take."""
        if self._queued:
            await self._departures.wait(0)

    # -- receiving ------------------------------------------------------------------------

    def _readable(self) -> None:
        # A single event passes as few steps as can be, here and in the receiver: each is one that its process has not
        # taken for a while, so that the processor has forgotten it.
        if self._gathering.lull and self._inlet is not None and self._gathering.expects(self._loop.time()):
            self._loop.remove_reader(self._socket)
            self._reading = self._loop.call_later(FIRST, self._gather, self._inlet)
            return
        if self._whole and self._inlet is not None:
            self._loop.remove_reader(self._socket)
            self._gather(self._inlet)
            return
        # The first is delivered before it is known whether there are more.  A few more are read singly, which is
        # quickest for a few; if there are as many, the rest together.
        try:
            data, source = self._socket.recvfrom(_WIDEST)
        except OSError:
            return
        self.read += 1
        if source != self._source:
            self._source, self._owner = source, owner_at(source[0], source[1])
        owner, several = self._owner, False
        if self.alone is None or owner == self._publisher or not self.alone(data, owner):
            packet = packet_alone(data, FRONT)
            if packet is None or packet.publisher != owner:
                several = data[:DATAGRAM_HEADER] != FRONT
                self._take([(data, owner)])
            elif owner != self._publisher:
                self._deliver([packet])
        if self._paused:
            return
        if not several or self._inlet is None:
            found = self._read_singly((TURN if self._inlet is None else _SEVERAL) - 1)
            self._take(found)
            several = len(found) == _SEVERAL - 1
        if several and self._inlet is not None and not self._paused:
            self._loop.remove_reader(self._socket)
            self._gather(self._inlet)

    def _gather(self, inlet: mmsg.Inlet) -> None:
        """Read together, and again a little later as long as many come: a single event never waits."""
        self._reading = None
        now = self._loop.time()
        datagrams, packets = self._read_together(inlet)
        if self._paused:
            return
        nap = self._gathering.nap(packets, now, packets > datagrams)
        if datagrams == TURN:
            nap = 0.0  # as many as fit: more are there already
        if nap is None:
            self._loop.add_reader(self._socket, self._readable)
        else:
            nap = max(0.0, now + nap - self._loop.time())
            self._reading = self._loop.call_later(nap, self._gather, inlet)

    def _read_together(self, inlet: mmsg.Inlet) -> tuple[int, int]:
        """How many datagrams came, and packets in them."""
        try:
            found = inlet.read(self._socket)
        except OSError:
            return 0, 0  # an ICMP error about an earlier packet
        for matrix, names in found:
            arrivals = arrivals_of(matrix) if len(matrix) * count_in(matrix[0]) >= MANY else None
            if arrivals is None:
                self._take([(row.tobytes(), sender_of(name)) for row, name in zip(matrix, names, strict=True)])
            elif len(others := self._of_others(arrivals, owners_of(names, len(arrivals)))):
                self._deliver(others)
        datagrams = sum(len(matrix) for matrix, _ in found)
        self.read += datagrams
        return datagrams, sum(len(matrix) * (count_in(matrix[0]) or 1) for matrix, _ in found)

    def _of_others(self, arrivals: Arrivals, owners: int | npt.NDArray[np.uint64]) -> Arrivals:
        """Those that are of whom they claim to be, and not of ourselves."""
        claimed = arrivals.heads["publisher"]
        genuine = claimed == owners
        self.forged += len(arrivals) - int(np.count_nonzero(genuine))
        return arrivals.only(genuine & (claimed != self._publisher))

    def _read_singly(self, most: int) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        for _ in range(most):
            try:
                data, (host, port, *_rest) = self._socket.recvfrom(_WIDEST)
                found.append((data, owner_at(host, port)))
                self.read += 1
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue  # an ICMP error about an earlier packet
        return found

    def _take(self, datagrams: list[tuple[bytes, int]]) -> None:
        """Datagrams, each with the only publisher number that its packets may have."""
        came: list[Packet] = []
        for data, owner in datagrams:
            try:
                count = header(data)[-1]
                arrivals = arrivals_of(np.frombuffer(data, np.uint8).reshape(1, -1)) if count > 1 else None
                found = packets_of(data, count) if arrivals is None else ()
            except CodecError:
                self.malformed += 1
                continue
            if arrivals is not None:
                if came:
                    self._deliver(came)
                    came = []
                if len(others := self._of_others(arrivals, owner)):
                    self._deliver(others)
                continue
            self.malformed += count - len(found)
            genuine = [packet for packet in found if packet.publisher == owner]
            self.forged += len(found) - len(genuine)
            # A switch that sends to several clients of a host does not leave out the one that sent.
            if owner != self._publisher:
                came += genuine
        if came:
            self._deliver(came)

    def pause(self) -> None:
        """Read nothing until `resume`; what the system cannot hold meanwhile is lost."""
        super().pause()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
