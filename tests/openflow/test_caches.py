"""Event caches on real switches, Open vSwitch and the kernel's: nothing is lost, or what is lost is told."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

import sievenet
from sievenet.cachehost import CacheHost
from sievenet.config import load_config
from sievenet.daemon.daemon import Daemon
from tests.fabric.harness import eventually
from tests.openflow.test_fabric import POINT, every_plane, folder, settings  # noqa: F401

pytestmark = [
    pytest.mark.root,
    pytest.mark.ovs,
    pytest.mark.xdist_group("ovs"),
    pytest.mark.slow,
    pytest.mark.unwatched,
]


@asynccontextmanager
async def network(folder, plane):  # noqa: F811
    """A daemon, a publisher, a cache, and a subscriber with a limit of 250 per second."""
    config = load_config(**settings(folder, dataplane=plane, topology="line,switches=3", state=None))
    async with (
        Daemon(config) as daemon,
        sievenet.connect(daemon.url, name="pub", host="h1") as pub,
        CacheHost(daemon.url, name="cache", host="h2") as cache,
        sievenet.connect(daemon.url, name="sub", host="h3") as sub,
    ):
        await pub.schema(POINT)
        await pub.advertise(POINT)
        await sub.schema(POINT)
        got, gaps = [], []
        feed = await sub.subscribe("point", lambda e: got.append(e["n"]), max_rate=250, on_gap=gaps.append)

        async def flood(count, rate, start=0):
            loop = asyncio.get_running_loop()
            begin = loop.time()
            for n in range(start, start + count):
                await pub.publish(POINT.event(x=n * 37 % 1000, n=n))
                if (ahead := (n - start + 1) / rate - (loop.time() - begin)) > 0.002:
                    await asyncio.sleep(ahead)

        yield cache, sub, feed, flood, got, gaps


@every_plane
def test_who_is_overrun_is_fed_and_counters_speak_for_who_does_not_report(folder, plane):  # noqa: F811
    async def main():
        async with network(folder, plane) as (_, sub, feed, flood, got, gaps):
            await flood(500, 1500)
            assert feed.statistics().caches.activations == 1
            await eventually(lambda: len(got) == 500)
            await eventually(lambda: feed.statistics().caches.state == "idle")
            assert sorted(got) == list(range(500))
            assert feed.statistics().caches.cached > 250
            [sink] = sub._subscribers.sinks.values()
            sink.core._meter = None  # it does not count
            await flood(1500, 1000, 500)
            await eventually(lambda: feed.statistics().caches.activations == 2)
            await eventually(lambda: len(got) == 2000)
            # Open vSwitch itself lets packets overtake the first one of a flow, which its daemon decides.
            assert (sorted(got) if plane == "ovs" else got) == list(range(2000))
            assert not gaps

    asyncio.run(asyncio.wait_for(main(), 120))


@every_plane
def test_what_the_socket_of_a_cache_dropped_is_told(folder, plane):  # noqa: F811
    async def main():
        async with network(folder, plane) as (cache, _, feed, flood, got, gaps):
            await flood(500, 2000)
            await eventually(lambda: feed.statistics().caches.state == "active")
            port = cache._node._session.port
            port._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            cache._node.pause()
            await flood(600, 2000, 500)
            assert port.drops > 100
            cache._node.resume()
            await flood(400, 1000, 1100)

            def told():
                return {n for gap in gaps for n in range(gap.first, gap.last + 1)}

            await eventually(lambda: len({*got, *told()}) == 1500)
            assert len(set(got)) == len(got)
            assert not told() & set(got)
            assert len(told()) <= port.drops

    asyncio.run(asyncio.wait_for(main(), 120))
