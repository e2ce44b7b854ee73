"""The processes of the broker benchmark: a publisher and a subscriber, over STOMP (ActiveMQ) or AMQP (RabbitMQ).

They take the same JSON lines as the processes of the fabric benchmark and do the same work: subscriptions tile x, and
every event goes to exactly one of them. The clock starts when the event is handed to the client, and stops when the
callback is called, as there.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import sys
import time
from typing import Any

import numpy as np

from benchmarks._broker_clients import CLIENTS, Client, relay
from benchmarks._fabric_worker import DOMAIN, Command, run, serve
from sievenet.client import turns

#: When it left, x, y; filled up to what an event of the fabric takes.
_BODY = struct.Struct(">QII32x")
#: Connections that the subscriptions are dealt out to, as the fabric has nodes.
_CONNECTIONS = 4


async def publisher(kind: str, port: int) -> None:
    """Publishes at a rate, or as fast as the broker takes it."""
    client = CLIENTS[kind]()
    rng = np.random.default_rng(1)

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        await client.open(port, lambda body: None)
        return {}, {"steady": steady, "flood": flood}

    def send(x: int, y: int, width: int) -> None:
        client.publish(x, x // width, _BODY.pack(time.time_ns(), x, y))

    async def steady(order: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for x, y in rng.integers(DOMAIN, size=(order["count"], 2)).tolist():
            due += 1 / order["rate"]
            await asyncio.sleep(max(0.0, due - loop.time()))
            send(x, y, order["width"])
            await client.drain()
        return {"published": order["count"]}

    async def flood(order: dict[str, Any]) -> dict[str, Any]:
        points = rng.integers(DOMAIN, size=(order["count"], 2)).tolist()
        begin = time.time()
        for i, (x, y) in enumerate(points):
            send(x, y, order["width"])
            if i % 64 == 0:
                await client.drain()
        await client.drain()
        return {"published": order["count"], "begin": begin}

    await serve(start)


async def subscriber(kind: str, port: int) -> None:
    """Subscriptions that tile x."""
    clients: list[Client] = []
    state: dict[str, Any] = {"latencies": [], "last": 0.0}

    def receive(body: bytes) -> None:
        now = time.time_ns()
        state["latencies"].append(now - _BODY.unpack(body)[0])
        state["last"] = now / 1e9

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        turns.shorten()  # as our clients do
        for _ in range(_CONNECTIONS):
            clients.append(CLIENTS[kind]())
            await clients[-1].open(port, receive)
        return {}, {"tile": tile, "wait": wait, "reset": reset}

    async def tile(order: dict[str, Any]) -> dict[str, Any]:
        for client in clients:
            await client.clear()
        count = order["count"]
        width = DOMAIN // count
        begin = time.perf_counter()
        for i in range(count):
            await clients[i % _CONNECTIONS].subscribe(i, i * width, (i + 1) * width - 1)
        for client in clients:
            await client.settle()
        took = time.perf_counter() - begin
        gc.collect()
        gc.freeze()
        return {"seconds": took}

    async def reset(order: dict[str, Any]) -> dict[str, Any]:
        state["latencies"] = []
        return {}

    async def wait(order: dict[str, Any]) -> dict[str, Any]:
        before = -1
        while len(state["latencies"]) < order["count"] and len(state["latencies"]) != before:
            before = len(state["latencies"])
            for _ in range(300):
                await asyncio.sleep(0.01)
                if len(state["latencies"]) >= order["count"]:
                    break
        answer: dict[str, Any] = {"seen": len(state["latencies"]), "last": state["last"]}
        if order.get("latencies"):
            answer["latencies"] = state["latencies"]
        return answer

    await serve(start)


if __name__ == "__main__":
    role, kind, port = sys.argv[1:]
    if role == "relay":
        turns.shorten()
        asyncio.run(relay(int(port)))
    else:
        run((publisher if role == "publisher" else subscriber)(kind, int(port)))
