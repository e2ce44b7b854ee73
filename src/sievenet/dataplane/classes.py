"""Classes of codes: intervals that all tables of a network treat alike.

Every flow that is a prefix contributes the two ends of its interval.  Between two neighbouring
boundaries no flow begins or ends, so all codes there meet the same flows in every switch:

    flows in s1    ├────────────────┤
    flows in s2         ├──┤     ├──────┤
    boundaries     ▲    ▲  ▲     ▲  ▲   ▲

Boundaries are only ever added; one that is no longer needed makes classes finer than necessary,
never wrong.  `sweep_at` says when it is time to start again from the flows that are left.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from sievenet.index import CODE_BITS

__all__ = ["FEW_BOUNDARIES", "Classes"]

#: Boundaries below this number are not worth sweeping.
FEW_BOUNDARIES: Final = 4096
_END: Final = 1 << CODE_BITS


class Classes:
    """The boundaries of a category: intervals of codes that all tables treat alike."""

    __slots__ = ("known", "pending", "starts", "sweep_at")

    #: Where flows have masks there are `Signatures` instead.
    masked: Final = False

    def __init__(self) -> None:
        self.starts = [0]
        self.known = {0}
        self.pending: list[int] = []
        #: So many boundaries, and it is time to look which of them are still needed.
        self.sweep_at = FEW_BOUNDARIES

    def note(self, value: int, mask: int) -> None:
        """A flow with this match exists."""
        end = value + (_END - mask)
        known = self.known
        if value not in known:
            known.add(value)
            self.pending.append(value)
        if end not in known and end < _END:
            known.add(end)
            self.pending.append(end)

    def merge(self) -> list[int]:
        """The sorted boundaries, those just noted included."""
        starts = self.starts
        if self.pending:
            if len(self.pending) < 16:
                for boundary in self.pending:
                    insort(starts, boundary)
            else:
                starts += self.pending
                starts.sort()
            self.pending.clear()
        return starts
