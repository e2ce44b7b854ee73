"""`kill -9` of a daemon and of the router in the middle, under traffic: all is had in order, or told to be gone."""

import asyncio
import contextlib
import socket

import pytest

import sievenet
from sievenet.transport import Publishing
from tests.fabric.harness import SCHEMA, eventually, reading, run
from tests.fabric.test_kill import Lives, free_port
from tests.proxy import Proxy
from tests.transport.commands import Commands
from tests.transport.test_shell import QUICK

OPTIONS = Publishing(record=5, digest=0.1, log=20_000)
#: One event in 50 is wanted by one subscriber, everything by the other.
WANTED = {"reading: x < 20": 50, "reading: x >= 0": 1}


class Audience:
    """Subscribers with order and recovery, and an oracle that knows what was published."""

    def __init__(self):
        self.got = {text: [] for text in WANTED}
        self.gaps = {text: [] for text in WANTED}
        self.count = 0

    async def subscribe(self, node):
        for text in WANTED:

            def heard(event, text=text):
                self.got[text].append(int(event.payload))

            await node.subscribe(text, heard, order=True, recover=QUICK, on_gap=self.gaps[text].append)

    async def publish(self, source, count):
        for _ in range(count):
            i = self.count
            self.count += 1
            await source.publish(reading(i % 50 * 20, payload=b"%d" % i))
            await asyncio.sleep(0.001)

    def silent(self, text):
        """What was wanted, did not come, and was not told to be gone."""
        told = {i for gap in self.gaps[text] for i in range(gap.first, min(gap.last, self.count) + 1)}
        return set(range(0, self.count, WANTED[text])) - set(self.got[text]) - told

    async def judge(self):
        await eventually(lambda: not any(map(self.silent, WANTED)), timeout=45.0)
        for text in WANTED:
            assert self.got[text] == sorted(set(self.got[text]))


@pytest.mark.slow
@pytest.mark.unwatched
def test_kill_nine_of_the_daemon_loses_nothing_in_silence(tmp_path):
    async def main():
        port = free_port(socket.SOCK_STREAM)
        place = {"state": str(tmp_path), "listen__port": port, "data__port": free_port(socket.SOCK_DGRAM)}
        async with Lives.open({"topology": "line,switches=3", **place}) as lives:
            await lives.start()
            url = f"sievenet://127.0.0.1:{port}"
            async with (
                sievenet.connect(url, name="node", host="h3") as node,
                sievenet.connect(url, name="source", host="h1", transport=OPTIONS) as source,
            ):
                await source.schema(SCHEMA)
                await source.advertise(SCHEMA)
                audience = Audience()
                await audience.subscribe(node)
                for _ in range(3):
                    publishing = asyncio.create_task(audience.publish(source, 300))
                    await asyncio.sleep(0.2)
                    lives.kill()
                    await lives.start()
                    await publishing
                await eventually(lambda: node.connected and source.connected, timeout=30.0)
                await audience.publish(source, 20)
                await audience.judge()
                assert not any(audience.gaps.values())  # the log has it all

    run(main(), timeout=120.0)


class Line:
    """Three routers as processes; the middle one is killed and comes back. Both links go through proxies."""

    def __init__(self, commands, lease):
        self._commands, self._lease = commands, lease
        self.port = free_port(socket.SOCK_STREAM)
        self.middle = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, folder, lease="4s"):
        async with Commands.open(folder) as commands:
            line = cls(commands, lease)
            await line.start()
            target = ("127.0.0.1", line.port)
            async with Proxy(target) as one, Proxy(target) as three:
                line.proxies = one, three
                ports = {"one": one.port, "three": three.port}
                ends = [await line._router(name, 0, "--neighbours", f"127.0.0.1:{ports[name]}") for name in ports]
                line.urls = [await each.url() for each in ends]
                yield line

    async def _router(self, name, listen, *near):
        return await self._commands.start(
            "router", "--name", name, "--listen", f"127.0.0.1:{listen}", "--lease", self._lease, *near
        )

    async def start(self):
        self.middle = await self._router("middle", self.port)
        await self.middle.url()

    async def kill(self):
        await self.middle.kill()

    async def call(self, end, *arguments):
        """A command at one of the ends: 0 or 1."""
        return await self._commands.start(*arguments, "--url", self.urls[end])

    async def whole(self, node):
        async def together():
            found = await node.ask("status")
            return len(found["routers"]) == 3 and found["tree"] and found["ready"]

        await eventually(together, timeout=30.0)


