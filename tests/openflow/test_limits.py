"""Real switches that refuse what does not fit: tables are merged, and nothing is lost or refused."""

import asyncio

import pytest

import sievenet
from sievenet.errors import Rejected
from sievenet.index import Plan
from tests.openflow.test_fabric import POINT, every_plane, folder, under_traffic

__all__ = ["folder"]

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]

CAPACITY = 9


@every_plane
def test_full_tables_under_traffic(folder, plane):
    async def main():
        async with under_traffic(folder, dataplane=plane, data__capacity=CAPACITY) as (daemon, traffic):
            refused, most = [], 0
            apply = daemon.plane.apply

            async def applied(switch, changes):
                nonlocal most
                try:
                    await apply(switch, changes)
                except Rejected as error:
                    refused.append(str(error))
                    raise
                most = max(most, len(await daemon.plane.table(switch)))

            daemon.plane.apply = applied
            async with sievenet.connect(daemon.url, name="many", host="h2") as node:
                feeds = [await node.subscribe(f"point: x in [{x}, {x + 3}]", queue=10_000) for x in range(0, 400, 25)]
                status = await node.ask("status")
                assert any(each["merged"] for each in status["switches"])
                await daemon.answers.fitter.fit()
                await daemon.control.apply_plan("point", Plan.regular(POINT, 12, dimensions=["x"]))
                await traffic.complete()
                await daemon.control.apply_plan("point", Plan.regular(POINT, 14, kind="cells"))
                status = await node.ask("status")
                assert any(each["merged"] for each in status["switches"])
                await daemon.answers.fitter.fit()
                await traffic.complete()
                for feed in feeds[4:]:
                    await feed.close()
                await traffic.complete()
                assert (await daemon.answers.check())["ok"]
            assert not refused
            assert most <= CAPACITY - (plane == "ovs")  # one entry of Open vSwitch's counts what nobody wants

    asyncio.run(main())
