"""Loading the compiled parts of the control plane ahead of the first request.

From the cache that takes a second or two; a machine that never ran them has to compile them for half a minute.
A control plane at which that happens in the middle of things answers nobody meanwhile.
"""

from __future__ import annotations

from typing import Final

from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, encode_subscription
from sievenet.control.configurators.packed import pack, unpack
from sievenet.control.covering import Coverer
from sievenet.control.registrations import Registrations
from sievenet.control.registrations.trie import Trie
from sievenet.control.routes import Routes, Wires
from sievenet.index import Plan
from sievenet.index.cover.warmup import COVERS
from sievenet.jit.warmup import Warmup
from sievenet.network import Line, SpanningTree

__all__ = ["FITTING", "LIMITS", "MASKS", "load"]


def _use() -> None:
    """A network with two clients: what one offers, the other wants, by one tree and by another."""
    COVERS.load()
    topology = Line.build(switches=2)
    wires = Wires(topology)
    routes = [Routes(wires, SpanningTree.shortest(topology, switch)) for switch in topology.switches]
    registrations = Registrations(1, wires, routes[0])
    here, there = (wires.attach(switch, 1000) for switch in topology.switches)
    registrations.offer(here, [1])
    registrations.want(there, [1])
    registrations.changes()
    registrations.reroute(routes[1])
    registrations.changes()
    registrations.table(topology.switches[0])
    everything = registrations.hand_out()
    registrations.take_home()
    copy = Trie(wires, registrations.routes)
    copy.put_all(everything)
    unpack(1, wires.names, pack(1, 1, 1, wires, copy.walked()))
    schema = Schema("warm", (Attribute("x", "int", lo=0, hi=1),))
    some = [Subscription([Filter(schema, {"x": ValueSet.of(x)})]) for x in (0, 1)]
    Coverer(Plan.regular(schema, 4), 2).many((encode_subscription(each), each) for each in some)


def _cover() -> None:
    """A filter in cells."""
    schema = Schema("warm", (Attribute("x", "int", lo=0, hi=1),))
    Plan.regular(schema, 4, kind="cells").cover(Filter(schema))


def _merge() -> None:
    """A table that is too large, and one that follows requests."""
    from sievenet.control.deployment import Deployment, Holdings, Rooms

    deployment = Deployment(1, {key: frozenset({key}) for key in range(4, 8)})
    for limit in (3, 2):
        deployment.fit(limit, least=limit == 3)
    deployment.tell(None)
    deployment.relax(3)
    deployment.merge(1)
    deployment.remerge([2])
    deployment.taken()
    topology = Line.build(switches=2)
    switch, wires, rooms = topology.switches[0], Wires(topology), Rooms()
    registrations = Registrations(1, wires, Routes(wires, SpanningTree.shortest(topology, switch)))
    rooms.resize(switch, 3)
    holdings = Holdings(rooms, "warm", 1, 1)
    holdings.open(switch, ())
    registrations.offer(wires.attach(switch, 1000), [1])
    registrations.want(wires.attach(switch, 1001), [4, 7])
    needs = holdings.advance(registrations.changes(holdings.switches))
    rooms.begin("warm", needs, lambda: None, lambda _: None)
    holdings.settle(needs)


def _choose() -> None:
    """Merges for a network of one switch."""
    import numpy as np

    from sievenet.control.aggregation import Sample, Source, Tables, aggregate
    from sievenet.control.aggregation.masks import Masked, merge_cells

    LIMITS.load()
    merge_cells([Masked({"s": [(1, 0, 3 << 126), (1, 1 << 126, 3 << 126)]}, {"s": 1})])
    table = {4: frozenset({1}), 7: frozenset({2})}
    sample = Sample(np.zeros(1, np.uint64), np.zeros(1, np.int64))
    for known in (None, sample):
        aggregate([Tables({"s": table}, {"s": {}}, [Source("s", 1, (1,))], known)], {"s": 1})


_REQUESTS: Final = Warmup(_use)
#: What covers by cells, which only a category with such a plan needs.
MASKS: Final = Warmup(_cover)
#: What keeps tables that fit, and what chooses merges for all of them, which only a network with limits needs.
LIMITS: Final = Warmup(_merge)
FITTING: Final = Warmup(_choose)


def load(*more: Warmup) -> None:
    """Load what every control plane needs, and some more, now and in this thread; once per process."""
    for each in (_REQUESTS, *more):
        each.load()
