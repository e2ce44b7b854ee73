"""A worker: long calculations in threads beside the event loop, each with a deadline.

Covering a subscription of a thousand filters takes a second; leases, heartbeats and other requests must not wait for
it.  Python's threads take turns every few milliseconds, and compiled kernels run beside each other, so the longest
pause of the loop does not grow with the work.

    run(f, a) ──▶ queue ──▶ thread ──▶ result
                               └─ too late ──▶ `Unavailable`; the thread goes on alone

A thread cannot be stopped.  One that misses its deadline is written off and replaced; with `_MOST` of them nothing long
is taken any more until one ends.  Threads are daemons: none keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sievenet.errors import Unavailable

__all__ = ["Worker"]

T = TypeVar("T")

#: Calculations at the same time: the loop has the interpreter half of the time at least.
_AT_ONCE: Final = 1
#: Threads that may have missed their deadline and still run.
_MOST: Final = 4


class Worker:
    """Runs functions away from the event loop."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._turn = asyncio.Semaphore(_AT_ONCE)
        #: Calculations that missed their deadline and have not ended.
        self.lost = 0

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raises; `Unavailable` if it takes too long."""
        async with self._turn:
            if self.lost >= _MOST:
                raise Unavailable(f"{self.lost} calculations take longer than {self._deadline:g} s: try again later")
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()
            late = False

            def settle(result: T | None, error: BaseException | None) -> None:
                if late:
                    self.lost -= 1
                elif done.done():
                    return
                elif error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(result)  # type: ignore[arg-type]

            def body() -> None:
                result, failure = None, None
                try:
                    result = work(*arguments)
                except BaseException as error:
                    failure = error
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(settle, result, failure)

            threading.Thread(target=body, name="worker", daemon=True).start()
            try:
                await asyncio.wait((done,), timeout=self._deadline)
            finally:
                if not done.done():
                    late = True
                    self.lost += 1
            if late:
                raise Unavailable(f"The calculation takes longer than {self._deadline:g} s")
            return done.result()
