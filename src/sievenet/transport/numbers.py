"""Losses of a flow's limiting receiver, by number.

The record tells a receiver of losses among the last few messages of *all*. The messages of a flow that is held to
a rate leave evenly spaced: if the record is shorter than the spacing it shows not one loss, however many there are. But
that flow has a receiver that limits it, every message of it names that receiver, and the receiver gets them all. So
they are numbered for it, and a gap in the numbers is a loss, unless it is filled within the time that messages overtake
each other. (A message that has a flow's bits without matching its filter is numbered too, never comes, and counts as
lost.)

A number that falls far behind, or leaps far ahead, is a new beginning: the publisher restarted or forgot the receiver.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sievenet.transport.latch import Latch

__all__ = ["Numbers"]

#: A longer gap, in messages, is no gap; nor are more gaps in that many together.
_FAR: Final = 1024
_MODULUS: Final = 1 << 32


class Numbers:
    """The numbers that one receiver has seen from one publisher."""

    __slots__ = ("_due", "_missing", "_model", "_next")

    def __init__(self, model: Latch) -> None:
        self._model = model
        self._next = -1
        #: Number → departure of what is missing, and by when it should have come.
        self._missing: dict[int, float] = {}
        self._due: deque[tuple[float, int]] = deque()

    def received(self, number: int, departure: float, now: float) -> None:
        """A message with this number came."""
        ahead = (number - self._next + _MODULUS // 2) % _MODULUS - _MODULUS // 2
        if ahead == 0:
            self._next = (number + 1) % _MODULUS
            return
        if self._next < 0 or ahead < -_FAR or ahead + len(self._due) > _FAR:
            self._missing.clear()
            self._due.clear()
        elif ahead < 0:
            self._missing.pop(number, None)
            return
        else:
            deadline = now + max(self._model.bound(), 0.0)
            for i in range(ahead):
                missing = (self._next + i) % _MODULUS
                self._missing[missing] = departure
                self._due.append((deadline, missing))
        self._next = (number + 1) % _MODULUS

    def timer(self) -> float | None:
        """When `expire` may have something to tell."""
        due, missing = self._due, self._missing
        while due and due[0][1] not in missing:
            due.popleft()
        return due[0][0] if due else None

    def expire(self, now: float) -> list[float]:
        """When those left that count as lost now (no later than the message that showed it)."""
        lost = []
        while self._due and self._due[0][0] <= now:
            departure = self._missing.pop(self._due.popleft()[1], None)
            if departure is not None:
                lost.append(departure)
        return lost
