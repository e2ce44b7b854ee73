"""The processes of the fabric benchmark: a daemon, a publisher, and a subscriber with a node on every host.

Each is told what to do by a JSON line on stdin and answers with one on stdout; they meet only through real sockets.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

import sievenet
from sievenet.client import Feed, Node, Whole
from sievenet.client.busyloop import BusyLoop, busy_loop
from sievenet.client.delivery import Delivery
from sievenet.content import Attribute, EventBatch, Schema

#: Subscriptions tile this domain, so that every event matches exactly one of them, however many there are.
DOMAIN = 16_000
SCHEMA = Schema("point", (Attribute("x", "int", lo=0, hi=DOMAIN - 1), Attribute("y", "int", lo=0, hi=DOMAIN - 1)))

Command = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]


async def serve(start: Callable[[], Coroutine[Any, Any, tuple[dict[str, Any], dict[str, Command]]]]) -> None:
    """Answer commands until stdin ends."""
    hello, commands = await start()
    say(hello)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        if order["do"] == "busy":
            assert isinstance(loop, BusyLoop)
            loop.seconds = order["seconds"]
            say({})
            continue
        say(await commands[order.pop("do")](order))


def run(main: Coroutine[Any, Any, None]) -> None:
    """On a loop that can be told to be busy; it is not yet."""
    with asyncio.Runner(loop_factory=busy_loop(0)) as runner:
        runner.run(main)


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


# -- daemon --------------------------------------------------------------------------------


async def daemon(settings: dict[str, Any]) -> None:
    """A fabric."""
    from sievenet.config import load_config
    from sievenet.daemon.collector import collecting_seldom
    from sievenet.daemon.daemon import Daemon
    from sievenet.index import Plan

    fabric = Daemon(load_config(**settings))

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await fabric.start()
        await fabric.control.register_schema(SCHEMA)
        await fabric.control.apply_plan("point", Plan.regular(SCHEMA, 14, dimensions=["x"], version=2))
        return {"url": fabric.url}, {"status": status}

    async def status(order: dict[str, Any]) -> dict[str, Any]:
        found = await fabric.answers.status()
        gc.collect()
        return {
            "flows": sum(switch["flows"] for switch in found["switches"]),
            "dropped": found["traffic"]["dropped"],
            "hops": sum(switch["packets"] for switch in found["switches"]),
        }

    # As `sievenet up` does.
    with collecting_seldom():
        await serve(start)


# -- publisher -----------------------------------------------------------------------------


async def publisher(url: str) -> None:
    """Publishes at a rate, or as fast as it goes."""
    node = await sievenet.connect(url, name="publisher", host="h1")
    rng = np.random.default_rng(1)

    def events(count: int) -> EventBatch:
        return EventBatch.of(SCHEMA, {name: rng.integers(DOMAIN, size=count) for name in ("x", "y")})

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await node.advertise(SCHEMA)
        return {"name": node.name, "number": node._identity()[0]}, {
            "steady": steady,
            "flood": flood,
            "timed": timed,
            "bare": bare,
        }

    async def steady(order: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for event in events(order["count"]):
            due += 1 / order["rate"]
            await asyncio.sleep(max(0.0, due - loop.time()))
            await node.publish(event)
        return {"published": order["count"]}

    async def timed(order: dict[str, Any]) -> dict[str, Any]:
        """How long each `publish` takes, in nanoseconds, at a rate, or one after the other at rate 0."""
        loop = asyncio.get_running_loop()
        due, spent = loop.time(), []
        for event in events(order["count"]):
            if order["rate"]:
                due += 1 / order["rate"]
                await asyncio.sleep(max(0.0, due - loop.time()))
            begin = time.perf_counter_ns()
            await node.publish(event)
            spent.append(time.perf_counter_ns() - begin)
        return {"spent": spent}

    async def bare(order: dict[str, Any]) -> dict[str, Any]:
        """The same for the system call alone, with packets that nobody takes for events."""
        loop, port = asyncio.get_running_loop(), node._session.port  # type: ignore[attr-defined]
        due, spent = loop.time(), []
        codes = rng.integers(DOMAIN, size=order["count"]).tolist()
        for code in codes:
            if order["rate"]:
                due += 1 / order["rate"]
                await asyncio.sleep(max(0.0, due - loop.time()))
            target = (f"fd0e:1:{code << 2:x}::", 0x8000) if port.independent else None
            begin = time.perf_counter_ns()
            if target is None:
                port._socket.send(bytes(90))
            else:
                port._socket.sendto(bytes(90), target)
            spent.append(time.perf_counter_ns() - begin)
        return {"spent": spent}

    async def flood(order: dict[str, Any]) -> dict[str, Any]:
        batch = events(order["count"])
        begin, cpu = time.time(), time.process_time()
        await node.publish_many(batch)
        return {"published": order["count"], "begin": begin, "cpu": time.process_time() - cpu}

    await serve(start)


# -- subscriber ----------------------------------------------------------------------------


class Recorder:
    """Every latency as it is, up to the callback, where a feed has a histogram."""

    def __init__(self) -> None:
        self.seen = 0
        self.seconds: list[float] = []
        #: When the last event came.
        self.last = 0.0
        #: When the process began to read the event that comes next, and how long events took from there.
        self.began = 0
        self.spent: list[int] = []
        #: Whose events count; None: everybody's.
        self.only: int | None = None

    def note(self, delivery: Delivery) -> None:
        now = time.time_ns()
        if self.only is not None and delivery.publisher != self.only:
            return
        if self.began:
            self.spent.append(time.perf_counter_ns() - self.began)
            self.began = 0
        self.seen += 1
        self.seconds.append((now - delivery.sent) / 1e9)
        self.last = now / 1e9

    def reset(self) -> None:
        self.seen = 0
        self.seconds.clear()
        self.spent.clear()

    def watch(self, port: Any) -> None:
        """Note when a data port begins to read."""
        read = port._readable

        def timed() -> None:
            self.began = time.perf_counter_ns()
            read()

        port._readable = timed
        port.pause()
        port.resume()


async def subscriber(url: str, hosts: list[str]) -> None:
    """A node on each host; together they subscribe to everything, in as many pieces as asked for."""
    nodes: list[Node] = []
    feeds: list[Feed] = []
    recorder = Recorder()

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        for host in hosts:
            nodes.append(await sievenet.connect(url, host=host))
            await nodes[-1].schema("point")
        return {"nodes": len(nodes)}, {
            "tile": tile,
            "wait": wait,
            "reset": reset,
            "respond": respond,
            "watch": watch,
        }

    async def tile(order: dict[str, Any]) -> dict[str, Any]:
        """Hold exactly so many subscriptions, the pieces dealt out to the nodes in turn."""
        await in_chunks([feed.close() for feed in feeds])
        count = order["count"]
        width = DOMAIN // count
        note = Whole(recorder.note)
        begin = time.perf_counter()
        feeds[:] = await in_chunks(
            [
                nodes[i % len(nodes)].subscribe(f"point: x in [{i * width}, {(i + 1) * width - 1}]", note)
                for i in range(count)
            ]
        )
        took = time.perf_counter() - begin
        gc.collect()
        gc.freeze()
        return {"subscriptions": len(feeds), "seconds": took}

    async def respond(order: dict[str, Any]) -> dict[str, Any]:
        """How long single subscriptions take, one after the other, in seconds."""
        seconds = []
        for i in range(order["count"]):
            begin = time.perf_counter()
            feed = await nodes[i % len(nodes)].subscribe(f"point: y in [{i}, {i + 9}]")
            seconds.append(time.perf_counter() - begin)
            await feed.close()
        return {"seconds": seconds}

    async def reset(order: dict[str, Any]) -> dict[str, Any]:
        recorder.reset()
        recorder.only = order.get("only")
        return {"cpu": time.process_time()}

    async def watch(order: dict[str, Any]) -> dict[str, Any]:
        for node in nodes:
            recorder.watch(node._session.port)  # type: ignore[attr-defined]
        return {}

    async def wait(order: dict[str, Any]) -> dict[str, Any]:
        """Wait until so many have come, or no more come for a second."""
        before = -1
        while recorder.seen < order["count"] and recorder.seen != before:
            before = recorder.seen
            for _ in range(100):
                await asyncio.sleep(0.01)
                if recorder.seen >= order["count"]:
                    break
        received = [node.statistics().received for node in nodes]
        answer: dict[str, Any] = {
            "seen": recorder.seen,
            "last": recorder.last,
            "false_positives": sum(r.false_positives for r in received),
            "duplicates": sum(r.duplicates for r in received),
            "cpu": time.process_time(),
            "spent": recorder.spent,
        }
        if order.get("latencies"):
            answer["latencies"] = [int(v * 1e9) for v in recorder.seconds]
        return answer

    await serve(start)


async def in_chunks(work: list[Coroutine[Any, Any, Any]], size: int = 200) -> list[Any]:
    """Run much at the same time, but not all."""
    done: list[Any] = []
    for start in range(0, len(work), size):
        done += await asyncio.gather(*work[start : start + size])
    return done


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "daemon":
        asyncio.run(daemon(json.loads(rest[0])))
    elif role == "publisher":
        run(publisher(rest[0]))
    else:
        run(subscriber(rest[0], json.loads(rest[1])))
