"""Telling listeners what failed and what came back.

Each listener has a queue of its own that cannot grow without bound and cannot hide a
failure: per switch or link it holds at most the last two notices, so a listener that was
slow sees "down, up" at the end of any series, and knows that it has to read the table again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

from sievenet.dataplane.plane import Notice, Redrawn, SwitchDown, SwitchUp

__all__ = ["Notices"]

_Subject: TypeAlias = str | tuple[str, str]


def _subject(notice: Notice) -> _Subject:
    if isinstance(notice, SwitchUp | SwitchDown):
        return notice.switch
    if isinstance(notice, Redrawn):
        return ""
    return notice.a, notice.b


class _Listener:
    """An asynchronous iterator over the notices since its birth."""

    def __init__(self, home: Notices) -> None:
        self._home = home
        self._pending: dict[_Subject, list[Notice]] = {}
        self._woken = asyncio.Event()
        self.closed = False

    def put(self, notice: Notice) -> None:
        """Add a notice, dropping what two later ones make irrelevant."""
        about = self._pending.setdefault(_subject(notice), [])
        about.append(notice)
        del about[:-2]
        self._woken.set()

    def end(self) -> None:
        """No more will come."""
        self.closed = True
        self._woken.set()

    def __aiter__(self) -> _Listener:
        return self

    async def __anext__(self) -> Notice:
        while not self._pending:
            if self.closed:
                self._home.forget(self)
                raise StopAsyncIteration
            self._woken.clear()
            await self._woken.wait()
        subject = next(iter(self._pending))
        about = self._pending[subject]
        notice = about.pop(0)
        if not about:
            del self._pending[subject]
        return notice

    async def aclose(self) -> None:
        """Stop listening."""
        self._home.forget(self)
        self.end()


class Notices:
    """Listeners, and what they are told."""

    def __init__(self) -> None:
        self._listeners: list[_Listener] = []
        self._closed = False

    def listen(self) -> AsyncIterator[Notice]:
        """A new listener; it hears what happens from now on."""
        listener = _Listener(self)
        if self._closed:
            listener.end()
        else:
            self._listeners.append(listener)
        return listener

    def tell(self, notice: Notice) -> None:
        """Tell all listeners."""
        for listener in self._listeners:
            listener.put(notice)

    def forget(self, listener: _Listener) -> None:
        """A listener has left."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def close(self) -> None:
        """End all listeners."""
        self._closed = True
        for listener in self._listeners:
            listener.end()
