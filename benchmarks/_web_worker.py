"""The processes of the web benchmark: a daemon with its web server, a publisher, readers of streams, a plain server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import selectors
import socket
import sys
import time
from typing import Any
from urllib.parse import quote

import numpy as np

import sievenet
from benchmarks._fabric_worker import Command, run, say, serve
from sievenet.content import Attribute, EventBatch, Schema

FILTERS = 1000
SCHEMA = Schema("tick", (Attribute("x", "int", lo=0, hi=FILTERS - 1), Attribute("at", "int", lo=0, hi=1 << 52)))
_AT = re.compile(rb'"at":(\d+)')


def memory(pid: int | str = "self") -> int:
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def micros() -> int:
    return time.time_ns() // 1000


# -- the daemon ----------------------------------------------------------------------------


async def daemon() -> None:
    """A fabric with its web server."""
    from benchmarks import _fabric_worker
    from sievenet.config import load_config
    from sievenet.daemon.collector import collecting_seldom
    from sievenet.daemon.daemon import Daemon
    from sievenet.index import Plan
    from sievenet.web.server import WebServer

    config = load_config(listen__port=0, data__port=0, topology="testbed", web__listen="127.0.0.1:0")
    async with contextlib.AsyncExitStack() as stack:

        async def start() -> tuple[dict[str, Any], dict[str, Command]]:
            fabric = await stack.enter_async_context(Daemon(config))
            for schema in (SCHEMA, _fabric_worker.SCHEMA):
                await fabric.control.register_schema(schema)
                plan = Plan.regular(schema, 10 if schema is SCHEMA else 14, dimensions=["x"], version=2)
                await fabric.control.apply_plan(schema.name, plan)
            server = await stack.enter_async_context(WebServer(fabric))

            async def status(order: dict[str, Any]) -> dict[str, Any]:
                return {
                    "memory": memory(),
                    "cpu": time.process_time(),
                    "looks": server.live.looks,
                    "look": server.live.took,
                    "streams": server.residents.streams,
                }

            return {"url": fabric.url, "port": server.door.address[1]}, {"status": status}

        with collecting_seldom():
            await serve(start)


# -- the publisher -------------------------------------------------------------------------


async def publisher(url: str) -> None:
    """Publishes ticks with the time in them."""
    async with sievenet.connect(url, host="h1") as node:
        rng = np.random.default_rng(1)

        async def start() -> tuple[dict[str, Any], dict[str, Command]]:
            await node.advertise(SCHEMA)
            return {}, {"flood": flood, "steady": steady}

        async def flood(order: dict[str, Any]) -> dict[str, Any]:
            begin = time.time()
            for at in range(0, order["count"], 100):
                count = min(100, order["count"] - at)
                values = {"x": rng.integers(order["spread"], size=count), "at": np.full(count, micros())}
                await node.publish_many(EventBatch.of(SCHEMA, values))
            return {"begin": begin}

        async def steady(order: dict[str, Any]) -> dict[str, Any]:
            loop = asyncio.get_running_loop()
            due = loop.time()
            for x in rng.integers(order["spread"], size=order["count"]).tolist():
                due += 1 / order["rate"]
                await asyncio.sleep(due - loop.time())
                await node.publish(SCHEMA.event(x=x, at=micros()))
            return {}

        await serve(start)


# -- a plain server ------------------------------------------------------------------------


async def plain() -> None:
    """What one would write instead: aiohttp, and a queue for each client."""
    from aiohttp import web

    queues: set[asyncio.Queue[bytes]] = set()

    async def subscribe(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: open\ndata: {}\n\n")
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        queues.add(queue)
        try:
            while True:
                await response.write(await queue.get())
        finally:
            queues.discard(queue)

    async def start() -> tuple[dict[str, Any], dict[str, Command]]:
        app = web.Application()
        app.router.add_get("/subscribe", subscribe)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        assert site._server is not None
        return {"port": site._server.sockets[0].getsockname()[1]}, {"flood": flood}  # type: ignore[attr-defined]

    async def flood(order: dict[str, Any]) -> dict[str, Any]:
        begin = time.time()
        head = (
            b'{"schema":"tick","event":{"x":1,"at":%d},"publisher":"0123456789abcdef","incarnation":"0123456789abcdef"'
        )
        for number in range(order["count"]):
            data = head % micros() + b',"sequence":%d,"latency":0.0001}' % number
            text = b"id: 01234567-%d\ndata: %b\n\n" % (number, data)
            for queue in queues:
                queue.put_nowait(text)
            # As many at a time as the other one gets together.
            if number % 100 == 99:
                await asyncio.sleep(0)
        return {"begin": begin}

    await serve(start)


# -- readers -------------------------------------------------------------------------------


class Readers:
    """Many streams, read by one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._rest: dict[socket.socket, bytes] = {}
        self.events = self.missed = 0
        self.last = 0.0
        self.latencies: list[float] = []

    def open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Connect; returns when every stream stands."""
        for number in range(order["count"]):
            sock = socket.create_connection(("127.0.0.1", order["port"]))
            path = order["path"].replace("FILTER", quote(order["filter"].replace("N", str(number))))
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            text = b""
            while b"data: {" not in text:
                part = sock.recv(1 << 20)
                if not part:
                    raise RuntimeError(f"stream {number} was refused: {text[:500]!r}")
                text += part
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
            self._rest[sock] = b""
        return {}

    def close(self, order: dict[str, Any]) -> dict[str, Any]:
        for sock in list(self._rest):
            self._selector.unregister(sock)
            sock.close()
        self._rest.clear()
        return {}

    def wait(self, order: dict[str, Any]) -> dict[str, Any]:
        """Read until so many events came in all, or nothing comes for some seconds."""
        self.events = self.missed = 0
        self.latencies.clear()
        self.last = time.time()
        while self.events + self.missed < order["count"] and time.time() < self.last + order.get("patience", 10.0):
            for key, _ in self._selector.select(0.5):
                self._read(key.fileobj, order.get("latencies", False))  # type: ignore[arg-type]
        return {"events": self.events, "missed": self.missed, "last": self.last, "latencies": self.latencies[:200_000]}

    def _read(self, sock: socket.socket, timed: bool) -> None:
        try:
            part = sock.recv(1 << 18)
        except BlockingIOError:
            return
        now = time.time()
        if not part:
            self._selector.unregister(sock)
            del self._rest[sock]
            return
        whole, mark, rest = (self._rest[sock] + part).rpartition(b"\n\n")
        self._rest[sock] = rest if mark else whole + rest
        count = whole.count(b'"at":')
        if count:
            self.events += count
            self.last = now
            if timed:
                self.latencies += (now - int(at) / 1e6 for at in _AT.findall(whole))
        if b"event: missed" in whole:
            self.missed += sum(int(each) for each in re.findall(rb'"missed":(\d+)', whole))

    def idle(self, order: dict[str, Any]) -> dict[str, Any]:
        """Read and throw away for some seconds, as pages do."""
        end = time.time() + order["seconds"]
        while (left := end - time.time()) > 0:
            for key, _ in self._selector.select(left):
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
        return {}


def readers() -> None:
    import json

    made = Readers()
    say({})
    for line in sys.stdin:
        order = json.loads(line)
        say(getattr(made, order.pop("do"))(order))


if __name__ == "__main__":
    match sys.argv[1]:
        case "daemon":
            run(daemon())
        case "publisher":
            run(publisher(sys.argv[2]))
        case "plain":
            run(plain())
        case "readers":
            readers()
