"""Loading compiled code before it is needed: a second or two, and half a minute the first time on a machine.

Code on an event loop that meets the compiler keeps everybody waiting: heartbeats are late, and others give it up. So
parts say what they will need (`Warmup`), and whoever is about to need it loads it in a thread, and waits or goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable

__all__ = ["Warmup"]


class Warmup:
    """Something that uses the compiled code of a part, once per process."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._working = threading.Lock()
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None
        #: Whether it is there.
        self.done = False

    def load(self) -> None:
        """Load it now, in this thread."""
        with self._working:
            if not self.done:
                self._work()
                self.done = True

    def begin(self) -> threading.Thread:
        """Load it in a thread of its own, if nobody has asked for that before."""
        with self._beginning:
            if self._thread is None:
                self._thread = threading.Thread(target=self._untraced, name="sievenet-loading", daemon=True)
                self._thread.start()
            return self._thread

    def _untraced(self) -> None:
        # Traced (by coverage, by a debugger), the compiler takes many times as long; and where the main thread waits
        # for it with a signal to handle, CPython 3.11 lets a traced thread spin and get nowhere.
        sys.settrace(None)
        with contextlib.suppress(Exception):  # whoever needs it meets the same, and tells
            self.load()

    def there(self) -> bool:
        """Whether it is there; it will be soon."""
        if not self.done:
            self.begin()
        return self.done

    async def ready(self) -> None:
        """Wait until it is there; the event loop goes on meanwhile."""
        if not self.done:
            await asyncio.to_thread(self.begin().join)
        if not self.done:
            self.load()  # raises what went wrong in the thread
