"""A fabric with its web server, and clients that speak HTTP, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp

from sievenet.content import Attribute, Schema
from sievenet.web.server import WebServer
from tests.fabric.harness import fabric

READING = Schema(
    "reading",
    (
        Attribute("x", "int", lo=0, hi=999),
        Attribute("y", "float", lo=0, hi=1),
        Attribute("kind", "str", values=("cold", "hot")),
    ),
)


def run(test, seconds=120):
    """Run a test's coroutine, not for ever."""
    asyncio.run(asyncio.wait_for(test, seconds))


def reading(x, y=0.5, kind="hot"):
    return {"x": x, "y": y, "kind": kind}


@contextlib.asynccontextmanager
async def served(schema=READING, **changes):
    """A daemon with a web server on a free port; as daemon, server and session."""
    changes = {"web__listen": "127.0.0.1:0", "topology": "line,switches=3", **changes}
    async with (
        fabric(**changes) as daemon,
        WebServer(daemon) as server,
        aiohttp.ClientSession(
            server.url, connector=aiohttp.TCPConnector(ssl=False, limit=0), timeout=aiohttp.ClientTimeout(total=60)
        ) as http,
    ):
        if schema is not None:
            await daemon.control.register_schema(schema)
        yield daemon, server, http


class Events:
    """A reader of server-sent events."""

    def __init__(self, response):
        self._lines = response.content
        self.last = ""

    async def next(self, timeout=20):
        """The next message: name and data."""
        name, data = "event", None
        async with asyncio.timeout(timeout):
            while line := (await self._lines.readline()).decode():
                key, _, value = line.rstrip("\n").partition(": ")
                if not line.strip():
                    if data is not None:
                        return name, json.loads(data)
                    name = "event"
                elif key == "id":
                    self.last = value
                elif key == "event":
                    name = value
                elif key == "data":
                    data = value
        raise EOFError

    async def values(self, count, key="x"):
        """A value of each of the next events; what was missed counts as None."""
        found = []
        while len(found) < count:
            name, data = await self.next()
            if name == "event":
                found.append(data["event"][key])
            elif name == "missed":
                found += [None] * data["missed"]
        return found


@contextlib.asynccontextmanager
async def events(http, wanted, last="", **settings):
    """Subscribe with server-sent events; the stream stands when this begins."""
    headers = {**settings.pop("headers", {}), **({"Last-Event-ID": last} if last else {})}
    async with http.get("/subscribe", params={"filter": wanted}, headers=headers, **settings) as response:
        assert response.status == 200, await response.text()
        reader = Events(response)
        name, _ = await reader.next()
        assert name == "open"
        yield reader


async def publish(http, rows, category="reading", **settings):
    """Publish events; the status and the answer."""
    async with http.post(f"/publish/{category}", json=rows, **settings) as response:
        return response.status, await response.json()
