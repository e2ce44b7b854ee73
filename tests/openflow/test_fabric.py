"""A whole fabric on real Open vSwitch, and in part on the kernel's switches: clients, daemon, and what goes wrong."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

import sievenet
from sievenet.config import load_config
from sievenet.content import Attribute, Schema
from sievenet.daemon.daemon import Daemon
from sievenet.dataplane import namespaces
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.network import parse_topology
from sievenet.workload import Ticks
from tests.openflow.harness import unique_name

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]

POINT = Schema("point", (Attribute("x", "int", lo=0, hi=999), Attribute("n", "int", lo=0, hi=1_000_000)))
RING = "ring,switches=4"
#: What holds on every network of switches that is built here.
NETWORKS = {"ovs": OvsNetwork, "kernel": KernelNetwork}
every_plane = pytest.mark.parametrize("plane", NETWORKS)


def settings(folder, **changes):
    return {
        "topology": RING,
        "dataplane": "ovs",
        "openflow__name": unique_name("svf"),
        "openflow__run_dir": str(folder / "run"),
        "openflow__grace": 0.3,
        "openflow__audit": 0.2,
        "listen__port": 0,
        "state": str(folder / "state"),
        **changes,
    }


@pytest.fixture
def folder():
    # Short: the paths of Unix sockets are.
    path = Path(tempfile.mkdtemp(prefix="sv"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Traffic:
    """Publishes numbered events all the time; knows which arrived."""

    def __init__(self, publisher, feed):
        self.publisher, self.feed = publisher, feed
        self.sent, self.got = 0, []
        self._tasks = []

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._read())]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _publish(self):
        while True:
            await self.publisher.publish(POINT.event(x=500, n=self.sent))
            self.sent += 1
            await asyncio.sleep(0.002)

    async def _read(self):
        while True:
            self.got.append((await self.feed.next()).event["n"])

    async def flows(self, timeout=60.0, after=None):
        """Wait until thirty events in a row, all published from now on, have arrived; returns how long that took."""
        begin = time.monotonic()
        while time.monotonic() - begin < timeout:
            first = self.sent
            while self.sent < first + 30:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            if set(range(first, first + 30)) <= set(self.got):
                return time.monotonic() - begin
        raise AssertionError(f"nothing arrives any more: {self.sent} sent, {len(self.got)} received")

    async def complete(self, count=100):
        """Whatever is published from now on arrives, exactly once."""
        first = self.sent
        while self.sent < first + count:
            await asyncio.sleep(0.01)
        for _ in range(100):
            if set(range(first, first + count)) <= set(self.got):
                break
            await asyncio.sleep(0.02)
        assert [n for n in self.got if first <= n < first + count] == list(range(first, first + count))


@asynccontextmanager
async def fabric(folder, **changes):
    async with Daemon(load_config(**settings(folder, **changes))) as daemon:
        await daemon.control.register_schema(POINT)
        yield daemon


def network_of(daemon):
    """The same network, for pulling plugs."""
    config = daemon.config.openflow
    return NETWORKS[daemon.config.dataplane](daemon.plane.topology, config.name, run_dir=config.run_dir)


@asynccontextmanager
async def under_traffic(folder, **changes):
    async with (
        fabric(folder, **changes) as daemon,
        sievenet.connect(daemon.url, name="pub", host="h1") as publisher,
        sievenet.connect(daemon.url, name="sub", host="h3") as subscriber,
    ):
        await publisher.advertise(POINT)
        feed = await subscriber.subscribe("point: x in [400, 600]", queue=100_000)
        async with Traffic(publisher, feed) as traffic:
            await traffic.flows()
            yield daemon, traffic


@every_plane
def test_everybody_gets_exactly_what_they_want(folder, plane):
    async def main():
        rng = np.random.default_rng(3)
        async with fabric(folder, dataplane=plane) as daemon:
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
                got = [(await asyncio.wait_for(feed.next(), 30)).event["n"] for _ in numbers]
                assert sorted(got) == numbers
            assert (await daemon.answers.check())["ok"]
            for node in nodes:
                assert node.statistics().received.duplicates == 0
                await node.close()

    asyncio.run(main())


@every_plane
@pytest.mark.slow
def test_a_network_that_tunes_itself_loses_nothing(folder, plane):
    """The plan changes by itself under traffic, the switches' tables with it; brute force says what must arrive."""
    ticks = Ticks(seed=11)
    quick = {f"tuning__{k}": v for k, v in {"mode": "auto", "least": 200, "watch": 0.5, "seconds": 0.5}.items()}

    async def main():
        async with fabric(folder, dataplane=plane, **quick, listen__heartbeat=0.1, tuning__every=0.1) as daemon:
            nodes = [await sievenet.connect(daemon.url, name=f"n{i}", host=f"h{2 + i}") for i in range(3)]
            market = await sievenet.connect(daemon.url, name="market", host="h1")
            await market.advertise(ticks.schema)
            got = []
            for i, wanted in enumerate(ticks.subscriptions(12).filters()):
                got.append((wanted, []))
                await nodes[i % 3].subscribe(wanted, got[-1][1].append, queue=100_000)
            published, more = [], 500
            async with asyncio.timeout(100):
                while more > 0:
                    event = ticks.events(1, start=len(published))[0]
                    await market.publish(event)
                    published.append(event)
                    await asyncio.sleep(0.002)
                    more -= any(change.state == "applied" for change in daemon.tuner.changes)
            change = daemon.tuner.changes[0]
            assert change.after < change.before
            assert daemon.control.category("stock").epoch > 1
            for wanted, seen in got:
                expected = [event for event in published if wanted.matches(event)]
                async with asyncio.timeout(20):
                    while len(seen) < len(expected):
                        await asyncio.sleep(0.02)
                assert seen == expected
            assert (await daemon.answers.check())["ok"]
            for node in (*nodes, market):
                await node.close()

    asyncio.run(main())


