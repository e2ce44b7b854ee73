"""Named topologies: each a class with `build`, each nameable from the shell.

    parse_topology("line,switches=3")
    parse_topology("fattree,k=4,delay=0.001,bandwidth=1e9")
    parse_topology("network.json")

Parameters after the name go to `build`; those that `LinkSettings` knows become the
settings of every link.
"""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

from sievenet.errors import InvalidInput
from sievenet.network.files import FILE_SUFFIXES, read_topology
from sievenet.network.link import PERFECT, LinkSettings
from sievenet.network.topology import CLIENT_PORTS, Topology, TopologyBuilder

__all__ = [
    "SHAPES",
    "Clos",
    "FatTree",
    "FromFile",
    "Line",
    "Random",
    "Ring",
    "Shape",
    "Star",
    "Testbed",
    "Tree",
    "parse_topology",
]

#: Larger networks are a typing error rather than a wish.
MAX_NODES: Final = 100_000


class Shape(ABC):
    """A family of topologies."""

    name: ClassVar[str]

    @staticmethod
    @abstractmethod
    def build(*, link: LinkSettings = PERFECT) -> Topology:
        """The topology for these parameters."""


class Line(Shape):
    """Switches in a row."""

    name = "line"

    @staticmethod
    def build(*, switches: int = 4, hosts: int = 1, link: LinkSettings = PERFECT) -> Topology:
        """`switches` in a row, with `hosts` on each."""
        _within("switches", switches, 1)
        _within("hosts", hosts, 0)
        net = TopologyBuilder(link)
        row = [net.switch() for _ in range(switches)]
        for a, b in pairwise(row):
            net.link(a, b)
        return _with_hosts(net, row, hosts)


class Star(Shape):
    """A hub with switches around it."""

    name = "star"

    @staticmethod
    def build(*, arms: int = 4, hosts: int = 1, link: LinkSettings = PERFECT) -> Topology:
        """A hub ``s1`` and `arms` switches, with `hosts` on each arm."""
        _within("arms", arms, 1, CLIENT_PORTS - 1)
        _within("hosts", hosts, 0)
        net = TopologyBuilder(link)
        hub = net.switch()
        ends = [net.switch() for _ in range(arms)]
        for end in ends:
            net.link(hub, end)
        return _with_hosts(net, ends, hosts)


class Ring(Shape):
    """Switches in a circle: the smallest network that survives a link."""

    name = "ring"

    @staticmethod
    def build(*, switches: int = 4, hosts: int = 1, link: LinkSettings = PERFECT) -> Topology:
        """`switches` in a circle, with `hosts` on each."""
        _within("switches", switches, 3)
        _within("hosts", hosts, 0)
        net = TopologyBuilder(link)
        row = [net.switch() for _ in range(switches)]
        for a, b in zip(row, [*row[1:], row[0]], strict=True):
            net.link(a, b)
        return _with_hosts(net, row, hosts)


class Tree(Shape):
    """A regular tree with hosts at its leaves."""

    name = "tree"

    @staticmethod
    def build(*, depth: int = 3, fanout: int = 2, hosts: int = 1, link: LinkSettings = PERFECT) -> Topology:
        """`depth` levels of switches, `fanout` below each, with `hosts` on each leaf."""
        _within("depth", depth, 1, 16)
        _within("fanout", fanout, 1, CLIENT_PORTS - 2)
        _within("hosts", hosts, 0)
        if fanout ** (depth - 1) * (2 + hosts) > MAX_NODES:
            raise InvalidInput(expected=f"at most {MAX_NODES} nodes", got=(depth, fanout, hosts), where="tree")
        net = TopologyBuilder(link)
        level = [net.switch()]
        for _ in range(depth - 1):
            below = []
            for above in level:
                for _ in range(fanout):
                    child = net.switch()
                    net.link(above, child)
                    below.append(child)
            level = below
        return _with_hosts(net, level, hosts)


class FatTree(Shape):
    """The k-ary fat-tree of Al-Fares et al.: (k/2)² cores, k pods of k/2 + k/2 switches."""

    name = "fattree"

    @staticmethod
    def build(*, k: int = 4, hosts: int | None = None, link: LinkSettings = PERFECT) -> Topology:
        """Switches of `k` ports; `hosts` on each edge switch (k/2 unless told otherwise)."""
        if k % 2 or not 2 <= k <= 48:
            raise InvalidInput(expected="an even k in 2..48", got=k, where="fattree.k")
        hosts = k // 2 if hosts is None else hosts
        _within("hosts", hosts, 0)
        half = k // 2
        net = TopologyBuilder(link)
        core = [net.switch() for _ in range(half * half)]
        edges: list[str] = []
        for _ in range(k):
            upper = [net.switch() for _ in range(half)]
            lower = [net.switch() for _ in range(half)]
            for i, a in enumerate(upper):
                for c in core[i * half : (i + 1) * half]:
                    net.link(c, a)
                for e in lower:
                    net.link(a, e)
            edges += lower
        return _with_hosts(net, edges, hosts)


