"""Tables that fit: what merging adds to the traffic of a network, by each way of choosing merges."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from benchmarks._market import market
from benchmarks._tcam_network import Locally, Network
from benchmarks._tcam_requests import Requests, Spent
from benchmarks._tcam_scenes import (
    BITS,
    BUDGET,
    CAPACITY,
    PUBLISHERS,
    SCHEMA,
    Compared,
    Scene,
    compared,
    half,
    least_at_root,
    loads,
    locally,
    merged,
    network_of,
    shapes,
)
from benchmarks.harness import Bench, Report, most
from sievenet.control.aggregation import Sample
from sievenet.control.config import ControlConfig
from sievenet.control.deployment.deployment import kernels
from sievenet.index import Plan
from sievenet.network import Random, Topology
from sievenet.tuning.splits import split_points
from sievenet.workload import Hotspots, Quotes, Ticks
from sievenet.workload.drift import Drift

#: What it should come to.
GOALS = {
    "zipf_pattern_removes_random": ">= 99.9 %",
    "zipf_pattern_removes_tree": ">= 99.9 %",
    "zipf_pattern_adds_at_half": "< 0.5 %",
    "stock_points_lost_by_sfr_0.4": "<= 0.1",
    "la_b_share_of_request": "<= 0.5",
    "la_c_share_of_request": "<= 1",
    "load_time_over_building": "<= 1",
    "pattern_time_over_building": "<= 4",
    "load_growth_100_to_300_switches": "<= 4",
    "pattern_growth_100_to_300_switches": "<= 4",
}

#: How often the same requests come with and without a limit.
_ROUNDS = 5

#: Attributes that tell quotes apart: of the market's history, and of a made one.
_TELLING = ("symbol", "close", "price")


def run(bench: Bench) -> Report:
    """All of it."""
    report = Report(GOALS)
    _counts(bench, report)
    few = bench.size(60, quick=6)
    small = Random.build(switches=few, degree=3.0, hosts=few * 14, seed=1)
    with bench.step("requests that trigger merges"):
        _requests(report, small, bench.size(1_100, quick=60), bench.size(100, quick=20))
    with bench.step("entries that merges leave unused"):
        _unused(report, small, bench.size(1_200, quick=80), bench.size(100_000, quick=400))
    random = shapes(bench.quick)["random"]
    _stock(bench, report, random, bench.size(4_000, quick=60), bench.size(40_000, quick=800))
    with bench.step("subscriptions that arrive, and hotspots that move"):
        _arriving(report, small, bench.size(1_000, quick=80), bench.size(20_000, quick=400))
    _times(report, bench)
    report.note(f"removes: of the transmissions that LA-B adds, at a capacity of {CAPACITY}")
    report.note("share of request: what merging at once adds to a whole request, from its bytes to those of the answer")
    report.note("added: transmissions that tables without limits would not make, of all, counted per link")
    report.note(f"{BITS} bits, {BUDGET} dz per subscription, {PUBLISHERS} publishers of everything, one tree")
    return report


@contextmanager
def _beside_each_other(bench: Bench) -> Iterator[Callable[[Callable[[Scene], Any], Sequence[Scene]], Iterator[Any]]]:
    """A `map` over scenes, two at a time."""
    if bench.quick:
        yield map
        return
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool.map


def _counts(bench: Bench, report: Report) -> None:
    """What is counted, and takes no time to measure."""
    subs, events = bench.size(1_100, quick=60), bench.size(100_000, quick=300)
    usual = Scene("zipf", "random", subs, events, quick=bench.quick)
    both = [usual, usual._replace(shape="tree")]
    scenes = [each._replace(share=share) for each in both for share in (None, 0.5, 0.75)]
    scenes += [each._replace(load="uniform", share=0.5) for each in both]
    numbers = bench.size((900, 1_500, 4_000), quick=(40, 60))
    growing = [both[1]._replace(subscriptions=number, all_ways=False) for number in numbers]
    with bench.step("what each way adds"), _beside_each_other(bench) as each:
        bounds = each(least_at_root, both[1:])
        found: list[Compared] = list(each(compared, [*growing[::-1], *scenes]))
        least = next(iter(bounds)).least
    found, more = found[len(growing) :], found[: len(growing)][::-1]
    columns = ["network", "load", "capacity", "merged", "LA-B", "LA-C", "FA-LB", "FA-PB", "FA-PB removes"]
    report.table("added by merging", columns, [_row(each) for each in found])
    for one in found:
        if one.scene in both:
            report.goal(f"zipf_pattern_removes_{one.scene.shape}", one.removed)
    report.goal(
        "zipf_pattern_adds_at_half",
        most(100 * one.fa_pb.added for one in found if one.scene.load == "zipf" and one.scene.share == 0.5),
    )
    (tree,) = (one for one in found if one.scene == both[1])
    report.figure("zipf_tree_root_adds_at_least", least)
    report.figure("zipf_tree_any_table_removes_at_most", 100 * (1 - least / max(1, tree.la_b.unneeded)), "%")
    columns = ["subscriptions", "merged", "LA-B", "FA-PB", "FA-PB removes"]
    rows = [
        [one.scene.subscriptions, f"{one.merged:.0%}", f"{one.la_b.added:.3%}", f"{one.fa_pb.added:.3%}", _removes(one)]
        for one in more
    ]
    report.table(f"more and more subscriptions, a tree, capacity {CAPACITY}", columns, rows)
    report.figure("zipf_pattern_removes_up_to", most(one.removed for one in more), "%")


def _removes(one: Compared) -> str:
    return f"{one.removed:.3f} %"


def _row(one: Compared) -> list[object]:
    shown = ["" if each is None else f"{each.added:.3%}" for each in (one.la_b, one.la_c, one.fa_lb, one.fa_pb)]
    return [one.scene.shape, one.scene.load, one.capacity, f"{one.merged:.0%}", *shown, _removes(one)]


def _requests(report: Report, topology: Topology, subs: int, count: int) -> None:
    load = loads()["zipf"]
    filters = load.subscriptions(subs + count).filters()
    requests = Requests(topology, SCHEMA, filters, min(PUBLISHERS, len(topology.hosts) // 2), subs)
    config = ControlConfig(bits=BITS, budget=BUDGET, trees=1, lease=86400.0)
    requests.spent(config)
    free = requests.spent(config)
    limit = min(CAPACITY, half({switch: range(size) for switch, size in free.sizes.items()}))
    rows = []
    for name, at_once in (("la_b", "nearest"), ("la_c", "least")):
        settings = msgspec.structs.replace(config, capacity=limit + 1, at_once=at_once)
        # In turn, either first as often as the other, and of each request the middle of all rounds.
        found: dict[bool, list[Spent]] = {True: [], False: []}
        for number in range(_ROUNDS):
            for limited in (number % 2 == 0, number % 2 == 1):
                found[limited].append(requests.spent(settings if limited else config))
        hit = np.array(found[True][0].merged)
        with_, base = (np.array([each.seconds for each in found[limited]])[:, hit] for limited in (True, False))
        added = float(np.median(with_, axis=0).sum() / np.median(base, axis=0).sum() - 1) if hit.any() else float("nan")
        report.goal(f"{name}_share_of_request", added)
        each = with_.sum(axis=1) / base.sum(axis=1) - 1 if hit.any() else np.zeros(1)
        times = (1e6 * np.median(some, axis=0).sum() / max(1, hit.sum()) for some in (base, with_))
        rows.append([name, int(hit.sum()), *(f"{time:.0f}" for time in times), f"{each.min():.2f} to {each.max():.2f}"])
    columns = ["", "requests", "free", "limited", "added in single rounds"]
    report.table("requests that make tables merge, us of processor time", columns, rows)


def _unused(report: Report, topology: Topology, subs: int, events: int) -> None:
    """What it adds to the traffic that merges may leave entries unused: one request at a time."""
    load = loads()["zipf"]
    network = network_of(topology)
    wanted = network.keys_of(load.subscriptions(subs).filters())
    tables, _ = network.build(wanted)
    sample = network.sample(load.events(events))
    rows = []
    for share in (0.5, 0.75):
        limit = min(CAPACITY, half(tables, share))
        for name, least in (("LA-B", False), ("LA-C", True)):
            for unused in (0, int(kernels().slack(limit)), None):
                local = Locally(network, limit, least=least, unused=unused)
                local.add(wanted, 1)
                deployed = local.tables()
                left = [limit - len(deployed[switch]) for switch in tables if len(tables[switch]) > limit]
                added = network.carried(sample, deployed, tables).added
                some = "any" if unused is None else unused
                rows.append([name, limit, some, f"{np.mean(left or [0]):.1f}", max(left, default=0), f"{added:.2%}"])
    columns = ["", "capacity", "may be unused", "unused on average", "at most", "added"]
    report.table("entries that merges leave unused", columns, rows)


def _stock(bench: Bench, report: Report, topology: Topology, subs: int, events: int) -> None:
    load = market(bench, report)
    with bench.step("stock quotes"):
        network, tables, sample = _quotes(load, topology, subs, events)
    limit = min(CAPACITY, half(tables))
    rows, added = [], {}
    for share in (0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0):
        with bench.step(f"a sample of {share:.0%} of stock quotes"):
            deployed, spent = network.fitted(tables, limit, network.part(sample, share))
            added[share] = network.carried(sample, deployed, tables).added
        rows.append([share, f"{added[share]:.3%}", f"{spent:.2f}"])
    report.table("stock quotes, FA-PB", ["sfr", "added", "processor s"], rows)
    report.goal("stock_points_lost_by_sfr_0.4", 100 * (added[0.4] - added[1.0]))


def _quotes(
    load: Quotes | Ticks, topology: Topology, subs: int, events: int
) -> tuple[Network, dict[str, dict[int, frozenset[int]]], Sample]:
    batch = load.batch if isinstance(load, Quotes) else load.events(events)
    batch = batch.take(np.sort(np.random.default_rng(1).permutation(len(batch))[:events]))
    some = batch.take(slice(0, None, 10))
    # What tells quotes apart, split where they lie, which tuning would find first: with a regular plan over all
    # attributes a switch has a dozen entries, and hardly anything to choose.
    where = split_points(some, np.ones(len(some), np.int64))
    plan = Plan.adaptive(load.schema, where, 30, [name for name in load.schema.positions if name in _TELLING])
    network = Network(topology, plan, 2 * BUDGET, min(PUBLISHERS, len(topology.hosts) // 2))
    wanted = network.keys_of(load.subscriptions(subs).filters())
    tables, _ = network.build(wanted)
    return network, tables, network.sample(batch)


def _arriving(report: Report, topology: Topology, subs: int, events: int) -> None:
    load = loads()["zipf"]
    assert isinstance(load, Hotspots)
    network = network_of(topology)
    wanted = network.keys_of(load.subscriptions(subs).filters())
    limit = min(CAPACITY, half(network.build(wanted)[0]))
    sample = network.sample(load.events(events))
    rows = []
    for name, cheapest, fitted in (
        ("LA-B", False, False),
        ("LA-B and FA-PB", False, True),
        ("LA-C and FA-PB", True, True),
    ):
        local = Locally(network, limit, least=cheapest)
        row: list[object] = [name]
        for part in range(4):
            local.add(wanted[part * subs // 4 : (part + 1) * subs // 4], 50)
            before = network.carried(sample, local.tables(), local.ideal()).added
            if fitted:
                local.refit(sample)
            row.append(f"{before:.2%} → {network.carried(sample, local.tables(), local.ideal()).added:.2%}")
        rows.append(row)
    report.table("subscriptions that arrive (before and after FA-PB)", ["", "a quarter", "half", "3/4", "all"], rows)
    moving = replace(load, drift=Drift(distance=0.1, every=10.0))
    local = Locally(network, limit, least=False)
    local.add(wanted, 100)
    kept = [network.sample(moving.events(events, times=np.full(events, 10.0 * at))) for at in range(4)]
    rows, fixed = [], dict(local.tables())
    for at, now in enumerate(kept):
        last = network.carried(now, local.tables(), local.ideal()).added
        local.refit(now)
        if at == 0:
            fixed = {switch: dict(table) for switch, table in local.tables().items()}
        stale = network.carried(now, fixed, local.ideal()).added
        fresh = network.carried(now, local.tables(), local.ideal()).added
        rows.append([at, f"{stale:.2%}", f"{last:.2%}", f"{fresh:.2%}"])
    title = "hotspots that move: added with the merges of the start, of the last look, of now"
    report.table(title, ["look", "start", "last", "now"], rows)


def _times(report: Report, bench: Bench) -> None:
    load = loads()["zipf"]
    spent: dict[int, tuple[float, float, float]] = {}
    for switches in (bench.size(100, quick=8), bench.size(300, quick=12)):
        topology = Random.build(switches=switches, degree=3.0, hosts=bench.size(4402, quick=60), seed=1)
        network = network_of(topology)
        with bench.step(f"building {switches} switches"):
            wanted = network.keys_of(load.subscriptions(bench.size(15_000, quick=150)).filters())
            (_, once), (tables, again) = network.build(wanted), network.build(wanted)
            build = min(once, again)
            events = network.sample(load.events(bench.size(100_000, quick=500)))
        with bench.step(f"fitting {switches} switches"):
            by_load = min(network.fitted(tables, CAPACITY, None)[1] for _ in range(2))
            (_, once), (fitted, again) = (network.fitted(tables, CAPACITY, events) for _ in range(2))
        spent[switches] = build, by_load, min(once, again)
    with bench.step("what all subscriptions cost"):
        found = network.carried(events, fitted, tables)
        local = network.carried(events, locally(network, wanted, CAPACITY, least=False), tables)
    report.figure("merged_with_all_subscriptions", 100 * merged(tables, CAPACITY), "%")
    report.figure("zipf_pattern_adds_with_all_subscriptions", 100 * found.added, "%")
    report.figure(
        "zipf_pattern_removes_with_all_subscriptions", 100 * (1 - found.unneeded / max(1, local.unneeded)), "%"
    )
    report.table(
        "processor seconds",
        ["switches", "building all tables", "FA-LB", "FA-PB"],
        [[switches, *(f"{each:.2f}" for each in times)] for switches, times in spent.items()],
    )
    (_, load_few, pattern_few), (build, load_many, pattern_many) = spent.values()
    report.goal("load_time_over_building", load_many / build)
    report.goal("pattern_time_over_building", pattern_many / build)
    report.goal("load_growth_100_to_300_switches", load_many / load_few)
    report.goal("pattern_growth_100_to_300_switches", pattern_many / pattern_few)
