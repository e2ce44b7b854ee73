"""Configurators on real NATS that are killed: how long their partitions do not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sievenet.content import Filter, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.plane import ControlPlane
from sievenet.control.store.journal import StoreJournal
from sievenet.control.store.leadership import Leadership
from sievenet.control.store.nats import NatsStore
from sievenet.daemon.distribution import Distribution
from sievenet.network import Topology
from sievenet.session.lifetime import Tasks
from sievenet.testing.nats_server import nats_server

if TYPE_CHECKING:
    from benchmarks.control import Load

__all__ = ["take_over"]

#: Seconds until a configurator that was killed is started again, as by a service manager.
SOON = 0.2


async def _always(name: str, url: str) -> None:
    """A configurator, and another one when it ends, however often."""
    while True:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sievenet", "configurator", "--nats", url, "--name", name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.sleep(SOON)


async def take_over(
    topology: Topology, load: Load, config: ControlConfig, live: int, kills: int
) -> tuple[list[float], int]:
    """Seconds from the end of a configurator until a request for all partitions is answered; and requests lost."""
    from benchmarks.control import Driver, Switches

    found: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(nats_server(Path(folder)))
        store = await NatsStore.open(server.url)
        stack.push_async_callback(store.close)
        leadership = await Leadership.win(store, "bench", 5.0)
        stack.push_async_callback(leadership.leave)
        switches = Switches(topology, scheduler=asyncio.get_running_loop())
        journal = await StoreJournal.open(store, leadership.term)
        plane = await ControlPlane.start(switches, journal, msgspec.structs.replace(config, lease=86400.0))
        stack.push_async_callback(plane.close)
        distribution = Distribution(plane, store, leadership.term)
        await distribution.start()
        stack.push_async_callback(distribution.close)
        crew = Tasks()
        stack.push_async_callback(crew.close)
        for i in range(config.staff):
            crew.begin(_always(f"c{i}", server.url))
        await plane.register_schema(load.schema)
        driver = Driver(plane, switches, load, seed=5)
        await driver.join()

        async def complete() -> dict[str, int]:
            while True:
                shown = plane.configurators()
                assert shown is not None
                names = {each["name"]: each["process"] for each in shown["configurators"] if each["well"]}
                if len(names) == config.staff:
                    return names
                await asyncio.sleep(0.02)

        await complete()
        await driver.flood(live, 0)
        for kill in range(kills):
            names = await complete()
            await driver.flood(64, 0)  # partitions are handed out again
            wide = Subscription([Filter(load.schema, {})])
            driver.next += 1
            os.kill(names[sorted(names)[kill % len(names)]], signal.SIGKILL)
            begin = time.perf_counter()
            await plane.subscribe(driver.clients[kill % len(driver.clients)], driver.next, wide)
            found.append(time.perf_counter() - begin)
            await plane.unsubscribe(driver.clients[kill % len(driver.clients)], driver.next)
        granted = {key for member in plane.members() for key in ((member.client, n) for n in member.subscriptions)}
        lost = len(set(driver.live) - granted)
    return found, lost
