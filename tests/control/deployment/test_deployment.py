"""Deployed tables against their definition, and passages between tables step by step."""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from sievenet.control.deployment.definition import NOBODY, deployed, merged, ports_at, reduced
from sievenet.control.deployment.deployment import Deployment
from sievenet.control.deployment.held import DzTable
from sievenet.control.deployment.keys import common, covers, place
from sievenet.control.deployment.passage import UMBRELLA, passage, peak
from sievenet.index import Dz
from sievenet.network import Flow, FlowTable

DEPTH = 5
KEYS = st.integers(1, (1 << DEPTH + 1) - 1)
PORTS = st.frozensets(st.integers(1, 4), min_size=1, max_size=3)
TABLES = st.dictionaries(KEYS, PORTS, max_size=14)


def leaf_ports(table, leaf):
    return table[leaf] if leaf in table else ports_at(table, leaf, 1)


LEAVES = range(1 << DEPTH, 2 << DEPTH)


def encloses(one, other):
    return all(leaf_ports(one, leaf) >= leaf_ports(other, leaf) for leaf in LEAVES)


@given(KEYS, KEYS)
def test_keys_lie_as_dz_do(a, b):
    one, two = Dz.of_key(a), Dz.of_key(b)
    assert covers(a, b) == one.covers(two)
    assert common(a, b) == one.common_prefix(two).key
    assert (place(a) < place(b)) == (one < two)


@given(TABLES, st.sets(KEYS, max_size=3))
def test_merging_encloses_and_reducing_changes_nothing(table, merges):
    once = merged(table, merges, 1)
    assert encloses(once, table)
    assert len(once) <= max(len(table), 1) + len(merges & once.keys())
    less = reduced(once, 1)
    assert len(less) <= len(once)
    assert all(leaf_ports(less, leaf) == leaf_ports(once, leaf) for leaf in LEAVES)
    for key, ports in less.items():  # no two halves are alike, none is hidden
        assert key == 1 or less.get(key ^ 1) != ports
        assert not (2 * key in less and 2 * key + 1 in less)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.one_of(st.none(), PORTS)),
        st.tuples(st.just("merge"), KEYS, st.none()),
        st.tuples(st.just("split"), st.integers(0, 20), st.none()),
        st.tuples(st.just("fit"), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("relax"), st.integers(1, 12), st.none()),
        st.tuples(st.just("remerge"), st.sets(KEYS, max_size=6), st.none()),
    ),
    max_size=40,
)


@given(TABLES, CHANGES)
def test_a_deployment_follows_its_definition(table, changes):
    deployment = Deployment(1, table)
    ideal, seen = dict(table), dict(deployment.table)
    for what, key, value in changes:
        if what == "put":
            deployment.put(key, value)
            ideal.pop(key, None)
            if value is not None:
                ideal[key] = value
        elif what == "merge":
            deployment.merge(key)
        elif what == "remerge":
            deployment.remerge(key)
            assert deployment.merges <= key
        elif what == "split" and deployment.merges:
            deployment.split(sorted(deployment.merges)[key % len(deployment.merges)])
        elif what == "fit":
            deployment.fit(key, least=value, near=[3, 9])
            assert len(deployment) <= max(key, 1)
            if key == 0 and ideal:
                assert set(deployment.table) == {1}
        elif what == "relax":
            before = len(deployment)
            deployment.relax(key)
            assert len(deployment) <= max(key, before)
        assert deployment.ideal == ideal
        assert deployment.table == deployed(ideal, deployment.merges, 1)
        assert encloses(deployment.table, ideal)
    for key, (was, now) in deployment.taken().items():
        assert seen.get(key) == was
        seen.pop(key, None)
        if now is not None:
            seen[key] = now
    assert seen == deployment.table


BATCHES = st.lists(st.lists(st.tuples(KEYS, st.one_of(st.none(), PORTS)), min_size=1, max_size=6), max_size=12)


@given(TABLES, st.sets(KEYS, max_size=6), BATCHES)
def test_entries_that_go_together_leave_merges_as_if_they_had_never_been(table, merges, batches):
    deployment, ideal = Deployment(1, table), dict(table)
    deployment.remerge(merges)
    for batch in batches:
        before = deployment.merges
        gone = {key for key, ports in batch if not (ports or NOBODY) >= ideal.get(key, NOBODY)}
        deployment.put_all(batch)
        for key, ports in batch:
            gone |= {key} if not (ports or NOBODY) >= ideal.get(key, NOBODY) else set()
            ideal.pop(key, None)
            if ports is not None:
                ideal[key] = ports
        now = deployment.merges
        assert deployment.table == deployed(ideal, now, 1)
        for key in before & now:  # those that lost an entry are as small as can be
            others = (before | now) - {key}
            if any(covers(key, each) or covers(each, key) for each in others):
                continue
            if any(covers(key, each) for each in gone - ideal.keys()):
                mine = [each for each in ideal if covers(key, each)]
                assert key == common(min(mine, key=place), max(mine, key=place))
        again = Deployment(1, ideal)
        again.remerge(now)
        assert again.table == deployment.table


@given(TABLES, st.sets(KEYS, max_size=8), st.integers(1, 14))
def test_undoing_merges_never_sends_further(table, merges, limit):
    # As tables of registrations are: what lies in another entry has its ports too.
    table = {key: frozenset().union(*(p for k, p in table.items() if covers(k, key))) for key in table}
    deployment = Deployment(1, table)
    deployment.remerge(merges)
    before = dict(deployment.table)
    deployment.relax(limit)
    assert encloses(before, deployment.table)
    assert encloses(deployment.table, table)
    if limit > len(table):
        assert deployment.table == reduced(table, 1)