def test_trace_agrees_with_the_switches_own(folder):
    async def main():
        async with (
            fabric(folder) as daemon,
            sievenet.connect(daemon.url, name="pub", host="h1") as publisher,
            sievenet.connect(daemon.url, name="sub", host="h3") as subscriber,
        ):
            await publisher.advertise(POINT)
            await subscriber.subscribe("point: x in [400, 600]")
            network, plane = network_of(daemon), daemon.plane
            category = daemon.control.category("point")
            for x, wanted in ((500, True), (10, False)):
                found = await daemon.answers.trace(f"from pub: point: x={x}, n=1")
                assert bool(found["delivered"]) == wanted
                (dz,) = category.plan.encode(POINT.event(x=x, n=1))
                address = f"fd0e:{category.number:x}:" + ":".join(
                    f"{dz.bits << (96 - dz.length) >> (80 - 16 * i) & 0xFFFF:x}" for i in range(6)
                )
                attached = plane.clients()["pub"]
                for hop in found["hops"]:
                    port = hop["in_port"]
                    source = attached.port
                    if port >= 1000:
                        port = plane.topology.attachment("h1").port
                    text = await asyncio.to_thread(
                        network.control,
                        "ofproto/trace",
                        network.bridges[hop["switch"]],
                        f"in_port={port},udp6,ipv6_src={attached.endpoint[0]},ipv6_dst={address},udp_src={source},udp_dst=32768",
                    )
                    for out in hop["out"]:
                        said = "group:" if out["port"] >= 1000 else "output:"
                        assert f"{said}{out['port']}" in text
                    assert hop["out"] or "drop" in text

    asyncio.run(main())


def test_flows_deleted_behind_our_back(folder):
    async def main():
        async with under_traffic(folder) as (daemon, traffic):
            path = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            network = network_of(daemon)
            await asyncio.to_thread(network.ofctl, "del-flows", path[1])
            assert "(limit 200000)" in await asyncio.to_thread(network.control, "upcall/show")
            # Bridges listen nowhere, but while they are told something.
            assert not [path for path in network.run_dir.iterdir() if path.is_socket() and path.stem in network.bridges]
            seconds = await traffic.flows()
            await traffic.complete()
            assert daemon.plane.tampered == 1
            assert (await daemon.answers.check())["ok"]
            report("flows deleted", seconds)

    asyncio.run(main())


