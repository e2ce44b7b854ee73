"""Echo waves: has everything that was said before arrived, at every router of a tree?

    issuer ──Settle──▶ children ──Settle──▶ … leaves
           ◀─Settled──          ◀─Settled──

`Settle` follows whatever was sent before it on each link. A router answers when all behind it have; so when the wave is
back at its issuer, all that the issuer had told is in place everywhere. A wave fails where a router knows another graph
or a neighbour vanishes, and after a lease.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Echo", "Waves"]


class Echo(NamedTuple):
    """A wave ends here: answer the neighbour that it came from, or it is our own (``None``)."""

    issuer: str
    number: int
    by: str | None
    done: bool = True


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
        if not near:
            return [Echo(issuer, number, by)]
        self._waves[issuer, number] = _Wave(by, set(near), until)
        return []

    def answered(self, issuer: str, number: int, neighbour: str, done: bool = True) -> list[Echo]:
        """All behind a neighbour have it, or not."""
        key = (issuer, number)
        wave = self._waves.get(key)
        if wave is None or neighbour not in wave.waiting:
            return []
        if not done:
            return self._fail([key])
        wave.waiting.discard(neighbour)
        return [] if wave.waiting else [Echo(*key, self._waves.pop(key).by)]

    def fail(self) -> list[Echo]:
        """The graph is another one: no wave under way can be right."""
        return self._fail(list(self._waves))

    def expire(self, now: float) -> list[Echo]:
        """Give up what took too long."""
        return self._fail([key for key, wave in self._waves.items() if wave.until <= now])

    def _fail(self, keys: list[tuple[str, int]]) -> list[Echo]:
        return [Echo(*key, self._waves.pop(key).by, False) for key in keys]
