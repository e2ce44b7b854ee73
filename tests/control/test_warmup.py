"""After loading, no request meets the compiler."""

from __future__ import annotations

from sievenet.control import warmup
from sievenet.control.registrations import Registrations
from sievenet.control.routes import Routes, Wires
from sievenet.index import Dz
from sievenet.network import Clos, SpanningTree


def test_nothing_is_left_to_compile():
    from sievenet.control.registrations.trie.kernels import register
    from sievenet.control.registrations.walk import table, walk

    warmup.load()
    kernels = (register, table, walk)
    before = [kernel.signatures for kernel in kernels]
    assert all(before)
    topology = Clos.build()
    wires = Wires(topology)
    routes = Routes(wires, SpanningTree.shortest(topology, topology.switches[0]))
    registrations = Registrations(1, wires, routes)
    for i, switch in enumerate(topology.switches):
        wire = wires.attach(switch, 1000)
        registrations.offer(wire, [1])
        registrations.want(wire, [Dz(i, 7).key, Dz(i, 100).key])
    assert registrations.changes()
    assert registrations.table(topology.switches[0])
    assert [kernel.signatures for kernel in kernels] == before
    warmup.load()
