"""Hybrid filtering on real switches, Open vSwitch and the kernel's: matchers come, go and die under traffic."""

import asyncio

import pytest

import sievenet
from sievenet.client.matcher import MatcherNode
from sievenet.config import load_config
from sievenet.daemon.daemon import Daemon
from sievenet.index import Dz
from tests.fabric.harness import eventually
from tests.openflow.test_fabric import POINT, every_plane, folder, settings  # noqa: F401

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
