"""The definition of the tables, word for word and without any cleverness: what the tests compare with."""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.index import Cell, Dz
from sievenet.network import Flow, FlowTable, Match, SpanningTree

#: A client's switch, its port there, and a dz (or cell) it wants or offers.
Registered = tuple[str, int, Dz]
RegisteredCell = tuple[str, int, Cell]


def registrations(
    tree: SpanningTree, offers: Iterable[Registered], wants: Iterable[Registered]
) -> dict[str, list[tuple[Dz, int]]]:
    """Per switch the (dz, out port) along the path of every pair that overlaps, for the overlap only."""
    found: dict[str, list[tuple[Dz, int]]] = {switch: [] for switch in tree.topology.switches}
    wants = list(wants)
    for here, in_port, offered in offers:
        for there, out_port, wanted in wants:
            overlap = offered.intersect(wanted)
            if overlap is None or (here, in_port) == (there, out_port):
                continue
            if here not in found or there not in found:
                continue
            for switch in tree.path(here, there):
                port = out_port if switch == there else tree.next_port(switch, there)
                assert port is not None
                found[switch].append((overlap, port))
    return found


def united(category: int, registered: Iterable[tuple[Dz, int]]) -> FlowTable:
    """The table of one switch from its registrations."""
    registered = list(registered)
    flows: dict[Dz, Flow] = {}
    for dz in sorted({dz for dz, _ in registered}, key=lambda dz: dz.length):
        ports = frozenset(port for above, port in registered if above.covers(dz))
        nearest = max((f for f in flows if f.covers(dz)), key=lambda f: f.length, default=None)
        if nearest is None or flows[nearest].ports != ports:
            flows[dz] = Flow(Match(category, dz), ports, dz.length)
    return FlowTable(flows.values())


def tables(
    category: int, tree: SpanningTree, offers: Iterable[Registered], wants: Iterable[Registered]
) -> dict[str, FlowTable]:
    """Every switch's table, from scratch."""
    return {s: united(category, r) for s, r in registrations(tree, offers, wants).items()}


def per_port(
    category: int, tree: SpanningTree, offers: Iterable[RegisteredCell], wants: Iterable[RegisteredCell]
) -> dict[str, FlowTable]:
    """The same with a table per out port: what is wanted behind it, and offered in part before it, unless covered."""
    found: dict[str, set[tuple[Cell, int]]] = {switch: set() for switch in tree.topology.switches}
    wants = list(wants)
    for here, in_port, offered in offers:
        for there, out_port, wanted in wants:
            if not offered.overlaps(wanted) or (here, in_port) == (there, out_port):
                continue
            if here in found and there in found:
                for switch in tree.path(here, there):
                    port = out_port if switch == there else tree.next_port(switch, there)
                    assert port is not None
                    found[switch].add((wanted, port))
    tables = {}
    for switch, registered in found.items():
        kept = [
            (cell, port)
            for cell, port in registered
            if not any(p == port and other != cell and other.covers(cell) for other, p in registered)
        ]
        tables[switch] = FlowTable(Flow(Match(category, c), frozenset({p}), c.checked, table=p) for c, p in kept)
    return tables
