"""Balancing in virtual time: real lanes, desk and monitor, and configurators on machines that take a known time."""

from __future__ import annotations

import asyncio
import statistics
from collections import deque

import numpy as np
import pytest

from sievenet.content import Filter, Subscription
from sievenet.control.config import ControlConfig
from sievenet.control.configurators import messages as m
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane.simulator import Simulator
from sievenet.network import Testbed
from sievenet.testing.virtual_time import run_virtual
from sievenet.workload import Hotspots, Poisson, grid

#: Seconds for an order, for each of its registrations, and for each that is loaded.
ORDER, PUT, LOADED = 0.02, 0.0008, 0.0001
MACHINES = 4


class Machine:
    """Works off what it is told, one after the other; nothing ever changes in a table."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane, self.name = plane, name
        self.queue: deque[m.Load | m.Order] = deque()
        self.wake = asyncio.Event()
        self.task = asyncio.ensure_future(self.run())

    def take(self, message) -> None:
        if isinstance(message, m.Load | m.Order):
            self.queue.append(message)
            self.wake.set()
        elif isinstance(message, m.Drop):
            self.queue = deque(each for each in self.queue if each.partition != message.partition)

    async def run(self) -> None:
        while True:
            await self.wake.wait()
            while self.queue:
                order = self.queue.popleft()
                load = isinstance(order, m.Load)
                seconds = ORDER + (LOADED if load else PUT) * len(order.puts) / 32
                await asyncio.sleep(seconds)
                if not load:
                    key = order.partition, order.epoch, order.serial
                    self.plane.configurator_heard(self.name, m.Answer(*key, b"", b"", b"", int(1e6 * seconds)))
            self.wake.clear()


async def respond(mode: str, seed: int, rate: float | None, count: int) -> tuple[float, float, int]:
    """The mean response time, requests per second, and how often something moved; all at once without a rate."""
    loop = asyncio.get_running_loop()
    switches = Simulator.on_loop(Testbed.build(), seed=1)
    config = ControlConfig(mode=mode, lease=86400.0, patience=60.0, bits=20)
    plane = await ControlPlane.start(switches, MemoryJournal(), config)
    machines = {name: Machine(plane, name) for name in [f"c{i}" for i in range(MACHINES)]}
    plane.consult = lambda name, message: machines[name].take(message)
    for name in machines:
        plane.configurator_joined(name)
    schema = grid(4, hi=1024)
    await plane.register_schema(schema)
    clients = [f"at-{host}" for host in switches.topology.hosts]
    for client, host in zip(clients, switches.topology.hosts, strict=True):
        await plane.join(client, host)
    await plane.advertise(clients[0], 0, Subscription([Filter(schema, {})]))
    filters = Hotspots(schema=schema, seed=seed).subscriptions(count).filters()
    who = np.random.default_rng(seed).integers(len(clients), size=count).tolist()
    spent: list[float] = []

    async def one(number: int, due: float) -> None:
        await plane.subscribe(clients[who[number]], number + 1, Subscription([filters[number]]))
        spent.append(loop.time() - due)

    start, tasks = loop.time(), []
    times = [0.0] * count if rate is None else Poisson(rate=rate, seed=seed).times(count).tolist()
    for number, moment in enumerate(start + each for each in times):
        await asyncio.sleep(moment - loop.time())
        tasks.append(asyncio.ensure_future(one(number, moment)))
    await asyncio.gather(*tasks)
    per_second, moved = count / (loop.time() - start), plane.configurators()["moved"]
    for machine in machines.values():
        machine.task.cancel()
    await plane.close()
    return statistics.fmean(spent), per_second, moved


@pytest.mark.parametrize(("seed", "most"), [(3, 0.5), (4, 0.7)])
def test_requests_that_meet_in_few_partitions_are_answered_sooner_if_those_move(seed, most):
    """At 1.3 times what they can take if nothing moves; the more of it meets in few partitions, the more is gained."""
    _, sustained, _ = run_virtual(respond("sna", seed, None, 600))
    still, _, _ = run_virtual(respond("sna", seed, 1.3 * sustained, 6_000))
    moving, _, moved = run_virtual(respond("sna-lb", seed, 1.3 * sustained, 6_000))
    assert moving <= most * still, (moving, still, sustained)
    assert 0 < moved <= 64
