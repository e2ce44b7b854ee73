"""A throttle for tracebacks: one a second at most, however often something goes wrong; the rest is counted.

Errors of our own should be seen, and whoever finds a way to cause them should not fill the disk with them.
"""

from __future__ import annotations

import logging
from typing import Final

from sievenet.access.quota import Bucket

__all__ = ["Throttle"]

_PER_SECOND: Final = 1.0


class Throttle(logging.Filter):
    """Of one logger: lets a record with a traceback pass if none has within a second."""

    def __init__(self) -> None:
        super().__init__()
        self._bucket = Bucket(_PER_SECOND)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be logged; it says how many were not before it."""
        if record.exc_info is None:
            return True
        if not self._bucket.take(1, record.created):
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.getMessage()} ({self._left_out} more since the last one)"
            record.args = None
            self._left_out = 0
        return True
