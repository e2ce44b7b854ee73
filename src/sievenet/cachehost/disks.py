"""What is told of a cache's disks: in the log once, and when it is over; to the daemon as long as it lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sievenet.cache.ring import Ring

__all__ = ["Disks"]

#: Seconds for which all must be written before the log says so, and between two complaints of other kinds.
_SURE: Final = 10.0
_PAUSE: Final = 60.0
#: Characters of a reason that the daemon is told.
_MOST: Final = 256


class Disks:
    """The disks behind the rings of one cache, by category."""

    def __init__(self, rings: Mapping[str, Ring]) -> None:
        self._rings = rings
        #: Those that do not take what comes, and when that was seen last.
        self._stuck: dict[str, float] = {}
        #: Failures of each that were seen, and when another complaint may be made.
        self._failures: dict[str, int] = {}
        self._next: dict[str, float] = {}

    def complaints(self, now: float) -> list[str]:
        """What the log should say; asked about once a second."""
        found: list[str] = []
        for name, ring in self._rings.items():
            fresh = ring.failures > self._failures.get(name, 0)
            if ring.unwritten is not None:
                if name not in self._stuck:
                    found.append(f"events of {name} are not durable until they can be written: {ring.trouble}")
                self._stuck[name] = now
            elif name in self._stuck:
                if now - self._stuck[name] >= _SURE:
                    del self._stuck[name]
                    found.append(f"events of {name} are durable again: all are written")
            elif fresh and now >= self._next.get(name, now):
                found.append(f"events of {name}: {ring.trouble}")
                self._next[name] = now + _PAUSE
            else:
                continue
            self._failures[name] = ring.failures
        return found

    def trouble(self, now: float) -> tuple[str, float]:
        """Why not all that came is written, and for how many seconds; nothing if it is."""
        stuck = [(ring.unwritten, ring.trouble) for ring in self._rings.values() if ring.unwritten is not None]
        if not stuck:
            return "", 0.0
        since, why = min(stuck)
        return why[:_MOST], round(max(0.0, now - since), 1)
