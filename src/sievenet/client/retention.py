"""Retention: what a publisher sent lately in categories that are diverted to matchers, so that it can be sent again.

A matcher that dies takes with it the events that it had not passed on. Only their publishers still have them. While
events of a category may go through matchers, its publishers keep what they sent for some seconds. When a matcher dies:

    pause      what is published from now on is kept, not sent; what was given to the port has left
               (the network changes: everything is forwarded by content)
    again      all that is kept is sent once more, in order; then as ever

Receivers remove duplicates, so each event that was lost is delivered in its place, and the others are not delivered
twice. Retention is bounded in bytes and time; what had to be forgotten early is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from sievenet.client.ports.burst import Burst
from sievenet.dataplane.packet import Packet

__all__ = ["SIZE", "Retention"]

#: Bytes kept of one category.
SIZE: Final = 32 << 20

Packets = list[Packet] | Burst


class _Kept:
    """What is kept of one category."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.paused = False
        #: When, what and how many bytes, oldest first.
        self.sent: deque[tuple[float, Packets, int]] = deque()
        self.size = 0
        #: How many of the last have not been sent.
        self.unsent = 0

    def trim(self, now: float, most: int) -> int:
        """Forget what is old, or too much; how many packets that came too early."""
        early = 0
        while len(self.sent) > self.unsent and (self.sent[0][0] <= now - self.seconds or self.size > most):
            when, packets, size = self.sent.popleft()
            self.size -= size
            early += len(packets) if when > now - self.seconds else 0
        return early


class Retention:
    """One node's."""

    def __init__(self, size: int = SIZE) -> None:
        self._most = size
        self._kept: dict[int, _Kept] = {}
        #: Packets that were forgotten before their time: more was published than fits.
        self.forgotten = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep(self, category: int, seconds: float) -> None:
        """Keep what is sent in a category for so long; 0: no more."""
        if seconds <= 0:
            self._kept.pop(category, None)
        elif category in self._kept:
            self._kept[category].seconds = seconds
        else:
            self._kept[category] = _Kept(seconds)

    def clear(self) -> None:
        """Categories have other numbers now."""
        self._kept.clear()

    def passed(self, packets: Packets, now: float) -> Packets:
        """Note what is to be sent; what of it is to be sent now."""
        if isinstance(packets, Burst):
            return packets if self._note(packets.category, packets, packets.matrix.nbytes, now) else []
        return [each for each in packets if self._note(each.category, [each], each.size, now)]

    def _note(self, category: int, packets: Packets, size: int, now: float) -> bool:
        kept = self._kept.get(category)
        if kept is None:
            return True
        kept.sent.append((now, packets, size))
        kept.size += size
        kept.unsent += kept.paused
        self.forgotten += kept.trim(now, self._most)
        return not kept.paused

    def full(self, category: int) -> bool:
        """Whether a publisher has to wait: it is paused, and there is no room for more."""
        kept = self._kept.get(category)
        return kept is not None and kept.paused and kept.size > self._most

    def pause(self, category: int) -> None:
        """Send nothing more in a category."""
        if category in self._kept:
            self._kept[category].paused = True

    def resumed(self, category: int, now: float, *, again: bool) -> Iterator[Packets]:
        """What to send before anything else: all that is kept, or only what was not sent while paused."""
        kept = self._kept.get(category)
        if kept is None:
            return
        self.forgotten += kept.trim(now, self._most)
        first = 0 if again else len(kept.sent) - kept.unsent
        kept.paused, kept.unsent = False, 0
        for _, packets, _ in list(kept.sent)[first:]:
            yield packets
