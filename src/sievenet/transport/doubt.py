"""Estimates how many reported losses are false: expected false positives of the Bloom filters.

A message that nobody here wants has a wanted filter's bits by chance now and then, and since it never comes, it looks
lost. For order that costs a wait, for recovery a needless repair. For congestion control it would look like congestion
that never ends, so the losses it hears of are corrected by what chance alone would show.

An entry with a share f of its bits set covers a filter of n bits with probability f^n. Bits that all entries have (the
schema's, or those of an attribute that never changes) tell nothing apart and are left out of both. Of N entries whose
messages did not come, C cover the filter: the L that were lost, and a share f of the N - L that are not wanted, so

    L = (C - N·f) / (1 - f)        expected false alarms = f · (N - L)

The expectation of every entry adds up; each whole alarm of it is taken off the losses that follow. Where f is 1 nothing
can be told apart: if most of what was published came, the filter wants (almost) everything and what did not come was
lost; if not, everything unwanted looks lost and nothing is believed.
"""

from __future__ import annotations

from typing import Final

from sievenet.transport.bloom import Bits, covers_any

__all__ = ["Doubt"]

#: Entries after which what they have in common, and how many are lost, is worked out anew.
_SAMPLE: Final = 64
#: Expected alarms that may be outstanding: more would hide real losses.
_MOST: Final = 3.0


class Doubt:
    """Expected false alarms of one session."""

    __slots__ = (
        "_common",
        "_covering",
        "_expected",
        "_gathering",
        "_interests",
        "_seen",
        "_sizes",
        "_sum",
        "_unwanted",
    )

    def __init__(self, interests: tuple[Bits, ...]) -> None:
        self._interests = interests
        self._common = -1
        self._gathering = -1
        #: Of the sample of now: entries, how many cover, and how many would by chance if all were unwanted.
        self._seen = self._covering = 0
        self._sum = 0.0
        self._expected = 0.0
        #: Share of the entries whose messages are not wanted, as far as is known.
        self._unwanted = 1.0
        self._sizes: list[int] = []

    def judged(self, bits: Bits, width: int, arrived: float) -> None:
        """An entry of a record was looked at; ``width`` in bytes, ``arrived`` the share of all messages that came."""
        self._gathering &= bits
        self._seen += 1
        self._covering += covers_any(bits, self._interests)
        if self._sizes:
            room = width * 8 - self._common.bit_count()
            share = (bits & ~self._common).bit_count() / room if room else 1.0
            chance = min(1.0, sum([share**size for size in self._sizes]))
            self._sum += chance
            if chance >= 0.999:
                self._expected += arrived < 0.5
            else:
                self._expected += chance * self._unwanted
            if self._expected > _MOST:
                self._expected = _MOST
        if self._seen == _SAMPLE:
            self._learn()

    def _learn(self) -> None:
        chance = self._sum / self._seen
        if self._sizes and chance < 0.999:
            lost = max(0.0, (self._covering - self._sum) / (1 - chance))
            self._unwanted = max(0.0, 1 - lost / self._seen)
        self._common, self._gathering = self._gathering, -1
        self._sizes = [(wanted & ~self._common).bit_count() for wanted in self._interests]
        self._seen = self._covering = 0
        self._sum = 0.0

    def believe(self) -> bool:
        """A loss was found: whether it counts as one."""
        if self._expected >= 1.0:
            self._expected -= 1.0
            return False
        return True
