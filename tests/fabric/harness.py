"""A fabric for tests: a daemon in this process on free ports, and waiting on conditions instead of sleeping."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from click.testing import CliRunner

import sievenet
from sievenet.cli import main as sievenet_main
from sievenet.config import load_config
from sievenet.content import Attribute, Schema
from sievenet.control import warmup
from sievenet.daemon.daemon import Daemon
from sievenet.matcher.warmup import EVENTS

# Leases in tests are shorter than loading compiled code takes.
warmup.load()
EVENTS.load()

SCHEMA = Schema(
    "reading",
    (
        Attribute("x", "int", lo=0, hi=1023),
        Attribute("y", "float", lo=0, hi=1),
        Attribute("kind", "str", values=("cold", "hot", "warm")),
        Attribute("ok", "bool"),
    ),
)


def config(**changes):
    """Free ports, a small network, a short lease."""
    return load_config(**{"listen__port": 0, "data__port": 0, "topology": "line,switches=3", **changes})


@contextlib.asynccontextmanager
async def fabric(journal=None, network=None, **changes):
    """A running daemon."""
    async with Daemon(config(**changes), topology=network, journal=journal) as daemon:
        yield daemon


def reading(x=1, y=0.5, kind="hot", ok=True, payload=b""):
    return SCHEMA.event(payload, x=x, y=y, kind=kind, ok=ok)


@contextlib.asynccontextmanager
async def publisher(daemon, **settings):
    """A node that may publish everything of `SCHEMA`."""
    async with sievenet.connect(daemon.url, **settings) as node:
        await node.advertise(SCHEMA)
        yield node


async def eventually(condition, timeout=30.0):
    """Wait until a condition holds; patiently, since a machine under load is slow."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.002)


async def take(feed, count, timeout=30.0):
    """The next so many events."""
    async with asyncio.timeout(timeout):
        return [await anext(feed) for _ in range(count)]


def run(work, timeout=120.0):
    """Run a test's coroutine, with an end to it."""

    async def limited():
        async with asyncio.timeout(timeout):
            return await work

    return asyncio.run(limited())


@contextlib.contextmanager
def in_thread(make):
    """What `make` makes, used with ``async with`` in a thread of its own, for tests that block."""
    ready = threading.Event()
    box = {}

    async def main():
        box["stop"] = asyncio.Event()
        box["loop"] = asyncio.get_running_loop()
        try:
            async with make() as made:
                box["made"] = made
                ready.set()
                await box["stop"].wait()
        finally:
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield box["made"]
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join()


def fabric_in_thread(**changes):
    """A daemon for what blocks: the command line, the synchronous client."""
    return in_thread(lambda: fabric(**changes))


def caller(url, monkeypatch):
    """Calls commands of `sievenet` in this process, at a daemon; each must end with `code`."""
    monkeypatch.setenv("SIEVENET_URL", url)

    def call(*arguments, code=0, input=None):
        result = CliRunner().invoke(sievenet_main, arguments, prog_name="sievenet", input=input)
        assert result.exit_code == code, result.output
        return result

    return call
