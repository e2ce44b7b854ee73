"""Ending a long command on Ctrl-C or SIGTERM, with everything closed behind it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["stop_signal", "unless_stopped"]

T = TypeVar("T")


def stop_signal() -> asyncio.Event:
    """An event that is set when this process is asked to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not in every thread, and not on every system: there the process ends as Python ends it.
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, stop.set)
    return stop


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do something that may take long; None, and it is given up, if this process is asked to end meanwhile."""
    task, asked = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    finally:
        asked.cancel()
        task.cancel()
