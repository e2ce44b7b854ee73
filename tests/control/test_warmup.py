"""After loading, no request meets the compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sievenet.control import warmup
from sievenet.control.deployment import Holdings, Rooms
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


def test_nothing_is_left_to_compile_where_tables_have_limits():
    from sievenet.control.aggregation import carvings, points, spots
    from sievenet.control.deployment.tree import choice, differences, merging, nodes, sweep

    def known():
        parts = (nodes, merging, choice, differences, sweep, points, carvings, spots)
        kernels = (each for part in parts for each in vars(part).values() if hasattr(each, "signatures"))
        return {f"{kernel.__module__}.{kernel.__name__}": kernel.signatures for kernel in kernels}

    warmup.load(warmup.FITTING)
    before = known()
    topology, rooms = Clos.build(), Rooms()
    wires = Wires(topology)
    registrations = Registrations(1, wires, Routes(wires, SpanningTree.shortest(topology, topology.switches[0])))
    holdings = Holdings(rooms, "somebody", 1, 1)
    for switch in topology.switches:
        rooms.resize(switch, 6)
        holdings.open(switch, ())
    for i, switch in enumerate(topology.switches):
        wire = wires.attach(switch, 1000)
        registrations.offer(wire, [1])
        registrations.want(wire, [Dz(i, 7).key, Dz(i, 100).key])
        holdings.advance(registrations.changes(holdings.switches))
    registrations.unwant(wire, [Dz(i, 7).key])
    holdings.advance(registrations.changes(holdings.switches))
    assert holdings.merged
    assert known() == before


#: Says what is loaded or compiled after everything should have been, while requests, failures and configurators go on.
_LATE = """
import logging
from sievenet.jit import decorators
from sievenet.control import warmup

logging.disable()
warmup.load()
late, load = set(), decorators._Cache.load_overload
decorators._Cache.load_overload = lambda self, *what: (late.add(self._name), load(self, *what))[1]
from tests.control.configurators.test_simulation import drive

for seed in (3, 7):
    drive(seed, 12, failures=True)
print("late:", sorted(late))
"""


def test_requests_and_failures_meet_no_compiler():
    """Else a daemon that leads stands still at its first request on a new machine, and is taken for dead."""
    done = subprocess.run(
        [sys.executable, "-c", _LATE], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines()[-1] == "late: []"
