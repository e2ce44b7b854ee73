"""An event loop that looks for a while before it sleeps: lower latency for processor time.

    ordinary   ─ event ─ sleep ··········· wake up (40 to 120 µs, caches cold) ─ event ─ sleep ···
    busy       ─ event ─ look look look look look look look look look look look ─ event ─ look look

Most of what a single event costs a process that sleeps between events is waking up, and running code that the processor
has forgotten meanwhile. A loop made here asks the system again and again for up to `seconds` after there was nothing to
do, and sleeps only then. It takes all of a processor as long as it looks, so it is worth it where processors are
plenty and events come more often than every `seconds`; where the switches or the publisher need the same processor, it
makes things slower. Nothing else changes: it is an ordinary asyncio loop for whatever runs on it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

from sievenet.errors import InvalidInput

__all__ = ["BusyLoop", "busy_loop"]


class _BusySelector(selectors.DefaultSelector):
    """Looks before it sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        seconds = self.seconds if timeout is None else min(self.seconds, timeout)
        if seconds <= 0:
            return super().select(timeout)
        look = super().select
        begin = time.monotonic()
        while not (found := look(0)):
            waited = time.monotonic() - begin
            if waited >= seconds:
                return look(None if timeout is None else max(0.0, timeout - waited))
        return found


class BusyLoop(asyncio.SelectorEventLoop):
    """An event loop that looks for up to `seconds` before it sleeps."""

    def __init__(self, seconds: float) -> None:
        self._busy = _BusySelector()
        super().__init__(self._busy)
        self.seconds = seconds

    @property
    def seconds(self) -> float:
        """For how long it looks; may be changed at any time, 0 is an ordinary loop."""
        return self._busy.seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        if not 0 <= value < float("inf"):
            raise InvalidInput(expected="a number of seconds, not negative", got=value, where="busy_loop")
        self._busy.seconds = value


def busy_loop(seconds: float) -> Callable[[], BusyLoop]:
    """What makes such loops: ``asyncio.Runner(loop_factory=busy_loop(0.01))``."""
    return lambda: BusyLoop(seconds)
