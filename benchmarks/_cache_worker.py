"""The processes of the cache benchmark: a fabric, a cache, publishers and subscribers, each told what to do by JSON."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import numpy as np

import sievenet
from benchmarks._fabric_worker import Command, run, serve
from sievenet.cache.queue import Queue
from sievenet.cachehost import CacheHost
from sievenet.client.feed import Feed
from sievenet.content import Attribute, Schema

#: One category for each workload, so that they run at the same time and do not meet.
NAMES = ("greedy", "bursts", "poisson", "latency")
SCHEMAS = {name: Schema(name, (Attribute("n", "int", lo=0, hi=1 << 30),)) for name in NAMES}
LIMIT = 1000.0


def times(workload: str, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """When events are published, in seconds: the three workloads of the thesis."""
    rng = np.random.default_rng(17)
    if workload == "greedy":
        return np.arange(count) / 2000
    if workload == "poisson":
        return np.cumsum(rng.exponential(1 / 750, count))
    # 100 per second, and every three seconds a burst that rises to 2,000 per second and falls again within a second.
    found: list[float] = []
    now = 0.0
    while len(found) < count:
        phase = now % 3.0
        rate = 100.0 + (1900.0 * (1 - abs(phase - 1.5) / 0.5) if 1.0 <= phase <= 2.0 else 0.0)
        now += rng.exponential(1 / rate)
        found.append(now)
    return np.array(found)


async def fabric(settings: dict[str, Any]) -> None:
    from sievenet.config import load_config
    from sievenet.daemon.collector import collecting_seldom
    from sievenet.daemon.daemon import Daemon

    daemon = Daemon(load_config(**settings))

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await daemon.start()
        for schema in SCHEMAS.values():
            await daemon.control.register_schema(schema)
        return {"url": daemon.url}, {}

    with collecting_seldom():
        await serve(start)


async def cache(url: str) -> None:
    host = CacheHost(url, name="cache", host="h2")
    plain = Queue.look

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await host.start()
        return {}, {"hold": hold, "state": state}

    async def hold(order: dict[str, Any]) -> dict[str, Any]:
        """Serve for ever, or as it should be: latency is measured while a cache serves."""
        Queue.look = (lambda self, now: None) if order["on"] else plain  # type: ignore[method-assign]
        return {}

    async def state(order: dict[str, Any]) -> dict[str, Any]:
        found = host.statistics()
        return {"waiting": found.waiting, "active": found.active, "memory": found.memory}

    await serve(start)


async def publisher(url: str) -> None:
    node = sievenet.connect(url, name="publisher", host="h1")._node

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await node.start()
        for schema in SCHEMAS.values():
            await node.schema(schema)
            await node.advertise(schema)
        return {}, {"publish": publish}

    async def one(name: str, when: list[float], first: int) -> None:
        schema, begin = SCHEMAS[name], time.perf_counter()
        for i, due in enumerate(when, first):
            if (ahead := due - (time.perf_counter() - begin)) > 0.0005:
                await asyncio.sleep(ahead)
            await node.publish(schema.event(n=i))

    async def publish(order: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        works = [one(name, list(when), order.get("first", 0)) for name, when in order["workloads"].items()]
        await asyncio.gather(*works)
        return {"seconds": time.perf_counter() - begin}

    await serve(start)


class Application:
    """Takes events at most at a rate, and notes when."""

    def __init__(self, feed: Feed, rate: float) -> None:
        self.feed, self.rate = feed, rate
        self.numbers: list[int] = []
        self.taken: list[float] = []
        self.latencies: list[float] = []
        self.back: float | None = None
        self.tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._watch())]

    async def _take(self) -> None:
        due = time.perf_counter()
        async for delivery in self.feed.deliveries():
            now = time.perf_counter()
            self.numbers.append(int(delivery.event["n"]))
            self.taken.append(now)
            self.latencies.append((time.time_ns() - delivery.sent) / 1e9)
            # On a busy machine it wakes late; it then catches up, and keeps its rate on average.
            due = max(due, now - 0.25) + 1 / self.rate
            if due - now > 0.001:
                await asyncio.sleep(due - now)

    async def _watch(self) -> None:
        """How long after its last event from a cache it is back at plain delivery."""
        before = "idle"
        while True:
            await asyncio.sleep(0.005)
            found = self.feed.statistics().caches
            if found is None:
                return
            if found.state == "idle" and before != "idle":
                self.back = time.perf_counter() - (self.taken[-1] if self.taken else 0.0)
            before = found.state

    def found(self) -> dict[str, Any]:
        numbers = np.array(self.numbers)
        seen = self.feed.statistics()
        caches = seen.caches
        last = self.taken[-1] if self.taken else 0.0
        return {
            "delivered": len(numbers),
            "different": len(set(self.numbers)),
            "disorder": int((np.diff(numbers) < 0).sum()) if len(numbers) else 0,
            "state": None if caches is None else caches.state,
            "activations": 0 if caches is None else caches.activations,
            "cached": 0 if caches is None else caches.cached,
            "back_s": self.back,
            "span_s": last - self.taken[0] if self.taken else 0.0,
            "p50": float(np.median(self.latencies)) if self.latencies else None,
            "mean": float(np.mean(self.latencies)) if self.latencies else None,
        }

    def reset(self) -> None:
        self.numbers.clear()
        self.taken.clear()
        self.latencies.clear()


async def subscriber(url: str) -> None:
    node = sievenet.connect(url, name=f"subscriber-{time.time_ns()}", host="h8")._node
    found: dict[str, Application] = {}

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await node.start()
        return {}, {"subscribe": subscribe, "look": look, "reset": reset}

    async def subscribe(order: dict[str, Any]) -> dict[str, Any]:
        name, rate = order["name"], order["rate"]
        if order["limit"]:
            feed = await node.subscribe(SCHEMAS[name], max_rate=order["limit"])
        else:
            # A receiver that can take so many and keeps no more than a window's worth: the rest is lost.
            feed = await node.subscribe(SCHEMAS[name], queue=max(1, int(rate / 10)))
        found[name] = Application(feed, rate)
        return {}

    async def look(order: dict[str, Any]) -> dict[str, Any]:
        return {name: each.found() for name, each in found.items()}

    async def reset(order: dict[str, Any]) -> dict[str, Any]:
        for each in found.values():
            each.reset()
        return {}

    await serve(start)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "fabric":
        run(fabric({"listen__port": 0, "data__port": 0, "topology": "testbed"}))
    else:
        run({"cache": cache, "publisher": publisher, "subscriber": subscriber}[role](*rest))
