"""`kill -9` of a daemon and of the router in the middle, under traffic: all is had in order, or told to be gone."""

import asyncio
import socket

import pytest

import sievenet
from sievenet.transport import Publishing
from tests.fabric.harness import SCHEMA, eventually, reading, run
from tests.fabric.test_kill import Lives, free_port
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


@pytest.mark.slow
def test_kill_nine_of_the_router_in_the_middle_loses_nothing_in_silence(tmp_path):
    async def main():
        port = free_port(socket.SOCK_STREAM)
        async with Commands.open(tmp_path) as commands:

            async def router(name, listen, *near):
                return await commands.start(
                    "router", "--name", name, "--listen", f"127.0.0.1:{listen}", "--lease", "4s", *near
                )

            middle = await router("middle", port)
            ends = [await router(name, 0, "--neighbours", f"127.0.0.1:{port}") for name in ("one", "three")]
            urls = [await each.url() for each in ends]
            async with (
                sievenet.connect(urls[0], transport=OPTIONS) as source,
                sievenet.connect(urls[1]) as node,
            ):

                async def together():
                    return len((await node.ask("status"))["routers"]) == 3

                await eventually(together, timeout=30.0)
                await source.schema(SCHEMA)
                await source.advertise(SCHEMA)
                await node.schema(SCHEMA)
                audience = Audience()
                await audience.subscribe(node)
                await audience.publish(source, 60)
                await audience.judge()  # publisher and subscriber know each other
                publishing = asyncio.create_task(audience.publish(source, 600))
                await asyncio.sleep(0.3)
                await middle.kill()
                await asyncio.sleep(0.3)
                middle = await router("middle", port)
                await publishing
                await audience.judge()

    run(main(), timeout=240.0)
