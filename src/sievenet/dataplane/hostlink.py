"""The link between a client and its switch over UDP: pure, the same at both ends.

UDP on loopback does not lose packets on a wire, it loses them in socket buffers, and
silently.  So each end counts its datagrams, tells the other how far it has come, and keeps
no more than a window of bytes under way; what does not fit waits in a bounded queue, and what
does not fit there is dropped *and counted*.

    queue ──▶ [ window: sent, not yet acknowledged ] ──▶ socket buffers ──▶ other end
    full: dropped, counted                     ◀── acknowledged, window (in KiB) ──

Packets come one by one (`push`), or many that are equally long as one block of bytes (`push_rows`), of which a datagram
takes a slice: nothing is done per packet then.

Every datagram acknowledges.  If there is nothing to send, an empty one does: at once when a
quarter of the window has come, so that a sender in full flight never stops, and a little later
for less, since an acknowledgement wakes up a process that has nothing to do with it.  A receiver
that serves many senders advertises a smaller window to each.

If acknowledgements stop, either the other end does not read (then nothing must be sent, or it
would be lost), or the last datagrams were lost after all.  An empty datagram with a number of its
own finds out: once it is acknowledged, everything before it has arrived or is gone.  Such probes
go out after `STALL` seconds, then ever more rarely.  This is flow control, not recovery.

Where packets were dropped for want of room, a number is left out: the other end sees a datagram that never came, at the
place where the packets are missing, and can ask others for them (`client.caching`, `cachehost`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import Final

import msgspec

from sievenet.access.seal import Channel
from sievenet.dataplane.packet import DATAGRAM_HEADER, FULL_DATAGRAM, Kind, batches, encode_header

__all__ = ["PATIENCE", "STALL", "HostLink", "LinkStatistics"]

#: Seconds until little is acknowledged, if nothing goes that way before.
PATIENCE: Final = 0.05
#: Seconds without an acknowledgement after which a probe is sent, and the longest time between two.
STALL: Final = 0.2
_LONGEST_STALL: Final = 5.0
#: Bytes under way at most, unless the other end says otherwise.
WINDOW: Final = 96 * 1024
#: What the kernel adds to a datagram in its accounts, about.
_OVERHEAD: Final = 768
_WRAP: Final = 1 << 32


class LinkStatistics(msgspec.Struct, frozen=True):
    """What a host link has counted."""

    sent_datagrams: int
    sent_packets: int
    received_datagrams: int
    #: Datagrams of the other end that never came, and places where it had no room for packets.
    lost_datagrams: int
    #: Packets dropped because the queue was full.
    dropped_packets: int
    #: How often acknowledgements stopped coming.
    stalls: int
    queued_packets: int


class _Rows:
    """Equally long packets, one after the other."""

    __slots__ = ("data", "width")

    def __init__(self, data: memoryview, width: int) -> None:
        self.data, self.width = data, width


class HostLink:
    """One end of the link."""

    def __init__(
        self, token: int, *, max_packets: int = 65_536, max_bytes: int = 16 << 20, channel: Channel | None = None
    ) -> None:
        self.token: Final = token
        #: Seals what is sent and opens what comes; None where nothing is sealed.
        self.channel = channel
        #: Bound of the queue.
        self.max_packets: Final = max_packets
        self.max_bytes = max_bytes
        #: The window that we grant the other end, in KiB.
        self.grant = WINDOW >> 10
        #: When an acknowledgement is due; None if all is acknowledged.
        self.acknowledge_at: float | None = None
        #: Bytes that came and are not acknowledged.
        self._owed = 0
        self.received = 0
        self.lost = 0
        self.dropped = 0
        self.sent_packets = 0
        self.sent_datagrams = 0
        self.stalls = 0
        self._window = WINDOW
        self._queue: deque[bytes | _Rows] = deque()
        self._queue_bytes = 0
        #: Blocks in the queue, and packets in them.
        self._blocks = self._in_blocks = 0
        self._next = 1
        #: Where packets were dropped: behind so many that were sent or wait.
        self._holes: deque[int] = deque()
        #: (number, bytes) of datagrams under way.
        self._under_way: deque[tuple[int, int]] = deque()
        self._under_way_bytes = 0
        self._patience = STALL
        self._probe_at = 0.0
        self._highest = 0

    # -- sending -------------------------------------------------------------------------------

    def push(self, packet: bytes) -> bool:
        """Queue an encoded packet; False if it was dropped because the queue is full."""
        if (
            len(self._queue) + self._in_blocks - self._blocks >= self.max_packets
            or self._queue_bytes + len(packet) > self.max_bytes
        ):
            self._drop(1)
            return False
        self._queue.append(packet)
        self._queue_bytes += len(packet)
        return True

    def push_rows(self, data: bytes | memoryview, width: int) -> int:
        """Queue encoded packets that are equally long, as they lie; how many were not dropped.

        The bytes are not copied before they are sent: they must not change.
        """
        count = len(data) // width
        room = max(0, min(self.max_packets - self.queued, (self.max_bytes - self._queue_bytes) // width, count))
        if room:
            self._queue.append(_Rows(memoryview(data)[: room * width], width))
            self._queue_bytes += room * width
            self._blocks += 1
            self._in_blocks += room
        if room < count:
            self._drop(count - room)
        return room

    def _drop(self, count: int) -> None:
        self.dropped += count
        if not self._holes or self._holes[-1] != self.place:
            self._holes.append(self.place)

    @property
    def place(self) -> int:
        """Packets that were sent or wait."""
        return self.sent_packets + self.queued

    @property
    def queued(self) -> int:
        """Packets that wait."""
        return len(self._queue) + self._in_blocks - self._blocks

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not self._queue

    def datagrams(self, now: float) -> list[bytes]:
        """What to send now: as much of the queue as the window allows, or an acknowledgement that is due."""
        out: list[bytes] = []
        while self._queue and (not self._under_way or self._under_way_bytes < self._window):
            if not self._under_way:
                self._wait(now, STALL)
            out.append(self._seal(*self._take(), self._number()))
        if self._holes and not self._queue:
            self._skip()
            out.append(self._seal([], 0, self._number()))
        if self._queue and not out and now >= self._probe_at:
            self.stalls += 1
            self._wait(now, min(2 * self._patience, _LONGEST_STALL))
            out.append(self._seal([], 0, self._number()))
        if not out and self.acknowledge_at is not None and now >= self.acknowledge_at:
            out.append(self._seal([], 0, 0))
        if out:
            self.acknowledge_at, self._owed = None, 0
        return out

    def probe(self, now: float) -> tuple[int, bytes]:
        """An empty datagram, which the other end acknowledges at once, and its number (see `arrived`, `reached`)."""
        while self._holes and self._holes[0] <= self.sent_packets:
            self._skip()
        if not self._under_way:
            self._wait(now, STALL)
        number = self._number()
        return number, self._seal([], 0, number)

    def arrived(self, number: int) -> bool:
        """Whether everything up to a datagram has been acknowledged: it has arrived, or is gone."""
        return not self._under_way or 0 < (self._under_way[0][0] - number) % _WRAP < _WRAP // 2

    def reached(self, number: int) -> bool:
        """Whether the other end's datagram of this number has come, or a later one."""
        return (self._highest - number) % _WRAP < _WRAP // 2

    def hello(self) -> bytes:
        """The greeting that makes an end's address known."""
        hello = encode_header(self.token, 0, 0, kind=Kind.HELLO, acknowledged=self._highest, window=self.grant)
        return hello if self.channel is None else self.channel.seal(hello, b"")

    def due(self) -> float | None:
        """When to ask for `datagrams` though nothing has come; None if nothing waits and nothing is owed."""
        if not self._queue:
            return self.acknowledge_at
        return self._probe_at if self.acknowledge_at is None else min(self._probe_at, self.acknowledge_at)

    def _wait(self, now: float, patience: float) -> None:
        self._patience = patience
        self._probe_at = now + patience

    def _number(self) -> int:
        number = self._next
        self._next = number + 1 if number + 1 < _WRAP else 1
        self.sent_datagrams += 1
        return number

    def _take(self) -> tuple[list[bytes] | list[memoryview], int]:
        """What the next datagram carries, and how many packets that are."""
        first, most = self._queue[0], FULL_DATAGRAM
        if self._holes:
            if self._holes[0] == self.sent_packets:
                self._skip()
            if self._holes:
                most = self._holes[0] - self.sent_packets
        if isinstance(first, _Rows):
            return self._take_rows(first, most)
        if most < len(self._queue):
            group = next(batches(takewhile(_single, islice(self._queue, most))))  # type: ignore[arg-type]
        elif self._blocks:
            group = next(batches(takewhile(_single, self._queue)))  # type: ignore[arg-type]
        else:
            group = next(batches(self._queue)) if len(self._queue) > 1 else [first]  # type: ignore[arg-type]
        for part in group:
            self._queue.popleft()
            self._queue_bytes -= len(part)
        return group, len(group)

    def _skip(self) -> None:
        """Leave a number out, for what was dropped here."""
        self._holes.popleft()
        self._next = self._next + 1 if self._next + 1 < _WRAP else 1

    def _take_rows(self, rows: _Rows, most: int) -> tuple[list[memoryview], int]:
        size = min(most, max(1, (FULL_DATAGRAM - DATAGRAM_HEADER) // rows.width)) * rows.width
        part, rows.data = rows.data[:size], rows.data[size:]
        if not rows.data:
            self._queue.popleft()
            self._blocks -= 1
        count = len(part) // rows.width
        self._in_blocks -= count
        self._queue_bytes -= len(part)
        return [part], count

    def _seal(self, group: list[bytes] | list[memoryview], count: int, number: int) -> bytes:
        size = len(group[0]) if len(group) == 1 else sum(map(len, group))
        head = encode_header(self.token, count, size, sequence=number, acknowledged=self._highest, window=self.grant)
        if number:
            cost = size + _OVERHEAD
            self._under_way.append((number, cost))
            self._under_way_bytes += cost
            self.sent_packets += count
        if self.channel is None:
            return b"".join((head, *group))
        return self.channel.seal(head, group[0] if len(group) == 1 else b"".join(group))

    # -- receiving -----------------------------------------------------------------------------

    def heard(self, sequence: int, acknowledged: int, window: int, now: float, size: int) -> None:
        """The header of a datagram of so many bytes from the other end."""
        if sequence:
            self.received += 1
            self._owed += size - DATAGRAM_HEADER + _OVERHEAD
            # Who probes has waited long enough.
            if 4 * self._owed >= self.grant << 10 or size == DATAGRAM_HEADER:
                self.acknowledge_at = now
            elif self.acknowledge_at is None:
                self.acknowledge_at = now + PATIENCE
            ahead = (sequence - self._highest) % _WRAP
            if 0 < ahead < _WRAP // 2:
                self.lost += ahead - 1
                self._highest = sequence
            else:
                self.lost -= self.lost > 0  # overtaken, not lost
        self._window = max(window, 1) << 10
        under_way = self._under_way
        while under_way and (acknowledged - under_way[0][0]) % _WRAP < _WRAP // 2:
            self._under_way_bytes -= under_way.popleft()[1]
            self._wait(now, STALL)

    def restart(self) -> None:
        """The other end has a new socket and counts from the beginning; nothing is under way to it."""
        self._highest = 0
        self._under_way.clear()
        self._under_way_bytes = 0

    def statistics(self) -> LinkStatistics:
        """What it has counted."""
        return LinkStatistics(
            sent_datagrams=self.sent_datagrams,
            sent_packets=self.sent_packets,
            received_datagrams=self.received,
            lost_datagrams=self.lost,
            dropped_packets=self.dropped,
            stalls=self.stalls,
            queued_packets=self.queued,
        )


def _single(queued: bytes | _Rows) -> bool:
    return isinstance(queued, bytes)
