"""How many of the losses that a record shows are none: expected false alarms of the Bloom filters.

A message that nobody here wants has a wanted filter's bits by chance now and then, and since it never comes, it looks
lost. For order that costs a wait, for recovery a needless repair. For congestion control it would look like congestion
that never ends, so the losses it hears of are corrected by what chance alone would show.

An entry with a share f of its bits set covers a filter of n bits with probability f^n. Bits that all entries have (the
schema's, or those of an attribute that never changes) tell nothing apart and are left out of both. The expectation of
every entry judged adds up; each whole alarm of it is taken off the losses that follow.
"""

from __future__ import annotations

from typing import Final

from sievenet.transport.bloom import Bits

__all__ = ["Doubt"]

#: Entries after which what they have in common is worked out anew.
_SAMPLE: Final = 64
#: Expected alarms that may be outstanding: more would hide real losses.
_MOST: Final = 3.0


class Doubt:
    """Expected false alarms of one session."""

    __slots__ = ("_common", "_expected", "_gathering", "_interests", "_seen", "_sizes")

    def __init__(self, interests: tuple[Bits, ...]) -> None:
        self._interests = interests
        self._common = -1
        self._gathering = -1
        self._seen = 0
        self._expected = 0.0
        self._sizes: list[int] = []

    def judged(self, bits: Bits, width: int) -> None:
        """An entry of a record was looked at; ``width`` in bytes."""
        self._gathering &= bits
        self._seen += 1
        if self._seen == _SAMPLE:
            self._common, self._gathering, self._seen = self._gathering, -1, 0
            self._sizes = [(wanted & ~self._common).bit_count() for wanted in self._interests]
        if self._sizes:
            room = width * 8 - self._common.bit_count()
            share = (bits & ~self._common).bit_count() / room if room else 1.0
            self._expected += min(1.0, sum([share**size for size in self._sizes]))
            if self._expected > _MOST:
                self._expected = _MOST

    def believe(self) -> bool:
        """A loss was found: whether it counts as one."""
        if self._expected >= 1.0:
            self._expected -= 1.0
            return False
        return True
