"""Handovers: order per publisher when events change their way.

Events of a subspace come by content, or by directed delivery, which takes longer. When a component gives them back to
the network, the next ones come by content and would overtake those that are still on their way through the component:

    directed    5 ─────── 6 ───────── 7 ── end            "7 was the last"
    content                    8 9        10
    held                       8 9  9  …  │ ▶ 8 9         delivered after 7
                  begin ┘                 └ end

So the component says `Begin` on the old way before the network changes, and `End` on it after its last event. In
between what comes by content in that subspace is *held*. `End` says up to which number it delivered events of each
source since `Begin`; if one of them has not come yet, holding goes on until it has.

**Invariant.** Nothing is lost or delivered twice here: what is held is released, in the order of arrival, and only then
looked at for duplicates. Holding is bounded in packets, bytes and time: beyond the bounds, or when `End` does not come,
what is held is released early, which may cost order and is counted (`hasty`).

In the other direction the component waits a little before its first event, and nothing has to be held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from sievenet.client.directed import Begin, End
from sievenet.dataplane.packet import Packet
from sievenet.transport.duplicates import Source

__all__ = ["Handovers"]

#: Packets and bytes held at most, of all handovers together, and handovers at a time.
PACKETS: Final = 1 << 16
SIZE: Final = 16 << 20
OPEN: Final = 256
_SECOND: Final = 1_000_000_000


class _Hold:
    """One way that is about to end."""

    __slots__ = ("category", "due", "held", "last", "marks", "shift", "value")

    def __init__(self, begin: Begin, now: int) -> None:
        self.category = begin.category
        self.shift = 128 - begin.length
        self.value = begin.code >> self.shift
        self.due = now + int(begin.patience * _SECOND)
        self.held: deque[Packet] = deque()
        #: The last number of each source that came by the old way since it began to end.
        self.last: dict[Source, int] = {}
        #: Numbers that have to come by the old way before it has ended; None until it says so.
        self.marks: dict[Source, int] | None = None

    @property
    def ended(self) -> bool:
        return self.marks is not None and all(self.last.get(s, -1) >= n for s, n in self.marks.items())


class Handovers:
    """What one receiver holds."""

    def __init__(self, packets: int = PACKETS, size: int = SIZE) -> None:
        self._packets, self._size = packets, size
        #: By the way's name: the number of the component, and its count. Empty as a rule.
        self.open: dict[tuple[int, int], _Hold] = {}
        self._count = self._bytes = 0
        #: Handovers that were ended by a bound or by the clock.
        self.hasty = 0

    def __bool__(self) -> bool:
        return bool(self.open)

    @property
    def held(self) -> int:
        """Packets that wait."""
        return self._count

    @property
    def due(self) -> int | None:
        """When `expired` is to be asked, in nanoseconds; None if never."""
        return min((hold.due for hold in self.open.values()), default=None)

    def begin(self, marker: Begin, now: int) -> Iterator[Packet]:
        """A way is about to end; packets that may be delivered now."""
        if marker.way in self.open:
            return
        if len(self.open) >= OPEN:
            yield from self._hastily(next(iter(self.open)))
        self.open[marker.way] = _Hold(marker, now)

    def end(self, marker: End) -> Iterator[Packet]:
        """A way has ended; packets that may be delivered now."""
        hold = self.open.get(marker.way)
        if hold is not None:
            hold.marks = dict(marker.marks)
            if hold.ended:
                yield from self._close(marker.way)

    def directed(self, component: int, packet: Packet) -> Iterator[Packet]:
        """An event has come from a component and was delivered; packets that may be delivered after it."""
        source = (packet.publisher, packet.incarnation)
        for way, hold in list(self.open.items()):
            if way[0] == component and hold.category == packet.category and packet.code >> hold.shift == hold.value:
                hold.last[source] = max(hold.last.get(source, -1), packet.sequence)
                if hold.ended:
                    yield from self._close(way)

    def holds(self, packet: Packet) -> bool:
        """Whether a packet that came by content has to wait; it is kept then."""
        for hold in self.open.values():
            if hold.category == packet.category and packet.code >> hold.shift == hold.value:
                hold.held.append(packet)
                self._count += 1
                self._bytes += packet.size
                return True
        return False

    def excess(self) -> Iterator[Packet]:
        """What is more than may be held: all of the handover that holds most."""
        while self._count > self._packets or self._bytes > self._size:
            yield from self._hastily(max(self.open, key=lambda way: len(self.open[way].held)))

    def expired(self, now: int) -> Iterator[Packet]:
        """What has waited long enough."""
        for way in [way for way, hold in self.open.items() if hold.due <= now]:
            yield from self._hastily(way)

    def _hastily(self, way: tuple[int, int]) -> Iterator[Packet]:
        self.hasty += 1
        yield from self._close(way)

    def _close(self, way: tuple[int, int]) -> Iterator[Packet]:
        held = self.open.pop(way).held
        self._count -= len(held)
        self._bytes -= sum(packet.size for packet in held)
        yield from held
