"""Router processes under traffic: one joins, a link is cut and comes back, one is killed; nothing is lost.

Links go through a relay in this process, which can break them as a network does.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys

import pytest

import sievenet
from sievenet.content import Attribute, Schema
from tests.seeds import seeds

SCHEMA = Schema("tick", (Attribute("n", "int", lo=0, hi=1 << 20), Attribute("even", "bool")))

SCHEMES = (
    ("--scheme", "cbcb"),
    ("--scheme", "covering", "--advertisements"),
    ("--scheme", "merging", "--bound", "0.3"),
    ("--scheme", "edge"),
    ("--scheme", "bdrp"),
    ("--scheme", "simple"),
    ("--scheme", "cbcb", "--ask-every", "200ms"),
)


class Relay:
    """A way to a router that can be cut."""

    def __init__(self, address):
        self.address = address
        self.open = True
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()

    def cut(self):
        self.open = False
        for writer in self._writers:
            # Both ends are told at once, and what is on its way is lost.
            writer.transport.abort()

    async def _serve(self, reader, writer):
        if not self.open:
            writer.transport.abort()
            return
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self.address)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, onward_writer}
        self._writers |= ends

        async def copy(source, sink):
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(copy(reader, onward_writer), copy(onward_reader, writer))
        self._writers -= ends


class Router:
    """A `sievenet router` process."""

    def __init__(self, name, neighbours, *options):
        self.name, self._neighbours, self._options = name, neighbours, options

    async def __aenter__(self):
        near = ",".join(f"127.0.0.1:{port}" for port in self._neighbours)
        command = [sys.executable, "-m", "sievenet", "router", "--name", self.name, "--listen", "127.0.0.1:0"]
        command += ["--lease", "8s", *(("--neighbours", near) if near else ()), *self._options]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        line = ""
        while " is up: " not in line:
            line = (await self.process.stdout.readline()).decode()
            assert line, f"{self.name} ended"
        self.url = line.split()[-1]
        self.port = int(self.url.rpartition(":")[2])
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)


async def until(condition, timeout=60.0):
    async with asyncio.timeout(timeout):
        while not await condition():
            await asyncio.sleep(0.05)


async def ready(node, neighbours):
    """Whether a router hears these neighbours, and its tables are complete."""
    status = await node.ask("status")
    return set(status["neighbours"]) == neighbours and status["ready"]


@pytest.mark.slow
@pytest.mark.unwatched
@pytest.mark.parametrize("seed", seeds(1))
def test_processes_join_and_links_break_under_traffic(seed):
    options = SCHEMES[seed % len(SCHEMES)]

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            # A ring a - b - c - d, and a short way from a to c that will be cut; a - b - c stays.
            a = await enter(Router("a", [], *options))
            b = await enter(Router("b", [a.port], *options))
            short = await enter(Relay(("127.0.0.1", a.port)))
            c = await enter(Router("c", [b.port, short.port], *options))
            d = await enter(Router("d", [a.port, c.port], *options))
            publisher = await enter(sievenet.connect(a.url))
            subscriber = await enter(sievenet.connect(c.url))
            await until(lambda: ready(publisher, {"b", "c", "d"}))
            await publisher.advertise(SCHEMA)
            await subscriber.schema(SCHEMA)
            feed = await subscriber.subscribe("tick: even = true", queue=1 << 16)
            sent, got, stop = [], [], asyncio.Event()

            async def publish():
                while not stop.is_set():
                    n = len(sent)
                    sent.append(n)
                    await publisher.publish(SCHEMA.event(n=n, even=n % 2 == 0))
                    await asyncio.sleep(0.001)

            async def read():
                while True:
                    got.append((await anext(feed))["n"])

            traffic, reading = asyncio.create_task(publish()), asyncio.create_task(read())

            async def some(count=100):
                goal = len(sent) + count
                while len(sent) < goal:
                    await asyncio.sleep(0.01)

            await some()
            await enter(Router("e", [a.port, c.port], *options))
            await until(lambda: ready(publisher, {"b", "c", "d", "e"}))
            await some()
            short.cut()
            await some(200)
            short.open = True
            await some(200)
            d.kill()
            await some(200)
            await until(lambda: ready(publisher, {"b", "c", "e"}))
            await some()
            stop.set()
            await traffic
            wanted = [n for n in sent if n % 2 == 0]

            async def arrived():
                return len(got) >= len(wanted)

            with contextlib.suppress(TimeoutError):
                await until(arrived, 20.0)
            reading.cancel()
            assert sorted(got) == wanted
            status = await publisher.ask("status")
            assert status["flooded"] > 0
            assert status["doubtful"] == 0

    asyncio.run(main())
