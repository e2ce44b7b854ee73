"""A whole fabric on the kernel's switches: clients, daemon, plans, and what goes wrong with them under traffic."""

import asyncio
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import sievenet
from sievenet.dataplane import namespaces
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.index import Plan
from sievenet.network import parse_topology
from tests.openflow.test_fabric import POINT, RING, Traffic, fabric, folder, settings, under_traffic  # noqa: F401

pytestmark = [pytest.mark.root]

KERNEL = {"dataplane": "kernel"}


def test_everybody_gets_exactly_what_they_want(folder):  # noqa: F811
    async def main():
        rng = np.random.default_rng(3)
        async with fabric(folder, **KERNEL) as daemon:
            nodes = [await sievenet.connect(daemon.url, name=f"n{i}", host=f"h{1 + i % 4}") for i in range(6)]
            boxes = [(lo, lo + width) for lo, width in rng.integers([0, 1], [700, 300], (6, 2)).tolist()]
            feeds = [
                await node.subscribe(f"point: x in [{lo}, {hi}]", queue=10_000)
                for node, (lo, hi) in zip(nodes, boxes, strict=True)
            ]
            for node in nodes:
                await node.advertise(POINT)
            want = [[] for _ in nodes]
            number = 0
            for node in nodes:
                for x in rng.integers(0, 1000, 60).tolist():
                    await node.publish(POINT.event(x=x, n=number))
                    for i, (lo, hi) in enumerate(boxes):
                        if lo <= x <= hi:
                            want[i].append(number)
                    number += 1
            for feed, numbers in zip(feeds, want, strict=True):
                got = [(await asyncio.wait_for(feed.next(), 5)).event["n"] for _ in numbers]
                assert sorted(got) == numbers
            assert (await daemon.answers.check())["ok"]
            for node in nodes:
                assert node.statistics().received.duplicates == 0
                await node.close()

    asyncio.run(main())


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


def test_link_down_and_up(folder):  # noqa: F811
    async def main():
        async with under_traffic(folder, **KERNEL) as (daemon, traffic):
            network = daemon.plane._network
            path = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            await asyncio.to_thread(network.set_link, path[0], path[1], False)
            await traffic.flows()
            await traffic.complete()
            assert daemon.plane.down()[1]
            other = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            assert other != path
            await asyncio.to_thread(network.set_link, path[0], path[1], True)
            await traffic.flows()
            await traffic.complete()
            assert not daemon.plane.down()[1]

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


CODE = """
import asyncio, json, sys
from sievenet.config import load_config
from sievenet.daemon.daemon import Daemon
async def main():
    async with Daemon(load_config(**json.loads(sys.argv[1]))) as daemon:
        print(daemon.url, flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_the_daemon_is_killed_and_the_switches_go_on(folder):  # noqa: F811
    chosen = settings(folder, **KERNEL, listen__port=18400 + os.getpid() % 1000)

    def start():
        process = subprocess.Popen([sys.executable, "-c", CODE, json.dumps(chosen)], stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    async def main():
        daemon, url = await asyncio.to_thread(start)
        try:
            async with (
                sievenet.connect(url, name="pub", host="h1") as publisher,
                sievenet.connect(url, name="sub", host="h3") as subscriber,
            ):
                await publisher.schema(POINT)
                await publisher.advertise(POINT)
                feed = await subscriber.subscribe("point: x in [400, 600]", queue=100_000)
                async with Traffic(publisher, feed) as traffic:
                    await traffic.flows()
                    first = traffic.sent
                    daemon.kill()
                    daemon.wait()
                    daemon.stdout.close()
                    daemon, _ = await asyncio.to_thread(start)
                    begin = time.monotonic()
                    while not (publisher.connected and subscriber.connected):
                        assert time.monotonic() < begin + 20
                        await asyncio.sleep(0.01)
                    await traffic.complete()
                    assert not set(range(first, traffic.sent - 50)) - set(traffic.got)
        finally:
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()
            KernelNetwork(parse_topology(RING), chosen["openflow__name"], run_dir=chosen["openflow__run_dir"]).down()

    asyncio.run(main())
    assert namespaces.listing(chosen["openflow__name"]) == []
