"""Complaints of an event loop, for the log: it complains of a lack of file descriptors at every connection."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

__all__ = ["Complaints"]

log = logging.getLogger("sievenet.session")


class Complaints:
    """What the event loop complains of; of a lack of file descriptors, which it does for every connection, seldom."""

    def __init__(self, pause: float = 10.0) -> None:
        self._pause = pause
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the loop calls."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next:
            self._next = loop.time() + self._pause
            log.error("no connection can be accepted: %s (see `ulimit -n`)", error.strerror)