class Clos(Shape):
    """Three levels with free numbers: every aggregation switch sees every core, every edge its whole pod.

    The default has 102 switches and 64 hosts, the size of the control-plane measurements
    of PLEROMA.
    """

    name = "clos"

    @staticmethod
    def build(
        *,
        core: int = 6,
        pods: int = 16,
        aggregation: int = 2,
        edge: int = 4,
        hosts: int = 1,
        link: LinkSettings = PERFECT,
    ) -> Topology:
        """`core` switches and `pods` of `aggregation` and `edge` switches each, with `hosts` on each edge."""
        for what, value in (("core", core), ("pods", pods), ("aggregation", aggregation), ("edge", edge)):
            _within(what, value, 1, CLIENT_PORTS // 2 - 1)
        _within("hosts", hosts, 0, CLIENT_PORTS // 2)
        net = TopologyBuilder(link)
        top = [net.switch() for _ in range(core)]
        edges: list[str] = []
        for _ in range(pods):
            upper = [net.switch() for _ in range(aggregation)]
            lower = [net.switch() for _ in range(edge)]
            for a in upper:
                for c in top:
                    net.link(c, a)
                for e in lower:
                    net.link(a, e)
            edges += lower
        return _with_hosts(net, edges, hosts)


class Testbed(Shape):
    """The hierarchical fat-tree of PLEROMA's testbed: 10 four-port switches, 8 hosts."""

    __test__ = False  # pytest would take the name for a test class
    name = "testbed"

    @staticmethod
    def build(*, link: LinkSettings = PERFECT) -> Topology:
        """2 cores, 2 pods of 2 + 2 switches, 2 hosts on each edge switch."""
        return Clos.build(core=2, pods=2, aggregation=2, edge=2, hosts=2, link=link)


class Random(Shape):
    """A connected random network: a random tree plus random further links."""

    name = "random"

    @staticmethod
    def build(
        *, switches: int = 10, degree: float = 3.0, hosts: int = 20, seed: int = 1, link: LinkSettings = PERFECT
    ) -> Topology:
        """`switches` with a mean of about `degree` links, and `hosts` in all, spread evenly."""
        _within("switches", switches, 1)
        _within("hosts", hosts, 0, MAX_NODES - 1)
        if not 0.0 <= degree <= 100.0:
            raise InvalidInput(expected="a mean degree in [0, 100]", got=degree, where="random.degree")
        rng = random.Random(seed)
        net = TopologyBuilder(link)
        nodes = [net.switch() for _ in range(switches)]
        joined: set[tuple[int, int]] = set()
        for i in range(1, switches):
            # Attaching to a recent node as often as to an old one keeps the tree neither a star nor a line.
            joined.add((rng.randrange(max(0, i - 20), i), i))
        most = switches * (switches - 1) // 2
        wanted = min(most, max(len(joined), round(switches * degree / 2)))
        while len(joined) < wanted:
            a, b = rng.randrange(switches), rng.randrange(switches)
            if a != b:
                joined.add((min(a, b), max(a, b)))
        for a, b in sorted(joined):
            net.link(nodes[a], nodes[b])
        for i in range(hosts):
            net.host(nodes[i % switches])
        return net.build()


class FromFile(Shape):
    """A topology from a JSON or GraphML file."""

    name = "file"

    @staticmethod
    def build(*, path: str = "", hosts: int = 1, link: LinkSettings = PERFECT) -> Topology:
        """The network in a file; `hosts` on each switch if it names none, `link` where it says nothing else."""
        _within("hosts", hosts, 0, CLIENT_PORTS // 2)
        return read_topology(Path(path), hosts=hosts, default=link)


#: Shapes by the names they have on the command line.
SHAPES: Final[Mapping[str, type[Shape]]] = {
    shape.name: shape for shape in (Line, Star, Ring, Tree, FatTree, Clos, Testbed, Random, FromFile)
}


def parse_topology(text: str) -> Topology:
    """The topology that a text names: ``shape,parameter=value,…`` or the name of a file."""
    head, *rest = (part.strip() for part in text.split(","))
    values: dict[str, str] = {}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InvalidInput(expected="parameter=value", got=part, where="topology")
        values[name] = value
    if head not in SHAPES and Path(head).suffix.lower() in FILE_SUFFIXES:
        values["path"], head = head, FromFile.name
    if head not in SHAPES:
        raise InvalidInput(
            expected=f"one of {', '.join(SHAPES)} or a {' or '.join(FILE_SUFFIXES)} file", got=head, where="topology"
        )
    build = SHAPES[head].build
    wanted = inspect.signature(build, eval_str=True).parameters
    settings = {name: value for name, value in values.items() if name in LinkSettings.__struct_fields__}
    arguments: dict[str, Any] = {"link": LinkSettings.parse(settings, "topology")}
    for name, value in values.items():
        if name in settings:
            continue
        if name not in wanted or name == "link":
            known = [p for p in wanted if p != "link"] + list(LinkSettings.__struct_fields__)
            raise InvalidInput(expected=f"one of {', '.join(known)}", got=name, where=f"topology {head}")
        arguments[name] = _converted(value, wanted[name], f"topology {head}.{name}")
    return build(**arguments)


def _converted(value: str, parameter: inspect.Parameter, where: str) -> Any:
    if parameter.annotation is str:
        return value
    kind = float if parameter.annotation is float else int
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(expected="an integer" if kind is int else "a number", got=value, where=where) from None


def _with_hosts(net: TopologyBuilder, switches: list[str], hosts: int) -> Topology:
    for switch in switches:
        for _ in range(hosts):
            net.host(switch)
    return net.build()


def _within(what: str, value: int, low: int, high: int = CLIENT_PORTS * 10) -> None:
    if not low <= value <= high:
        raise InvalidInput(expected=f"{low}..{high}", got=value, where=f"topology.{what}")
