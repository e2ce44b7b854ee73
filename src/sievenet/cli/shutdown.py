"""Ending a long command on Ctrl-C or SIGTERM, with everything closed behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["end_with_input", "stop_signal", "unless_stopped"]

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


def end_with_input() -> None:
    """Ask this process to end (SIGTERM) when its standard input does.

    For a process whose standard input is a pipe from the one that started it: the system closes that pipe however the
    other one ends, also if it is killed.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with input", daemon=True).start()


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
