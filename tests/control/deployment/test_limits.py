"""Tables with limits under requests, failures, crashes and changes of plan: nothing is missed, nothing overflows."""

from __future__ import annotations

import asyncio

import msgspec
import networkx as nx
import pytest

from sievenet.content import Filter, Subscription
from sievenet.dataplane.switch import Switch
from sievenet.errors import Rejected
from sievenet.index import Plan
from sievenet.network import Line, LinkSettings, Random, Ring, Star, Testbed, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.test_stateful import drive, with_hosts
from tests.control.test_transition import PLANS, Traffic
from tests.control.world import CONFIG, SCHEMA, World
from tests.seeds import seeds

LINK = LinkSettings(delay=0.002)


@pytest.fixture
def overflows(monkeypatch):
    """Every time that a switch was told more than it holds."""
    found = []
    check = Switch._check_room

    def checked(self, changes):
        try:
            check(self, changes)
        except Rejected as error:
            found.append(str(error))
            raise

    monkeypatch.setattr(Switch, "_check_room", checked)
    return found


@pytest.mark.parametrize("seed", seeds(4, 6))
def test_requests_plans_and_crashes(seed, overflows):
    shape = (Line.build(link=LINK), Star.build(link=LINK), Testbed.build(link=LINK))[seed % 3]
    drive(shape, seed, 40, capacity=(4, 5, 7, 12)[seed % 4], failures=False)
    assert not overflows


@pytest.mark.parametrize("seed", seeds(8))
def test_failures_too(seed):
    shape = (
        Ring.build(switches=5, link=LINK),
        Testbed.build(link=LINK),
        Random.build(switches=7, hosts=1, seed=seed, link=LINK),
        parse_topology("fattree,k=4,delay=0.002"),
    )[seed % 4]
    parts = (1, 4)[seed // 4 % 2]
    drive(shape, 100 + seed, 40, capacity=(4, 6, 9, 14)[seed % 4] + 8 * (parts > 1), partitions=parts)


def test_all_small_networks():
    """Every connected graph of up to 5 nodes, with three entries per switch: a table, a catch-all flow, a spare."""
    for number, graph in enumerate(nx.graph_atlas_g()):
        if 1 <= graph.number_of_nodes() <= 5 and nx.is_connected(graph):
            drive(with_hosts(graph), number, 4, capacity=4)


@pytest.mark.parametrize(("capacity", "kind"), [(1, "dz"), (2, "dz"), (3, "dz"), (1, "cells")])
def test_any_capacity_from_one_entry_per_port(capacity, kind, overflows):
    """Every connected graph of up to 4 nodes; with cells a switch has that many entries for each of its ports."""

    async def main(topology, seed) -> None:
        # Two clients and the links of a switch: an entry per port, one for a change of plan, and a spare one.
        room = capacity if kind == "dz" else 2 + max(len(topology.ports(s)) + 2 for s in topology.switches)
        world = World(topology, seed, msgspec.structs.replace(CONFIG, kind=kind), capacity=room)
        await world.open()
        names = [await world.join() for _ in range(2)]
        for name in names:
            await world.advertise(name, Subscription([Filter(SCHEMA, {})]))
        for number in range(6):
            await world.subscribe(world.random.choice(names), world.content())
            if number % 3 == 2:
                await world.drop_subscription()
            if number == 3 and room > 1:
                await world.control.apply_plan("grid", Plan.regular(SCHEMA, 5, dimensions=["y"], kind=kind))
            await world.settle()
            world.check_tables()
            await world.check_deliveries()
        assert world.control.status().refused == 0
        await world.control.close()

    for number, graph in enumerate(nx.graph_atlas_g()):
        if 1 <= graph.number_of_nodes() <= 4 and nx.is_connected(graph):
            run_virtual(main(with_hosts(graph), number))
    assert not overflows


@pytest.mark.parametrize("seed", seeds(4))
def test_no_event_is_missed_while_tables_merge_and_plans_change(seed, overflows):
    async def main() -> None:
        shape = Testbed.build(link=LINK) if seed % 2 else parse_topology("fattree,k=4,delay=0.002")
        world = World(shape, seed, CONFIG, control_delay=0.004, capacity=(14, 12, 4, 2)[seed % 4])
        await world.open()
        names = [await world.join() for _ in range(6)]
        for name in names[:3]:
            await world.advertise(name, Subscription([Filter(SCHEMA, {})]))
        traffic = Traffic(world)
        for plan in (each for each in PLANS if each.kind == "dz" or world.capacity >= 12):  # an entry for each port
            await asyncio.gather(*(world.subscribe(name, world.content()) for name in names for _ in range(3)))
            change = asyncio.ensure_future(world.control.apply_plan("grid", plan))
            for _ in range(5):
                await asyncio.sleep(0.02)
                await world.subscribe(world.random.choice(names), world.content())
            await change
            for _ in range(8):
                await world.drop_subscription()
        await traffic.stop()
        world.check_tables()
        await world.check_deliveries()
        assert world.control.status().refused == 0
        await world.control.close()

    run_virtual(main())
    assert not overflows


@pytest.mark.parametrize("seed", seeds(4, 6))
def test_cells_are_merged_too(seed, overflows):
    shape = (Line.build(link=LINK), Star.build(link=LINK), Testbed.build(link=LINK))[seed % 3]
    drive(shape, 50 + seed, 30, capacity=(12, 14)[seed // 3 % 2], failures=False, kind="cells", first=25)
    assert not overflows


@pytest.mark.parametrize("seed", seeds(4))
def test_cells_are_merged_while_switches_fail(seed):
    shape = (Ring.build(switches=5, link=LINK), parse_topology("fattree,k=4,delay=0.002"))[seed % 2]
    drive(shape, 200 + seed, 30, capacity=(16, 20)[seed // 2 % 2], kind="cells", first=25)


def test_merges_are_undone_when_room_returns():
    async def main() -> None:
        world = World(Line.build(switches=3, link=LINK), 1, CONFIG, capacity=5)
        await world.open()
        a, b = await world.join("h1"), await world.join("h3")
        await world.advertise(a, Subscription([Filter(SCHEMA, {})]))
        numbers = [await world.subscribe(b, world.content()) for _ in range(12)]
        lane = world.control._controller.spaces[world.control.category("grid").number].lanes[0]
        assert lane.holdings["s1"].merges
        assert len(world.plane.table_now("s1")) <= 4
        for number in numbers[:-1]:
            del world.subscriptions[b, number]
            await world.control.unsubscribe(b, number)
        await world.settle()
        assert not lane.holdings["s1"].merges
        world.check_tables()
        world.capacity = None
        await world.check_deliveries()

    run_virtual(main())
