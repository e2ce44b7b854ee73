"""The network as bitmaps: over which links a packet goes, given whom it must reach.

Events of a category travel on one spanning tree (or on several, which share the event space by its first bits).  On a
tree a packet crosses a link if somebody behind it must get it and the publisher is not behind it: flows deliver the
union of what is wanted behind a port.  So per packet a bitmap of the places it must reach is enough:

    p ──▶ [s1] ──▶ [s2] ──▶ a         behind s1→s2: {a, b}        reached {a}:  p→s1, s1→s2, s2→a
                     └────▶ b         behind s2→s1: {p}           reached {}:   p→s1

A *place* is a client with its own port at an access switch: two clients at one host get a packet each.  A client's own
packets do not come back to it, since a switch sends nothing out of the port that it came in by.

Which tree a category uses is the control plane's decision; whoever makes a `Network` takes the trees from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.errors import InvalidInput
from sievenet.network import SpanningTree, Topology

__all__ = ["Crossings", "Network"]

_I64 = npt.NDArray[np.int64]
_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Spanning trees, and per link of theirs the places behind it."""

    #: Clients, each with a port of its own.
    places: tuple[str, ...]
    #: The switch of each place, by number.
    at: _I64
    switches: tuple[str, ...]
    #: Directions of links between switches: from, to.
    links: tuple[tuple[str, str], ...]
    #: Trees × links × words: the places behind a link; none if the tree does not use it.
    behind: _U64
    #: Trees × links × switches: whether a switch is behind a link.
    beyond: npt.NDArray[np.bool_]
    #: Host → its switch, by number.
    hosts: Mapping[str, int]

    @staticmethod
    def of(topology: Topology, trees: Sequence[SpanningTree], places: Mapping[str, str]) -> Network:
        """From the trees of a category (a power of two) and places, each with its host."""
        if not trees or len(trees) & (len(trees) - 1):
            raise InvalidInput(expected="trees of a category, a power of two of them", got=len(trees), where="network")
        switches = tuple(topology.switches)
        number = {switch: i for i, switch in enumerate(switches)}
        hosts = {host: number[topology.attachment(host).switch] for host in topology.hosts}
        unknown = [host for host in places.values() if host not in hosts]
        if unknown:
            known = ", ".join(list(hosts)[:8])
            raise InvalidInput(expected=f"a host of the topology ({known}, …)", got=unknown[0])
        at = np.array([hosts[host] for host in places.values()], np.int64)
        links = tuple(sorted({way for tree in trees for a, b in tree.links() for way in ((a, b), (b, a))}))
        beyond = np.zeros((len(trees), len(links), len(switches)), np.bool_)
        behind = np.zeros((len(trees), len(links), max(1, -(-len(places) // 64))), np.uint64)
        for t, tree in enumerate(trees):
            used = tree.links()
            for row, (a, b) in enumerate(links):
                if (a, b) in used or (b, a) in used:
                    beyond[t, row] = [tree.next_hop(a, s) == b for s in switches]
                    for place in np.flatnonzero(beyond[t, row][at]).tolist():
                        behind[t, row, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
        return Network(tuple(places), at, switches, links, behind, beyond, hosts)

    def switch_of(self, host: str) -> int:
        """The number of a host's switch."""
        if host not in self.hosts:
            raise InvalidInput(expected=f"a host of the topology ({', '.join(list(self.hosts)[:8])}, …)", got=host)
        return self.hosts[host]

    @property
    def groups(self) -> int:
        """How many trees share the event space."""
        return len(self.behind)

    def group_of(self, words: _U64) -> _I64:
        """The tree of packets, by the first words of their codes."""
        depth = self.groups.bit_length() - 1
        if not depth:
            return np.zeros(len(words), np.int64)
        return (words >> np.uint64(64 - depth)).astype(np.int64)


class Crossings:
    """Packets per link and place; batches add up."""

    def __init__(self, network: Network) -> None:
        self.network = network
        #: Packets that publishers sent to their switches.
        self.sent = 0
        #: Per direction of a link between switches.
        self.links = np.zeros(len(network.links), np.int64)
        #: Per place.
        self.received = np.zeros(len(network.places), np.int64)

    def add(self, reached: _U64, switch: _I64, own: _I64, group: _I64) -> None:
        """Count packets: bitmaps of who must get them, the publisher's switch, its own place or -1, and the tree.

        A publisher's own place is taken out of the bitmaps.
        """
        from sievenet.tuning.kernels import cross

        self.sent += len(reached)
        network = self.network
        cross(reached, switch, own, group, network.behind, network.beyond, self.links, self.received)

    @property
    def transmissions(self) -> int:
        """Packets over all links, those from publishers and to subscribers included."""
        return self.sent + int(self.links.sum()) + int(self.received.sum())
