"""Plan changes under continuous traffic: nothing that is wanted is missed, from any moment on, through crashes too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from sievenet.content import Filter, Subscription, ValueSet
from sievenet.control import transition
from sievenet.control.stages import STAGES
from sievenet.dataplane.fabric import ApplyFault
from sievenet.errors import Rejected
from sievenet.index import Plan
from sievenet.network import TOP_PRIORITY, LinkSettings, Testbed, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, SCHEMA, World
from tests.seeds import seeds

LINK = LinkSettings(delay=0.002)
PLANS = (
    Plan.regular(SCHEMA, 5, dimensions=["y", "x"], version=2),
    Plan.selective(SCHEMA, [{"x": (0, 6)}, {"x": (5, 12), "y": (3, 9)}], 8, version=3),
    Plan.regular(SCHEMA, 7, kind="cells", version=4),
    Plan.selective(SCHEMA, [{"x": (0, 6)}, {"x": (5, 12), "y": (3, 9)}], 8, kind="cells", version=5),
    Plan.adaptive(SCHEMA, {"x": [2, 3, 11]}, 7, version=6),
)


class Traffic:
    """Publishes all the time and remembers who must get what."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.due: dict[int, set[str]] = {}
        self.most_extra = 0
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        world = self.world
        while True:
            for (client, _), content in list(world.advertisements.items()):
                event = world.event()
                if content.matches(event):
                    wanted = {n for (n, _), s in world.subscriptions.items() if n != client and s.matches(event)}
                    self.due[world.publish(client, event)] = wanted
            for switch in world.plane.topology.switches:
                extra = sum(f.priority == TOP_PRIORITY for f in world.plane.table_now(switch))
                self.most_extra = max(self.most_extra, extra)
            await asyncio.sleep(0.003)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.sleep(1)
        assert len(self.due) > 100
        for sent, wanted in self.due.items():
            assert wanted <= set(self.world.received.get(sent, ())), f"event {sent} missed"


async def busy(seed: int, **config) -> World:
    shape = Testbed.build(link=LINK) if seed % 2 else parse_topology("fattree,k=4,delay=0.002")
    world = World(shape, seed, msgspec.structs.replace(CONFIG, **config), control_delay=0.004)
    await world.open()
    names = [await world.join() for _ in range(6)]
    for name in names[:3]:
        await world.advertise(name, Subscription([Filter(SCHEMA, {})]))
    for name in names:
        for _ in range(4):
            await world.subscribe(name, world.content())
    return world


@pytest.mark.parametrize("seed", seeds(4))
def test_no_event_is_missed(seed):
    async def main() -> None:
        tiling = ("equal", "equal", "equal", "balanced")[seed % 4]
        world = await busy(seed, partitions=(1, 4)[seed // 2 % 2], tiling=tiling)
        traffic = Traffic(world)
        await asyncio.sleep(0.05)
        for number, plan in enumerate(PLANS):
            change = asyncio.ensure_future(world.control.apply_plan("grid", plan))
            for _ in range(5):  # requests go on meanwhile
                await asyncio.sleep(0.02)
                await world.subscribe(world.random.choice(sorted(world.clients)), world.content())
            report = await change
            assert report.epoch == number + 2
            assert report.extra_flows == 1
            assert {"catching", "swapping", "telling", "draining"} <= set(report.stages)
            now = world.control.category("grid").plan
            assert now.regions[:1] == plan.regions[:1] or not plan.complete
            assert bool(now.tiles) == (tiling == "balanced" and plan.kind == "dz")
        assert traffic.most_extra == 1
        await traffic.stop()
        world.check_tables()
        await world.check_deliveries()
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(12))
def test_a_crash_in_the_middle_is_finished_or_rolled_back(seed):
    async def main() -> None:
        world = await busy(seed, partitions=(1, 8)[seed % 2], tiling="balanced")
        traffic = Traffic(world)
        await asyncio.sleep(0.05)
        plan = PLANS[seed % len(PLANS)]
        change = asyncio.ensure_future(world.control.apply_plan("grid", plan))
        await asyncio.sleep(0.004 + 0.012 * (seed % 12))
        change.cancel()
        await world.crash()
        assert world.control.status().transitions == {}
        await traffic.stop()
        world.check_tables()
        await world.check_deliveries()
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(6))
def test_switches_that_fail_to_answer_and_links_that_fail_meanwhile(seed):
    async def main() -> None:
        world = await busy(seed)
        change = asyncio.ensure_future(world.control.apply_plan("grid", PLANS[seed % len(PLANS)]))
        for i in range(8):
            switch = world.random.choice(world.plane.topology.switches)
            world.plane.inject_fault(switch, ApplyFault(applied=world.random.choice((0, 1, None)), late=None))
            if i == seed % 6:
                world.plane.link_down(*sorted(world.tree(1, PLANS[0].encode(world.event())[0]).links())[0])
            await asyncio.sleep(0.02)
        await change
        world.plane.clear_faults()
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        await world.control.close()

    run_virtual(main())