@given(TABLES, CHANGES)
def test_transforms_come_before_merges(table, changes):
    def divert(known):
        return {key: frozenset({9}) if covers(5, key) else ports for key, ports in known.items()}

    deployment = Deployment(1, table)
    ideal = dict(table)
    for number, (what, key, value) in enumerate(changes):
        if what == "put":
            deployment.put(key, value)
            ideal.pop(key, None)
            if value is not None:
                ideal[key] = value
        elif what == "merge":
            deployment.merge(key)
        transforms = [divert] if number % 3 else []
        deployment.transform(transforms)
        assert deployment.table == deployed(ideal, deployment.merges, 1, transforms)


@given(TABLES, st.integers(1, 12), st.booleans())
def test_remerging_has_the_merges_told(table, limit, least):
    first = Deployment(1, table)
    first.fit(limit, least=least)
    second = Deployment(1, table)
    second.fit(1)
    second.remerge(first.merges)
    assert second.table == first.table


@given(TABLES, CHANGES, st.integers(0, 2))
def test_a_switch_is_told_of_changes_with_one_spare_entry_and_loses_nothing(table, changes, more):
    held = DzTable(3, 1, flows(table))
    switch = FlowTable(held.flows())
    for what, key, value in changes:
        if what == "put":
            held.put(key, value)
        elif what == "merge":
            held.merge(key)
        elif what == "remerge":
            held.remerge(key)
        elif what == "fit":
            held.fit(key, least=value, near=[3, 9])
        elif what == "relax":
            held.relax(key)
        elif what == "split":  # told now and then, of several changes at a time
            old, new = switch, FlowTable(held.flows())
            room = max(len(old), len(new)) + 1 + more
            for change in held.steps(room):
                switch = switch.applied([change])
                assert len(switch) <= room
                for leaf in LEAVES:
                    code = Dz.of_key(leaf).code
                    assert switch.ports(3, code) >= old.ports(3, code) & new.ports(3, code)
            assert switch == new
            assert held.told == len(new)


@given(st.lists(st.tuples(KEYS, st.frozensets(st.integers(1, 400), min_size=1, max_size=40)), max_size=30))
def test_ports_that_nobody_uses_any_more_make_room_for_others(puts):
    deployment, ideal = Deployment(1), {}
    for i, (key, ports) in enumerate(puts):
        kept, before = deployment.kept(), deployment.table
        deployment.put(key, ports)
        assert kept() == before
        ideal[key] = ports
        if i % 3 == 2:
            gone, _ = ideal.popitem()
            deployment.put(gone, None)
            deployment.merge(gone)
            deployment.forget()
        assert deployment.ideal == ideal
        assert deployment.table == deployed(ideal, deployment.merges, 1)


def test_a_long_life_needs_no_more_room_than_what_there_is():
    deployment, random = Deployment(1), Random(1)
    ideal: dict[int, frozenset[int]] = {}
    for i in range(4_000):
        key = 1 << 40 | random.getrandbits(40)
        ideal[key] = ports = frozenset({i, i + 1})
        deployment.put(key, ports)
        if len(ideal) > 30:
            gone = random.choice(list(ideal))
            del ideal[gone]
            deployment.put(gone, None)
        deployment.fit(20, near=[key])
        deployment.forget()
    assert deployment.table == deployed(ideal, deployment.merges, 1)
    assert len(deployment) <= 20
    assert len(deployment._arrays.nodes) <= 512
    assert deployment.sets.words <= 4


def flows(table):
    return FlowTable(Flow.of(3, Dz.of_key(key), *ports) for key, ports in table.items())


@given(TABLES, TABLES, st.integers(0, 3))
def test_a_passage_needs_one_spare_entry_and_loses_nothing(one, two, more):
    old, new = flows(one), flows(two)
    room = max(len(old), len(new)) + 1 + more
    changes = passage(old, new, room)
    assert peak(len(old), changes) <= room
    table = old
    for change in changes:
        table = table.applied([change])
        assert len(table) <= room
        for leaf in LEAVES:
            code = Dz.of_key(leaf).code
            assert table.ports(3, code) >= old.ports(3, code) & new.ports(3, code)
    assert table == new
    assert all(flow.priority < UMBRELLA for flow in table)


@given(TABLES, TABLES)
@example(
    # Cut off after the first addition no entry is spare, and three regions give back as many.
    dict.fromkeys((6, 14, 4, 5, 34, 9, 29, 2, 13), frozenset({1})),
    dict.fromkeys((3, 8, 4, 5), frozenset({1})),
)
def test_a_passage_ends_well_from_wherever_it_was_cut_off(one, two):
    old, new = flows(one), flows(two)
    room = max(len(old), len(new)) + 1
    changes = passage(old, new, room)
    for cut in range(len(changes)):
        table = old.applied(changes[:cut])
        rest = passage(table, new, room)
        assert peak(len(table), rest) <= room
        for change in rest:
            table = table.applied([change])
            for leaf in LEAVES:
                code = Dz.of_key(leaf).code
                assert table.ports(3, code) >= old.ports(3, code) & new.ports(3, code)
        assert table == new
