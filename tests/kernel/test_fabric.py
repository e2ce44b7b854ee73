"""A whole fabric on the kernel's switches; what holds on Open vSwitch as well is in tests/openflow/test_fabric.py."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

import pytest

import sievenet
from sievenet.client.component import ComponentNode
from sievenet.config import load_config
from sievenet.daemon.planes import Planes
from sievenet.index import Plan
from sievenet.network import parse_topology
from tests.openflow.test_fabric import POINT, RING, fabric, folder, under_traffic  # noqa: F401

pytestmark = [pytest.mark.root]

KERNEL = {"dataplane": "kernel"}


def test_a_plan_change_loses_nothing(folder):  # noqa: F811
    async def main():
        async with under_traffic(folder, **KERNEL, control__forwarding_delay=0.05) as (daemon, traffic):
            first = traffic.sent
            for version in range(2, 5):
                await daemon.control.apply_plan("point", Plan.regular(POINT, 8 + version, version=version))
            await traffic.complete()
            assert set(range(first, traffic.sent - 50)) <= set(traffic.got)
            assert (await daemon.answers.check())["ok"]

    asyncio.run(main())


def test_events_that_share_packets_reach_whom_they_would_reach_alone(folder):  # noqa: F811
    """Batches while the plan changes again and again: everybody gets all of his, once, in order; and others' beside."""

    async def main():
        async with (
            fabric(folder, **KERNEL, control__forwarding_delay=0.02) as daemon,
            sievenet.connect(daemon.url, name="pub", host="h1") as publisher,
            sievenet.connect(daemon.url, name="low", host="h2") as low,
            sievenet.connect(daemon.url, name="high", host="h3") as high,
        ):
            await publisher.advertise(POINT)
            got = {"low": [], "high": []}
            await low.subscribe("point: x < 500", lambda event: got["low"].append(event["n"]))
            await high.subscribe("point: x >= 500", lambda event: got["high"].append(event["n"]))
            sent = {"low": [], "high": []}

            async def change():
                for version in range(2, 5):
                    await daemon.control.apply_plan("point", Plan.regular(POINT, 6 + version, version=version))

            changing, number = asyncio.create_task(change()), 0
            while not changing.done() or number < 3_000:
                xs = [(number + i) * 389 % 1000 for i in range(200)]
                await publisher.publish_many([POINT.event(x=x, n=number + i) for i, x in enumerate(xs)])
                for i, x in enumerate(xs):
                    sent["low" if x < 500 else "high"].append(number + i)
                number += len(xs)
                await asyncio.sleep(0.01)
            await changing
            async with asyncio.timeout(30):
                while sum(map(len, got.values())) < number:
                    await asyncio.sleep(0.01)
            assert got == sent
            # Components address recipients one by one.
            component = await ComponentNode(daemon.url, lambda packets: None, host="h4").start()
            assert [node._session.port._room > 0 for node in (publisher, component)] == [True, False]
            await component.close()
            for node in (low, high):
                counted = node.statistics().received
                assert counted.companions > 0
                assert counted.duplicates == 0
            assert (await daemon.answers.check())["ok"]

    asyncio.run(main())


def test_trace_and_flows_say_what_the_switches_count(folder):  # noqa: F811
    """Where `trace` says that an event goes, the kernel's counters of flows and ports have it, and nowhere else."""

    async def main():
        async with (
            fabric(folder, **KERNEL) as daemon,
            sievenet.connect(daemon.url, name="pub", host="h1") as publisher,
            sievenet.connect(daemon.url, name="sub", host="h3") as subscriber,
        ):
            await publisher.advertise(POINT)
            feed = await subscriber.subscribe("point: x in [400, 600]")
            switches, plane = daemon.plane.topology.switches, daemon.plane

            async def counted():
                found = {switch: await plane.counters(switch) for switch in switches}
                flows = {s: sum(c.packets for c in each.flows.values()) for s, each in found.items()}
                sent = {(s, n): c.sent.packets for s, each in found.items() for n, c in each.ports.items()}
                return flows, sent

            for x, wanted in ((500, True), (10, False)):
                traced = await daemon.answers.trace(f"from pub: point: x={x}, n=1")
                assert bool(traced["delivered"]) == wanted
                flows, sent = await counted()
                await publisher.publish(POINT.event(x=x, n=1))
                if wanted:
                    assert (await asyncio.wait_for(feed.next(), 30)).event["x"] == x
                flows_after, sent_after = await counted()
                hops = {hop["switch"]: {out["port"] for out in hop["out"]} for hop in traced["hops"]}
                used = {(switch, port) for switch, ports in hops.items() for port in ports}
                for switch in switches:
                    assert flows_after[switch] - flows[switch] == bool(hops.get(switch))
                assert {where for where in sent if sent_after[where] != sent[where]} == used
            for switch in switches:
                shown = await daemon.answers.flows(switch)
                assert sum(flow["packets"] for flow in shown["flows"]) == flows_after[switch]

    asyncio.run(main())


def test_where_events_do_not_share_packets():
    """Several trees of a category may have a circle together; matchers and caches go by what single packets show; and
    what comes beside one's own events is not for members to read."""
    topology = parse_topology(RING)

    def together(**changes):
        return Planes(load_config(**KERNEL, **changes), topology, AsyncExitStack())._together

    assert together()
    assert together(control__partitions=4)
    assert not together(control__partitions=4, control__spread=2)
    assert not together(hybrid__latency_bound=0.01)
    assert not together(run__caches=1)
    assert not together(access__folder="access")


@pytest.mark.slow
def test_a_second_daemon_of_the_same_name_is_refused(folder):  # noqa: F811
    async def main():
        async with under_traffic(folder, **KERNEL) as (daemon, traffic):
            name = daemon.plane._network.name
            for topology in (RING, "line,switches=1"):
                command = ("up", "--dataplane", "kernel", "--name", name, "--topo", topology, "--for", "100ms")
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "sievenet", *command, "--port", "0", "--data-port", "0"),
                    stderr=asyncio.subprocess.PIPE,
                )
                _, said = await process.communicate()
                assert process.returncode == 2
                assert f"Network {name} belongs to a daemon that runs (process {os.getpid()})" in said.decode()
            await traffic.flows()
            await traffic.complete()

    asyncio.run(main())
