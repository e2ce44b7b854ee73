"""The rates that `status` shows are those of the definition, and agree with what switches and clients count."""

import asyncio
import random
import threading
import time

import pytest

import sievenet
from sievenet.content import parse_subscription
from sievenet.daemon import rates
from sievenet.daemon.rates import newest
from sievenet.tap import Tap, Taps
from tests.fabric.harness import SCHEMA, eventually, fabric, publisher, reading, run

FILTERS = {
    "h1": ["reading: x < 300 and y < 0.5", "reading: x in [250, 420]"],
    "h3": ["reading: x > 700"],
    "h5": ["reading: x > 690 and kind in {hot}", "reading: y > 0.9"],
}


def test_rates_of_a_fabric_are_those_of_its_counters_and_of_brute_force(tmp_path):
    rng = random.Random(3)
    events = [
        reading(rng.randrange(1024), rng.random(), rng.choice(["cold", "hot", "warm"]), rng.random() < 0.5)
        for _ in range(400)
    ]
    wanted = {host: [parse_subscription(text, SCHEMA) for text in texts] for host, texts in FILTERS.items()}

    async def main():
        async with fabric(topology="line,switches=3,hosts=2", tap=str(tmp_path), listen__heartbeat=0.05) as daemon:
            nodes = {host: await sievenet.connect(daemon.url, name=f"at-{host}", host=host) for host in FILTERS}
            for host, node in nodes.items():
                for each in wanted[host]:
                    await node.subscribe(each)
            unknown = await daemon.answers.status()
            assert (unknown["traffic"]["per_link"], unknown["traffic"]["per_subscription"]) == (None, None)
            async with publisher(daemon, name="source", host="h2") as source:
                taps = Taps(tmp_path, "source", factor=1)
                source.tap(taps)
                for event in events:
                    await source.publish(event)
                taps.close()
                await eventually(lambda: reported(daemon))
                status = await daemon.answers.status()
            left = await daemon.answers.status()
            for node in nodes.values():
                await node.close()
            return status, left

    async def reported(daemon):
        """Whether clients have reported all that came."""
        status = await daemon.answers.status()
        traffic, sample = status["traffic"], status["categories"][0]["sample"]
        return sample is not None and traffic["published"] == len(events) and traffic["received"] == sample["received"]

    status, left = run(main())
    [category] = status["categories"]
    sample, traffic = category["sample"], status["traffic"]
    assert sample["events"] == traffic["published"] == left["traffic"]["published"] == len(events)
    assert sample["transmissions"] == traffic["transmissions"] == left["traffic"]["transmissions"]
    assert sample["wanted"] == sum(s.matches(e) for e in events for each in wanted.values() for s in each)
    # By hand: h1 and h2 are at s1, h3 at s2, h5 at s3; the publisher is at s1.
    wants = {host: [any(s.matches(e) for s in each) for e in events] for host, each in wanted.items()}
    behind = [("h1",), ("h3",), ("h5",), ("h3", "h5"), ("h5",)]  # to the hosts, s1 to s2, s2 to s3
    needed = len(events) + sum(any(some) for hosts in behind for some in zip(*(wants[h] for h in hosts), strict=True))
    assert traffic["per_link"] == sample["per_link"] == pytest.approx(1 - needed / sample["transmissions"])
    assert (
        traffic["per_host"]
        == sample["per_host"]
        == pytest.approx(1 - sum(map(sum, wants.values())) / sample["received"])
    )
    assert traffic["per_subscription"] == pytest.approx(1 - sample["wanted"] / sample["delivered"])


def test_newest_segments_and_what_is_none(tmp_path):
    assert newest(tmp_path / "nowhere") == {}
    tap = Tap(tmp_path, SCHEMA, "source", factor=1, seconds=0.0)
    for i in range(20):
        tap.offer(reading(i), 1000.0 + i)
    tap.close()
    (tmp_path / "broken.tap").write_bytes(b"SNTAP1\n garbage")
    [(schema, segments)] = newest(tmp_path, count=5).items()
    assert schema == SCHEMA
    assert 5 <= sum(map(len, segments)) < 20
    assert sum(map(len, newest(tmp_path)[SCHEMA])) == 20


def test_a_client_that_leaves_at_once_has_said_what_it_published():
    async def main():
        async with fabric() as daemon:
            async with publisher(daemon) as source:
                for i in range(50):
                    await source.publish(reading(i))
            assert (await daemon.answers.status())["traffic"]["published"] == 50

    asyncio.run(main())


def test_a_look_that_takes_long_keeps_nobody_waiting(monkeypatch):
    ready = threading.Event()

    def slow(deployed, pieces):
        ready.wait(30)
        return cost(deployed, pieces)

    cost = rates._cost
    monkeypatch.setattr(rates, "_cost", slow)

    async def main():
        async with (
            fabric(tuning__mode="suggest", listen__heartbeat=0.05) as daemon,
            publisher(daemon) as source,
            sievenet.connect(daemon.url) as sink,
        ):
            await sink.subscribe("reading: x > 3")
            for i in range(50):
                await source.publish(reading(i))
            await eventually(lambda: sampled(daemon))
            asked = time.monotonic()
            early = await daemon.answers.status()
            assert time.monotonic() - asked < 10
            assert early["traffic"]["per_link"] is None
            ready.set()
            await eventually(lambda: known(daemon), timeout=120)

    async def sampled(daemon):
        return bool(daemon.tuner.samples.pieces(daemon.control.category("reading").number))

    async def known(daemon):
        return (await daemon.answers.status())["traffic"]["per_link"] is not None

    asyncio.run(main())


def test_a_first_look_that_compiles_does_not_keep_its_result_for_minutes(monkeypatch):
    """On a new machine the first look takes many seconds; rates of before a plan change were shown for four minutes."""
    clock, took = [100.0], iter([0.01, 12.0, 0.1, 0.1])
    results = iter([{}, {1: "regular"}, {1: "tuned"}, {1: "later"}])
    monkeypatch.setattr(rates.time, "monotonic", lambda: clock[0])

    class Looking(rates.Rates):
        async def _costs(self, topology):
            clock[0] += next(took)
            return next(results)

    async def main():
        looking = Looking(None, None)
        assert await looking.latest(None) == {}
        clock[0] += 1
        assert await looking.latest(None) == {1: "regular"}
        assert await looking.latest(None) == {1: "tuned"}
        # From then on a look has a twentieth of the time.
        clock[0] += 1.5
        assert await looking.latest(None) == {1: "tuned"}
        clock[0] += 0.6
        assert await looking.latest(None) == {1: "later"}

    asyncio.run(main())
