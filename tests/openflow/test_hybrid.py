"""Hybrid filtering on real switches, Open vSwitch and the kernel's: matchers come, go and die under traffic."""

import asyncio
import os
from math import inf

import pytest

import sievenet
from sievenet.client.matcher import MatcherNode
from sievenet.config import load_config
from sievenet.daemon.daemon import Daemon
from sievenet.index import Dz
from sievenet.network import parse_topology
from tests.fabric.harness import eventually
from tests.openflow.test_fabric import NETWORKS, POINT, every_plane, folder, settings, started  # noqa: F401

pytestmark = [
    pytest.mark.root,
    pytest.mark.ovs,
    pytest.mark.xdist_group("ovs"),
    pytest.mark.slow,
    pytest.mark.unwatched,
]


@every_plane
def test_subspaces_go_through_matchers_and_back_and_nothing_is_lost(folder, plane):  # noqa: F811
    async def main():
        changes = {"topology": "line,switches=3", "state": None, "hybrid__interval": 3600.0}  # nothing chosen meanwhile
        config = load_config(**settings(folder, dataplane=plane, **changes))
        async with Daemon(config) as daemon:
            pub = await sievenet.connect(daemon.url, name="pub", host="h1")
            sub = await sievenet.connect(daemon.url, name="sub", host="h3")
            await pub.schema(POINT)
            await pub.advertise(POINT)
            await sub.schema(POINT)
            got, sent, stop = [], [], asyncio.Event()
            await sub.subscribe("point: x in [100, 700]", lambda e: got.append(e["n"]))

            async def traffic():
                n = 0
                while not stop.is_set():
                    some = [POINT.event(x=(n + i) * 37 % 1000, n=n + i) for i in range(5)]
                    await pub.publish_many(some)
                    sent.extend(e["n"] for e in some if 100 <= e["x"] <= 700)
                    n += 5
                    await asyncio.sleep(0.004)

            hybrid = daemon.service.components.hybrid
            number = daemon.control.category("point").number
            switch = daemon.plane.topology.attachment("h2").switch
            task = asyncio.create_task(traffic())
            for turn in range(2):
                matcher = MatcherNode(daemon.url, name=f"m{turn}", host="h2")
                await matcher.start()
                await hybrid.divert(number, Dz(0, 0), switch)
                await asyncio.sleep(0.5)
                assert (await daemon.answers.check())["ok"]
                if turn:
                    for each in matcher._tasks:  # it hangs: takes packets, and says nothing
                        each.cancel()
                    await eventually(lambda: not hybrid.concerns(number))
                else:
                    await hybrid.release(number, Dz(0, 0), switch)
                await asyncio.sleep(0.3)
                await matcher.close()
            stop.set()
            await task
            await eventually(lambda: len(got) >= len(sent))
            assert sorted(got) == sent
            # Open vSwitch sends packets that it read together grouped by its decisions (docs/topics/openflow.md).
            assert plane == "ovs" or got == sent
            counts = sub.statistics().received
            assert counts.directed > 50
            assert hybrid.failures == 1
            for node in (sub, pub):
                await node.close()

    asyncio.run(asyncio.wait_for(main(), 120))


@every_plane
def test_what_a_matcher_lost_while_the_daemon_was_away_is_sent_again_when_it_is_back(folder, plane):  # noqa: F811
    line = "line,switches=3"
    often = {"listen__heartbeat": 0.2, "hybrid__interval": 0.5, "hybrid__latency_bound": inf}
    port = 18400 + os.getpid() % 1000
    chosen = settings(folder, dataplane=plane, topology=line, listen__port=port, **often)

    async def main():
        daemon, url = await asyncio.to_thread(started, chosen)
        try:
            pub = await sievenet.connect(url, name="pub", host="h1")
            sub = await sievenet.connect(url, name="sub", host="h3")
            await pub.schema(POINT)
            await pub.advertise(POINT)
            got, sent, wanted = [], 0, []
            await sub.subscribe("point: x in [100, 700]", lambda e: got.append(e["n"]))

            async def publish(count):
                nonlocal sent
                for _ in range(count):
                    event = POINT.event(x=sent * 37 % 1000, n=sent)
                    await pub.publish(event)
                    wanted.extend([sent] if 100 <= event["x"] <= 700 else [])
                    sent += 1
                    await asyncio.sleep(0.005)

            matcher = MatcherNode(url, name="m", host="h2")
            await matcher.start()
            async with asyncio.timeout(60):
                while matcher.received < 50:
                    await publish(10)
            await eventually(lambda: len(got) == len(wanted))
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()
            async with asyncio.timeout(30):
                while not pub.statistics().alone:
                    await asyncio.sleep(0.01)
            for each in matcher._tasks:  # it dies, and takes along what comes
                each.cancel()
            before = matcher.received
            await publish(200)
            await eventually(lambda: matcher.received >= before + 100)
            assert len(got) < len(wanted)
            daemon, _ = await asyncio.to_thread(started, chosen)
            await eventually(lambda: len(got) >= len(wanted))
            await publish(20)
            await eventually(lambda: len(got) >= len(wanted))
            assert sorted(got) == wanted
            await matcher.node.close()
            for node in (sub, pub):
                await node.close()
        finally:
            daemon.terminate()
            await asyncio.to_thread(daemon.wait)
            daemon.stdout.close()
            NETWORKS[plane](parse_topology(line), chosen["openflow__name"], run_dir=chosen["openflow__run_dir"]).down()

    asyncio.run(asyncio.wait_for(main(), 180))
