"""A timer that is set to the next moment at which something is due, and only ever moved forward."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm:
    """Calls ``ring`` at the time (`time.monotonic`) that ``due`` says, if it says one."""

    def __init__(self, due: Callable[[], float | None], ring: Callable[[], None]) -> None:
        self._due, self._ring = due, ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Something may be due earlier than before."""
        due = self._due()
        if due is None:
            return
        loop = asyncio.get_running_loop()
        wait = max(0.0, due - time.monotonic())
        if self._timer is None or self._timer.when() > loop.time() + wait:
            self.cancel()
            self._timer = loop.call_later(wait, self._fire)

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._ring()
