"""Diversions: flows above those that follow from registrations, added and removed by acknowledged steps."""

import asyncio
import random

import pytest

from sievenet.content import Attribute, Schema, parse_subscription
from sievenet.control.config import ControlConfig
from sievenet.control.diversions import DIVERSION, is_diversion
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane.simulator import Simulator
from sievenet.errors import Rejected
from sievenet.index import Dz, Plan
from sievenet.network import TOP_PRIORITY, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import VirtualWorker

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=255),))


async def network(journal=None, fabric=None):
    fabric = fabric or Simulator.on_loop(parse_topology("line,switches=3"), seed=1)
    config, worker = ControlConfig(forwarding_delay=0.01), VirtualWorker(random.Random(1))
    plane = await ControlPlane.start(fabric, journal or MemoryJournal(), config, worker)
    return fabric, plane


async def populate(plane):
    await plane.register_schema(SCHEMA)
    for name, host in (("p", "h1"), ("s", "h3"), ("m", "h2")):
        await plane.join(name, host)
    await plane.advertise("p", 1, parse_subscription("any", SCHEMA))
    await plane.subscribe("s", 1, parse_subscription("x < 100", SCHEMA))
    return plane.category("t").number


def diversions(table):
    return [flow for flow in table if is_diversion(flow)]


def test_a_subspace_is_diverted_and_goes_back():
    async def main():
        fabric, plane = await network()
        number = await populate(plane)
        before = {s: set(await fabric.table(s)) for s in fabric.topology.switches}
        await plane.divert(number, "s2", {Dz.parse("0"): 7, Dz.parse("01"): 8})
        [wide, narrow] = sorted(diversions(await fabric.table("s2")), key=lambda f: f.priority)
        assert (wide.priority, narrow.priority) == (DIVERSION + 1, DIVERSION + 2)
        assert set(wide.ports) == {7}
        assert narrow.priority < TOP_PRIORITY
        assert set(plane.table("s2")) == set(await fabric.table("s2"))
        # What is registered changes below, as ever.
        await plane.subscribe("s", 2, parse_subscription("x > 200", SCHEMA))
        await plane.unsubscribe("s", 2)
        assert len(diversions(await fabric.table("s2"))) == 2
        await plane.divert(number, "s2", {})
        assert {s: set(await fabric.table(s)) for s in fabric.topology.switches} == before
        await plane.close()

    run_virtual(main())


def test_what_makes_a_diversion_wrong_ends_it():
    async def main():
        journal = MemoryJournal()
        fabric, plane = await network(journal)
        number = await populate(plane)

        async def divert():
            await plane.divert(number, "s2", {Dz.parse(""): 7})
            assert diversions(await fabric.table("s2"))

        await divert()
        plane.on_plan(lambda category: asyncio.sleep(0))
        await plane.apply_plan("t", Plan.regular(SCHEMA, 4))
        assert not diversions(await fabric.table("s2"))
        assert plane.diverted(number) == {}
        await divert()
        with pytest.raises(Rejected):
            await plane.divert(number + 1, "s2", {Dz.parse(""): 7})
        await plane.close()
        # The next life knows nobody who answers for it.
        _, plane = await network(journal, fabric)
        async with asyncio.timeout(5):
            while diversions(await fabric.table("s2")):
                await asyncio.sleep(0.01)
        assert plane.table("s2").by_key()
        await plane.close()

    run_virtual(main())


def test_sides_follow_the_tree():
    async def main():
        fabric, plane = await network()
        number = await populate(plane)
        routes = plane.routes(number, Dz.parse("0"))
        topology = fabric.topology
        assert plane.side(routes, "s2", "p") == topology.port("s2", "s1")
        assert plane.side(routes, "s2", "s") == topology.port("s2", "s3")
        assert plane.side(routes, "s2", "m") == 0
        assert plane.side(routes, "s2", "nobody") == 0
        assert [(client, id) for client, id, _, _ in plane.contents(number)] == [("s", 1)]
        assert plane.publishing(number) == ["p"]
        assert plane.content("s", 1)[0] == number
        assert plane.content("s", 9) is None
        await plane.close()

    run_virtual(main())


def test_a_full_table_makes_room_for_diversions_and_for_what_comes_after():
    async def main():
        fabric = Simulator.on_loop(parse_topology("line,switches=3"), seed=1, capacity=6)
        _, plane = await network(fabric=fabric)
        number = await populate(plane)
        for i in range(8):
            await plane.subscribe("s", 10 + i, parse_subscription(f"x = {100 + 17 * i}", SCHEMA))
        assert len(await fabric.table("s2")) >= 4
        await plane.divert(number, "s2", {Dz.parse("0"): 7, Dz.parse("01"): 8})
        assert len(diversions(await fabric.table("s2"))) == 2
        for i in range(8):
            await plane.subscribe("s", 30 + i, parse_subscription(f"x = {101 + 17 * i}", SCHEMA))
        assert len(await fabric.table("s2")) <= 6
        assert set(plane.table("s2")) == set(await fabric.table("s2"))
        with pytest.raises(Rejected, match="full"):
            await plane.divert(number, "s2", {Dz(i, 4): 7 for i in range(9)})
        await plane.divert(number, "s2", {})
        await plane.subscribe("s", 50, parse_subscription("x = 3", SCHEMA))
        assert not diversions(await fabric.table("s2"))
        assert plane.status().refused == 1
        await plane.close()

    run_virtual(main())
