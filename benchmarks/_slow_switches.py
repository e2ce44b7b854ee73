"""The control plane in virtual time with switches that take a while: what requests wait for, without the processor.

Used by `ordering`, `partitions` and `scaling`. All hosts publish everything, requests come at random moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sievenet.content import Filter, Schema, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane.simulator import Simulator
from sievenet.network import FlowChange, Topology
from sievenet.testing.virtual_time import run_virtual
from sievenet.workload import Poisson

__all__ = ["Course", "course", "tables_of"]


class Course(NamedTuple):
    """How some requests went."""

    #: Changes that all switches were told.
    operations: int
    mean_ms: float
    p99_ms: float
    longest_ms: float
    #: All flow tables at the end, to compare.
    tables: tuple[frozenset[object], ...]


class Slow(Simulator):
    """Switches that acknowledge after a while; `busy` ones take one bundle of changes after the other."""

    delay = 0.0
    busy = False
    operations = 0
    until: dict[str, float]

    async def apply(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Wait for the switch."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self.until.get(switch, now)) if self.busy else now
        self.until[switch] = begin + self.delay
        self.operations += len(changes)
        await asyncio.sleep(begin + self.delay - now)


def tables_of(plane: ControlPlane, switches: Sequence[str]) -> tuple[frozenset[object], ...]:
    """What every switch should hold."""
    return tuple(frozenset(plane.table(switch)) for switch in switches)


async def _course(
    topology: Topology,
    schema: Schema,
    filters: Sequence[Filter],
    rate: float | None,
    delay: float,
    config: ControlConfig,
    busy: bool,
    undo: bool,
) -> Course:
    switches = Slow(topology, scheduler=asyncio.get_running_loop())
    switches.until = {}
    plane = await ControlPlane.start(switches, MemoryJournal(), config)
    await plane.register_schema(schema)
    clients = [f"at-{host}" for host in switches.topology.hosts]
    for client, host in zip(clients, switches.topology.hosts, strict=True):
        await plane.join(client, host)
        await plane.advertise(client, 0, Subscription([Filter(schema, {})]))
    loop = asyncio.get_running_loop()
    count = len(filters)
    who = np.random.default_rng(5).integers(len(clients), size=count).tolist()

    async def subscribe(number: int) -> None:
        await plane.subscribe(clients[who[number]], number + 1, Subscription([filters[number]]))

    async def unsubscribe(number: int) -> None:
        await plane.unsubscribe(clients[who[number]], number + 1)

    if undo:
        await asyncio.gather(*map(subscribe, range(count)))
    act = unsubscribe if undo else subscribe
    switches.delay, switches.busy, switches.operations, start = delay, busy, 0, loop.time()
    times = [start] * count if rate is None else (start + Poisson(rate=rate, seed=7).times(count)).tolist()
    spent: list[float] = []

    async def one(number: int, moment: float) -> None:
        await act(number)
        spent.append(1e3 * (loop.time() - moment))

    tasks = []
    for number, moment in enumerate(times):
        if moment > loop.time():
            await asyncio.sleep(moment - loop.time())
        tasks.append(asyncio.ensure_future(one(number, moment)))
    await asyncio.gather(*tasks)
    tables = tables_of(plane, switches.topology.switches)
    await plane.close()
    p99 = float(np.quantile(spent, 0.99))
    return Course(switches.operations, sum(spent) / len(spent), p99, max(spent), tables)


def course(
    topology: Topology,
    schema: Schema,
    filters: Sequence[Filter],
    rate: float | None,
    delay: float,
    config: ControlConfig,
    busy: bool = False,
    undo: bool = False,
) -> Course:
    """Subscribe to these at random moments, `rate` a second or all at once; with `undo` take all of them back so.

    Switches acknowledge after `delay` seconds, however many bundles are on their way, or one after the other (`busy`).
    """
    return run_virtual(_course(topology, schema, filters, rate, delay, config, busy, undo))
