"""Connections whose other side hangs, sleeps or is gone: others go on, and nothing is lost in silence."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

import sievenet
from sievenet.content import EventBatch, Filter
from sievenet.content.codec import encode_filter
from sievenet.routers import messages as m
from sievenet.routers import protocol as p
from sievenet.routers.limits import Limits
from sievenet.routers.peer import Pressure
from sievenet.routers.routing import Settings
from sievenet.routers.server import RouterServer
from sievenet.session.framing import frame
from tests.fabric.harness import eventually
from tests.routers.wire import (
    CATEGORY,
    CONTENT,
    DATA,
    SCHEMA,
    Stranger,
    a_peer,
    client_hello,
    honest,
    reads_nothing,
    router_hello,
    two_routers,
)

LARGE = bytes(30_000)
EVERYTHING = m.Item(m.SUBSCRIPTION, CATEGORY, encode_filter(Filter(SCHEMA)), "")


def many(first, count, who="honest"):
    return EventBatch.from_events(SCHEMA, [SCHEMA.event(LARGE, n=first + i, who=who) for i in range(count)])


async def numbers(feed, count, timeout=20.0):
    async with asyncio.timeout(timeout):
        return [(await feed.next()).event.values[0] for _ in range(count)]


# -- links ---------------------------------------------------------------------------------


def test_a_neighbour_that_hangs_freezes_nobody():
    """It wants everything and reads nothing. Clients beside it go on; what is dropped is counted; its lease ends it."""

    async def main():
        settings = Settings(lease=4.0)
        async with RouterServer("a", settings, limits=Limits(buffer=1 << 20)) as a, honest(a.url, a.url) as pair:
            hello = router_hello()
            sock = reads_nothing(a.address, hello)
            with contextlib.closing(sock):
                stated = m.LinkStated("x", int(time.time() * 1000) << 16, ("a",))
                sock.sendall(frame(stated) + frame(m.Whole(1, 0, (EVERYTHING,), (DATA,))))
                await eventually(lambda: a.router.routing.size() == 2)
                longest = 0.0
                for first in range(0, 400, 20):
                    sent = time.monotonic()
                    await pair.publisher.publish_many(many(first, 20))
                    assert await numbers(pair.feed, 20) == list(range(first, first + 20))
                    longest = max(longest, time.monotonic() - sent)
                link = a._registry.routers["x"]
                assert link.dropped == a.dropped > 100
                assert link.waiting <= 1 << 21
                status = await pair.publisher.ask("status")
                assert status["slow"] == {"router x": link.dropped}
                # Nothing waited for the lease to end.
                assert longest < 4.0
                await eventually(lambda: "x" not in a._registry.routers)
                assert link not in a.listener.connections
                # What it was owed is told to the next of its name.
                again = await Stranger.call(a.address, hello)
                assert (await again.hear("Missed"))["events"] == link.unsent() > 100
                again.close()

    asyncio.run(main())


def test_publishers_wait_for_links_that_move_only():
    async def main():
        now = 0.0
        pressure = Pressure(lambda: now)
        links = [a_peer(Limits(buffer=1 << 20)) for _ in range(2)]
        for link in links:
            link.offer(bytes(1 << 19), 1)
            assert pressure.holds(link)
        waiting = asyncio.create_task(pressure.wait(links))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        # One moves, the other hangs: the publisher to both is held by the one that moves.
        for _ in range(4):
            now += 0.1
            links[0].writer.transport.waiting -= 1 << 15
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert not pressure.holds(links[1])
        links[0].writer.transport.waiting = 0
        await waiting
        # It moves again: it holds again.
        links[1].writer.transport.waiting -= 1 << 15
        assert pressure.holds(links[1])
        pressure.forget(links[1])
        assert not pressure.holds(links[0])

    asyncio.run(main())


def test_a_buffer_is_bounded_and_counts():
    async def main():
        peer = a_peer(Limits(buffer=100))
        assert peer.offer(bytes(90), 3)
        for _ in range(2):  # in the turn in which it was written, and when the connection has it
            assert not peer.offer(bytes(20), 2)
            await asyncio.sleep(0)
        assert (peer.dropped, peer.untold, peer.unsent()) == (4, 4, 7)
        peer.writer.transport.waiting = 0
        assert peer.unsent() == 4
        peer.tell_missed()
        assert peer.untold == 0
        assert peer.written == 90 + len(frame(m.Missed(4)))

    asyncio.run(main())


def test_what_a_slow_client_misses_is_told():
    async def main():
        limits = Limits(buffer=1 << 19)
        async with RouterServer("a", Settings(lease=8.0), limits=limits) as a, honest(a.url, a.url) as pair:
            subscribe = p.Subscribe(1, 1, CATEGORY, CONTENT)
            slow = await Stranger.call(a.address, client_hello("slow"), p.Register(1, DATA), subscribe)
            assert await slow.hear("Done")
            # It stops reading; asyncio reads a little ahead for it, and so do the sockets.
            for _ in range(20):
                await pair.publisher.publish_many(
                    EventBatch.from_events(SCHEMA, [SCHEMA.event(LARGE, n=7, who="x") for _ in range(20)])
                )
            await pair.check()
            found, told = 0, 0
            while found + told < 400:
                message = await slow.next()
                slow.say(p.Alive())
                if message["type"] == "Carried":
                    found += len(message["sequences"]) // 8
                elif message["type"] == "Missed":
                    told += message["events"]
            assert found + told == 400
            assert told == a.dropped > 0
            slow.close()

    asyncio.run(main())


def test_missing_events_are_told_along_the_tree():
    async def main():
        async with two_routers() as (a, b), honest(a.url, b.url) as pair:
            stranger = await Stranger.call(a.address, router_hello(), m.Missed(7))
            await eventually(lambda: pair.subscriber.statistics().missed == 7)
            assert pair.publisher.statistics().missed == a.missed == b.missed == 7
            stranger.close()

    asyncio.run(main())


# -- clients -------------------------------------------------------------------------------


def test_a_silent_client_is_forgotten_and_an_idle_one_is_not():
    async def main():
        async with RouterServer("a", Settings(lease=0.8)) as a, honest(a.url, a.url) as pair:
            subscribe = p.Subscribe(1, 1, CATEGORY, CONTENT)
            gone = await Stranger.call(a.address, client_hello("gone"), p.Register(1, DATA), subscribe)
            assert await gone.hear("Done")
            assert "gone" in a.router._clients
            assert "a word within 0.8 s" in (await gone.hear("Failure"))["message"]
            await gone.ended()
            assert set(a.router._clients) == {pair.publisher.name, pair.subscriber.name}
            assert len(a.router._local[0, CATEGORY]) == 1
            await pair.check()
            assert pair.publisher.statistics().losses == pair.subscriber.statistics().losses == 0

    asyncio.run(main())


def test_a_silent_router_is_given_up():
    async def main():
        silent = asyncio.Event()

        async def serve(reader, writer):
            await reader.read(1000)
            writer.write(frame(p.Welcome(p.PROTOCOL, "c", b"ticket", 0.2, "r", 1)))
            await silent.wait()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            node = await sievenet.connect(f"sievenet+router://127.0.0.1:{port}")
            await eventually(lambda: node.statistics().losses >= 2)
            assert node.statistics().away > 0
            assert node._link._ticket == b"ticket"
            await node.close()
            silent.set()

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_client_that_slept_comes_back_and_says_what_is_missing():
    """SIGSTOP to `sievenet sub`: after its lease it is forgotten; awake, it gets what comes from then on."""

    async def main():
        async with RouterServer("a", Settings(lease=1.0)) as a, sievenet.connect(a.url) as publisher:
            await publisher.schema(SCHEMA)
            await publisher.advertise(SCHEMA)
            with shell("sub", "--url", a.url, "-n", "2", "--name", "sleepy", "wire: n < 9", errors=True) as sub:
                await eventually(lambda: len(a.router._clients.get("sleepy", ())) == 1, timeout=30)
                await publisher.publish(SCHEMA.event(n=1, who="x"))
                assert "n=1" in await asyncio.to_thread(sub.stdout.readline)
                sub.send_signal(signal.SIGSTOP)
                await eventually(lambda: "sleepy" not in a.router._clients)
                await publisher.publish(SCHEMA.event(n=2, who="x"))
                sub.send_signal(signal.SIGCONT)
                await eventually(lambda: len(a.router._clients.get("sleepy", ())) == 1)
                await publisher.publish(SCHEMA.event(n=3, who="x"))
                assert "n=3" in await asyncio.to_thread(sub.stdout.readline)
                assert "did not arrive here" in await asyncio.to_thread(sub.stderr.read)

    asyncio.run(main())


def test_a_process_that_was_held_up_judges_nobody():
    """Neither the router nor the clients say that the others were silent while they themselves slept."""

    async def main():
        async with two_routers(Settings(lease=0.8)) as (a, b), honest(a.url, b.url) as pair:
            for _ in range(2):
                time.sleep(1.5)
                await pair.check()
            await asyncio.sleep(0.5)
            await pair.check()
            assert pair.publisher.statistics().losses == pair.subscriber.statistics().losses == 0
            assert "b" in a._registry.routers

    asyncio.run(main())


# -- processes -----------------------------------------------------------------------------


@contextlib.contextmanager
def shell(*arguments, errors=False):
    """A command in a process of its own, not watched by coverage; ended at the end, stopped or not."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    command = [sys.executable, "-m", "sievenet", *arguments]
    pipe = subprocess.PIPE if errors else subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=pipe, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()
        if errors:
            process.stderr.close()


