"""Lifetimes: tasks that end with their owner, and owners that are used in ``async with``.

    class Bridge(Starting):                       async with Bridge(...) as bridge:     `start` at the beginning,
        def __init__(self) -> None:                   ...                               `close` at the end
            self._tasks = Tasks()
        async def start(self) -> Self:
            self._tasks.begin(self._forward())
            return self
        async def close(self) -> None:
            await self._tasks.close()

The event loop holds tasks by weak references only: a task that nobody else holds may vanish at any await. `Tasks` holds
each until it is done. After `Tasks.close` none of them runs any more, except the task that called it, which cannot wait
for itself. Nobody waits for what most tasks come to, so an error that ends one is logged at once: the event loop would
tell it when the task is collected as garbage, which may be never.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from typing import Any, Self

from sievenet.errors import SievenetError

__all__ = ["Closing", "Starting", "Tasks", "ended"]

log = logging.getLogger("sievenet.session")


async def ended(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait until they have ended, however they end. None stands for a task that was never begun."""
    others = [task for task in tasks if task is not None and task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Tasks:
    """The running tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._running))

    def begin(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Run this beside everything else."""
        return self.hold(asyncio.get_running_loop().create_task(work, name=name))

    def hold(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        """Have a task that runs already end with the others."""
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled() or self._closing or (error := task.exception()) is None:
            return
        name = getattr(task.get_coro(), "__qualname__", task.get_name())
        if isinstance(error, SievenetError):
            log.error("%s has ended: %s", name, error)
        else:
            log.error("internal error in %s (please report)", name, exc_info=error)

    async def close(self) -> None:
        """Cancel them all and wait for their end, however they end."""
        self._closing = True
        try:
            await ended(*self)
        finally:
            self._closing = False


class Closing(ABC):
    """Closed at the end of ``async with``."""

    @abstractmethod
    async def close(self) -> None:
        """End it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Starting(Closing):
    """Started at the beginning of ``async with`` as well."""

    @abstractmethod
    async def start(self) -> Self:
        """Begin; raises if that is not possible, and then nothing is left running."""

    async def __aenter__(self) -> Self:
        return await self.start()
