"""Which clients have which vectors.

Each vector goes to a few clients, always the same ones while they stay, so they hold it already and a request is little
more than its inputs. New vectors go to the clients with the least to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sievenet.routers.offload.messages import VectorUpdate
from sievenet.routers.offload.vectors import Vector, Vectors

__all__ = ["Assignment"]


class Assignment:
    """Vectors and their clients; ``copies`` of each."""

    def __init__(self, copies: int, size: int) -> None:
        self._copies = copies
        self._size = size
        self._assigned: dict[int, tuple[str, ...]] = {}
        #: Filters that each client was given.
        self._load: dict[str, int] = {}
        #: Vector → client → the version it was sent.
        self._sent: dict[int, dict[str, int]] = {}

    def leave(self, client: str) -> None:
        """A client is gone, and what it held with it."""
        self._load.pop(client, None)
        for sent in self._sent.values():
            sent.pop(client, None)

    def lacks(self, vector: int, client: str) -> None:
        """A client does not have a vector that it was sent."""
        self._sent.get(vector, {}).pop(client, None)

    def updates(
        self, vectors: Vectors, trusted: Collection[str], data: Callable[[int], bytes]
    ) -> tuple[dict[int, tuple[str, ...]], dict[str, list[VectorUpdate]]]:
        """The clients of each vector, and what each client is to be sent to have it as it is now."""
        asked: dict[int, tuple[str, ...]] = {}
        updates: dict[str, list[VectorUpdate]] = {}
        for number, vector in vectors.vectors.items():
            clients = asked[number] = self._clients(vector, trusted)
            sent = self._sent.setdefault(number, {})
            for client in clients:
                updates.setdefault(client, []).append(vector.update(sent.get(client, 0), data))
                sent[client] = vector.version
        self._tidy(vectors)
        return asked, updates

    def _clients(self, vector: Vector, trusted: Collection[str]) -> tuple[str, ...]:
        """The same as before, unless some are gone or a better number can be had."""
        before = self._assigned.get(vector.id, ())
        kept = [c for c in before if c in trusted]
        wanted = min(self._copies, len(trusted))
        if len(kept) < wanted:
            others = sorted(set(trusted).difference(kept), key=lambda c: (self._load.get(c, 0), c))
            for client in others[: wanted - len(kept)]:
                kept.append(client)
                self._load[client] = self._load.get(client, 0) + max(1, len(vector.members))
        if tuple(kept) != before:
            self._assigned[vector.id] = tuple(kept)
        return self._assigned[vector.id]

    def _tidy(self, vectors: Vectors) -> None:
        """Forget vectors that are no more."""
        if len(self._assigned) > 2 * len(vectors) + 16:
            for number in [n for n in self._assigned if n not in vectors.vectors]:
                for client in self._assigned.pop(number):
                    if client in self._load:
                        self._load[client] = max(0, self._load[client] - self._size)
                self._sent.pop(number, None)