def test_only_one_change_at_a_time_and_none_that_does_not_fit():
    async def main() -> None:
        world = await busy(1)
        first = asyncio.ensure_future(world.control.apply_plan("grid", PLANS[0]))
        await asyncio.sleep(0)
        with pytest.raises(Rejected, match="already"):
            await world.control.apply_plan("grid", PLANS[1])
        await first
        small = World(Testbed.build(link=LINK), 5, CONFIG, capacity=4)
        await small.open()
        a, b = await small.join("h1"), await small.join("h8")
        await small.advertise(a, Subscription([Filter(SCHEMA, {})]))
        before = await small.control.apply_plan("grid", Plan.regular(SCHEMA, 1, dimensions=["y"]))
        await small.subscribe(b, Subscription([Filter(SCHEMA, {"y": ValueSet.interval(1, 14)})]))
        # Four flows and the catch-all: merged.
        after = await small.control.apply_plan("grid", Plan.regular(SCHEMA, 4, dimensions=["y"]))
        assert (before.epoch, after.epoch) == (2, 3)
        await small.settle()
        small.check_tables()
        await small.check_deliveries()
        # Switches with a single entry have no room for a catch-all flow.
        tiny = World(Testbed.build(link=LINK), 5, CONFIG, capacity=1)
        await tiny.open()
        a, b = await tiny.join("h1"), await tiny.join("h8")
        await tiny.advertise(a, Subscription([Filter(SCHEMA, {})]))
        await tiny.subscribe(b, Subscription([Filter(SCHEMA, {"y": ValueSet.interval(1, 14)})]))
        with pytest.raises(Rejected, match="full"):
            await tiny.control.apply_plan("grid", Plan.regular(SCHEMA, 4, dimensions=["y"]))
        assert tiny.control.category("grid").epoch == 1
        await tiny.subscribe(b, Subscription([Filter(SCHEMA, {"y": ValueSet.interval(15, 15)})]))
        await tiny.settle()
        tiny.check_tables()
        await tiny.check_deliveries()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(3))
def test_requests_while_the_new_registrations_are_worked_out(seed, monkeypatch):
    """So many subscriptions that covering takes many turns; others come and go in between."""
    monkeypatch.setattr(transition, "_CHUNK", 5)

    async def main() -> None:
        world = await busy(seed, partitions=(1, 4, 2)[seed % 3])
        names = sorted(world.clients)
        await asyncio.gather(*(world.subscribe(world.random.choice(names), world.content()) for _ in range(300)))
        change = asyncio.ensure_future(world.control.apply_plan("grid", PLANS[seed % len(PLANS)]))
        stages = set()
        tasks = []
        while not world.control.status().transitions:  # with cells, a grain is found first
            await asyncio.sleep(0.001)
        for _ in range(30):
            await asyncio.sleep(0)
            stages |= set(world.control.status().transitions.values())
            tasks.append(asyncio.ensure_future(world.drop()))
            tasks.append(asyncio.ensure_future(world.subscribe(world.random.choice(names), world.content())))
        assert "covering" in stages
        await asyncio.gather(*tasks)
        await change
        await world.settle()
        world.check_tables()
        await world.check_deliveries()
        for key in sorted(world.subscriptions):
            await world.control.unsubscribe(*key)
        assert all(len(world.plane.table_now(s)) == 0 for s in world.plane.topology.switches)
        await world.control.close()

    run_virtual(main())


def test_the_table_of_stages_is_whole_and_documented():
    targets = {to for moves in STAGES.values() for to in moves.values()}
    assert targets | {"covering", "resuming"} == set(STAGES)
    page = (Path(__file__).parents[2] / "docs" / "topics" / "plan-changes.md").read_text(encoding="utf-8")
    for stage, moves in STAGES.items():
        if moves:
            assert f"{stage:<13}{', '.join(f'{signal} → {to}' for signal, to in moves.items())}\n" in page
