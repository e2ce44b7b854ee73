"""What switches have counted tells who is overrun and does not say so: subscribers and caches that are stopped."""

import asyncio
import os
import signal

import pytest

import sievenet
from sievenet.cachehost import CacheSettings
from tests.fabric.harness import eventually, fabric, run
from tests.fabric.test_cache_processes import STOCK, has, volumes
from tests.fabric.test_caches import Slow, flood, scene
from tests.transport.commands import Commands


def room(daemon, client, packets):
    """Let the queue of a client's port hold so many packets; its counter of drops."""
    endpoint = daemon.plane.endpoint_of(client)
    endpoint.link.max_packets = packets
    return endpoint.port


def numbers(gaps):
    """What was told to be missing."""
    return [number for gap in gaps for number in range(gap.first, gap.last + 1)]


@pytest.mark.slow
def test_a_subscriber_that_does_not_report_gets_a_cache_by_its_switchs_counters():
    async def main():
        async with scene() as (_, pub, _, sub):
            slow = Slow(await sub.subscribe("reading", max_rate=200), 1e6)
            [sink] = sub._subscribers.sinks.values()
            sink.core._meter = None  # it does not count
            await flood(pub, 300, 150)
            assert slow.caches().activations == 0
            await flood(pub, 2000, 1000, 300)
            assert slow.caches().activations
            await eventually(lambda: len(slow.got) == 2300, 20)
            assert slow.got == list(range(2300))

    run(main())


def test_what_the_switch_dropped_for_a_subscriber_comes_from_its_cache():
    async def main():
        async with scene() as (daemon, pub, _, sub):
            gaps = []
            slow = Slow(await sub.subscribe("reading", max_rate=5000, on_gap=gaps.append), 1e6)
            await flood(pub, 100, 500)
            port = room(daemon, "sub", 10)
            sub._session.port.pause()
            await flood(pub, 1500, 1500, 100)
            assert port.dropped
            sub._session.port.resume()
            await eventually(lambda: len(slow.got) == 1600, 20)
            assert slow.got == list(range(1600))
            assert not gaps

    run(main())


@pytest.mark.slow
def test_a_cache_keeps_what_a_silent_subscriber_will_ask_for_longer_than_its_ring_would():
    async def main():
        async with scene(CacheSettings(seconds=0.5)) as (daemon, pub, cache, sub):
            slow = Slow(await sub.subscribe("reading", max_rate=500), 1e6)
            [sink] = sub._subscribers.sinks.values()
            await flood(pub, 100, 400)
            # As if it were stopped: it neither counts nor hears, and its port drops nearly everything.
            sink.core._meter, told = None, sub._subscribers.told
            sub._subscribers.told = lambda message: None
            port = room(daemon, "sub", 10)
            sub._session.port.pause()
            await flood(pub, 5000, 2000, 100)
            assert port.dropped > 3000
            # The ring of half a second is longer now.
            assert cache.core._places["reading"].ring.first == 0
            sub._subscribers.told = told
            sub._session.port.resume()
            await eventually(lambda: len(slow.got) == 5100, 30)
            assert slow.got == list(range(5100))

    run(main())


def test_what_the_switch_dropped_for_a_cache_is_told_to_whom_it_serves():
    async def main():
        async with scene() as (daemon, pub, cache, sub):
            gaps = []
            slow = Slow(await sub.subscribe("reading", max_rate=500, on_gap=gaps.append), 1e6)
            await flood(pub, 1000, 3000)
            await eventually(lambda: slow.caches().state == "active")
            port = room(daemon, "cache", 10)
            cache._node.pause()
            await flood(pub, 1000, 2000, 1000)
            assert port.dropped > 500
            room(daemon, "cache", 65_536)
            cache._node.resume()
            await flood(pub, 1000, 2000, 2000)

            await eventually(lambda: len(slow.got) + len(numbers(gaps)) >= 3000, 60)
            assert slow.got == sorted(slow.got)
            assert sorted([*slow.got, *numbers(gaps)]) == list(range(3000))  # each of them once
            assert len(numbers(gaps)) <= port.dropped

    run(main())


@pytest.mark.parametrize("packets", [65_536, 20])
def test_nobody_leaves_a_cache_before_what_waits_in_its_port_has_come(packets):
    async def main():
        async with scene() as (daemon, pub, cache, sub):
            gaps = []
            # One datagram at a time: on a busy machine each has many packets, and all would be under way to it.
            cache._node._session.port._link.grant = 1
            slow = Slow(await sub.subscribe("reading", max_rate=500, on_gap=gaps.append), 1e6)
            await flood(pub, 300, 3000)
            await eventually(lambda: slow.caches().state == "active")
            room(daemon, "cache", packets)
            # The cache does not get to read its port, as on a busy machine, and has nothing else for its subscriber.
            cache._node.pause()
            await flood(pub, 200, 400, 300)
            await eventually(lambda: slow.caches().state == "stopping")
            await flood(pub, 200, 400, 500)
            assert slow.caches().state == "stopping"
            cache._node.resume()
            await flood(pub, 50, 400, 700)
            await eventually(lambda: len(slow.got) + len(numbers(gaps)) >= 750, 60)
            assert slow.got == sorted(slow.got)
            assert sorted([*slow.got, *numbers(gaps)]) == list(range(750))
            assert bool(gaps) == (packets == 20)
            await eventually(lambda: slow.caches().state == "idle")

    run(main())


@pytest.mark.slow
def test_a_cache_process_that_is_stopped_until_its_port_overflows_loses_nothing_in_silence(tmp_path):
    async def main():
        async with (
            fabric(control__lease=30) as daemon,
            Commands.open(tmp_path) as commands,
            sievenet.connect(daemon.url, name="pub") as pub,
        ):
            await pub.schema(STOCK)
            await pub.advertise(STOCK)

            async def publish(count, rate, start):
                loop = asyncio.get_running_loop()
                begin = loop.time()
                for i in range(start, start + count):
                    await pub.publish(STOCK.event(b"", symbol="IBM", price=100.0, volume=i))
                    if (ahead := (i - start + 1) / rate - (loop.time() - begin)) > 0.002:
                        await asyncio.sleep(ahead)

            cache = await commands.start("cache", "--url", daemon.url, "--name", "c1")
            await cache.says("serves at")
            sub = await commands.start("sub", "stock", "--url", daemon.url, "--json", "--max-rate", "2000")
            await sub.says("subscribed")
            await publish(2000, 4000, 0)
            await has(sub, 500)
            port = room(daemon, "c1", 300)
            os.kill(cache.pid, signal.SIGSTOP)
            await publish(4000, 2500, 2000)
            assert port.dropped
            room(daemon, "c1", 65_536)
            os.kill(cache.pid, signal.SIGCONT)
            await publish(2000, 2000, 6000)

            def told():
                return [n for gap in sub.events("gap") for n in range(gap["from"], gap["to"] + 1)]

            await eventually(lambda: len(volumes(sub)) + len(told()) >= 8000, 60)
            assert volumes(sub) == sorted(volumes(sub))
            assert sorted([*volumes(sub), *told()]) == list(range(8000))  # each of them once
            assert len(told()) <= port.dropped

    run(main(), 120)