@every_plane
def test_link_down_and_up(folder, plane):
    async def main():
        async with under_traffic(folder, dataplane=plane) as (daemon, traffic):
            network = network_of(daemon)
            path = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            await asyncio.to_thread(network.set_link, path[0], path[1], False)
            seconds = await traffic.flows()
            await traffic.complete()
            assert daemon.plane.down()[1]
            other = [h["switch"] for h in (await daemon.answers.trace("from pub: point: x=500, n=1"))["hops"]]
            assert other != path
            await asyncio.to_thread(network.set_link, path[0], path[1], True)
            await traffic.flows()
            await traffic.complete()
            assert not daemon.plane.down()[1]
            report("link down", seconds)

    asyncio.run(main())


def test_switches_killed_and_restarted(folder):
    async def main():
        async with under_traffic(folder) as (daemon, traffic):
            network = network_of(daemon)
            begin = time.monotonic()
            await asyncio.to_thread(network.kill_switches)
            await asyncio.to_thread(network.start_switches)
            await traffic.flows()
            seconds = time.monotonic() - begin
            await traffic.complete()
            assert (await daemon.answers.check())["ok"]
            report("ovs-vswitchd killed", seconds)

    asyncio.run(main())


def test_control_connection_cut(folder):
    """The switch goes on forwarding; once it is back, changes reach it again."""

    async def main():
        # Longer than Open vSwitch waits before it connects again.
        async with under_traffic(folder, openflow__grace=10.0) as (daemon, traffic):
            plane = daemon.plane
            switch = plane.topology.attachment("h1").switch
            first = traffic.sent
            begin = time.monotonic()
            plane._switches[switch].channel._writer.transport.abort()
            while plane._switches[switch].channel is not None:
                await asyncio.sleep(0.001)
            await plane.connected()
            report("control connection cut", time.monotonic() - begin)
            await traffic.complete()
            # Not one was lost meanwhile.
            assert set(range(first, traffic.sent - 50)) <= set(traffic.got)

    asyncio.run(main())


def started(chosen):
    """A daemon in a process of its own, and its URL."""
    code = (
        "import asyncio, json, sys\n"
        "from sievenet.config import load_config\n"
        "from sievenet.daemon.daemon import Daemon\n"
        "async def main():\n"
        "    async with Daemon(load_config(**json.loads(sys.argv[1]))) as daemon:\n"
        "        print(daemon.url, flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, json.dumps(chosen)], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize(("plane", "kind"), [("ovs", "dz"), ("ovs", "cells"), ("kernel", "cells")])
def test_controller_killed(folder, plane, kind):
    """The switches stay as they are; the next controller finds them, and its journal, and loses nothing."""
    chosen = settings(folder, dataplane=plane, control__kind=kind, listen__port=17400 + os.getpid() % 1000)

    async def main():
        daemon, url = await asyncio.to_thread(started, chosen)
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
                    begin = time.monotonic()
                    daemon.stdout.close()
                    # The switches forward, so publishers go on as soon as it is certain that there is no daemon.
                    async with asyncio.timeout(30):
                        while not publisher.statistics().alone:
                            await asyncio.sleep(0.01)
                    await traffic.complete()
                    assert not publisher.connected
                    daemon, _ = await asyncio.to_thread(started, chosen)
                    while not (publisher.connected and subscriber.connected):
                        await asyncio.sleep(0.01)
                    report("controller killed", time.monotonic() - begin)
                    assert not publisher.statistics().alone
                    await traffic.complete()
                    lost = set(range(first, traffic.sent - 50)) - set(traffic.got)
                    assert not lost
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()
            place = chosen["openflow__name"], chosen["openflow__run_dir"]
            NETWORKS[plane](parse_topology(RING), place[0], run_dir=place[1]).down()

    asyncio.run(main())
    assert namespaces.listing(chosen["openflow__name"]) == []


def report(what, seconds):
    """Time to repair, for those who run with -s."""
    sys.stdout.write(f"\n{what}: repaired after {seconds:.2f} s\n")
