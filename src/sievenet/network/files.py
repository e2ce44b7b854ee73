"""Topologies in files: JSON of our own, and GraphML as other tools write it.

JSON, with ports and settings optional (ports are numbered in the order of the links):

    {"switches": ["s1", "s2"], "hosts": ["h1"],
     "links": [{"a": "s1", "b": "s2", "delay": 0.001}, {"a": "h1", "b": "s1"}]}

GraphML, as from networkx or the Internet Topology Zoo: a node is a host if its attribute
``kind`` (or ``type``) says so, else a switch; edges may carry the settings of links.  Nodes
get names ``s1``, ``s2``, … unless their ids will do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from sievenet.errors import InvalidInput
from sievenet.network.link import PERFECT, Link, LinkSettings, natural
from sievenet.network.topology import Topology, TopologyBuilder

__all__ = ["FILE_SUFFIXES", "dump_topology", "load_topology", "read_topology"]

#: What a topology file is called.
FILE_SUFFIXES: Final = (".json", ".graphml")

_LARGEST_FILE: Final = 64 << 20


class _LinkEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    a: str
    b: str
    a_port: int | None = None
    b_port: int | None = None
    delay: float | None = None
    bandwidth: float | None = None
    queue: int | None = None
    loss: float | None = None
    jitter: float | None = None
    reorder: float | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    switches: list[str]
    links: list[_LinkEntry]
    hosts: list[str] = []


def read_topology(path: Path, *, hosts: int = 0, default: LinkSettings = PERFECT) -> Topology:
    """The topology in a file; `hosts` are added to each switch if the file names none."""
    suffix = path.suffix.lower()
    if suffix not in FILE_SUFFIXES:
        raise InvalidInput(expected=f"a file ending in {' or '.join(FILE_SUFFIXES)}", got=path.name, where="topology")
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(expected=f"at most {_LARGEST_FILE} bytes", got=path.stat().st_size, where=path.name)
        topology = (
            load_topology(path.read_bytes(), default, path.name) if suffix == ".json" else _read_graphml(path, default)
        )
    except OSError as error:
        raise InvalidInput(expected="a readable file", got=error.strerror, where=str(path)) from None
    return topology if topology.hosts or not hosts else _hosts_everywhere(topology, hosts, default)


def load_topology(data: bytes, default: LinkSettings = PERFECT, where: str = "topology") -> Topology:
    """A topology from its JSON form."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(str(error), where=where) from None
    taken: dict[str, set[int]] = {}
    for entry in file.links:
        for node, port in ((entry.a, entry.a_port), (entry.b, entry.b_port)):
            if port is not None:
                taken.setdefault(node, set()).add(port)
    links = []
    for entry in file.links:
        a_port = _free(taken, entry.a) if entry.a_port is None else entry.a_port
        b_port = _free(taken, entry.b) if entry.b_port is None else entry.b_port
        said = {name: value for name in LinkSettings.__struct_fields__ if (value := getattr(entry, name)) is not None}
        settings = LinkSettings.parse({**msgspec.structs.asdict(default), **said}, where)
        links.append(Link(entry.a, a_port, entry.b, b_port, settings))
    return Topology(file.switches, file.hosts, links)


def dump_topology(topology: Topology) -> bytes:
    """The JSON form of a topology; `load_topology` gives it back."""
    entries = [
        _LinkEntry(
            link.a,
            link.b,
            link.a_port,
            link.b_port,
            **{
                name: value
                for name in LinkSettings.__struct_fields__
                if (value := getattr(link.settings, name)) != getattr(PERFECT, name)
            },
        )
        for link in topology.links
    ]
    file = _File(list(topology.switches), entries, list(topology.hosts))
    return msgspec.json.format(msgspec.json.encode(file), indent=1)


def _free(taken: dict[str, set[int]], node: str) -> int:
    ports = taken.setdefault(node, set())
    port = 1
    while port in ports:
        port += 1
    ports.add(port)
    return port


def _read_graphml(path: Path, default: LinkSettings) -> Topology:
    import networkx as nx  # only here, because it takes a while to load

    try:
        graph: nx.Graph[Any] = nx.Graph(nx.read_graphml(path))
    except OSError:
        raise
    except Exception as error:  # whatever networkx and the XML parser think of a broken file
        raise InvalidInput(expected="GraphML", got=str(error), where=path.name) from None
    hosts = {n for n, about in graph.nodes(data=True) if str(about.get("kind", about.get("type"))).lower() == "host"}
    plain = all(str(n)[:1].isalpha() and not any(c.isspace() for c in str(n)) for n in graph.nodes)
    nodes = sorted(graph.nodes, key=lambda n: natural(str(n)))
    net = TopologyBuilder(default)
    names: dict[Any, str] = {n: net.switch(str(n) if plain else None) for n in nodes if n not in hosts}
    base = msgspec.structs.asdict(default)
    edges = sorted(graph.edges(data=True), key=lambda e: sorted(natural(str(n)) for n in e[:2]))
    for a, b, about in edges:
        if a == b:
            continue  # some published networks have loops, which carry nothing
        said = {k: v for k, v in about.items() if k in LinkSettings.__struct_fields__}
        settings = LinkSettings.parse({**base, **said}, path.name)
        if a in hosts and b in hosts:
            raise InvalidInput(expected="hosts joined by switches", got=(a, b), where=path.name)
        if a in hosts or b in hosts:
            host, switch = (a, b) if a in hosts else (b, a)
            names[host] = net.host(names[switch], str(host) if plain else None, settings)
        else:
            net.link(names[a], names[b], settings)
    return net.build()


def _hosts_everywhere(topology: Topology, count: int, settings: LinkSettings) -> Topology:
    taken = {switch: set(topology.ports(switch)) for switch in topology.switches}
    names = [f"h{i + 1}" for i in range(count * len(topology.switches))]
    links = list(topology.links)
    for i, name in enumerate(names):
        switch = topology.switches[i // count]
        links.append(Link(switch, _free(taken, switch), name, 1, settings))
    return Topology(topology.switches, names, links)
