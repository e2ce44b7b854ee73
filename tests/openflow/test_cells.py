"""Cells under masks on real Open vSwitch, and in part in the kernel: a table for each out port."""

import asyncio

import pytest

import sievenet
from sievenet.dataplane.openflow.ports import PortTables
from sievenet.dataplane.openflow.tables import Table
from sievenet.index import Plan
from tests.openflow.test_fabric import POINT, every_plane, fabric, folder, network_of, under_traffic

__all__ = ["folder"]

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]


def plan(kind, version):
    return Plan.adaptive(POINT, {"x": [100, 500, 700], "n": [1000]}, 12, kind=kind, version=version)


# -- tables of ports ---------------------------------------------------------------------------------


def test_tables_are_taken_and_given_back():
    tables = PortTables()
    tables.limit(range(8))
    assert not tables.take([1])  # too few for any
    tables.limit(range(254))
    assert tables.chain() == [(Table.FIRST, Table.REST)]
    assert tables.take([1001, 1])
    assert tables.of == {1: 3, 1001: 4}
    assert tables.grow() == [(5, Table.REST), (4, 5), (3, 4)]
    assert tables.grow() == []
    tables.begin([1001])
    tables.release([3, 4])
    assert tables.of == {1001: 4}  # its first entries are under way
    assert tables.take([7])
    assert tables.of == {7: 3, 1001: 4}
    tables.done([1001])
    tables.learn({9: 1002})
    assert tables.of == {1002: 9}
    assert tables.chain()[0] == (10, Table.REST)
    assert tables.chain()[-1] == (3, 4)


def test_ports_beyond_the_tables_are_refused():
    tables = PortTables()
    tables.limit(range(254))
    assert tables.take(range(1, tables.size + 1))
    assert max(tables.of.values()) == Table.LAST
    assert tables.chain()[0] == (Table.LAST, Table.REST)
    before = dict(tables.of)
    assert not tables.take([1000])
    assert tables.of == before


# -- whole networks ----------------------------------------------------------------------------------


@every_plane
def test_plans_change_to_cells_and_back_under_traffic(folder, plane):
    async def main():
        async with under_traffic(folder, dataplane=plane, control__forwarding_delay=0.05) as (daemon, traffic):
            first = traffic.sent
            async with sievenet.connect(daemon.url, name="more", host="h2") as node:
                feed = await node.subscribe("point: x in [450, 800] and n > 7", queue=100_000)
                for i, kind in enumerate(("cells", "dz", "cells")):
                    await daemon.control.apply_plan("point", plan(kind, 2 + i))
                    tables = [daemon.control.table(each) for each in daemon.plane.topology.switches]
                    assert any(flow.table for table in tables for flow in table) == (kind == "cells")
                    for switch, table in zip(daemon.plane.topology.switches, tables, strict=True):
                        assert await daemon.plane.table(switch) == table
                    await traffic.complete(50)
                await feed.close()
            last = traffic.sent
            await traffic.complete(20)
            # Not one was lost, nor came twice, in all these changes.
            assert sorted(n for n in traffic.got if first <= n < last) == list(range(first, last))
            assert (await daemon.answers.check())["ok"]

    asyncio.run(main())


def test_trace_and_flows_agree_with_the_switches_own(folder):
    async def main():
        async with (
            fabric(folder, control__kind="cells") as daemon,
            sievenet.connect(daemon.url, name="pub", host="h1") as publisher,
            sievenet.connect(daemon.url, name="sub", host="h3") as subscriber,
            sievenet.connect(daemon.url, name="near", host="h1") as near,
        ):
            await publisher.advertise(POINT)
            feed = await subscriber.subscribe("point: x in [400, 600] and n in [300, 700]", queue=100)
            await near.subscribe("point: n in [500, 900]")
            network, plane = network_of(daemon), daemon.plane
            category = daemon.control.category("point")
            attached = plane.clients()["pub"]
            for x, n, wanted in ((500, 600, ["near", "sub"]), (500, 400, ["sub"]), (10, 600, ["near"]), (10, 10, [])):
                found = await daemon.answers.trace(f"from pub: point: x={x}, n={n}")
                assert sorted(each["client"] for each in found["delivered"]) == wanted
                (dz,) = category.plan.encode(POINT.event(x=x, n=n))
                code = dz.bits << (96 - dz.length)
                address = f"fd0e:{category.number:x}:" + ":".join(
                    f"{code >> (80 - 16 * i) & 0xFFFF:x}" for i in range(6)
                )
                for hop in found["hops"]:
                    port = hop["in_port"] if hop["in_port"] < 1000 else plane.topology.attachment("h1").port
                    text = await asyncio.to_thread(
                        network.control,
                        "ofproto/trace",
                        network.bridges[hop["switch"]],
                        f"in_port={port},udp6,ipv6_src={attached.endpoint[0]},ipv6_dst={address},"
                        f"udp_src={attached.port},udp_dst=32768",
                    )
                    for out in hop["out"]:
                        assert f"{'group:' if out['port'] >= 1000 else 'output:'}{out['port']}" in text
                    assert hop["out"] or "Datapath actions: drop" in text
            for n in range(20):
                await publisher.publish(POINT.event(x=500, n=400 + n))
            for _ in range(20):
                await asyncio.wait_for(feed.next(), 10)
            switch = plane.topology.attachment("h3").switch
            await asyncio.to_thread(network.control, "revalidator/wait")
            await asyncio.to_thread(network.control, "revalidator/wait")
            counted = (await plane.counters(switch)).flows
            assert sum(count.packets for key, count in counted.items() if key.table) == 20

    asyncio.run(main())


def test_entries_taken_or_put_behind_our_back(folder):
    """All entries deleted; then, in the table of one port, an entry for another, which would hide its own."""

    async def main():
        async with under_traffic(folder, control__kind="cells") as (daemon, traffic):
            path = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            network = network_of(daemon)
            await asyncio.to_thread(network.ofctl, "del-flows", path[1])
            await traffic.flows()
            await traffic.complete(50)
            hiding = f"table={Table.FIRST},priority=9,ipv6,ipv6_dst=fd0e::/16,actions=drop"
            await asyncio.to_thread(network.ofctl, "add-flow", path[1], hiding)
            await traffic.flows()
            await traffic.complete(50)
            assert daemon.plane.tampered == 2
            assert "priority=9" not in await asyncio.to_thread(network.ofctl, "dump-flows", path[1])
            assert (await daemon.answers.check())["ok"]

    asyncio.run(main())
