"""A whole fabric on the kernel's switches; what holds on Open vSwitch as well is in tests/openflow/test_fabric.py."""

import asyncio
import os
import sys

import pytest

import sievenet
from sievenet.index import Plan
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
