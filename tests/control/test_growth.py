"""A network that grows while it runs: the tables are those of the network of now, and nobody misses an event."""

from __future__ import annotations

import asyncio
import random

import pytest

from sievenet.content import Filter, Subscription
from sievenet.control.routes import Routes, Wires, bits
from sievenet.dataplane.plane import Redrawn, SwitchUp
from sievenet.dataplane.simulator import Simulator
from sievenet.network import SpanningTree, Topology, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, SCHEMA, World
from tests.seeds import seeds

SHAPES = ("ring,switches=6", "testbed", "line,switches=5,hosts=2")


def part_of(topology: Topology, switches: set[str]) -> Topology:
    """The network of some of the switches, their links and their hosts."""
    links = [k for k in topology.links if all(not topology.is_switch(end) or end in switches for end in (k.a, k.b))]
    hosts = {end for link in links for end in (link.a, link.b) if not topology.is_switch(end)}
    return Topology(switches, hosts, links)


class Growing(Simulator):
    """Shows the part of its network that was found so far; the rest is cut off."""

    shown: Topology

    @property
    def topology(self) -> Topology:
        return getattr(self, "shown", self.forwarding.topology)

    def grow(self, topology: Topology) -> None:
        fresh = set(topology.switches) - set(self.shown.switches)
        self.shown = topology
        self._notices.tell(Redrawn(topology))
        for switch in sorted(fresh):
            self._notices.tell(SwitchUp(switch))


class GrowingWorld(World):
    def __init__(self, topology: Topology, first: Topology, seed: int) -> None:
        super().__init__(topology, seed)
        self.plane = Growing.on_loop(topology, seed=seed)
        self.plane.shown = first


def order_of(topology: Topology, rng: random.Random) -> list[str]:
    """The switches in some order in which each is linked with one before it."""
    order = [rng.choice(topology.switches)]
    while len(order) < len(topology.switches):
        near = {peer for switch in order for peer in topology.neighbours(switch)} - set(order)
        order.append(rng.choice(sorted(near)))
    return order


@pytest.mark.parametrize("seed", seeds(3))
def test_switches_that_come_one_after_the_other(seed):
    whole = parse_topology(SHAPES[seed % len(SHAPES)])
    rng = random.Random(seed)
    order = order_of(whole, rng)
    first = next(i for i in range(1, len(order) + 1) if part_of(whole, set(order[:i])).hosts)

    async def main() -> None:
        world = GrowingWorld(whole, part_of(whole, set(order[:first])), seed)
        # What is not there yet may hold anything.
        await world.open()
        for count in range(first, len(order) + 1):
            if count > first:
                world.plane.grow(part_of(whole, set(order[:count])))
            if rng.random() < 0.5:
                await world.settle()  # else requests come while the network grows
            for _ in range(2):
                client = await world.join()
                await world.subscribe(client, world.content())
                await world.advertise(client, world.content())
            if rng.random() < 0.3:
                await world.drop()
            await world.settle()
            world.check_tables()
            await world.check_deliveries()
        assert world.plane.topology == whole
        assert CONFIG.trees == len(world.control._controller.fleet.routes)
        await world.control.close()

    run_virtual(main())


def test_events_arrive_while_the_network_grows():
    whole = parse_topology("ring,switches=6")
    order = ["s1", "s2", "s3", "s4", "s5", "s6"]

    async def main() -> None:
        world = GrowingWorld(whole, part_of(whole, {"s1", "s2", "s3"}), 1)
        await world.open()
        publisher, subscriber = await world.join("h1"), await world.join("h3")
        everything = Subscription([Filter(SCHEMA, {})])
        await world.advertise(publisher, everything)
        await world.subscribe(subscriber, everything)
        for count in range(4, 7):
            world.plane.grow(part_of(whole, set(order[:count])))
            for _ in range(10):
                sent = world.publish(publisher, world.event())
                await asyncio.sleep(0.02)
                assert world.received.pop(sent) == [subscriber]
        await world.settle()
        world.check_tables()
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_of_links_that_come_after_clients(shape):
    """Ways of a network that grew after clients came are those of one that was there from the start."""
    whole = parse_topology(shape)
    order = order_of(whole, random.Random(3))
    grown, clients = Wires(part_of(whole, set(order[:2]))), {}
    for count in range(2, len(order) + 1):
        grown.grow(part_of(whole, set(order[:count])))
        clients[order[count - 1]] = grown.attach(order[count - 1], 1000)
    whole_wires = Wires(whole)
    tree = SpanningTree.shortest(whole, order[0])
    left, right = Routes(grown, tree), Routes(whole_wires, tree)
    others = {switch: whole_wires.attach(switch, 1000) for switch in clients}

    def ends(wires, mask):
        return {(wires.owner[wire], wires.port[wire]) for wire in bits(mask)}

    for a, mine in clients.items():
        for b, yours in clients.items():
            if a != b:
                assert ends(grown, left.frm[mine] & left.to[yours]) == ends(
                    whole_wires, right.frm[others[a]] & right.to[others[b]]
                )
