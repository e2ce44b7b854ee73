"""A real daemon with small tables: told by the command line, fitted by how much and by what was published."""

from __future__ import annotations

import asyncio

import sievenet
from sievenet.cli.tables import counted
from sievenet.client.operator import fit_tables
from tests.fabric.harness import SCHEMA, fabric, run


def test_tables_are_fitted_and_nobody_misses_anything():
    async def main():
        async with (
            fabric(data__capacity=6, control__fit=0.3) as daemon,
            sievenet.connect(daemon.url, name="source", host="h1") as source,
            sievenet.connect(daemon.url, name="sink", host="h3") as sink,
        ):
            await source.advertise(SCHEMA)
            feeds = {x: await sink.subscribe(f"reading: x = {x}") for x in range(0, 1000, 50)}
            status = await sink.ask("status")
            assert any(each["merged"] for each in status["switches"])
            for each in status["switches"]:
                assert each["flows"] <= each["capacity"] == 6
            operator = await sievenet.connect(daemon.url, operator=True)
            for _ in range(3):
                for x in feeds:
                    await source.publish(SCHEMA.event(x=x, y=0.5, kind="hot", ok=True))
                report = await fit_tables(operator)
                assert report["method"] == "load"
                await asyncio.sleep(0.4)  # and by itself
            for x, feed in feeds.items():
                for _ in range(3):
                    assert (await asyncio.wait_for(anext(feed), 30))["x"] == x
            assert (await sink.ask("check"))["ok"]
            for switch in daemon.plane.topology.switches:
                flows = await sink.ask("flows", switch)
                assert flows["ideal"] > 6 or not flows["merged"]
                assert bool(flows["merged"]) == any(flow["stands_for"] > 1 for flow in flows["flows"])
            await operator.close()

    run(main())


def test_a_tap_is_counted_by_publisher_and_code(tmp_path):
    from sievenet.index import Plan
    from sievenet.tap import Taps

    taps = Taps(tmp_path, "someone", factor=1)
    for i in range(100):
        taps.offer(SCHEMA.event(x=i % 4, y=0.5, kind="hot", ok=True), now=1000.0 + i)
    taps.close()
    plan = Plan.regular(SCHEMA, 20)
    (traffic,) = counted(tmp_path, {"reading": (plan.to_json(), 3)}, 1.0)
    assert (traffic.category, traffic.epoch, traffic.publishers) == ("reading", 3, ["someone"])
    assert traffic.sample({"someone": [0]}, 1).counts.sum() == 100
    assert counted(tmp_path, {"other": (plan.to_json(), 3)}, 1.0) == []