@pytest.mark.slow
@pytest.mark.unwatched
def test_an_echo_that_waits_for_a_router_delays_no_recovery(tmp_path):
    """The middle router dies with a new subscriber's first echo, which the router before it sends again."""

    async def main():
        async with (
            Line.open(tmp_path, lease="15s") as line,
            sievenet.connect(line.urls[0], transport=OPTIONS) as source,
            sievenet.connect(line.urls[1]) as node,
        ):
            await line.whole(node)
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA)
            await node.schema(SCHEMA)
            audience = Audience()
            await audience.subscribe(node)
            line.proxies[0].hold()
            await audience.publish(source, 1)
            await eventually(lambda: all(audience.got.values()), timeout=10.0)
            await asyncio.sleep(0.1)  # the echo is on its way, and gets no further than the middle
            await line.kill()
            for proxy in line.proxies:
                proxy.cut()

            async def linked(each=source):
                return (await each.ask("status"))["neighbours"]

            async def alone():
                return not await linked()

            await eventually(alone, timeout=10.0)
            await audience.publish(source, 100)
            await asyncio.sleep(6.0)
            await line.start()
            for proxy in line.proxies:  # in this order: what the third one kept goes on to the first
                proxy.mend()
                await eventually(linked, timeout=30.0)
            await line.whole(node)
            await audience.publish(source, 1)
            await eventually(lambda: not any(map(audience.silent, WANTED)), timeout=12.0)
            assert not any(audience.gaps.values())

    run(main(), timeout=120.0)


@pytest.mark.slow
@pytest.mark.unwatched
def test_kill_nine_of_the_router_in_the_middle_loses_nothing_in_silence(tmp_path):
    async def main():
        async with (
            Line.open(tmp_path) as line,
            sievenet.connect(line.urls[0], transport=OPTIONS) as source,
            sievenet.connect(line.urls[1]) as node,
        ):
            await line.whole(node)
            await source.schema(SCHEMA)
            await source.advertise(SCHEMA)
            await node.schema(SCHEMA)
            audience = Audience()
            await audience.subscribe(node)
            await audience.publish(source, 60)
            await audience.judge()  # publisher and subscriber know each other
            publishing = asyncio.create_task(audience.publish(source, 600))
            await asyncio.sleep(0.3)
            await line.kill()
            await asyncio.sleep(0.3)
            await line.start()
            await publishing
            await audience.judge()

    run(main(), timeout=240.0)


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_publisher_that_leaves_before_the_router_is_back_says_so(tmp_path):
    """Nothing of it ever comes through: no subscriber can know. So it waits, and fails if that was in vain."""
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f'{{"symbol": "GE", "price": 7, "volume": {i}}}\n' for i in range(200)))
    pub = ["pub", "--schema", "stock", "--file", events, "--log", "1000", "--digest", "100ms", "--linger", "1s"]

    async def main():
        async with Line.open(tmp_path) as line, sievenet.connect(line.urls[1]) as node:
            await line.whole(node)
            sub = await line.call(1, "sub", "stock", "--schema", "stock", "--order", "--recover", "--json")
            await sub.says("subscribed")

            def volumes():
                return [each["volume"] for each in sub.events("event")]

            first = await line.call(0, *pub)
            await first.ends()
            assert first.code() == 0
            await eventually(lambda: volumes() == list(range(200)), timeout=20.0)
            await line.kill()
            hopeless = await line.call(0, *pub, "--drain", "1s")
            waiting = await line.call(0, *pub, "--drain", "60s")
            await hopeless.ends()
            assert hopeless.code() == 2
            assert "Some subscribers of stock may have missed events" in hopeless.text()
            assert "no way to middle, three" in hopeless.text()
            await waiting.says("no way to middle, three; waiting")
            await line.start()
            await waiting.ends()
            assert waiting.code() == 0, waiting.text()
            await eventually(lambda: volumes() == [*range(200), *range(200)], timeout=20.0)
            assert not sub.events("gap")

    run(main(), timeout=120.0)
