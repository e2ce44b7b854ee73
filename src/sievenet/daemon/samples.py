"""Samples: what publishers said of their events lately, bounded in pieces and bytes. Pure: time is an argument.

They stay bytes here; the process that searches decodes them. A window of the latest, so that what is learnt is what
the traffic is now.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from sievenet.tuning.task import Piece

__all__ = ["Samples"]

#: Of one category: bytes and pieces.
_BYTES: Final = 1 << 20
_PIECES: Final = 4096
#: Bytes of all categories together; what comes when they are full is not taken.
_ALL: Final = 32 << 20
#: Seconds after which a piece is of the past.
_AGE: Final = 60.0
#: Events that one heartbeat can have had.
_MOST: Final = 1 << 32


@dataclass(slots=True)
class _Window:
    pieces: deque[tuple[float, int, Piece]] = field(default_factory=deque)
    bytes: int = 0
    events: int = 0

    def drop(self) -> None:
        _, count, piece = self.pieces.popleft()
        self.bytes -= len(piece.events)
        self.events -= count


class Samples:
    """The latest pieces of each category."""

    def __init__(self, age: float = _AGE) -> None:
        self._age = age
        self._windows: dict[int, _Window] = {}
        self._bytes = 0

    def add(self, category: int, publisher: str, seen: int, size: int, events: bytes, now: float) -> None:
        """A publisher sampled ``size`` of ``seen`` events."""
        if self._bytes + len(events) > _ALL:
            self._trim_all(now)
            if self._bytes + len(events) > _ALL:
                return
        window = self._windows.setdefault(category, _Window())
        window.pieces.append((now, size, Piece(publisher, min(seen, _MOST), events)))
        window.bytes += len(events)
        window.events += size
        self._bytes += len(events)
        self._trim(window, now)

    def _trim(self, window: _Window, now: float) -> None:
        self._bytes -= window.bytes
        while window.pieces and (
            window.bytes > _BYTES or len(window.pieces) > _PIECES or window.pieces[0][0] < now - self._age
        ):
            window.drop()
        self._bytes += window.bytes

    def _trim_all(self, now: float) -> None:
        for each in self._windows.values():
            self._trim(each, now)
        self._windows = {number: each for number, each in self._windows.items() if each.pieces}

    def events(self, category: int, now: float, since: float = -math.inf) -> int:
        """How many events the sample of a category has, of those that came since some time."""
        window = self._windows.get(category)
        if window is None:
            return 0
        self._trim(window, now)
        if not window.pieces or window.pieces[0][0] >= since:
            return window.events
        return sum(count for at, count, _ in window.pieces if at >= since)

    def pieces(self, category: int, since: float = -math.inf) -> list[Piece]:
        """The sample of a category, as far as it came since some time."""
        window = self._windows.get(category)
        return [] if window is None else [piece for at, _, piece in window.pieces if at >= since]
