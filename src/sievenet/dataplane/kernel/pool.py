"""Numbers of rows that programs read: one that was given back is somebody else's only when no program may read it.

A packet on its way through a program has read the number of a row, and reads the row a little later.  Whoever takes a
row out of use does not know of such packets.  So numbers that were given back are kept apart until there are no others;
then one wait for all programs that are running (`bpf.barrier`) frees them all.  It takes some hundredths of a second,
so that a pool that can grow does so until a wait frees many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sievenet.dataplane.kernel import bpf
from sievenet.errors import Rejected

__all__ = ["Pool"]

#: So many numbers are worth a wait.
_MANY: Final = 1 << 14


class Pool:
    """Numbers from `first` on; `grow` says how many there are from now on, and 0 if there are no more."""

    def __init__(
        self,
        first: int,
        end: int,
        grow: Callable[[], int] = lambda: 0,
        wait: Callable[[], None] = bpf.barrier,
    ) -> None:
        self._next, self._end = first, end
        self._grow, self._wait = grow, wait
        self._free: list[int] = []
        self._given: list[int] = []

    def take(self) -> int:
        """A number that nobody reads."""
        if self._free:
            return self._free.pop()
        if self._next >= self._end:
            self._more()
            if self._free:
                return self._free.pop()
        self._next += 1
        return self._next - 1

    def _more(self) -> None:
        end = self._grow() if len(self._given) < _MANY else 0
        if not end and not self._given:
            raise Rejected("Expected room for one more entry, got none: the switch is full")
        if not end:
            self._wait()
        self._end = max(self._end, end)
        # Growing waits as well.
        self._free, self._given = self._given, []

    def give(self, number: int) -> None:
        """It is not used any more, but may still be read."""
        self._given.append(number)

    def keep(self, used: Iterable[int]) -> None:
        """These are in use, all others are not, as far as anybody knows: an earlier process had them."""
        taken = set(used)
        self._given = [number for number in range(self._next, self._end) if number not in taken]
        self._next, self._free = self._end, []
