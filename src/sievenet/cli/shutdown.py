"""Ending a long command on Ctrl-C or SIGTERM, with everything closed behind it."""

from __future__ import annotations

import asyncio
import contextlib
import signal

__all__ = ["stop_signal"]


def stop_signal() -> asyncio.Event:
    """An event that is set when this process is asked to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not in every thread, and not on every system: there the process ends as Python ends it.
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, stop.set)
    return stop
