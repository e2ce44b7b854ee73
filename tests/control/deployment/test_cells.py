"""Tables per out port that fit, against their definition by brute force."""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from sievenet.control.deployment.cells import CellDeployment, _cheapest, around, inside, reduced, space
from sievenet.control.deployment.held import CellTables
from sievenet.index import Cell
from sievenet.network import Flow, FlowTable, Match

BITS = 5
CELLS = st.tuples(st.integers(0, (1 << BITS) - 1), st.integers(0, (1 << BITS) - 1)).map(lambda c: (c[0] & c[1], c[1]))
ENTRIES = st.tuples(st.integers(1, 3), CELLS).map(lambda e: (e[0], *e[1]))
ROOT = (0, 0)


def codes(cells):
    return {code for code in range(1 << BITS) if any(code & mask == value for value, mask in cells)}


def held(entries):
    return {(port, code) for port, value, mask in entries for code in codes([(value, mask)])}


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_the_smallest_cell_around_some(cells):
    found = around(cells)
    assert all(inside(cell, found) for cell in cells)
    every = [(v, m) for m in range(1 << BITS) for v in range(1 << BITS) if v & ~m == 0]
    for other in every:
        if all(inside(cell, other) for cell in cells):
            assert inside(found, other)


@given(st.lists(CELLS, max_size=12))
def test_what_is_left_out_changes_nothing(cells):
    less = reduced(cells)
    assert codes(less) == codes(cells)
    assert len(less) <= len(set(cells))
    assert not any(a != b and inside(a, b) for a in less for b in less)
    assert not any((value ^ bit, mask) in less for value, mask in less for bit in (1, 2, 4, 8, 16) if mask & bit)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), ENTRIES, st.booleans()),
        st.tuples(st.just("merge"), ENTRIES, st.none()),
        st.tuples(st.just("remerge"), st.lists(ENTRIES, max_size=4), st.none()),
        st.tuples(st.just("fit"), st.integers(0, 8), st.booleans()),
        st.tuples(st.just("relax"), st.integers(1, 12), st.none()),
    ),
    max_size=30,
)


@given(st.sets(ENTRIES, max_size=20), CHANGES)
def test_deployed_cells_hold_the_ideal_ones_and_fit(ideal, changes):
    deployment = CellDeployment(ROOT, ideal)
    told, ideal = set(deployment.table), set(ideal)
    for what, entry, value in changes:
        if what == "put":
            deployment.put(entry, value)
            (ideal.add if value else ideal.discard)(entry)
        elif what == "merge":
            deployment.merge(entry)
        elif what == "remerge":
            deployment.remerge(entry)
            assert deployment.merges <= set(entry)
        elif what == "fit":
            deployment.fit(entry, least=value, near=[(1, 3, 3), (2, 0, 1)])
            ports = {port for port, _, _ in ideal}
            assert len(deployment) <= max(entry, len(ports))
            if entry < len(ports):
                assert deployment.wide
            assert deployment.least == len(ports)
        else:
            before, size = held(deployment.table), len(deployment)
            deployment.relax(entry)
            assert held(deployment.table) <= before
            assert len(deployment) <= max(entry, size)
        assert held(deployment.table) >= held(ideal)
        assert set(deployment.ideal) == ideal
        merges = {}
        for port, *cell in deployment.merges:
            merges.setdefault(port, []).append(tuple(cell))
        wanted = set()
        for port in {port for port, _, _ in ideal}:
            mine = [(v, m) for p, v, m in ideal if p == port]
            owners = set()
            for cell in mine:
                around_it = [each for each in merges.get(port, ()) if inside(cell, each)]
                owners.add(max(around_it, key=lambda c: (c[1].bit_count(), c), default=cell))
            wanted |= {(port, *cell) for cell in reduced(owners)}
        assert deployment.table == wanted
    came, went = deployment.taken()
    assert (told | came) - went == deployment.table


@given(st.sets(ENTRIES, min_size=1, max_size=20))
def test_with_room_for_all_every_merge_is_undone(ideal):
    deployment = CellDeployment(ROOT, ideal)
    whole = set(deployment.table)
    deployment.fit(0)
    deployment.relax(len(ideal) + 1)
    assert deployment.table == whole


def test_the_cheapest_of_many_pairs_is_found():
    random = Random(1)
    for _ in range(20):
        masks = [random.getrandbits(128) & random.getrandbits(128) for _ in range(30)]
        cells = sorted({(random.getrandbits(128) & mask, mask) for mask in masks})
        added, a, b = _cheapest(cells)
        assert added == min(space(around((x, y))) - space(x) - space(y) for x in cells for y in cells if x != y)
        assert added == space(around((a, b))) - space(a) - space(b)


def flow(entry):
    port, value, mask = entry
    return Flow(Match(3, Cell(value, mask, BITS)), frozenset((port,)), mask.bit_count(), table=port)


@given(st.sets(ENTRIES, max_size=12), st.sets(ENTRIES, max_size=12), st.integers(0, 2), st.integers(0, 40))
@example(  # an entry for everything that stays
    {(1, 0, 1), (2, 0, 2), (1, 0, 0), (2, 0, 1), (2, 0, 0)},
    {(2, 1, 1), (1, 0, 1), (1, 0, 0), (2, 0, 0), (2, 0, 3)},
    0,
    0,
)
def test_changes_of_cells_need_one_spare_entry_and_lose_nothing(one, two, more, cut):
    tables = CellTables(3, 1)
    old, new = FlowTable(map(flow, one)), FlowTable(map(flow, two))
    room = max(len(old), len(new)) + 1 + more
    both = {(port, code) for port, code in held(one) & held(two)}

    def carried_out(table, changes):
        for change in changes:
            table = table.applied([change])
            assert len(table) <= room
            cells = [(f.table, *(bits >> 128 - BITS for bits in f.match.bits)) for f in table]
            sent = held(cells)
            assert sent >= both
        return table

    changes = tables.passage(old, new, room)
    assert carried_out(old, changes) == new
    # And from wherever it was cut off.
    halfway = carried_out(old, changes[:cut])
    assert carried_out(halfway, tables.passage(halfway, new, room)) == new
