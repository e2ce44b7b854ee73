"""A best-effort overlay of brokers in virtual time, as the transport's source had one on a cluster.

    publisher ─ home broker ═ link ═ broker ═ link ═ home broker ─ subscribers
                   │                    │                 │
               exponential          exponential       exponential processing, each message in a thread of its own

A message is handled by every broker on the shortest-path tree towards the brokers that have a receiver; the time that a
broker takes is drawn for each message anew and nothing queues for the processor, so messages overtake each other, as
they do in parallel brokers. Links have delay, jitter, loss and perhaps a narrow bandwidth with a bounded queue.

Who receives is said by the caller (it has matched the content). Brokers are numbers; a set of them is a bit mask, and
how a broker splits a message over its links is worked out once per mask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from sievenet.simulation import Pipe, VirtualClock

__all__ = ["Overlay"]

#: What a client does with what arrives: ``receive(message)``.
Receive = Callable[[Any], None]


class Overlay:
    """Brokers, the links between them, and the clients attached to them."""

    def __init__(
        self,
        clock: VirtualClock,
        edges: Iterable[tuple[int, int]],
        link: Callable[[int, int], Pipe],
        *,
        processing: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.clock = clock
        self._rng = Random(seed)
        self._processing = processing
        #: (from, to) → link.
        self.links: dict[tuple[int, int], Pipe] = {}
        self._neighbours: dict[int, list[int]] = {}
        for a, b in edges:
            for one, other in ((a, b), (b, a)):
                self.links[one, other] = link(one, other)
                self._neighbours.setdefault(one, []).append(other)
        self.brokers = len(self._neighbours)
        self._next = [self._first_hops(broker) for broker in range(self.brokers)]
        self._splits: dict[tuple[int, int], tuple[bool, list[tuple[Pipe, int, int]]]] = {}
        self._home: dict[int, int] = {}
        self._receive: dict[int, Receive] = {}

    def _first_hops(self, source: int) -> list[int]:
        """The neighbour that leads to each broker, by breadth first."""
        first = [-1] * self.brokers
        queue = deque([source])
        seen = {source}
        while queue:
            here = queue.popleft()
            for there in self._neighbours[here]:
                if there not in seen:
                    seen.add(there)
                    first[there] = there if here == source else first[here]
                    queue.append(there)
        return first

    def hops(self, a: int, b: int) -> int:
        """Links between two clients' brokers."""
        here, there, count = self._home[a], self._home[b], 0
        while here != there:
            here = self._next[here][there]
            count += 1
        return count

    def attach(self, client: int, broker: int, receive: Receive) -> None:
        """A client is served by a broker."""
        self._home[client] = broker
        self._receive[client] = receive

    def home(self, client: int) -> int:
        """The broker of a client."""
        return self._home[client]

    def group(self, clients: Iterable[int]) -> dict[int, list[int]]:
        """Receivers by their broker, as `send` wants them."""
        groups: dict[int, list[int]] = {}
        for client in clients:
            groups.setdefault(self._home[client], []).append(client)
        return groups

    def send(self, source: int, groups: Mapping[int, Sequence[int]], size: int, message: Any) -> None:
        """A client sends a message of so many bytes to receivers grouped by broker."""
        mask = 0
        for broker in groups:
            mask |= 1 << broker
        if mask:
            self._arrive(self._home[source], mask, groups, size, message)

    def _arrive(self, broker: int, mask: int, groups: Mapping[int, Sequence[int]], size: int, message: Any) -> None:
        if self._processing:
            wait = self._rng.expovariate(1.0) * self._processing
            self.clock.call_later(wait, self._forward, broker, mask, groups, size, message)
        else:
            self._forward(broker, mask, groups, size, message)

    def _forward(self, broker: int, mask: int, groups: Mapping[int, Sequence[int]], size: int, message: Any) -> None:
        local, onwards = self._splits.get((broker, mask)) or self._split(broker, mask)
        for link, peer, part in onwards:
            link.send(size, self._arrive, peer, part, groups, size, message)
        if local:
            for client in groups[broker]:
                self._receive[client](message)

    def _split(self, broker: int, mask: int) -> tuple[bool, list[tuple[Pipe, int, int]]]:
        parts: dict[int, int] = {}
        for target in range(self.brokers):
            if mask >> target & 1 and target != broker:
                hop = self._next[broker][target]
                parts[hop] = parts.get(hop, 0) | 1 << target
        onwards = [(self.links[broker, hop], hop, part) for hop, part in parts.items()]
        found = self._splits[broker, mask] = (bool(mask >> broker & 1), onwards)
        return found
