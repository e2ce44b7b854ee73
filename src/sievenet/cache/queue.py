"""A queue: what waits for one subscriber, or for a group with the same need, and what is under way to it.

It holds offsets of a ring. Each offset gets a number when it is sent for the first time:

    number     base            sent
                │ under way      │ waits
    offsets   [ 17  18  23  24   │ 31  32  40 … ]
                └ the next that the slowest member expects

What every member has is let go. A member that misses a number says so, and everything from there on is sent again. So
the stream is whole and in order for every member, whatever the network loses, and a member that joins later begins at
the number that is sent next. An end mark for a member is an entry too (negative), so it comes in its order.

Full: more entries than allowed wait, or the ring had to let something go that waits. `end` ends the queue; `oldest` and
`newest` drop, and count. Pure: the time is an argument.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from sievenet.cache.messages import OnFull
from sievenet.cache.record import Run
from sievenet.cache.release import Release
from sievenet.cache.ring import Ring
from sievenet.errors import Unavailable

__all__ = ["Member", "Queue"]

#: Seconds without progress after which everything under way is sent again: at first, and at most.
_AGAIN: Final = 0.4
_LONGEST: Final = 3.0
#: Seconds without progress after which a member leaves a group that goes on.
_LAG: Final = 2.0
#: Seconds between two times that a member's complaint is heard.
_DEAF: Final = 0.05
#: Seconds of a look at how often the queue was empty.
_LOOK: Final = 0.1


class Member:
    """How far one subscriber of a queue is."""

    __slots__ = ("epoch", "heard", "next", "stopping", "taken")

    def __init__(self, epoch: int, first: int, now: float) -> None:
        self.epoch = epoch
        #: The number it expects, and below which its application has taken all.
        self.next = self.taken = first
        #: When it last made progress, or had nothing to make progress with.
        self.heard = now
        #: The number of its end mark.
        self.stopping: int | None = None


class Queue:
    """One stream."""

    def __init__(
        self, stream: int, ring: Ring, limit: float | None, on_full: OnFull, max_events: int, now: float
    ) -> None:
        self.stream, self._ring, self.on_full = stream, ring, on_full
        self._max = max_events
        self._offsets = array("q")
        #: The number of the first of these, and of the next that is sent for the first time or again.
        self._base = self.sent = 0
        #: The next number that was never sent.
        self._new = 0
        self.members: dict[int, Member] = {}
        #: From this offset of the ring on it has everything that matches.
        self.whole = 0
        self.release = Release(limit, now)
        self.dropped = 0
        #: Offsets that were dropped, until members are told.
        self.gone = array("q")
        #: Why it has ended, if it has.
        self.ended: str | None = None
        self._complained = float("-inf")
        self._patience = _AGAIN
        self._looked, self._looks, self._empty = now, 0, 0
        #: Sends nothing while its members are about to join another queue.
        self.parked = False
        #: Whether most looks of the last period found nothing waiting.
        self.drained = False

    # -- what waits -----------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Entries that were never sent."""
        return self._base + len(self._offsets) - self._new

    @property
    def under_way(self) -> int:
        """Entries that were sent and that not every member's application has taken."""
        taken = min((each.taken for each in self.members.values()), default=self.sent)
        return max(0, self.sent - taken)

    @property
    def needed(self) -> int | None:
        """The lowest offset of the ring that it still needs."""
        return next((each for each in self._offsets if each >= 0), None)

    @property
    def settled(self) -> bool:
        """Whether every member has everything that was sent."""
        return all(each.next == self._new for each in self.members.values())

    @property
    def stopping(self) -> bool:
        """Whether it is about to end for a member."""
        return any(each.stopping is not None for each in self.members.values())

    def ahead(self, position: int) -> int:
        """How many events wait before an offset of the ring."""
        start = self._new - self._base
        return sum(1 for each in self._offsets[start:] if 0 <= each < position)

    def position(self) -> int | None:
        """The offset of the first entry that was never sent: who needs nothing before it can join."""
        rest = range(self._new - self._base, len(self._offsets))
        return next((self._offsets[at] for at in rest if self._offsets[at] >= 0), None)

    def push(self, offsets: Sequence[int]) -> None:
        """Events of the ring that match, ascending."""
        if self.ended is not None:
            return
        self._offsets.extend(offsets)
        surplus = self.waiting - self._max
        if surplus <= 0:
            return
        if self.on_full == "end":
            self.ended = f"{self._max:,} events wait, which is as many as the cache keeps for one subscriber"
        elif self.on_full == "newest":
            kept = len(self._offsets) - min(surplus, len(offsets))
            self.dropped += len(self._offsets) - kept
            self.gone.extend(self._offsets[kept:])
            del self._offsets[kept:]
        else:
            self._drop(self._new - self._base, surplus)

    def _drop(self, at: int, count: int) -> None:
        """Drop entries that wait, but no end marks."""
        rest = self._offsets[at : at + count]
        kept = array("q", [each for each in rest if each < 0])
        self.dropped += len(rest) - len(kept)
        self.gone.extend(each for each in rest if each >= 0)
        self._offsets[at : at + count] = kept

    # -- members --------------------------------------------------------------------------

    def join(self, member: int, epoch: int, now: float) -> int:
        """A subscriber joins; the number with which the stream begins for it."""
        first = self._new
        self.members[member] = Member(epoch, first, now)
        self.drained = False
        self._looked, self._looks, self._empty = now, 0, 0
        return first

    def leave(self, member: int) -> None:
        """A subscriber is gone."""
        self.members.pop(member, None)
        self._let_go()

    def stop(self, member: int) -> None:
        """End the stream for a subscriber behind everything that waits."""
        found = self.members.get(member)
        if found is not None and found.stopping is None:
            found.stopping = self._base + len(self._offsets)
            self._offsets.append(-member - 1)

    def lags(self, member: int, now: float) -> bool:
        """Whether a member holds the others up."""
        own = self.members[member]
        others = [each for key, each in self.members.items() if key != member]
        return bool(others) and now - own.heard > _LAG and all(each.next > own.next for each in others)

    def rest(self, number: int) -> list[int]:
        """The offsets of all events from a number on."""
        return [each for each in self._offsets[max(0, number - self._base) :] if each >= 0]

    def reported(self, member: int, expected: int, taken: int, again: bool, now: float) -> None:
        """A member says how far it is."""
        found = self.members.get(member)
        if found is None or expected > self._new:
            return
        if expected > found.next:
            found.next, found.heard, self._patience = expected, now, _AGAIN
        taken = min(taken, found.next)
        if taken > found.taken:
            found.taken, found.heard = taken, now
        if again and now - self._complained >= _DEAF and found.next < self.sent:
            self._complained = now
            self.sent = found.next
        self.release.reported(min(each.taken for each in self.members.values()), self.sent, now)
        self._let_go()

    def _let_go(self) -> None:
        """What every member has is not needed any more."""
        if not self.members:
            return
        done = min(each.next for each in self.members.values()) - self._base
        # In large pieces: each costs a move of the rest.
        if done > 0 and (done >= 1024 or done == len(self._offsets) or len(self._offsets) < 4096):
            del self._offsets[:done]
            self._base += done
            # Whoever something was to be sent to again may have left.
            self.sent = max(self.sent, self._base)

    # -- sending --------------------------------------------------------------------------

    def take(self, now: float, most: int) -> list[Run]:
        """What goes to the subscribers now."""
        if self.ended is not None or not self.members or (self.parked and self.settled):
            return []
        slowest = min(self.members.values(), key=lambda each: each.next)
        if slowest.next >= self.sent:
            slowest.heard = now
        elif now - max(slowest.heard, self._complained) >= self._patience:
            self._complained = now
            self._patience = min(_LONGEST, 2 * self._patience)
            self.sent = slowest.next
        # A parked queue only sends again what was lost.
        ready = (self._new if self.parked else self._base + len(self._offsets)) - self.sent
        count = min(ready, most, self.release.allowed(self.under_way, now))
        if count <= 0 or not self._there(self.sent - self._base, count):
            return []
        at = self.sent - self._base
        count = min(count, len(self._offsets) - at)
        try:
            found = self._runs(at, self._offsets[at : at + count].tolist())
        except Unavailable:
            return []  # the ring has let go of what it cannot read
        self.sent += count
        self._new = max(self._new, self.sent)
        self.release.sent(count)
        return found

    def _runs(self, at: int, chosen: list[int]) -> list[Run]:
        first = self._base + at
        if min(chosen) >= 0:
            return [Run(self.stream, first, self._ring.read(chosen))]
        found: list[Run] = []
        start = 0
        for i in [*(i for i, each in enumerate(chosen) if each < 0), len(chosen)]:
            if i > start:
                found.append(Run(self.stream, first + start, self._ring.read(chosen[start:i])))
            if i < len(chosen):
                found.append(Run(self.stream, first + i, [], -chosen[i] - 1))
            start = i + 1
        return found

    def _there(self, at: int, count: int) -> bool:
        """Whether the ring still has what is to be sent; what waits and is gone is dropped, or ends the queue."""
        first = self._ring.first
        # Offsets ascend, so the first event tells.
        if next((each for each in self._offsets[at : at + count] if each >= 0), first) >= first:
            return True
        if self.on_full == "end" or self.sent < self._new:
            trouble = f" ({self._ring.trouble})" if self._ring.trouble else ""
            self.ended = f"the cache had no room for what waits{trouble}"
            return False
        self._drop_gone(at)
        return len(self._offsets) > at

    def _drop_gone(self, at: int) -> None:
        """Drop what waits and the ring has not any more."""
        first = self._ring.first
        self._drop(at, bisect_left([each if each >= 0 else first for each in self._offsets[at:]], first))

    def look(self, now: float) -> None:
        """Whether something waits; asked at a steady pace."""
        position = self.position()
        if self.on_full != "end" and position is not None and position < self._ring.first:
            self._drop_gone(self._new - self._base)
        self._looks += 1
        self._empty += not self.waiting and self.under_way <= max(2, self.release.window // 4)
        if now - self._looked >= _LOOK:
            self.drained = self._empty * 2 > self._looks
            self._looked, self._looks, self._empty = now, 0, 0

    def wait(self, now: float) -> float | None:
        """Seconds until something may go; None if nothing waits, or a report has to come first."""
        if self._base + len(self._offsets) - self.sent <= 0:
            return None
        return self.release.wait(self.under_way)
