"""A process of the benchmark of hybrid filtering: a matcher, or one that resends what it receives and no more.

Arguments: what to be, the daemon's URL, name, host. It says when it is ready, and for each number of events that it is
told how many packets it received, in how many calls, and the seconds of processor that it took from the first to the
last of them. What publishes these events (`source`) and what subscribes to them (`sink`) are such processes too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import numpy as np

import sievenet
from sievenet.client.component import ComponentNode
from sievenet.client.matcher import BEAT, MatcherNode, load
from sievenet.client.parcel import Targets
from sievenet.client.ports.burst import Arrivals
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.control import protocol as p
from sievenet.control.directed import twin_schema
from sievenet.daemon.collector import collecting_seldom
from sievenet.dataplane.packet import Packet, encode_packet

#: The first bit of a code says in which half of `y` an event is; what is wanted is said of `x`.
POINT = Schema("point", (Attribute("y", "int", lo=0, hi=1023), Attribute("x", "int", lo=0, hi=7999)))
#: Events published at a time, and the seconds between: no faster than the planes take it.
_PIECE, _PAUSE = 2_000, 0.01
#: Seconds without an event after which no more are expected.
_SILENCE = 5.0


class Counted(MatcherNode):
    """A matcher that counts how often packets come."""

    calls = 0

    def _take(self, packets: list[Packet] | Arrivals) -> None:
        self.calls += 1
        super()._take(packets)


class Relay:
    """Sends whatever is diverted to it on to the one subscriber, in the same packets as a matcher would.

    To the daemon it is a matcher, so that all around it is as around one; but it looks at nothing.
    """

    def __init__(self, url: str, name: str, host: str) -> None:
        self.node = ComponentNode(url, self.take, name=name, host=host, instructed=self._told)
        self._twin, self._numbers = "", np.zeros(1, np.uint32)
        self.received = self.calls = 0

    async def start(self, category: str) -> None:
        """Be there for a category."""
        await self.node.start()
        await self.node.schema(category)
        await self.node.directed(category)
        self._twin = twin_schema(category).name
        await self.node.call(p.Match)
        self._beating = asyncio.create_task(self._beat())

    def _told(self, order: p.Serve | p.Await) -> None:
        if isinstance(order, p.Serve) and order.added:
            self._numbers[0] = order.added[0].recipient
        self.node.tell(p.Did(order.serial))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self.node.tell(p.Matched(0, 0, 0, 0, 0.0))

    def done(self) -> int:
        return self.received

    def take(self, packets: list[Packet] | Arrivals) -> None:
        self.received += len(packets)
        self.calls += 1
        if isinstance(packets, Arrivals):
            rows = packets.matrix
        else:
            rows = np.frombuffer(b"".join(map(encode_packet, packets)), np.uint8).reshape(len(packets), -1)
        every = np.arange(len(rows))
        for burst in self.node.rows_for(self._twin, rows, Targets(every, np.zeros_like(every), self._numbers)):
            self.node.give(burst)


async def source(url: str, name: str, host: str) -> None:
    """Publish as many events as each line says, in pieces that are in one half of the space and the other in turn."""
    async with sievenet.connect(url, name=name, host=host) as node:
        await node.schema(POINT)
        await node.advertise(POINT)
        print(json.dumps({"ready": True}), flush=True)
        loop = asyncio.get_running_loop()
        while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip():
            count, rng = int(line), np.random.default_rng(1)
            piece = min(_PIECE, count // 2)
            half = np.arange(count) // piece % 2
            columns = {"x": rng.integers(8000, size=count), "y": rng.integers(512, size=count) + 512 * half}
            batch = EventBatch.of(POINT, columns)
            for start in range(0, count, piece):
                await node.publish_many(batch.take(slice(start, start + piece)))
                await asyncio.sleep(_PAUSE)
            print(json.dumps({"published": count}), flush=True)


async def sink(url: str, name: str, host: str, subscriptions: int) -> None:
    """Have so many subscriptions, of which each event concerns one; say at each line how many events came."""
    came = 0

    def taken(_delivery: object) -> bool:
        nonlocal came
        came += 1
        return True

    async with sievenet.connect(url, name=name, host=host) as node:
        await node.schema(POINT)
        width = 8000 // subscriptions
        tiles = [ValueSet.interval(i * width, (i + 1) * width - 1) for i in range(subscriptions)]
        await asyncio.gather(*(node.listen(Subscription([Filter(POINT, {"x": each})]), taken) for each in tiles))
        print(json.dumps({"ready": True}), flush=True)
        loop = asyncio.get_running_loop()
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            print(json.dumps({"came": came}), flush=True)


async def main(kind: str, url: str, name: str, host: str, subscriptions: str = "0") -> None:
    """Serve until the input ends."""
    if kind == "source":
        await source(url, name, host)
        return
    if kind == "sink":
        await sink(url, name, host, int(subscriptions))
        return
    node: Counted | Relay
    if kind == "matcher":
        node = Counted(url, name=name, host=host)
        await node.start()
    else:
        await asyncio.to_thread(load)
        node = Relay(url, name, host)
        await node.start("point")
    count = node.done
    print(json.dumps({"ready": True}), flush=True)
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip():
        start = count()
        while count() == start:
            await asyncio.sleep(0.0005)
        first = last = count()
        calls = node.calls
        begin = end = time.process_time()
        moved = time.perf_counter()
        # Until all have come, or nothing more comes: what is lost on the way is not this process's doing.
        while last < start + int(line) and time.perf_counter() - moved < _SILENCE:
            await asyncio.sleep(0.05)  # rarely: looking costs something too
            if count() > last:
                last, end, moved = count(), time.process_time(), time.perf_counter()
        found = {"came": last - start, "events": last - first, "cpu": end - begin, "calls": node.calls - calls}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    with collecting_seldom():  # as `sievenet matcher` does
        asyncio.run(main(*sys.argv[1:6]))
