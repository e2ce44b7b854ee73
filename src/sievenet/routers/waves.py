"""Echo waves: has everything that was said before arrived, at every router of a tree?

    issuer ──Settle──▶ children ──Settle──▶ … leaves
           ◀─Settled──          ◀─Settled──

`Settle` follows whatever was sent before it on each link. A router answers when all behind it have; so when the wave is
back at its issuer, all that the issuer had told is in place everywhere. Neighbours that vanish are not waited for, and
after a lease nobody is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Echo", "Waves"]


class Echo(NamedTuple):
    """A wave is done here: answer the neighbour that it came from, or it is our own (``None``)."""

    issuer: str
    number: int
    by: str | None


@dataclass(slots=True)
class _Wave:
    by: str | None
    waiting: set[str]
    until: float


class Waves:
    """The waves under way at one router."""

    def __init__(self) -> None:
        self._waves: dict[tuple[str, int], _Wave] = {}

    def start(self, issuer: str, number: int, by: str | None, near: Collection[str], until: float) -> list[Echo]:
        """A wave goes on to some neighbours; done at once if there are none."""
        self._waves[issuer, number] = _Wave(by, set(near), until)
        return self._done((issuer, number))

    def answered(self, issuer: str, number: int, neighbour: str) -> list[Echo]:
        """All behind a neighbour have it."""
        wave = self._waves.get((issuer, number))
        if wave is None:
            return []
        wave.waiting.discard(neighbour)
        return self._done((issuer, number))

    def lost(self, neighbour: str) -> list[Echo]:
        """A neighbour is gone: nobody waits for it."""
        for wave in self._waves.values():
            wave.waiting.discard(neighbour)
        return [echo for key in list(self._waves) for echo in self._done(key)]

    def expire(self, now: float) -> list[Echo]:
        """Give up what took too long."""
        for wave in self._waves.values():
            if wave.until <= now:
                wave.waiting.clear()
        return [echo for key in list(self._waves) for echo in self._done(key)]

    def _done(self, key: tuple[str, int]) -> list[Echo]:
        if self._waves[key].waiting:
            return []
        return [Echo(*key, self._waves.pop(key).by)]
