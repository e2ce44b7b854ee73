"""Configurators and ten real Open vSwitch bridges: requests that end in flow tables which packets go through."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.harness import quantiles
from sievenet.control.config import ControlConfig
from sievenet.control.journal import Durability, FileJournal
from sievenet.control.plane import ControlPlane
from sievenet.daemon.configurators import Configurators
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.network import Testbed
from sievenet.programs import missing

if TYPE_CHECKING:
    from benchmarks.control import Load

__all__ = ["Bridged", "bridged", "why_not"]


class Bridged(NamedTuple):
    """How requests went on real switches."""

    per_s: float
    mean_ms: float
    p99_ms: float
    flows: int


def why_not() -> str:
    """Why this machine cannot do it; nothing if it can."""
    if os.geteuid() != 0:
        return "needs root"
    lacking = [each.name for each in missing("openvswitch")]
    return f"needs {', '.join(lacking)}" if lacking else ""


async def bridged(load: Load, config: ControlConfig, count: int, rate: float) -> Bridged:
    """So many subscriptions as fast as they go, then as many at random moments, half of them taken back."""
    from benchmarks.control import Driver

    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sv")))
        network = OvsNetwork(Testbed.build(), f"svb{os.getpid() % 1_000_000:x}", run_dir=folder / "run")
        stack.enter_context(network.claimed())
        await asyncio.to_thread(network.prepare)
        stack.push_async_callback(asyncio.to_thread, network.down)
        plane = network.plane()
        stack.push_async_callback(plane.close)
        await plane.start(sock=network.controller_socket())
        await asyncio.to_thread(network.connect)
        await plane.connected()
        journal = FileJournal(folder / "journal", durability=Durability.POWER)
        control = await ControlPlane.start(plane, journal, msgspec.structs.replace(config, lease=86400.0))
        stack.push_async_callback(control.close)
        if config.mode.startswith("sna"):
            staff = Configurators(control, config.staff)
            await staff.start()
            stack.push_async_callback(staff.close)
            while len((control.configurators() or {})["configurators"]) < config.staff:
                await asyncio.sleep(0.05)
        await control.register_schema(load.schema)
        driver = Driver(control, plane, load, seed=5)  # type: ignore[arg-type]
        plane.changes = 0  # type: ignore[attr-defined]
        await driver.join()
        await driver.flood(count // 4, 0)
        spent = await driver.flood(count, 0)
        times = await driver.poisson(count, rate)
        flows = sum([len(await plane.table(switch)) for switch in plane.topology.switches])
        p99 = quantiles(times, (0.99,))["p99"]
        return Bridged(spent.requests / spent.wall, sum(times) / len(times), p99, flows)
