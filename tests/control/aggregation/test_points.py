"""Merge points and what they cost, against brute force; merges for whole networks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sievenet.control.aggregation import Sample, Source, Tables, aggregate
from sievenet.control.aggregation.aggregation import _points
from sievenet.control.aggregation.arrivals import Even, Recorded
from sievenet.control.aggregation.carvings import carve
from sievenet.control.aggregation.points import choose, costs, locate, needs, take
from sievenet.control.deployment.definition import merged, ports_at
from sievenet.control.deployment.deployment import Deployment
from sievenet.control.deployment.keys import common, covers, place

DEPTH = 6
KEYS = st.integers(1, (1 << DEPTH + 1) - 1)
PORTS = st.frozensets(st.integers(1, 4), min_size=1, max_size=3)
TABLES = st.dictionaries(KEYS, PORTS, min_size=1, max_size=12)
ROWS = {1: 0, 2: 1, 3: 2, 4: 3}


def key_of(points, at):
    length = int(points.length[at])
    return 1 << length | (int(points.code[at]) >> (64 - length) if length else 0)


@given(TABLES)
def test_points_are_entries_and_what_neighbours_have_in_common(table):
    points = _points(table, ROWS)
    keys = sorted(table, key=place)
    wanted = set(keys) | {common(a, b) for a, b in pairwise(keys)}
    found = [key_of(points, at) for at in range(len(points))]
    assert found == sorted(wanted, key=place)
    for at, key in enumerate(found):
        below = [k for k in keys if covers(key, k)]
        assert points.entries[at] == len(below)
        assert points.size[at] == sum(covers(key, k) for k in found)
        around = [k for k in found if covers(k, key) and k != key]
        assert points.parent[at] == (found.index(max(around)) if around else -1)
        union = merged(table, [key], 1)[key]
        assert {port for port, row in ROWS.items() if points.union[at, row]} == set(union)


@given(TABLES, st.lists(st.tuples(st.integers(0, (1 << DEPTH) - 1), st.integers(1, 4)), max_size=20))
def test_a_point_costs_what_a_merge_there_sends_too_far(table, packets):
    packets.sort()
    points = _points(table, ROWS)
    codes = np.array([code << (64 - DEPTH) for code, _ in packets], np.uint64)
    came = np.array([ROWS[port] for _, port in packets], np.int64)
    where = locate(points.code, points.length, codes)
    found = costs(points, needs(points, where, came, np.ones(len(packets))))
    for at in range(len(points)):
        after = merged(table, [key_of(points, at)], 1)
        cost = 0.0
        for code, port in packets:
            leaf = 1 << DEPTH | code
            before, now = (t.get(leaf) or ports_at(t, leaf, 1) for t in (table, after))
            cost += len(now - before - {port})
        tiny = 1e-6 * (1 + len(packets)) * 4
        assert cost - 1e-9 <= found[at] <= cost + tiny + 1e-9


@given(TABLES, st.lists(st.tuples(st.integers(0, (1 << DEPTH) - 1), st.integers(0, 9)), min_size=1, max_size=20))
def test_a_point_costs_what_is_sent_further_on_as_well(table, packets):
    """Ports 1 and 2 lead to switches that would send a packet so often again."""
    packets.sort()
    points = _points(table, ROWS)
    codes = np.array([code << (64 - DEPTH) for code, _ in packets], np.uint64)
    where = locate(points.code, points.length, codes)
    again = {1: [times for _, times in packets], 2: [2 * times for _, times in packets]}
    beyond = np.zeros((len(packets), 4), np.float32)
    cost = np.zeros(len(points))
    for i, (code, _) in enumerate(packets):
        leaf = 1 << DEPTH | code
        before = table.get(leaf) or ports_at(table, leaf, 1)
        for port, times in again.items():
            beyond[i, ROWS[port]] = 0 if port in before else times[i]
        for at in range(len(points)):
            after = merged(table, [key_of(points, at)], 1)
            for port in (after.get(leaf) or ports_at(after, leaf, 1)) - before:
                cost[at] += 1 + (again[port][i] if port in again else 0)
    came = np.full(len(packets), -1)
    found = costs(points, needs(points, where, came, np.ones(len(packets)), beyond))
    assert np.all(found >= cost - 1e-6)
    assert np.all(found <= cost + 1e-6 * (1 + len(packets)) * 4 + 1e-6)


@given(TABLES, st.integers(1, 8))
def test_merges_chosen_make_a_table_fit(table, limit):
    points = _points(table, ROWS)
    cost = np.arange(len(points), dtype=float)[::-1].copy()
    flags = choose(points.parent, points.size, points.entries, cost, limit)
    chosen = [key_of(points, at) for at in np.flatnonzero(flags)]
    assert not any(a != b and covers(a, b) for a in chosen for b in chosen)
    assert len(merged(table, chosen, 1)) <= max(limit, 1)


@given(TABLES, st.lists(KEYS, min_size=1, max_size=3))
def test_even_traffic_counts_like_very_many_packets(table, keys):
    """Against a packet in every smallest dz that is advertised."""
    points = _points(table, ROWS)
    source = Source("s1", 1, tuple(keys), 7.0)
    even = Even([source])
    where, _, weight = even.at({0: even.published([0])}, points)
    leaves = [leaf for leaf in range(1 << DEPTH) if any(covers(k, 1 << DEPTH | leaf) for k in keys)]
    sample = Sample(np.array([leaf << (64 - DEPTH) for leaf in leaves], np.uint64), np.zeros(len(leaves), np.int64))
    recorded = Recorded(sample, 1)
    at, _, one = recorded.at({0: recorded.published([0])}, points)
    for point in range(-1, len(points)):
        assert abs(weight[where == point].sum() - 7.0 * one[at == point].sum() / len(leaves)) < 1e-6


def line(count):
    """Switches in a line: port 1 to the left, port 2 to the right, from 10 on clients."""
    found = {f"s{i}": {1: f"s{i - 1}", 2: f"s{i + 1}"} for i in range(count)}
    del found["s0"][1], found[f"s{count - 1}"][2]
    return found


def test_traffic_decides_where_to_merge():
    """Of two pairs, the one is merged where nothing is published, or nothing gets through."""
    table = {key: frozenset({10 + key % 4}) for key in (16, 19, 28, 31)}
    tables = {"s0": {}, "s1": table}
    left = {key: frozenset({2}) for key in (16, 19, 28, 31, 17, 18)}
    codes = np.array([(0b1101 << 60)] * 3 + [0b1110 << 60], np.uint64)
    sample = Sample(np.sort(codes), np.zeros(4, np.int64))
    sources = [Source("s0", 9, (1,))]
    all_through = {"s0": {1: frozenset({2})}, "s1": table}
    (found,) = aggregate([Tables(all_through, line(2), sources, sample)], {"s1": 3})
    assert found == {"s1": {4}}
    # Everything in the left half that is published gets through, of the right half nothing that is not wanted.
    (found,) = aggregate([Tables({"s0": left, "s1": table}, line(2), sources)], {"s1": 3})
    assert found == {"s1": {7}}
    assert aggregate([Tables(tables, line(2), sources)], {"s1": 4}) == [{}]


def test_what_is_sent_too_far_is_followed_through_other_merges():
    """Merging at 4 is cheap for s0 itself, but s1, which has to merge there too, would send it on to two clients."""
    tables = {
        "s0": {17: frozenset({2}), 19: frozenset({2}), 28: frozenset({10}), 31: frozenset({11})},
        "s1": {17: frozenset({12}), 19: frozenset({13})},
    }
    codes = np.array([each << 60 for each in (0b0000, 0b0010, 0b1101, 0b1110)], np.uint64)
    lane = Tables(tables, line(2), [Source("s0", 9, (1,))], Sample(codes, np.zeros(4, np.int64)))
    assert aggregate([lane], {"s0": 3}) == [{"s0": {4}}]
    assert aggregate([lane], {"s0": 3, "s1": 1}) == [{"s0": {7}, "s1": {4}}]


def test_what_is_published_is_carved_out_of_a_merge():
    """Three entries for different clients, and events for the one in the middle alone: the merge goes around it."""
    table = {16: frozenset({10}), 17: frozenset({11}), 19: frozenset({12}), 28: frozenset({10})}
    codes = np.array([0b0001 << 60] * 5 + [0b1100 << 60] * 5, np.uint64)
    lane = Tables({"s0": table}, line(1), [Source("s0", 9, (1,))], Sample(codes, np.zeros(10, np.int64)))
    (found,) = aggregate([lane], {"s0": 3})
    deployment = Deployment(1, table)
    deployment.remerge(found["s0"])
    assert deployment.table == {4: frozenset({10, 12}), 17: frozenset({11}), 28: frozenset({10})}


def test_where_packets_are_is_carved_out_even_if_no_entry_is_there():
    """All is published in a part of a broad entry: a merge for everything costs nothing with that part carved out."""
    table = {2: frozenset({10}), 5: frozenset({10, 11}), 3: frozenset({12})}
    codes = np.array([0b0010 << 60] * 3 + [0b0011 << 60] * 4, np.uint64)
    lane = Tables({"s0": table}, line(1), [Source("s0", 9, (1,))], Sample(codes, np.zeros(7, np.int64)))
    (found,) = aggregate([lane], {"s0": 2})
    deployment = Deployment(1, table)
    deployment.remerge(found["s0"])
    assert deployment.table == {1: frozenset({10, 11, 12}), 4: frozenset({10})}
    # The same where nobody wants what is published: it is sent nowhere.
    table = {8: frozenset({10}), 5: frozenset({11}), 3: frozenset({12})}
    lane = Tables({"s0": table}, line(1), [Source("s0", 9, (1,))], Sample(codes, np.zeros(7, np.int64)))
    (found,) = aggregate([lane], {"s0": 2})
    deployment = Deployment(1, table)
    deployment.remerge(found["s0"])
    assert deployment.table == {1: frozenset({10, 11, 12}), 9: frozenset()}


def carved(table, packets, limit):
    """The points of a table, what it costs to send what arrives too far, and where to merge."""
    points = _points(table, ROWS)
    codes = np.array([code << (64 - DEPTH) for code, _ in packets], np.uint64)
    came = np.array([ROWS[port] for _, port in packets], np.int64)
    need = needs(points, locate(points.code, points.length, codes), came, np.ones(len(packets)))
    ((flags,), _) = carve([(points, need)], limit)
    return points, need, flags


@given(TABLES, st.lists(st.tuples(st.integers(0, (1 << DEPTH) - 1), st.integers(1, 4)), max_size=20), st.integers(1, 8))
def test_carving_fits_and_is_counted_as_it_is_deployed(table, packets, limit):
    points, _, flags = carved(table, sorted(packets), limit)
    after = merged(table, [key_of(points, at) for at in np.flatnonzero(flags)], 1)
    assert len(after) <= limit
    decides, rows = take(points, flags)
    for at in range(len(points)):
        key = key_of(points, at)
        ports = {port for port, row in ROWS.items() if decides[at] >= 0 and rows[decides[at], row]}
        assert ports == set(after[key] if key in after else ports_at(after, key, 1))


def test_carving_costs_less_than_merges_side_by_side():
    random = Random(5)
    spent = np.zeros(2)
    for _ in range(100):
        keys = random.sample(range(1, 2 << DEPTH), 10)
        some = {key: frozenset(random.sample([1, 2, 3, 4], random.randint(1, 3))) for key in keys}
        # As tables of registrations are: what lies in another entry has its ports too.
        table = {key: frozenset().union(*(p for k, p in some.items() if covers(k, key))) for key in some}
        hot = random.sample(range(1 << DEPTH), 4)
        packets = sorted((random.choice(hot), random.randint(1, 4)) for _ in range(20))
        points, need, flags = carved(table, packets, 5)
        beside = choose(points.parent, points.size, points.entries, costs(points, need), 5)
        for i, chosen in enumerate((flags, beside)):
            decides, rows = take(points, chosen)
            spent[i] += sum(need[at][rows[by]].sum() for at, by in enumerate(decides) if by >= 0)
    assert spent[0] < 0.9 * spent[1], spent


def test_lanes_share_a_switch():
    quiet = {key: frozenset({10}) for key in (16, 19, 21)}
    busy = {key: frozenset({10}) for key in (16, 19, 21)}
    codes = np.sort(np.array([0b0001 << 60, 0b0100 << 60] * 50, np.uint64))
    sources = [Source("s0", 9, (1,))]
    lanes = [
        Tables({"s0": quiet}, line(1), sources, Sample(np.zeros(0, np.uint64), np.zeros(0, np.int64))),
        Tables({"s0": busy}, line(1), sources, Sample(codes, np.zeros(100, np.int64))),
    ]
    first, second = aggregate(lanes, {"s0": 4})
    deployments = []
    for table, found in ((quiet, first), (busy, second)):
        deployment = Deployment(1, table)
        deployment.remerge(found.get("s0", ()))
        deployments.append(len(deployment))
    assert deployments == [1, 3]
