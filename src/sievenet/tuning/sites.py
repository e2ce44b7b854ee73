"""Sites: where subscriptions and publishers are in a network, so that what a plan carries can be counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.network import SpanningTree, Topology
from sievenet.tuning.crossings import Network

__all__ = ["Sites"]

_I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Where subscriptions and publishers are."""

    network: Network
    #: The place of each subscription.
    place: _I64
    #: Publisher → its switch, and its place or -1.
    sources: dict[str, tuple[int, int]]
    #: The switch of publishers that nobody knows.
    other: int

    @staticmethod
    def of(
        topology: Topology,
        trees: Sequence[SpanningTree],
        hosts: Mapping[str, str],
        clients: Sequence[str],
        publishers: Mapping[str, str] | None = None,
        default: str | None = None,
    ) -> Sites:
        """From the trees of a category, every client's host, and the client that each subscription belongs to.

        ``publishers`` says where publishers are that are no clients; all others are at the host ``default``.
        """
        network = Network.of(topology, trees, hosts)
        number = {client: i for i, client in enumerate(network.places)}
        sources = {name: (int(network.at[i]), i) for name, i in number.items()}
        named = (publishers or {}).items()
        sources |= {name: (network.switch_of(host), -1) for name, host in named if name not in sources}
        place = np.array([number[client] for client in clients], np.int64)
        return Sites(network, place, sources, network.switch_of(default or next(iter(network.hosts))))

    def take(self, rows: Sequence[int]) -> Sites:
        """With some of the subscriptions."""
        return Sites(self.network, self.place[np.asarray(rows, np.int64)], self.sources, self.other)

    def located(self, names: Sequence[str | None]) -> _I64:
        """Switch and own place (or -1) of publishers, one row each."""
        return np.array([self.sources.get(n or "", (self.other, -1)) for n in names], np.int64).reshape(-1, 2)
