"""Wires and routes: the out ports of all switches as bits, paths on a tree as masks.

Every out port of every switch is a *wire* and has a number.  A set of wires, over the
whole network, is one Python integer; what would be a loop over a hundred switches is
one machine-word operation on a few words.

    h1 ─[s1]───[s2]─ h2         wire 0: s1 → s2      wire 2: s1 → h1 (client)
                                wire 1: s2 → s1      wire 3: s2 → h2 (client)

Links between switches are numbered for good, when the network is first seen or when it grows;
the ports of clients come and go.  `Routes` says, for one spanning tree and a client's wire w,

    to[w]    the wires on some way *to* the client:   toward its switch, and w itself
    frm[w]   the wires on some way *from* the client: away from its switch, and every
             other client's wire

A packet from a to b crosses exactly the wires ``frm[a] & to[b]``.  Both are unions over
clients too: publishers A reach subscribers B over ``frm(A) & to(B)`` (a wire is on a way
from some a to some b iff some a lies before it and some b behind it), which is why one
mask per set of clients is enough and no pair is ever looked at.

"Every other client's wire" has no end, since clients are still to come: ``frm`` is a
negative integer (infinitely many leading ones) in a whole network.  In a split one it
lists the clients of the same part, and must be asked again when a client joins
(`Routes.whole` tells).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sievenet.network import SpanningTree, Topology

__all__ = ["Masks", "Routes", "Ways", "Wires", "bits"]


class Wires:
    """The numbering of out ports.  Grows with the network, grows and shrinks with the clients."""

    def __init__(self, topology: Topology) -> None:
        #: The switch each wire leaves from, by number; "" for a free number.
        self.owner: list[str] = []
        #: The port it leaves by.
        self.port: list[int] = []
        #: All wires of a switch.
        self.out: dict[str, int] = {}
        #: The wires that are links between switches; all others are clients'.
        self.links = 0
        self._number: dict[tuple[str, int], int] = {}
        self._free: list[int] = []
        #: How often each number was given to a wire: who knew it before must be told again.
        self.life: dict[int, int] = {}
        #: How many clients share a wire (on some data planes the clients of a host do).
        self._users: dict[int, int] = {}
        self.known: dict[int | bytes, frozenset[int]] = {}
        #: The same in arrays: the number of the switch that each wire leaves from, the port it leaves by, and all wires
        #: of each switch, as words.
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self.owners = np.zeros(64, np.int32)
        self.exits = np.zeros(64, np.uint32)
        self.outs = np.zeros((0, 1), np.uint64)
        self.grow(topology)

    def grow(self, topology: Topology) -> None:
        """Number the switches and links that are new; those that are gone keep their numbers."""
        self.name(topology.switches)
        for switch in topology.switches:
            for port, peer in topology.ports(switch).items():
                if topology.is_switch(peer) and (switch, port) not in self._number:
                    self.links |= 1 << self._new(switch, port, reuse=False)

    def name(self, switches: Iterable[str]) -> None:
        """Number the switches that are new."""
        fresh = [switch for switch in switches if switch not in self.out]
        for switch in fresh:
            self.out[switch] = 0
            self._numbers[switch] = len(self.names)
            self.names.append(switch)
        self.outs = np.concatenate([self.outs, np.zeros((len(fresh), self.outs.shape[1]), np.uint64)])

    def _new(self, switch: str, port: int, *, reuse: bool = True) -> int:
        if self._free and reuse:
            wire = self._free.pop()
            self.owner[wire], self.port[wire] = switch, port
        else:
            wire = len(self.owner)
            self.owner.append(switch)
            self.port.append(port)
        self._hold(wire, switch, port)
        return wire

    def _hold(self, wire: int, switch: str, port: int) -> None:
        self.life[wire] = self.life.get(wire, 0) + 1
        self._number[switch, port] = wire
        self.out[switch] |= 1 << wire
        while wire >= len(self.owners):
            self._widen()
        number = self.owners[wire] = self._numbers[switch]
        self.exits[wire] = port
        self.outs[number, wire // 64] |= np.uint64(1 << wire % 64)

    def _widen(self) -> None:
        """A fifth more words, and one at least: whoever works with masks works with all of them, used or not."""
        switches, words = self.outs.shape
        more = 1 + words // 5
        self.owners = np.concatenate([self.owners, np.zeros(64 * more, self.owners.dtype)])
        self.exits = np.concatenate([self.exits, np.zeros(64 * more, self.exits.dtype)])
        self.outs = np.concatenate([self.outs, np.zeros((switches, more), np.uint64)], axis=1)

    def _let_go(self, wire: int) -> None:
        switch, port = self.owner[wire], self.port[wire]
        del self._number[switch, port]
        self.out[switch] &= ~(1 << wire)
        self.outs[self._numbers[switch], wire // 64] &= ~np.uint64(1 << wire % 64)
        self.owner[wire], self.port[wire] = "", 0
        self.known.clear()

    def place(self, wire: int, switch: str, port: int) -> None:
        """Number a wire as another process does."""
        if wire >= len(self.owner):
            more = wire + 1 - len(self.owner)
            self.owner += [""] * more
            self.port += [0] * more
        for old in {wire, self._number.get((switch, port), wire)}:
            if self.owner[old]:
                self._let_go(old)
        self.owner[wire], self.port[wire] = switch, port
        self._hold(wire, switch, port)

    def words(self, mask: int) -> npt.NDArray[np.uint64]:
        """A mask in an array, as wide as `outs`."""
        size = 8 * self.outs.shape[1]
        return np.frombuffer((mask & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint64).copy()

    def number(self, switch: str, port: int) -> int:
        """The number of a known wire."""
        return self._number[switch, port]

    def attach(self, switch: str, port: int) -> int:
        """The wire to a client, new unless somebody uses that port already."""
        wire = self._number.get((switch, port))
        if wire is None:
            wire = self._new(switch, port)
        self._users[wire] = self._users.get(wire, 0) + 1
        return wire

    def detach(self, wire: int) -> None:
        """One client of the wire has left; the number is free again after the last."""
        self._users[wire] -= 1
        if self._users[wire]:
            return
        del self._users[wire]
        self._let_go(wire)
        self._free.append(wire)

    def clients(self) -> Iterable[int]:
        """The wires of clients."""
        return self._users.keys()

    def ports(self, mask: int | bytes) -> frozenset[int]:
        """The port numbers of some wires of one switch; the mask may be in bytes, the lowest first."""
        known = self.known.get(mask)
        if known is None:
            if len(self.known) > 1 << 16:
                self.known.clear()
            number = mask if isinstance(mask, int) else int.from_bytes(mask, "little")
            known = self.known[mask] = frozenset(self.port[wire] for wire in bits(number))
        return known

    def switches(self, mask: int) -> Iterator[str]:
        """The switches that some wires leave from, each once."""
        owner, out = self.owner, self.out
        while mask:
            switch = owner[mask.bit_length() - 1]
            yield switch
            mask &= ~out[switch]


class Masks(dict[int, int]):
    """A mask per wire, worked out when first asked for."""

    def __init__(self, find: Callable[[int], int]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, wire: int) -> int:
        mask = self[wire] = self._find(wire)
        return mask


class Ways(Protocol):
    """Which wires lead to and from a client, by its wire."""

    @property
    def to(self) -> Mapping[int, int]:
        """The wires on some way to it."""

    @property
    def frm(self) -> Mapping[int, int]:
        """The wires on some way from it."""


class Routes:
    """The ways of one spanning tree, as masks of wires."""

    def __init__(self, wires: Wires, tree: SpanningTree) -> None:
        self.tree = tree
        self._wires = wires
        #: The wires on some way to the client behind a wire; 0 if its switch is down.
        self.to = Masks(self._ways_to)
        #: The wires on some way from the client behind a wire; 0 if its switch is down.
        self.frm = Masks(self._ways_from)
        self._toward: dict[str, int] = {}
        self._away: dict[str, int] = {}
        self._part: dict[str, int] = {}
        parts = 0
        for start in tree.parent:
            if start not in self._part:
                self._explore(start, parts)
                parts += 1
        #: Whether every switch reaches every other.
        self.whole = parts <= 1

    def _explore(self, start: str, part: int) -> None:
        """Masks for all switches of the part of the network that `start` is in."""
        number, tree = self._wires.number, self.tree
        order: list[tuple[str, str]] = []  # (switch, the one above it), parents first
        stack = [start]
        self._part[start] = part
        up: dict[str, int] = {}
        down: dict[str, int] = {}
        while stack:
            switch = stack.pop()
            for port, peer in tree.tree_ports(switch).items():
                if peer not in self._part:
                    self._part[peer] = part
                    order.append((peer, switch))
                    down[peer] = 1 << number(switch, port)
                    up[peer] = 1 << number(peer, tree.topology.port(peer, switch))
                    stack.append(peer)
        every = sum(up.values()) + sum(down.values())
        # Toward the start lead all wires up.  One step further down, the wire between turns round.
        self._toward[start] = sum(up.values())
        for switch, above in order:
            self._toward[switch] = self._toward[above] & ~up[switch] | down[switch]
        for switch in self._part:
            if self._part[switch] == part:
                self._away[switch] = every & ~self._toward[switch]

    def _ways_to(self, wire: int) -> int:
        switch = self._wires.owner[wire]
        return self._toward[switch] | 1 << wire if switch in self._toward else 0

    def _ways_from(self, wire: int) -> int:
        switch = self._wires.owner[wire]
        if switch not in self._away:
            return 0
        if self.whole:
            others = ~self._wires.links
        else:
            part = self._part[switch]
            owner = self._wires.owner
            others = sum(1 << w for w in self._wires.clients() if self._part.get(owner[w]) == part)
        return (self._away[switch] | others) & ~(1 << wire)

    def forget(self, wire: int | None = None) -> None:
        """Ask anew about a wire that changed hands, or about all."""
        if wire is None:
            self.to.clear()
            self.frm.clear()
        else:
            self.to.pop(wire, None)
            self.frm.pop(wire, None)


def bits(mask: int) -> Iterator[int]:
    """The numbers of the ones in a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
