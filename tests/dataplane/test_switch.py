"""The switch against brute force: single lookups, batches, changes in between, a table that fills up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.compiled import Intervals, Masks
from sievenet.dataplane.switch import Switch
from sievenet.errors import InvalidInput, Rejected
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.index.code import word_arrays as words
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowTable, Match, Modify

BITS = 5
# Positions 62..66 straddle the two words of a code, so both are searched.
LEAD = 62


def deep(bits, length):
    """A dz whose interesting bits lie across the border of the two words."""
    return Dz(bits, LEAD + length)


def code_of(bits):
    return bits << (CODE_BITS - LEAD - BITS)


CODES = [code_of(bits) for bits in range(1 << BITS)] + [1 << 127, (1 << 128) - 1]

dzs = st.integers(0, BITS).flatmap(lambda n: st.builds(deep, st.integers(0, (1 << n) - 1), st.just(n)))
short_dzs = st.sampled_from([Dz(0, 0), Dz(0, 1), Dz(1, 1), Dz(0, 64)])
ports = st.frozensets(st.integers(1, 5), max_size=3)
plain = st.builds(lambda dz, out: Flow(Match(1, dz), out, dz.length), dzs | short_dzs, ports)


@st.composite
def cells(draw):
    mask = draw(st.integers(0, (1 << BITS) - 1))
    value = draw(st.integers(0, (1 << BITS) - 1)) & mask
    return Cell(value, mask | ((1 << LEAD) - 1) << BITS, LEAD + BITS)


wild = st.builds(
    Flow,
    st.builds(Match, st.integers(1, 2), dzs | short_dzs | cells()),
    ports,
    st.integers(0, 3) | st.just(TOP_PRIORITY),
    st.none() | st.integers(1, 2),
    st.integers(0, 2),
)


def changes_of(flows):
    return st.lists(
        st.builds(lambda kind, flow: kind(flow), st.sampled_from([Add, Modify, Delete]), flows), max_size=25
    )


def check_lookups(switch, table):
    assert switch.table() == table
    assert len(switch) == len(table)
    for category in (1, 2, 3):
        for in_port in (1, 2, 9):
            expected = [table.decide(category, code, in_port) for code in CODES]
            single = [tuple(e.flow for e in switch.lookup(category, code, in_port)) for code in CODES]
            assert single == expected
            found, decisions = switch.lookup_batch(category, *words(CODES), in_port)
            assert [tuple(e.flow for e in decisions[d]) for d in found] == expected


@given(st.lists(changes_of(plain), max_size=3))
def test_prefix_tables_against_brute_force(rounds):
    switch, table = Switch("s1"), FlowTable()
    for changes in rounds:
        switch.apply(changes)
        table = table.applied(changes)
        check_lookups(switch, table)
        assert all(isinstance(c, Intervals) for _, c in switch._compiled.values())


@given(st.lists(changes_of(wild), max_size=3))
def test_wild_tables_against_brute_force(rounds):
    switch, table = Switch("s1"), FlowTable()
    for changes in rounds:
        switch.apply(changes)
        table = table.applied(changes)
        check_lookups(switch, table)


@given(st.lists(st.builds(lambda dz: Flow.of(1, dz, 1), dzs), unique=True, max_size=20), st.integers(0, 12))
def test_capacity_is_never_exceeded_and_refusal_changes_nothing(flows, capacity):
    switch = Switch("s1", capacity)
    for flow in flows:
        before = switch.table()
        if len(before) < capacity:
            switch.apply([Add(flow)])
        else:
            with pytest.raises(Rejected, match=f"{capacity} flows fit"):
                switch.apply([Add(flow)])
            assert switch.table() == before
    assert len(switch) <= capacity


def test_room_is_counted_change_by_change():
    switch = Switch("s1", 2)
    one, two, three = (Flow.of(1, Dz(i, 2), 1) for i in range(3))
    switch.apply([Add(one), Add(two), Delete(one), Delete(one), Add(three)])
    with pytest.raises(Rejected):
        switch.apply([Add(one), Delete(two)])  # make-before-break needs a spare entry
    switch.apply([Modify(two), Delete(two), Add(one), Add(one)])
    assert switch.table() == FlowTable([one, three])


def test_counters():
    switch = Switch("s1")
    switch.apply([Add(Flow.of(1, Dz(1, 1), 1, 2)), Add(Flow(Match(1, Dz(1, 1)), frozenset({3}), 1, None, 1))])
    assert switch.forward(1, 1 << 127, 2, 100) == {1, 3}
    assert switch.forward(1, 0, 2, 100) == frozenset()
    assert switch.forward(9, 0, 2, 100) == frozenset()
    assert [count.packets for count in switch.counts().values()] == [1, 1]
    assert [count.bytes for count in switch.counts().values()] == [100, 100]
    assert switch.unmatched == 2
    assert switch.categories() == (1,)
    switch.clear()
    assert (len(switch), switch.unmatched, switch.counts()) == (0, 0, {})


def test_counters_survive_modification():
    switch = Switch("s1")
    switch.apply([Add(Flow.of(1, Dz(1, 1), 1))])
    switch.forward(1, 1 << 127, 9)
    switch.apply([Modify(Flow.of(1, Dz(1, 1), 2))])
    assert switch.forward(1, 1 << 127, 9) == {2}
    assert [count.packets for count in switch.counts().values()] == [2]


def test_compiled_tables_are_kept_until_something_changes():
    switch = Switch("s1")
    switch.apply([Add(Flow.of(1, Dz(1, 1), 1)), Add(Flow.of(2, Dz(1, 1), 1))])
    first = switch.compiled(1, 3)
    assert switch.compiled(1, 4) is first  # no flow asks for an in-port
    switch.apply([Add(Flow.of(2, Dz(0, 1), 1))])
    assert switch.compiled(1, 4) is first
    switch.apply([Add(Flow(Match(1, Cell.parse("*1")), frozenset(), 1, 4))])
    assert isinstance(switch.compiled(1, 4), Masks)
    assert isinstance(switch.compiled(1, 3), Intervals)
    assert switch.compiled(7, 1) is None


def test_neighbouring_intervals_with_one_decision_are_one():
    switch = Switch("s1")
    switch.apply([Add(Flow.of(1, Dz(i, 4), 1)) for i in range(4)])
    compiled = switch.compiled(1, None)
    assert len(compiled.starts_hi) == 5  # four flows are four decisions, and the rest
    assert compiled.decision[-1] == 0


def test_bad_flows_are_refused():
    with pytest.raises(InvalidInput):
        Switch("s1").apply([Add(Flow(Match(-1, Dz(0, 0)), frozenset(), 0))])


def test_empty_batches():
    found, decisions = Switch("s1").lookup_batch(1, np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    assert (len(found), decisions) == (0, [()])
