"""The data plane in real time: software switches in this process, clients over UDP.

All clients send to one UDP port.  A turn of the event loop reads a bounded number of bytes of a socket,
carries their packets through the switches (synchronously, if links are perfect), and then, in
the same turn, sends each client one train of datagrams with all that was brought for it:

    socket ──▶ token known? ──▶ packets ──▶ Forwarding ──▶ queue of client A ──┐ at the end of
                 │ no                            └───────▶ queue of client B ──┴▶ the turn ──▶ socket
                 └▶ dropped, counted

A single event that comes alone does not even wait until it is known that nothing else came.

Behind the port every client has a socket of its own, connected to the client's address, as soon as that is
known: the system then keeps what the client sends apart from what others do.  A client that floods fills its
own buffer, and has its share of the turns; the others lose nothing.  Strangers, and clients whose address is not
known yet, share the first socket.

Datagrams from strangers, malformed ones, packets that carry another client's publisher number, and
packets of categories that the client does not advertise are dropped and counted; queues are bounded, and count
what they drop.  Where members are known, datagrams are sealed (`access.seal`), and what a client sends and gets is
held to its permissions and quota (`Checks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections import deque
from typing import Any, Final

from sievenet.access.seal import SEAL, Channel
from sievenet.dataplane.endpoint import Checks, Endpoint, judged, udp_socket
from sievenet.dataplane.fabric import Fabric
from sievenet.dataplane.hostlink import STALL, LinkStatistics
from sievenet.dataplane.packet import DATAGRAM_HEADER, MAX_BODY, MAX_DATAGRAM, Kind, header, split
from sievenet.dataplane.plane import Attached, PlaneStatistics
from sievenet.dataplane.sockets import Sockets, Turn
from sievenet.dataplane.walks import Port
from sievenet.errors import CodecError, Unavailable
from sievenet.network.topology import Topology
from sievenet.session.complaints import told
from sievenet.simulation import LoopClock

__all__ = ["EmbeddedDataPlane", "PlaneStatistics"]

#: Datagrams and bytes to read of a socket per turn of the loop, so that a flood does not stop everything else.
_PER_TURN: Final = 64
_BYTES: Final = 128 << 10
#: Bytes that may wait for all clients together; for one of them, at most; and for one of very many.
_QUEUES: Final = 1 << 30
_QUEUE: Final = 16 << 20
_SHORTEST_QUEUE: Final = 256 << 10


class EmbeddedDataPlane(Fabric):
    """Embedded switches in real time, with clients over UDP."""

    #: Bytes of the largest encoded event.
    max_body: Final = MAX_BODY

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 0,
        capacity: int | None = None,
        control_delay: float = 0.0,
        ack_timeout: float = 1.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(
            topology,
            LoopClock(self._loop),
            seed=seed,
            capacity=capacity,
            control_delay=control_delay,
            ack_timeout=ack_timeout,
        )
        self._sock: socket.socket | None = None
        self._at: tuple[str, int] | None = None
        self._by_token: dict[int, Endpoint] = {}
        self._sockets = Sockets(
            self._loop, self._readable, lambda: any(each.homeless for each in self._by_token.values())
        )
        self._dirty: list[Endpoint] = []
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        #: In the order in which it is due, about.
        self._owing: deque[Endpoint] = deque()
        self._owing_timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(MAX_DATAGRAM + 1)
        self._view = memoryview(self._buffer)
        self._receive_budget = 0
        #: Seconds until the quota of the client whose socket is being read allows what was refused; 0: nothing was.
        self._wait = 0.0
        self._datagrams = self._packets = self._malformed = self._unknown = self._forged = self._unadvertised = 0
        #: Packets that were not given to clients that may not have them.
        self.withheld = 0
        self._unpermitted = self._over_quota = 0
        self._gone_unsealed = self._gone_replayed = self._gone_dropped = self._gone_lost = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Open the socket; returns its address."""
        try:
            self._sock = udp_socket((host, port))
        except OSError as error:
            raise Unavailable(f"Cannot open UDP port {host}:{port}: {told(error)}") from None
        # The kernel counts its own overhead against the buffer, so half of it is for data.
        self._receive_budget = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self._at = self._sock.getsockname()[:2]
        # Only now, so that nobody else gets the port; clients' own sockets share it.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._sockets.shared = self._sock
        self._sockets.read(self._sock)
        return self._at

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Where clients send their datagrams; None before `start`."""
        return self._at

    def _endpoint(self) -> tuple[str, int] | None:
        return self._at

    def _new_token(self) -> int:
        return secrets.randbits(64)

    def _attached(self, attached: Attached, port: Port) -> None:
        client = self._by_token[attached.token] = Endpoint(self, port, attached.token)
        port.listener = client.take
        self._grant()

    def _detached(self, attached: Attached) -> None:
        client = self._by_token.pop(attached.token, None)
        if client is not None:
            self._disconnect(client)
            self._gone_dropped += client.link.dropped
            self._gone_lost += client.link.lost
            if client.link.channel is not None:
                self._gone_unsealed += client.link.channel.forged
                self._gone_replayed += client.link.channel.replayed
        self._grant()

    async def permit(self, client: str, categories: frozenset[int]) -> None:
        """A client may publish in these categories and no others."""
        known = self.clients().get(client)
        if known is not None and known.token in self._by_token:
            self._by_token[known.token].categories = categories

    def secure(self, client: str, key: bytes) -> None:
        """Datagrams of a client are sealed with this key from now on."""
        link = self.endpoint_of(client).link
        if link.channel is None:
            link.channel = Channel(key, down=True)
        else:
            link.channel.rekey(key)

    def check(self, client: str, checks: Checks | None, queue: int = 0) -> None:
        """Hold a client's packets to something, and what waits for it to so many bytes."""
        known = self.endpoint_of(client)
        known.checks, known.most = checks, queue
        known.inspected = checks is not None and not checks.receives_all
        self._grant()

    def endpoint_of(self, client: str) -> Endpoint:
        """A client's end of its host link."""
        return self._by_token[self.clients()[client].token]

    def waiting(self, client: str) -> tuple[int, int]:
        """Packets that wait for a client, and those for it that were dropped since there was no room."""
        link = self.endpoint_of(client).link
        return link.queued, link.dropped

    def _connect(self, client: Endpoint, address: Any) -> None:
        """Keep what comes from a client's address apart; without a socket to spare it shares the first one."""
        own = client.socket
        assert self._sock is not None
        try:
            if own is None:
                own = self._sockets.open(self._sock)
                client.socket = own
                self._sockets.read(own)
            own.connect(address)  # what waits there stays
        except OSError:
            self._disconnect(client)  # out of descriptors, say

    def _disconnect(self, client: Endpoint) -> None:
        if client.socket is not None:
            self._sockets.close(client.socket)
            client.socket = None

    def _grant(self) -> None:
        """Share the receive buffer among the clients, and the memory for what waits for them."""
        queue = max(min(_QUEUES // max(len(self._by_token), 1), _QUEUE), _SHORTEST_QUEUE)
        share = max(self._receive_budget // max(len(self._by_token), 1) >> 10, 4)
        for client in self._by_token.values():
            client.link.grant = min(share, 96)
            client.link.max_bytes = min(queue, client.most) if client.most else queue

    # -- receiving -------------------------------------------------------------------------------

    def _readable(self, sock: socket.socket) -> Turn:
        # Whatever is brought for a client is sent in this turn.
        self._flush_due = True
        self._wait = 0.0
        try:
            refused, emptied = self._read(sock, self._loop.time())
        finally:
            self._flush()
        return Turn(refused, self._wait, emptied)

    def _read(self, sock: socket.socket, now: float) -> tuple[int, bool]:
        """Take what there is, up to a turn's worth: how many more were refused than taken, and whether that was all."""
        view, left, refused, own = self._view, _BYTES, 0, sock is not self._sock
        enough = self._sockets.enough(sock) if own else _PER_TURN
        for turn in range(_PER_TURN):
            # What comes behind a datagram that is over the quota would be refused too: it waits.
            if left <= 0 or refused >= enough or (own and self._wait) or (turn and self._sockets.over(sock, turn)):
                break
            try:
                size, address = sock.recvfrom_into(self._buffer)
            except BlockingIOError:
                return refused, True
            except OSError:
                continue  # an ICMP error of an earlier datagram
            self._datagrams += 1
            left -= size
            try:
                count = self._datagram(view[:size], address, now, not own)
            except CodecError:
                self._malformed += 1
                refused += 1
                continue
            refused += 1 if count < 0 else -1
            if not turn and count == 1:
                self._flush()
                self._flush_due = True
        return refused, False

    def _datagram(self, data: bytes | memoryview, address: Any, now: float, first: bool) -> int:
        """Carry a datagram's packets, so many, or -1 if none was welcome; it came by the ``first`` socket or not."""
        token, kind, sequence, acknowledged, window, count = header(data)
        client = self._by_token.get(token)
        if client is None:
            self._unknown += 1
            return -1
        link, size, at = client.link, len(data), DATAGRAM_HEADER
        if link.channel is not None:
            opened = link.channel.open(memoryview(data), now)
            if opened is None:
                return -1
            data, at, size = opened, 0, size - SEAL
        found = split(data, count, at)
        self._malformed += count - len(found)
        if address != client.address and first:
            client.address = address
            link.restart()
            self._connect(client, address)
        # What waited in the client's own socket when its address changed says nothing about the link of now.
        if address == client.address:
            link.heard(sequence, acknowledged, window, now, size)
            self._answer(client, now)
            # An answer means that the address is known.  A greeting that came in by somebody's own socket, before that
            # was connected, is not answered: the client greets again.
            if kind == Kind.HELLO:
                self.transmit(link.hello(), address)
        port, publisher, categories = client.port, client.publisher, client.categories
        inject, checks = self.forwarding.inject, client.checks
        if checks is not None and found and not checks.passes(len(found), size, now):
            client.over_quota += len(found)
            self._over_quota += len(found)
            self._wait = checks.wait(len(found), size, now)
            return -1
        welcome: list[tuple[int, int, bytes]] = []
        for start, end, category, code, claimed in found:
            if claimed != publisher:
                self._forged += 1
            elif categories is not None and category not in categories:
                self._unadvertised += 1
            else:
                welcome.append((category, code, bytes(data[start:end])))
        if checks is not None and not checks.sends_all(category for category, _, _ in welcome):
            verdicts = judged(checks.sends, [packet for _, _, packet in welcome])
            refused = len(welcome) - sum(verdicts)
            client.unpermitted += refused
            self._unpermitted += refused
            welcome = [each for each, good in zip(welcome, verdicts, strict=True) if good]
        self._packets += len(welcome)
        for category, code, packet in welcome:
            inject(port, category, code, packet, len(packet))
        return -1 if count and not welcome else count

    # -- sending ---------------------------------------------------------------------------------

    def _answer(self, client: Endpoint, now: float) -> None:
        """Acknowledge what came: at the end of this turn if it is due or there is more to send, else later."""
        if client.dirty:
            return
        due = client.link.acknowledge_at
        if not client.link.idle or (due is not None and due <= now):
            self.serve(client)
        elif due is not None and not client.owing:
            client.owing = True
            self._owing.append(client)
            if self._owing_timer is None:
                self._owing_timer = self._loop.call_at(due, self._acknowledge)

    def _acknowledge(self) -> None:
        self._owing_timer = None
        now, owing = self._loop.time(), self._owing
        while owing:
            due = owing[0].link.acknowledge_at
            if due is not None and due > now:
                self._owing_timer = self._loop.call_at(due, self._acknowledge)
                return
            client = owing.popleft()
            client.owing = False
            if due is not None and not client.dirty:
                self.serve(client)

    def serve(self, client: Endpoint) -> None:
        """Send a client what there is for it, at the end of this turn."""
        client.dirty = True
        self._dirty.append(client)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._sock is None:
            return
        now = self._loop.time()
        dirty, self._dirty = self._dirty, []
        stalled = False
        for client in dirty:
            client.dirty = False
            if client.unchecked:
                client.admit()
            if client.address is None:
                continue
            for datagram in client.link.datagrams(now):
                self.transmit(datagram, client.address)
            stalled = stalled or not client.link.idle
        if stalled and self._timer is None:
            self._timer = self._loop.call_later(STALL, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for client in self._by_token.values():
            if not client.link.idle and not client.dirty:
                self.serve(client)

    def transmit(self, datagram: bytes, address: Any) -> None:
        """Send a datagram."""
        if self._sock is None:
            return
        with contextlib.suppress(OSError):  # the client is away, or buffers are full: the window will notice
            self._sock.sendto(datagram, address)

    # -- the rest --------------------------------------------------------------------------------

    def statistics(self) -> PlaneStatistics:
        """What the socket has seen."""
        links = [client.link for client in self._by_token.values()]
        channels = [link.channel for link in links if link.channel is not None]
        return PlaneStatistics(
            datagrams=self._datagrams,
            packets=self._packets,
            malformed=self._malformed,
            unknown=self._unknown,
            forged=self._forged,
            unadvertised=self._unadvertised,
            dropped=self._gone_dropped + self.forwarding.overflowed + sum(link.dropped for link in links),
            lost=self._gone_lost + sum(link.lost for link in links),
            unsealed=self._gone_unsealed + sum(channel.forged for channel in channels),
            replayed=self._gone_replayed + sum(channel.replayed for channel in channels),
            unpermitted=self._unpermitted + self.withheld,
            over_quota=self._over_quota,
        )

    def client_statistics(self, client: str) -> LinkStatistics:
        """What the host link of a client has counted."""
        self.port_of(client)  # an unknown client is an error
        return self.endpoint_of(client).link.statistics()

    async def close(self) -> None:
        """Close the socket and stop."""
        for timer in (self._timer, self._owing_timer):
            if timer is not None:
                timer.cancel()
        for client in self._by_token.values():
            self._disconnect(client)
        if self._sock is not None:
            self._sockets.close(self._sock)
            self._sock = None
        self._sockets.end()
        await super().close()
