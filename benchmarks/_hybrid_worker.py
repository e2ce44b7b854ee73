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
from typing import Any

from sievenet.client.component import ComponentNode
from sievenet.client.matcher import MatcherNode
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.control.directed import everybody


class Relay:
    """Gives back whatever comes."""

    def __init__(self, url: str, name: str, host: str) -> None:
        self.node = ComponentNode(url, self.take, name=name, host=host)
        self.received = 0

    def done(self) -> int:
        return self.received

    def take(self, packets: Any) -> None:
        self.received += len(packets)
        port = self.node._session.port
        assert port is not None
        if isinstance(packets, Arrivals):
            port.send(Burst.of(packets.matrix))
        else:
            port.send(list(packets))


async def main(kind: str, url: str, name: str, host: str) -> None:
    """Serve until the input ends."""
    count: Callable[[], int]
    if kind == "matcher":
        node = MatcherNode(url, name=name, host=host)
        await node.start()
        count = node.done
    else:
        relay = Relay(url, name, host)
        await relay.node.start()
        count = relay.done
        schema = await relay.node.schema("point")
        await relay.node.want(everybody(schema))
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
    asyncio.run(main(*sys.argv[1:5]))
