"""Topologies: switches, hosts, and the links between them.

A topology is a value.  Switches have numbered ports (from 1), a link joins two
ports, a host hangs on exactly one switch:

    h1 ─1[s1]2──1[s2]2──1[s3]2─ h3
               h2 ─3┘

What fails is taken out with `without`, which keeps names and port numbers, so that
flow tables stay meaningful while the network shrinks and grows.  Port numbers from
`CLIENT_PORTS` on never occur in a topology: they belong to clients that attach at a
host's switch while the network runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from sievenet.errors import InvalidInput, Unavailable
from sievenet.network.link import PERFECT, Link, LinkSettings, link_id, natural

__all__ = ["CLIENT_PORTS", "Attachment", "Topology", "TopologyBuilder"]

#: First port number for attached clients; ports of a topology stay below it.
CLIENT_PORTS: Final = 1000

_LONGEST_NAME: Final = 64


class Attachment(NamedTuple):
    """Where somebody hangs on the network."""

    switch: str
    port: int


class Topology:
    """An immutable network of switches and hosts."""

    def __init__(self, switches: Iterable[str], hosts: Iterable[str], links: Iterable[Link]) -> None:
        self.switches: Final = tuple(sorted(switches, key=natural))
        self.hosts: Final = tuple(sorted(hosts, key=natural))
        self.links: Final = tuple(sorted(links, key=lambda link: tuple(map(natural, link.id))))
        self._check()

    def _check(self) -> None:
        names = (*self.switches, *self.hosts)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidInput(expected="every node named once", got=twice, where="topology")
        for name in names:
            if not name or len(name) > _LONGEST_NAME or not name.isprintable() or any(c.isspace() for c in name):
                raise InvalidInput(
                    expected=f"a name of 1 to {_LONGEST_NAME} printable characters without spaces",
                    got=name,
                    where="topology",
                )
        switches, hosts = set(self.switches), set(self.hosts)
        ends: set[tuple[str, int]] = set()
        seen: set[tuple[str, str]] = set()
        attached: set[str] = set()
        for link in self.links:
            where = f"topology link {link}"
            for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
                if node not in switches and node not in hosts:
                    raise InvalidInput(expected="a known node", got=node, where=where)
                if not 1 <= port < CLIENT_PORTS:
                    raise InvalidInput(expected=f"a port in 1..{CLIENT_PORTS - 1}", got=port, where=where)
                if (node, port) in ends:
                    raise InvalidInput(expected="one link per port", got=f"{node}:{port}", where=where)
                ends.add((node, port))
                if node in hosts:
                    if node in attached:
                        raise InvalidInput(expected="one link per host", got=node, where=where)
                    attached.add(node)
            if link.a == link.b:
                raise InvalidInput(expected="two different nodes", got=link.a, where=where)
            if link.id in seen:
                raise InvalidInput(expected="one link between two nodes", got=link.id, where=where)
            seen.add(link.id)
            if link.a in hosts and link.b in hosts:
                raise InvalidInput(expected="hosts joined by switches", got=link.id, where=where)

    # -- looking things up -------------------------------------------------------------------

    @cached_property
    def _ports(self) -> Mapping[str, Mapping[int, str]]:
        ports: dict[str, dict[int, str]] = {name: {} for name in (*self.switches, *self.hosts)}
        for link in self.links:
            ports[link.a][link.a_port] = link.b
            ports[link.b][link.b_port] = link.a
        return {name: MappingProxyType(dict(sorted(of.items()))) for name, of in ports.items()}

    @cached_property
    def _numbers(self) -> Mapping[tuple[str, str], int]:
        numbers: dict[tuple[str, str], int] = {}
        for link in self.links:
            numbers[link.a, link.b] = link.a_port
            numbers[link.b, link.a] = link.b_port
        return numbers

    @cached_property
    def _by_id(self) -> Mapping[tuple[str, str], Link]:
        return {link.id: link for link in self.links}

    @cached_property
    def _switch_set(self) -> frozenset[str]:
        return frozenset(self.switches)

    def is_switch(self, name: str) -> bool:
        """Whether a name is a switch of this topology."""
        return name in self._switch_set

    def ports(self, node: str) -> Mapping[int, str]:
        """What is on each port of a switch (or host): ``{port: peer}``."""
        try:
            return self._ports[node]
        except KeyError:
            raise InvalidInput(expected="a known node", got=node, where="topology") from None

    def neighbours(self, switch: str) -> tuple[str, ...]:
        """The switches next to a switch, in port order."""
        return tuple(peer for peer in self.ports(switch).values() if peer in self._switch_set)

    def port(self, node: str, toward: str) -> int:
        """The port of a node that leads to its neighbour."""
        try:
            return self._numbers[node, toward]
        except KeyError:
            raise InvalidInput(expected=f"a neighbour of {node}", got=toward, where="topology") from None

    def peer_port(self, node: str, port: int) -> tuple[str, int]:
        """The far end of the link at a port: ``(peer, its port)``."""
        try:
            peer = self.ports(node)[port]
        except KeyError:
            raise InvalidInput(expected=f"a linked port of {node}", got=port, where="topology") from None
        return peer, self._numbers[peer, node]

    def link(self, a: str, b: str) -> Link:
        """The link between two nodes."""
        try:
            return self._by_id[link_id(a, b)]
        except KeyError:
            raise InvalidInput(expected="a link", got=link_id(a, b), where="topology") from None

    def attachment(self, host: str) -> Attachment:
        """Where a host hangs; `Unavailable` while its link or switch is down."""
        for switch in self.ports(host).values():
            if host in self._switch_set:
                break
            return Attachment(switch, self._numbers[switch, host])
        else:
            raise Unavailable(f"Host {host} is not linked to any switch now")
        raise InvalidInput(expected="a host", got=host, where="topology")

    # -- deriving others ---------------------------------------------------------------------

    def without(self, down_links: Iterable[tuple[str, str]] = (), down_switches: Iterable[str] = ()) -> Topology:
        """The network less what is down; hosts stay, though perhaps without a link."""
        gone = {link_id(*ends) for ends in down_links}
        dead = frozenset(down_switches)
        if not gone and not dead:
            return self
        return Topology(
            (s for s in self.switches if s not in dead),
            self.hosts,
            (k for k in self.links if k.id not in gone and k.a not in dead and k.b not in dead),
        )

    def with_links(self, settings: LinkSettings) -> Topology:
        """The same network with the same settings on every link."""
        return Topology(
            self.switches,
            self.hosts,
            (Link(k.a, k.a_port, k.b, k.b_port, settings) for k in self.links),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return (self.switches, self.hosts, self.links) == (other.switches, other.hosts, other.links)

    def __hash__(self) -> int:
        return hash((self.switches, self.hosts, self.links))

    def __repr__(self) -> str:
        return f"<Topology: {len(self.switches)} switches, {len(self.hosts)} hosts, {len(self.links)} links>"


class TopologyBuilder:
    """Collects nodes and links, numbering ports in the order of linking."""

    def __init__(self, default: LinkSettings = PERFECT) -> None:
        self._default = default
        self._next: dict[str, int] = {}
        self._switches: list[str] = []
        self._hosts: list[str] = []
        self._links: list[Link] = []

    def switch(self, name: str | None = None) -> str:
        """Add a switch, named ``s1``, ``s2``, … unless told otherwise."""
        name = name or f"s{len(self._switches) + 1}"
        self._switches.append(name)
        return name

    def host(self, switch: str, name: str | None = None, settings: LinkSettings | None = None) -> str:
        """Add a host at a switch, named ``h1``, ``h2``, … unless told otherwise."""
        name = name or f"h{len(self._hosts) + 1}"
        self._hosts.append(name)
        self.link(switch, name, settings)
        return name

    def link(self, a: str, b: str, settings: LinkSettings | None = None) -> None:
        """Join two nodes at the next free port of each."""
        settings = self._default if settings is None else settings
        self._links.append(Link(a, self._take(a), b, self._take(b), settings))

    def _take(self, node: str) -> int:
        self._next[node] = self._next.get(node, 0) + 1
        return self._next[node]

    def build(self) -> Topology:
        """The finished topology."""
        return Topology(self._switches, self._hosts, self._links)