def where(process):
    line = process.stdout.readline()
    assert "://" in line, "the process ended"
    return line.split()[-1]


@pytest.mark.slow
@pytest.mark.unwatched
def test_processes_that_sleep():
    """SIGSTOP to a neighbour, then to a client: the others go on; who wakes up is told what it missed, and goes on."""

    async def main(one, two, far):
        async with honest(one, one) as pair, sievenet.connect(two, name="far") as remote:
            await remote.schema(SCHEMA)
            feed = await remote.subscribe('wire: who = "honest"', queue=100_000)
            first = 0

            async def go_on(count):
                nonlocal first
                for _ in range(count):
                    await pair.publisher.publish_many(many(first, 20))
                    assert await numbers(pair.feed, 20) == list(range(first, first + 20))
                    first += 20

            await go_on(2)
            assert await numbers(feed, 40) == list(range(40))
            far.send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            await go_on(60)
            # 36 megabytes for a link that takes none: local clients did not wait for it.
            assert time.monotonic() - begin < 30

            async def alone():
                return (await pair.publisher.ask("status"))["neighbours"] == []

            await eventually(alone, timeout=20)
            far.send_signal(signal.SIGCONT)

            async def joined():
                return (await pair.publisher.ask("status"))["neighbours"] != [] and remote.connected

            await eventually(joined, timeout=20)
            await eventually(lambda: remote.statistics().missed > 0, timeout=20)
            async with asyncio.timeout(20):
                wanted = first
                while True:
                    await go_on(1)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.5):
                            while (await feed.next()).event.values[0] < wanted:
                                pass
                            break
            assert pair.publisher.statistics().losses == pair.subscriber.statistics().losses == 0

    with shell("router", "--name", "a", "--listen", "127.0.0.1:0", "--lease", "3s") as near:
        one = where(near)
        address = one.rpartition("/")[2]
        with shell("router", "--name", "b", "--listen", "127.0.0.1:0", "--neighbours", address, "--lease", "3s") as far:
            asyncio.run(main(one, where(far), far))
