"""Random requests, publishes, plan changes, failures and crashes; after every step everything is as it should be."""

from __future__ import annotations

import asyncio

import msgspec
import networkx as nx
import pytest

from sievenet.content import Filter, Subscription
from sievenet.dataplane.fabric import ApplyFault
from sievenet.index import Plan
from sievenet.network import Line, Link, LinkSettings, Random, Ring, Star, Testbed, Topology, parse_topology
from sievenet.testing.virtual_time import run_virtual
from tests.control.world import CONFIG, OTHER, SCHEMA, World
from tests.seeds import seeds

DELAY = LinkSettings(delay=0.001)


def plans(world: World) -> Plan:
    bits = world.random.randint(2, 8)
    # Cells need an entry per port: not where only a few fit.
    kind = "dz" if world.capacity is not None and world.config.kind == "dz" else "cells"
    return world.random.choice(
        (
            lambda: Plan.regular(SCHEMA, bits),
            lambda: Plan.regular(SCHEMA, bits, dimensions=["y"]),
            lambda: Plan.regular(SCHEMA, bits, kind=kind),
            lambda: Plan.selective(SCHEMA, [{"x": (0, 7)}, {"x": (5, 15), "y": (3, 9)}], bits + 2, kind=kind),
            lambda: Plan.adaptive(SCHEMA, {"x": [3, 4, 9]}, bits),
            lambda: Plan.selective(SCHEMA, [{"x": (0, 7)}, {"x": (5, 15), "y": (3, 9)}], bits + 2),
        )
    )()


async def step(world: World, failures: bool) -> str:
    r = world.random
    names = sorted(world.clients)
    choice = r.random()
    schema = r.choice((SCHEMA, SCHEMA, SCHEMA, OTHER))
    if choice < 0.12 or len(names) < 2:
        try:
            await world.join()
        except Exception:
            world.clients.popitem()
            if not failures:
                raise
        return "join"
    if choice < 0.30:
        await world.advertise(r.choice(names), world.content(schema))
        return "advertise"
    if choice < 0.58:
        several = [world.subscribe(r.choice(names), world.content(schema)) for _ in range(r.choice((1, 1, 3)))]
        await asyncio.gather(*several)
        return "subscribe"
    if choice < 0.78:
        await asyncio.gather(*(world.drop() for _ in range(r.choice((1, 1, 3)))))
        return "drop"
    if choice < 0.82 and len(names) > 2:
        await world.leave(r.choice(names))
        return "leave"
    if choice < 0.87:
        await world.control.apply_plan(SCHEMA.name, plans(world))
        return "plan"
    if choice < 0.90:
        await world.crash()
        return "crash"
    if not failures:
        return "nothing"
    return await fail(world)


async def fail(world: World) -> str:
    r, plane = world.random, world.plane
    switches, links = plane.down()
    choice = r.random()
    if choice < 0.25:
        fault = ApplyFault(applied=r.choice((0, 1, None)), late=r.choice((None, None, 3.0)))
        plane.inject_fault(r.choice(plane.topology.switches), fault)
        return "fault"
    if choice < 0.45:
        a, b = r.choice([k.id for k in plane.topology.links])
        plane.link_down(a, b)
    elif choice < 0.7 and links:
        plane.link_up(*r.choice(sorted(links)))
    elif choice < 0.82 and len(plane.topology.switches) - len(switches) > 1:
        plane.switch_down(r.choice(plane.topology.switches), keep_table=r.random() < 0.5)
    elif switches:
        plane.switch_up(r.choice(sorted(switches)))
    await asyncio.sleep(0.01)
    return "failure"


def drive(topology, seed, steps, failures=True, capacity=None, schemas=(SCHEMA, OTHER), first=0, **config) -> None:
    async def main() -> None:
        world = World(topology, seed, msgspec.structs.replace(CONFIG, **config), capacity=capacity)
        await world.open(*schemas)
        names = [await world.join() for _ in range(2)]
        for name in names if first else ():
            await world.advertise(name, Subscription([Filter(SCHEMA, {})]))
            for _ in range(first):
                await world.subscribe(name, world.content())
        done = []
        for _ in range(steps):
            done.append(await step(world, failures))
            await world.settle()
            try:
                world.check_tables()
                await world.check_deliveries()
            except AssertionError as error:
                raise AssertionError(f"after {done}: {error}") from error
        # Where tables have limits they are merged: nobody is refused.
        assert capacity is None or world.control.status().refused == 0
        await world.control.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", seeds(6))
def test_requests_plans_and_crashes(seed):
    shape = (Line.build(link=DELAY), Star.build(link=DELAY), Testbed.build(link=DELAY))[seed % 3]
    drive(shape, seed, 40, failures=False, partitions=(1, 4)[seed % 2])


@pytest.mark.parametrize("seed", seeds(2))
def test_partitions_that_share_two_trees(seed):
    drive(parse_topology("fattree,k=4,delay=0.001"), 200 + seed, 25, failures=bool(seed % 2), partitions=4, spread=2)


@pytest.mark.parametrize("seed", seeds(8))
def test_failures_too(seed):
    shape = (
        Ring.build(switches=5, link=DELAY),
        Testbed.build(link=DELAY),
        Random.build(switches=7, hosts=1, seed=seed, link=DELAY),
        parse_topology("fattree,k=4,delay=0.001"),
    )[seed % 4]
    drive(shape, 100 + seed, 40, failures=True, partitions=(1, 4)[seed // 4 % 2])


def test_all_small_networks():
    """Every connected graph of up to 6 nodes, a few steps on each."""
    for number, graph in enumerate(nx.graph_atlas_g()):
        if 1 <= graph.number_of_nodes() <= 6 and nx.is_connected(graph):
            drive(with_hosts(graph), number, 3, failures=True)


def with_hosts(graph: nx.Graph) -> Topology:
    names = {node: f"s{i + 1}" for i, node in enumerate(graph)}
    ports = dict.fromkeys(names.values(), 1)
    links = []
    for a, b in graph.edges:
        a, b = names[a], names[b]
        ports[a] += 1
        ports[b] += 1
        links.append(Link(a, ports[a], b, ports[b], DELAY))
    hosts = [f"h{i + 1}" for i in range(len(names))]
    links += [Link(s, 1, h, 1) for s, h in zip(names.values(), hosts, strict=True)]
    return Topology(names.values(), hosts, links)
