"""What clients' answers are worth.

The same question goes to several clients; an answer counts if more than half of those asked gave exactly it. So a
minority of liars changes nothing, and a majority that is silent or divided leads to no answer, in which case the router
computes it. Clients that were silent, or contradicted a majority, get a strike; with `STRIKES` they are asked no more.
A right answer takes a strike back, so a slow moment is forgiven and a habit is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

__all__ = ["STRIKES", "Standing", "majority"]

STRIKES: Final = 3


def majority(answers: Mapping[str, bytes], asked: int) -> bytes | None:
    """The answer that more than half of those asked gave; ``None`` if there is none."""
    if not answers:
        return None
    (best, votes), *_ = Counter(answers.values()).most_common(1)
    return best if 2 * votes > asked else None


class Standing:
    """Which clients are to be asked."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}

    def join(self, client: str) -> None:
        """A client is there and willing."""
        self._strikes.setdefault(client, 0)

    def leave(self, client: str) -> None:
        """A client is gone."""
        self._strikes.pop(client, None)

    def good(self, client: str) -> None:
        """It answered as most did."""
        if 0 < self._strikes.get(client, 0) < STRIKES:
            self._strikes[client] -= 1

    def bad(self, client: str) -> None:
        """It was silent or contradicted most."""
        if client in self._strikes:
            self._strikes[client] += 1

    def expel(self, client: str) -> None:
        """It was proved wrong by the router's own work: ask it no more."""
        if client in self._strikes:
            self._strikes[client] = STRIKES

    def trusts(self, client: str) -> bool:
        """Whether a client is there and to be asked."""
        return self._strikes.get(client, STRIKES) < STRIKES

    def trusted(self) -> list[str]:
        """Clients to be asked."""
        return [c for c, strikes in self._strikes.items() if strikes < STRIKES]

    def excluded(self) -> list[str]:
        """Clients that are asked no more."""
        return [c for c, strikes in self._strikes.items() if strikes >= STRIKES]
