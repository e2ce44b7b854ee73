"""Requests of clients that are answered when the overlay knows of them; they share waves.

One wave is under way at a time. What comes meanwhile waits for the next one, since a wave vouches only for what was
told before it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Waiting"]

R = TypeVar("R")


class Waiting(Generic[R]):
    """``begin`` starts a wave and returns its number, ``run`` carries it out.

    ``answer`` is told of each request when its wave has ended, and whether that came back from everywhere.
    """

    def __init__(self, begin: Callable[[], int], run: Callable[[], None], answer: Callable[[R, bool], None]) -> None:
        self._begin, self._run, self._answer = begin, run, answer
        self._wave: int | None = None
        self._settling: list[R] = []
        self._next: list[R] = []

    def add(self, request: R) -> None:
        """Answer a request when all that was told so far is in place."""
        self._next.append(request)
        if self._wave is None:
            self._start()

    def _start(self) -> None:
        self._settling, self._next = self._next, []
        # The number is known before its wave can be done, even where there are no neighbours.
        self._wave = self._begin()
        self._run()

    def done(self, number: int, done: bool) -> None:
        """A wave is back, or was given up."""
        if number != self._wave:
            return
        self._wave = None
        settled, self._settling = self._settling, []
        for request in settled:
            self._answer(request, done)
        if self._next:
            self._start()
