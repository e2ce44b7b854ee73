"""`kill -9` of the daemon in mid-stream, again and again: nothing accepted is lost, and the switches are put right."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys

import pytest

import sievenet
from sievenet.errors import SievenetError
from tests.fabric.harness import SCHEMA, eventually, reading, run
from tests.seeds import seeds

ROUNDS = 100


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Lives:
    """A daemon that is killed and started again at the same place."""

    def __init__(self, zygote, settings):
        self._zygote = zygote
        self._settings = settings
        self.pid = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, settings):
        zygote = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.fabric.zygote", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        lives = cls(zygote, settings)
        try:
            assert await zygote.stdout.readline() == b"{}\n"
            yield lives
        finally:
            lives.kill()
            zygote.stdin.close()
            zygote.kill()
            await zygote.wait()

    async def start(self, **changes):
        self._zygote.stdin.write(json.dumps({**self._settings, **changes}).encode() + b"\n")
        answer = json.loads(await self._zygote.stdout.readline())
        self.pid = answer["pid"]
        return answer

    def kill(self):
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.pid = None


class Churn:
    """A client that subscribes and unsubscribes without end, and remembers what it was promised."""

    def __init__(self, node, rng):
        self.node = node
        self.rng = rng
        #: Promised: subscribe returned, unsubscribe not begun. By id: (feed, lowest x wanted).
        self.standing = {}
        #: Promised gone: unsubscribe returned.
        self.gone = set()
        self.seen = {}

    async def run(self):
        while True:
            if len(self.standing) < 30 or self.rng.random() < 0.5:
                x = self.rng.randrange(1000)
                seen = set()
                feed = await self.node.subscribe(f"reading: x >= {x}", lambda e, seen=seen: seen.add(e.payload))
                self.seen[feed.registration.id] = seen
                self.standing[feed.registration.id] = (feed, x)
            else:
                number = self.rng.choice(sorted(self.standing))
                feed, _ = self.standing.pop(number)
                await feed.close()
                self.gone.add(number)


@pytest.mark.slow
@pytest.mark.unwatched
@pytest.mark.parametrize("seed", seeds(1))
def test_kill_nine_a_hundred_times(tmp_path, seed):
    rng = random.Random(seed)

    async def main():
        port = free_port(socket.SOCK_STREAM)
        settings = {
            "topology": "line,switches=3",
            "state": str(tmp_path),
            "listen__port": port,
            "data__port": free_port(socket.SOCK_DGRAM),
        }
        async with Lives.open(settings) as lives:
            await lives.start()
            url = f"sievenet://127.0.0.1:{port}"
            node = await sievenet.connect(url, name="node", host="h3")
            source = await sievenet.connect(url, name="source", host="h1")
            for each in (node, source):
                each._session._backoff._first, each._session._backoff._most = 0.005, 0.02
            await source.advertise(SCHEMA)
            await node.schema(SCHEMA)
            churn = Churn(node, rng)
            task = asyncio.create_task(churn.run())
            noise = asyncio.create_task(stream(source))
            for round in range(ROUNDS):
                await asyncio.sleep(rng.random() * 0.05)  # the random point at which it dies
                lives.kill()
                # What was promised up to here; requests under way may have been accepted or not.
                standing, gone = set(churn.standing), set(churn.gone)
                answer = await lives.start()
                _, recovered = answer["recovered"]["node"]
                assert standing <= set(recovered), f"round {round}"
                assert not gone & set(recovered), f"round {round}"
                assert answer["recovered"]["source"] == [[1], []]
                assert answer["check"]["ok"], answer["check"]
                await eventually(lambda: node.connected and source.connected, timeout=20)
                await probe(source, churn, b"round %d" % round)
                assert not task.done()
                assert not noise.done()
            task.cancel()
            noise.cancel()
            await asyncio.gather(task, noise, return_exceptions=True)
            assert node.statistics().losses >= ROUNDS * 0.9
            assert node.statistics().received.malformed == 0
            await node.close()
            await source.close()

    async def stream(source):
        """Events in mid-stream; those that fly while the daemon dies are lost, as packets are."""
        while True:
            with contextlib.suppress(SievenetError):
                await source.publish(reading(rng.randrange(1024)))
            await asyncio.sleep(0.001)

    async def probe(source, churn, payload):
        """An event published now reaches everybody whose subscription stood before it."""
        standing = dict(churn.standing)
        await source.publish(reading(700, payload=payload))

        def arrived():
            return all(
                payload in churn.seen[number]
                for number, (_, x) in standing.items()
                if x <= 700 and number in churn.standing
            )

        await eventually(arrived, timeout=10)

    run(main(), timeout=300)
