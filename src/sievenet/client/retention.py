"""Retention: what a publisher sent lately in categories that are diverted to matchers, so that it can be sent again.

A matcher that dies takes with it the events that it had not passed on. Only their publishers still have them. While
events of a category may go through matchers, its publishers keep what they send. The daemon says so again and again,
with numbered words, and each word may say up to which earlier word all has been passed on:

    word 5      6 6 6      word 7      8 8      word 9, forget 7
       └─ sent after word 5 ─┘  └─ after 7 ─┘          └─ the first three are forgotten

So nothing is forgotten by the clock: if anybody is slow, more is kept. When a matcher dies:

    pause      what is published from now on is kept, not sent; what was given to the port has left
               (the network changes: everything is forwarded by content)
    rewind     all that is kept is sent once more, in order, as fast as the port takes it; then as ever

Receivers remove duplicates, so each event that was lost is delivered in its place, and the others are not delivered
twice. Retention is bounded in bytes and packets; what had to be forgotten early is counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sievenet.client.ports.burst import Burst
from sievenet.dataplane.packet import Packet

__all__ = ["SILENCE", "SIZE", "Retention"]

#: Bytes kept of one category, and packets: receivers could not tell older ones from duplicates.
SIZE: Final = 32 << 20
COUNT: Final = 120_000
#: Seconds after which a daemon that is there and says nothing about a category wants nothing kept any more. One that is
#: away may be followed by another, which has what was kept sent again: nobody knows what matchers did meanwhile.
SILENCE: Final = 60.0

Packets = list[Packet] | Burst


class _Kept:
    """What is kept of one category."""

    def __init__(self) -> None:
        #: The last word, and when it came.
        self.word, self.heard = 0, 0.0
        self.paused = False
        #: After which word, what and how many bytes, oldest first.
        self.sent: deque[tuple[int, Packets, int]] = deque()
        self.size = self.count = 0
        #: How many of the last have not been sent (again).
        self.unsent = 0
        #: Packets forgotten though nobody said so, and after which word the last of them was sent.
        self.early, self.lately = 0, 0

    def forget(self, word: int, most: int) -> None:
        """Forget what was sent before a word, or is too much."""
        while len(self.sent) > self.unsent and (self.sent[0][0] < word or self.size > most or self.count > COUNT):
            after, packets, size = self.sent.popleft()
            self.size -= size
            self.count -= len(packets)
            if after >= word:
                self.early, self.lately = self.early + len(packets), after


class Retention:
    """One node's."""

    def __init__(self, size: int = SIZE) -> None:
        self._most = size
        #: By category; empty as a rule.
        self.kept: dict[int, _Kept] = {}

    def __bool__(self) -> bool:
        return bool(self.kept)

    def keep(self, category: int, word: int, now: float, forget: int = 0) -> None:
        """Keep what is sent in a category from this word on; what was sent before the word ``forget`` is not needed."""
        kept = self.kept.setdefault(category, _Kept())
        kept.word, kept.heard = word, now
        kept.forget(forget, self._most)
        if kept.lately < forget:
            kept.early = 0  # they have reached everybody

    def drop(self, category: int) -> None:
        """Nothing of a category is kept any more."""
        self.kept.pop(category, None)

    def renewed(self, now: float) -> None:
        """A daemon counts its words from the beginning, perhaps: all that is kept was sent before the first."""
        for kept in self.kept.values():
            kept.word, kept.lately, kept.heard = 0, 0, now
            kept.sent = deque((0, packets, size) for _, packets, size in kept.sent)

    def passed(self, packets: Packets, now: float, alone: bool = False) -> Packets:
        """Note what is to be sent; what of it is to be sent now. ``alone``: no daemon is there to say anything."""
        for kept in self.kept.values() if alone else ():
            kept.heard = now
        if isinstance(packets, Burst):
            return packets if self._note(packets.category, packets, packets.matrix.nbytes, now) else []
        return [each for each in packets if self._note(each.category, [each], each.size, now)]

    def _note(self, category: int, packets: Packets, size: int, now: float) -> bool:
        kept = self.kept.get(category)
        if kept is None:
            return True
        if now - kept.heard > SILENCE and not kept.unsent:
            self.drop(category)
            return True
        kept.sent.append((kept.word, packets, size))
        kept.size += size
        kept.count += len(packets)
        kept.unsent += kept.paused
        kept.forget(0, self._most)
        return not kept.paused

    def full(self, category: int) -> bool:
        """Whether a publisher has to wait: it is paused, and there is no room for more."""
        kept = self.kept.get(category)
        return kept is not None and kept.paused and kept.size > self._most

    def pause(self, category: int) -> None:
        """Send nothing more in a category."""
        if category in self.kept:
            self.kept[category].paused = True

    def rewind(self, category: int) -> int:
        """Send all that is kept again, and meanwhile nothing else; how many packets are missing from it."""
        kept = self.kept.get(category)
        if kept is None:
            return 0
        kept.paused, kept.unsent = True, len(kept.sent)
        early, kept.early = kept.early, 0
        return early

    def following(self, category: int) -> Packets | None:
        """What is to be sent next, if all before has `left`; None if nothing waits: then it goes on as ever."""
        kept = self.kept.get(category)
        if kept is None:
            return None
        if kept.unsent:
            return kept.sent[-kept.unsent][1]
        kept.paused = False
        return None

    def left(self, category: int) -> None:
        """What `following` named has been sent."""
        if (kept := self.kept.get(category)) is not None and kept.unsent:
            kept.unsent -= 1

    @property
    def forgotten(self) -> int:
        """Packets that were forgotten before their time: more was published than fits."""
        return sum(kept.early for kept in self.kept.values())
