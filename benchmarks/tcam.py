"""Tables that fit: what merging adds to the traffic of a network, by each way of choosing merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace

import msgspec
import numpy as np

from benchmarks._market import market
from benchmarks._tcam_network import Locally, Network, Table
from benchmarks._tcam_requests import Requests
from benchmarks.harness import Bench, Report, least, most
from sievenet.control.aggregation import Sample
from sievenet.control.config import ControlConfig
from sievenet.index import Plan
from sievenet.network import Random, Topology, Tree
from sievenet.tuning.splits import split_points
from sievenet.workload import Hotspots, Quotes, Ticks, Uniform, grid
from sievenet.workload.drift import Drift

#: What it should come to.
GOALS = {
    "zipf_pattern_removes": ">= 99.9 %",
    "zipf_pattern_adds_at_half": "< 0.5 %",
    "stock_points_lost_by_sfr_0.4": "<= 0.1",
    "la_b_share_of_request": "<= 0.5",
    "la_c_share_of_request": "<= 1",
    "load_time_over_building": "<= 1",
    "pattern_time_over_building": "<= 4",
    "load_growth_100_to_300_switches": "<= 4",
    "pattern_growth_100_to_300_switches": "<= 4",
}

#: Bits of the plan, most dz per subscription, publishers.
BITS, BUDGET, PUBLISHERS = 50, 4, 50
SCHEMA = grid(5, hi=1023)
#: Attributes that tell quotes apart: of the market's history, and of a made one.
_TELLING = ("symbol", "close", "price")
#: Shares of all flows that have to go.
SHARES = (0.1, 0.25, 0.5, 0.75)
Wanted = Sequence[tuple[int, list[int]]]


def loads(seed: int = 1) -> dict[str, Uniform | Hotspots]:
    """Uniform and Zipf, five attributes in [0, 1023]."""
    return {
        "uniform": Uniform(schema=SCHEMA, selectivity=0.05, seed=seed),
        "zipf": Hotspots(schema=SCHEMA, selectivity=0.02, seed=seed),
    }


def half(tables: Mapping[str, Sized], share: float = 0.5) -> int:
    """The capacity at which so much of all entries has to go."""
    sizes = np.array([len(table) for table in tables.values()])
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if np.minimum(sizes, middle).sum() < (1 - share) * sizes.sum() else (low, middle)
    return low


def run(bench: Bench) -> Report:
    """All of it."""
    report = Report(GOALS)
    subs, events = bench.size(1_100, quick=60), bench.size(100_000, quick=300)
    many, hosts = bench.size(300, quick=6), bench.size(4_402, quick=84)
    shapes: dict[str, Topology] = {
        "random": Random.build(switches=many, degree=3.0, hosts=hosts, seed=1),
        # 259 switches and 4,320 hosts.
        "tree": Tree.build(depth=bench.size(4, quick=3), fanout=bench.size(6, quick=2), hosts=bench.size(20, quick=6)),
    }
    rows: list[list[object]] = []
    best: list[tuple[float, float]] = []
    for name, load in loads().items():
        for shape, topology in shapes.items():
            with bench.step(f"{name} on a {shape} network"):
                network = _network(topology)
                wanted = network.keys_of(load.subscriptions(subs).filters())
                tables, _ = network.build(wanted)
                sample = network.sample(load.events(events))
            for share in SHARES if name == "zipf" else (0.5,):
                with bench.step(f"{name} on a {shape} network, {share:.0%} merged"):
                    limit = min(600, half(tables, share))
                    row, removed, added = _compare(network, wanted, tables, sample, limit)
                    rows.append([shape, name, *row, f"{removed:.3f} %"])
                if (name, share) == ("zipf", 0.5):
                    best.append((removed, added))
                elif name == "zipf":
                    report.figure(f"zipf_pattern_removes_{shape}_{int(100 * share)}", removed, "%")
    columns = ["network", "load", "capacity", "merged", "LA-B", "LA-C", "FA-LB", "FA-PB", "FA-PB removes"]
    report.table("added by merging", columns, rows)
    _growing(report, bench, shapes["tree"], events)
    # The worse of the two networks.
    report.goal("zipf_pattern_removes", least(removed for removed, _ in best))
    report.goal("zipf_pattern_adds_at_half", most(added for _, added in best))
    few = bench.size(60, quick=6)
    small = Random.build(switches=few, degree=3.0, hosts=few * 14, seed=1)
    with bench.step("requests that trigger merges"):
        _requests(report, small, subs, bench.size(100, quick=20))
    _stock(bench, report, shapes["random"], bench.size(4_000, quick=60), bench.size(40_000, quick=800))
    with bench.step("subscriptions that arrive, and hotspots that move"):
        _arriving(report, small, bench.size(1_000, quick=80), bench.size(20_000, quick=400))
    _times(report, bench)
    report.note(
        "removes: of the transmissions that LA-B adds, with half of the flows merged, the worse of two networks"
    )
    report.note("share of request: what merging at once adds to a whole request, from its bytes to those of the answer")
    report.note("added: transmissions that tables without limits would not make, of all, counted per link")
    report.note(f"{BITS} bits, {BUDGET} dz per subscription, {PUBLISHERS} publishers of everything, one tree")
    return report


def _growing(report: Report, bench: Bench, topology: Topology, events: int) -> None:
    """As the source has it: a tree, a capacity of 600, more and more subscriptions around hotspots."""
    load, rows, removed = loads()["zipf"], [], []
    for subs in bench.size((900, 1_500, 4_000), quick=(40, 60)):
        with bench.step(f"{subs} subscriptions on a tree, capacity 600"):
            network = _network(topology)
            wanted = network.keys_of(load.subscriptions(subs).filters())
            tables, _ = network.build(wanted)
            sample = network.sample(load.events(events))
            limit = bench.size(600, quick=half(tables))
            chosen = network.carried(sample, network.fitted(tables, limit, sample)[0], tables)
            local = network.carried(sample, _local(network, wanted, limit, False).tables(), tables)
        removed.append(100 * (1 - chosen.unneeded / local.unneeded) if local.unneeded else float("nan"))
        merged = 1 - sum(min(len(table), limit) for table in tables.values()) / sum(map(len, tables.values()))
        rows.append([subs, f"{merged:.0%}", f"{local.added:.3%}", f"{chosen.added:.3%}", f"{removed[-1]:.3f} %"])
    columns = ["subscriptions", "merged", "LA-B", "FA-PB", "FA-PB removes"]
    report.table("more and more subscriptions, a tree, capacity 600", columns, rows)
    report.figure("zipf_pattern_removes_up_to", most(removed), "%")


def _network(topology: Topology, seed: int = 1) -> Network:
    return Network(topology, Plan.regular(SCHEMA, BITS), BUDGET, min(PUBLISHERS, len(topology.hosts) // 2), seed)


def _local(network: Network, wanted: Wanted, limit: int, least: bool) -> Locally:
    local = Locally(network, limit, least=least)
    local.add(wanted, 100)
    return local


def _compare(
    network: Network, wanted: Wanted, tables: Mapping[str, Table], sample: Sample, limit: int
) -> tuple[list[object], float, float]:
    """A row of the table, what FA-PB removes of that which LA-B adds, and what it adds itself, both in per cent."""
    merged = 1 - sum(min(len(table), limit) for table in tables.values()) / max(1, sum(map(len, tables.values())))
    found = [network.carried(sample, network.fitted(tables, limit, each)[0], tables) for each in (None, sample)]
    local = [network.carried(sample, _local(network, wanted, limit, c).tables(), tables) for c in (False, True)]
    removed = 100 * (1 - found[1].unneeded / local[0].unneeded) if local[0].unneeded else float("nan")
    shown = [f"{each.added:.3%}" for each in (*local, *found)]
    return [limit, f"{merged:.0%}", *shown], removed, 100 * found[1].added


def _requests(report: Report, topology: Topology, subs: int, count: int) -> None:
    load = loads()["zipf"]
    filters = load.subscriptions(subs + count).filters()
    requests = Requests(topology, SCHEMA, filters, min(PUBLISHERS, len(topology.hosts) // 2), subs)
    config = ControlConfig(bits=BITS, budget=BUDGET, trees=1, lease=86400.0)
    requests.spent(config)
    free = requests.spent(config)
    limit = min(600, half({switch: range(size) for switch, size in free.sizes.items()}))
    rows = []
    for name, at_once in (("la_b", "nearest"), ("la_c", "least")):
        settings = msgspec.structs.replace(config, capacity=limit + 1, at_once=at_once)
        # In turn, and of each request the middle of three.
        turns = [(requests.spent(settings), requests.spent(config)) for _ in range(3)]
        hit = np.array(turns[0][0].merged)
        with_, base = (
            np.median([each.seconds for each in some], axis=0)[hit].sum() for some in zip(*turns, strict=True)
        )
        report.goal(f"{name}_share_of_request", (with_ - base) / base if base else float("nan"))
        rows.append([name, int(hit.sum()), *(f"{1e6 * each / max(1, hit.sum()):.0f}" for each in (base, with_))])
    report.table("requests that make tables merge, us of processor time", ["", "requests", "free", "limited"], rows)


def _stock(bench: Bench, report: Report, topology: Topology, subs: int, events: int) -> None:
    load = market(bench, report)
    with bench.step("stock quotes"):
        network, tables, sample = _quotes(load, topology, subs, events)
    limit = min(600, half(tables))
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
    network = _network(topology)
    wanted = network.keys_of(load.subscriptions(subs).filters())
    limit = min(600, half(network.build(wanted)[0]))
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
        network = _network(topology)
        with bench.step(f"building {switches} switches"):
            wanted = network.keys_of(load.subscriptions(bench.size(15_000, quick=150)).filters())
            build = min(network.build(wanted)[1] for _ in range(2))
            tables, _ = network.build(wanted)
            events = network.sample(load.events(bench.size(100_000, quick=500)))
        with bench.step(f"fitting {switches} switches"):
            by_load = min(network.fitted(tables, 600, None)[1] for _ in range(2))
            (_, once), (fitted, again) = (network.fitted(tables, 600, events) for _ in range(2))
        spent[switches] = build, by_load, min(once, again)
    with bench.step("what all subscriptions cost"):
        found = network.carried(events, fitted, tables)
        local = network.carried(events, _local(network, wanted, 600, False).tables(), tables)
    sizes = sum(map(len, tables.values()))
    merged = 1 - sum(min(len(table), 600) for table in tables.values()) / sizes
    report.figure("merged_with_all_subscriptions", 100 * merged, "%")
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
