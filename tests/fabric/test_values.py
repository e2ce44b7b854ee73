"""Filters over floats in a running fabric: one that no float matches hangs nobody, and open ends are open."""

import math

import sievenet
from tests.fabric.harness import fabric, publisher, reading, run, take


def test_a_filter_without_any_float_and_its_neighbours():
    below = math.nextafter(0.5, 0)

    async def main():
        async with fabric() as daemon, publisher(daemon) as source, sievenet.connect(daemon.url, name="node") as node:
            nothing = await node.subscribe(f"reading: y > {below!r} and y < 0.5")
            strict = await node.subscribe("reading: y > 0.5")
            just = await node.subscribe(f"reading: y >= {below!r} and y < 0.5")
            ys = [0.0, math.nextafter(below, 0), below, 0.5, math.nextafter(0.5, 1), 1.0]
            await source.publish_many([reading(i, y) for i, y in enumerate(ys)])
            assert [event["x"] for event in await take(strict, 2)] == [4, 5]
            assert [event["x"] for event in await take(just, 1)] == [2]
            await nothing.close()
            status = await node.ask("status")
            assert status is not None

    run(main(), timeout=60)


def test_such_a_filter_survives_a_restart(tmp_path):
    """It is in the journal; a start that covers it again ends."""
    below = math.nextafter(0.5, 0)

    async def main():
        async with fabric(state=str(tmp_path)) as daemon, sievenet.connect(daemon.url, name="node") as node:
            await node.schema(reading().schema)
            await node.subscribe(f"reading: y > {below!r} and y < 0.5")
        async with (
            fabric(state=str(tmp_path)) as daemon,
            publisher(daemon) as source,
            sievenet.connect(daemon.url, name="other") as other,
        ):
            feed = await other.subscribe("reading: y > 0.5")
            await source.publish(reading(7, 0.75))
            assert [event["x"] for event in await take(feed, 1)] == [7]

    run(main(), timeout=60)
