"""Flow tables: precedence, and differences that never lose a match on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.network import (
    EMPTY_TABLE,
    TOP_PRIORITY,
    Add,
    Delete,
    Flow,
    FlowTable,
    Match,
    Modify,
    difference,
    make_before_break,
)

BITS = 3
CODES = [code << (CODE_BITS - BITS) for code in range(1 << BITS)]

dzs = st.integers(0, BITS).flatmap(lambda n: st.builds(Dz, st.integers(0, (1 << n) - 1), st.just(n)))
ports = st.frozensets(st.integers(1, 4), max_size=3)
dz_flows = st.builds(lambda dz, out: Flow(Match(1, dz), out, dz.length), dzs, ports)


@st.composite
def cells(draw):
    mask = draw(st.integers(0, (1 << BITS) - 1))
    return Cell(draw(st.integers(0, (1 << BITS) - 1)) & mask, mask, BITS)


#: Anything a switch may hold: masks, odd priorities, in-ports, several tables.
wild_flows = st.builds(
    Flow,
    st.builds(Match, st.integers(1, 2), st.one_of(dzs, cells())),
    ports,
    st.integers(0, 3) | st.just(TOP_PRIORITY),
    st.none() | st.just(1),
    st.integers(0, 1),
)

dz_tables = st.lists(dz_flows, max_size=8).map(FlowTable)
wild_tables = st.lists(wild_flows, max_size=8).map(FlowTable)


def packets():
    return [(category, code, in_port) for category in (1, 2) for code in CODES for in_port in (1, 9)]


def deliveries(table):
    """What is sent where by which table of the switch."""
    return {(p, f.table, port) for p in packets() for f in table.decide(*p) for port in f.ports}


def check_make_before_break(old, new):
    kept = deliveries(old) & deliveries(new)
    table = old
    for change in difference(old, new):
        table = table.applied([change])
        lost = kept - deliveries(table)
        assert not lost, f"{change} loses {lost}"
    assert table == new


@given(dz_tables, dz_tables)
def test_differences_never_lose_a_match(old, new):
    check_make_before_break(old, new)


@given(wild_tables, wild_tables)
def test_differences_of_wild_tables_never_lose_a_match(old, new):
    check_make_before_break(old, new)


@given(wild_tables, wild_tables)
def test_differences_converge_from_any_point(old, new):
    changes = difference(old, new)
    for i in range(len(changes) + 1):
        halfway = old.applied(changes[:i])
        # Re-applied as a whole, or worked out again from where it stopped: the same end.
        assert halfway.applied(changes) == new
        assert halfway.applied(difference(halfway, new)) == new
    assert difference(new, new) == []


def test_the_wrong_order_would_lose_matches():
    """What the properties above rule out: deleting first leaves a gap."""
    old, new = FlowTable([Flow.of(1, Dz.parse("1"), 1)]), FlowTable([Flow.of(1, Dz.parse("10"), 1)])
    packet = (1, CODES[0b100], 9)
    assert 1 in old.ports(*packet) & new.ports(*packet)
    first, last = difference(old, new)
    assert 1 in old.applied([first]).ports(*packet)
    assert 1 not in old.applied([last]).ports(*packet)


def test_order_of_changes():
    one, ten, hundred = Dz.parse("1"), Dz.parse("10"), Dz.parse("100")
    old = FlowTable([Flow.of(1, one, 1), Flow.of(1, ten, 1, 2), Flow.of(1, Dz.parse("0"), 1)])
    new = FlowTable([Flow.of(1, one, 1, 2), Flow.of(1, hundred, 3), Flow.of(1, Dz.parse("0"), 2)])
    assert difference(old, new) == [
        Add(Flow.of(1, hundred, 3)),
        Modify(Flow.of(1, one, 1, 2)),
        Modify(Flow.of(1, Dz.parse("0"), 2)),
        Delete(Flow.of(1, ten, 1, 2)),
    ]
    assert make_before_break([], [], []) == []


@given(wild_tables, st.sampled_from(CODES), st.integers(1, 2), st.none() | st.integers(1, 3))
def test_precedence_is_total(table, code, category, in_port):
    matching = [f for f in table if f.matches(category, code, in_port)]
    for number in {f.table for f in matching}:
        ranks = [f.precedence for f in matching if f.table == number]
        assert len(set(ranks)) == len(ranks)


def test_longer_dz_wins_and_no_way_back():
    table = FlowTable([Flow.of(1, Dz.parse("1"), 1, 2), Flow.of(1, Dz.parse("10"), 3)])
    assert table.ports(1, CODES[0b100]) == {3}
    assert table.ports(1, CODES[0b110]) == {1, 2}
    assert table.ports(1, CODES[0b110], in_port=2) == {1}
    assert table.ports(1, CODES[0]) == frozenset()
    assert table.ports(2, CODES[0b100]) == frozenset()


def test_tables_are_united():
    table = FlowTable([Flow(Match(1, Dz.parse("1")), frozenset({p}), 1, None, p) for p in (1, 2)])
    assert table.ports(1, CODES[0b100]) == {1, 2}


def test_a_cell_that_is_a_dz_is_that_dz():
    assert Match(1, Cell(0b1000, 0b1100, 4)) == Match(1, Dz.parse("10"))
    assert not Match(1, Cell(0b0001, 0b1001, 4)).is_prefix


def test_values_show_themselves():
    flow = Flow(Match(1, Dz.parse("10")), frozenset({3, 2}), TOP_PRIORITY, 4, 1)
    assert str(flow) == "1:10 → 2,3  priority 1000  in 4  table 1"
    assert str(Flow.of(1, Dz.parse(""))) == "1: → drop"
    assert [str(c(flow))[0] for c in (Add, Modify, Delete)] == ["+", "~", "-"]
    table = FlowTable([Flow.of(1, Dz.parse("1"), 1), Flow.of(1, Dz.parse("10"), 2)])
    assert str(table).splitlines() == ["1:10 → 2", "1:1 → 1"]
    assert repr(table) == "<FlowTable: 2 flows>"
    assert str(EMPTY_TABLE) == "(empty)"
    assert hash(table) == hash(FlowTable(reversed(list(table))))
    assert table != 3
    assert Flow.of(1, Dz.parse("1"), 1) in table
    assert Flow.of(1, Dz.parse("1"), 2) not in table


@pytest.mark.parametrize(
    "flow",
    [
        Flow(Match(70000, Dz.parse("")), frozenset(), 0),
        Flow(Match(1, Dz.parse("")), frozenset(), -1),
        Flow(Match(1, Dz.parse("")), frozenset(), 0, 0),
        Flow(Match(1, Dz.parse("")), frozenset({0}), 0),
    ],
)
def test_flows_no_switch_could_hold(flow):
    with pytest.raises(InvalidInput):
        flow.check()
