"""The whole protocol in virtual time: random requests, failures of the network, of the controller and of configurators.

After every step the tables of all switches are those of a build from scratch, every accepted request is in effect, and
no epoch of a partition had two owners.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sievenet.network import Line, Ring, Testbed
from sievenet.testing.virtual_time import run_virtual
from tests.control.configurators.staff import StaffedWorld
from tests.control.test_stateful import DELAY, OTHER, SCHEMA, step
from tests.control.world import CONFIG
from tests.seeds import seeds


def drive(seed: int, steps: int, failures: bool, **config) -> StaffedWorld:
    shape = (Line.build(link=DELAY), Ring.build(switches=5, link=DELAY), Testbed.build(link=DELAY))[seed % 3]
    mode, partitions = ("sna", "sna-lb")[seed % 2], (4, 16)[seed // 2 % 2]
    settings = {"mode": mode, "partitions": partitions, "patience": 0.5, "look": 0.05}

    async def main() -> StaffedWorld:
        world = StaffedWorld(shape, seed, msgspec.structs.replace(CONFIG, **settings, **config))
        await world.open(SCHEMA, OTHER)
        for _ in range(seed % 3):
            world.staff.hire()
        for _ in range(2):
            await world.join()
        done = []
        for _ in range(steps):
            for _ in range(world.random.choice((0, 0, 1, 2))):
                world.staff.fault()
                done.append("staff")
            requests = asyncio.ensure_future(step(world, failures))
            if world.random.random() < 0.3:  # in the middle of it
                await asyncio.sleep(world.random.random() / 50)
                world.staff.fault()
                done.append("staff meanwhile")
            done.append(await requests)
            await world.settle()
            try:
                world.check_tables()
                world.check()
                await world.check_deliveries()
            except AssertionError as error:
                raise AssertionError(f"after {done}: {error}") from error
        world.staff.close()
        await world.control.close()
        return world

    return run_virtual(main())


@pytest.mark.parametrize("seed", seeds(12, 24))
def test_nothing_shows_that_there_are_configurators(seed):
    drive(seed, 30, failures=seed % 4 == 3)
