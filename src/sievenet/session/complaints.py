"""Complaints of the system, as they are told: of addresses, and of a lack of file descriptors at every connection."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

__all__ = ["Complaints", "Seldom", "told"]

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


class Seldom:
    """Complaints about what others say, which may be much: one line per ``pause`` seconds, with how many there were."""

    def __init__(self, log: logging.Logger, pause: float = 10.0) -> None:
        self._log, self._pause = log, pause
        self._next = 0.0
        self.count = 0

    def __call__(self, what: str) -> None:
        """Count a complaint, and log it if none was for a while."""
        self.count += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + self._pause
            self._log.warning("%s (%d so far)", what, self.count)


def told(error: OSError) -> str:
    """Why an address cannot be listened on, and what to do about it."""
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is taken, perhaps by another daemon or router. Choose another one; 0 takes a free one"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address (see `ip address`)"
        case errno.EACCES:
            return "ports below 1024 need root: choose another one"
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}: the address of this machine is expected here, such as 127.0.0.1"
    return error.strerror or str(error)
