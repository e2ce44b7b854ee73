"""An asyncio event loop whose clock jumps instead of waiting.

Code that sleeps, times out and schedules runs unchanged, at once, and in the same order
every time:

    async def main():
        await asyncio.sleep(3600)          # an hour, in no time
        return asyncio.get_running_loop().time()

    run_virtual(main())                    # 3600.0

Whenever nothing is ready, the loop would wait for its next timer; this one sets its clock to
that timer instead.  If there is no timer either, nothing can ever happen any more, and that
is an error rather than a test that hangs.  Sockets work but are polled, and threads are not
deterministic: leave them out where the order matters.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from sievenet.errors import SievenetError

__all__ = ["Deadlock", "VirtualLoop", "run_virtual"]

_T = TypeVar("_T")

#: Real seconds to wait for a socket or thread when there is no timer left.
_PATIENCE: Final = 5.0


class Deadlock(SievenetError):
    """Everybody waits and no timer is set."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves the loop's clock where others would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; if nothing is, time passes."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(_PATIENCE)
            if not ready:
                raise Deadlock(f"Everybody waits at {self.now:g} s, and no timer is set")
            return ready
        if timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
