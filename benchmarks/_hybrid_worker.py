"""A process of the benchmark of hybrid filtering: a matcher, or one that resends what it receives and no more.

Arguments: what to be, the daemon's URL, name, host. It says when it is ready, and at the end of its input how many
packets it received and the seconds of processor that it took from the first to the last of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from sievenet.client.component import ComponentNode
from sievenet.client.matcher import MatcherNode, load
from sievenet.client.parcel import Targets
from sievenet.client.ports.burst import Arrivals
from sievenet.control.directed import everybody, twin_schema
from sievenet.daemon.collector import collecting_seldom
from sievenet.dataplane.packet import Packet, encode_packet


class Relay:
    """Sends whatever comes on to one subscriber, in the same packets as a matcher would: several events in each."""

    def __init__(self, url: str, name: str, host: str) -> None:
        self.node = ComponentNode(url, self.take, name=name, host=host)
        self._twin, self._numbers = "", np.zeros(1, np.uint32)
        self.received = 0

    async def start(self, category: str, subscriber: str) -> None:
        """Get all of a category, and have a number for the subscriber."""
        await self.node.start()
        schema = await self.node.schema(category)
        sender = await self.node.directed(category)
        self._twin, self._numbers[0] = twin_schema(category).name, (await sender.recipient([subscriber]))[0]
        await self.node.want(everybody(schema))

    def done(self) -> int:
        return self.received

    def take(self, packets: list[Packet] | Arrivals) -> None:
        self.received += len(packets)
        if isinstance(packets, Arrivals):
            rows = packets.matrix
        else:
            rows = np.frombuffer(b"".join(map(encode_packet, packets)), np.uint8).reshape(len(packets), -1)
        every = np.arange(len(rows))
        for burst in self.node.rows_for(self._twin, rows, Targets(every, np.zeros_like(every), self._numbers)):
            self.node.give(burst)


async def main(kind: str, url: str, name: str, host: str) -> None:
    """Serve until the input ends."""
    count: Callable[[], int]
    if kind == "matcher":
        node = MatcherNode(url, name=name, host=host)
        await node.start()
        count = node.done
    else:
        await asyncio.to_thread(load)
        relay = Relay(url, name, host)
        await relay.start("point", "sub")
        count = relay.done
    print(json.dumps({"ready": True}), flush=True)
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip():
        start = count()
        while count() == start:
            await asyncio.sleep(0.0005)
        first = last = count()
        begin = end = time.process_time()
        moved = time.perf_counter()
        # Until all have come, or nothing more comes: what is lost on the way is not this process's doing.
        while last < start + int(line) and time.perf_counter() - moved < 1.0:
            await asyncio.sleep(0.05)  # rarely: looking costs something too
            if count() > last:
                last, end, moved = count(), time.process_time(), time.perf_counter()
        print(json.dumps({"events": last - first, "cpu": end - begin}), flush=True)


if __name__ == "__main__":
    with collecting_seldom():  # as `sievenet matcher` does
        asyncio.run(main(*sys.argv[1:5]))
