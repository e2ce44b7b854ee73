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
        #: What it is set to, if it is.
        self._at = 0.0

    def set(self) -> None:
        """Something may be due earlier than before."""
        due = self._due()
        if due is None or (self._timer is not None and self._at <= due):
            return
        self.cancel()
        self._at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - time.monotonic()), self._fire)

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._ring()
