"""Unions of filters: those that others cover are dropped, exactly, in near-linear time, and costs are known before."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import (
    Attribute,
    Filter,
    Schema,
    Subscription,
    ValueSet,
    antichain,
    decode_subscription,
    encode_subscription,
)
from sievenet.content.antichain import uncovered
from sievenet.content.cost import cost
from sievenet.errors import CodecError
from sievenet.testing import strategies

WIDE = Schema("wide", tuple(Attribute(f"a{i}", "int", lo=0, hi=10_000) for i in range(64)))


@given(st.data(), st.booleans())
def test_what_is_left_is_what_no_other_covers(data, small):
    schema = data.draw(st.none() | strategies.schemas(small=small))
    drawn = data.draw(st.lists(strategies.filters(schema, small), max_size=25))
    distinct = [f for f in dict.fromkeys(drawn) if not f.empty]
    expected = [f for f in distinct if not any(g.covers(f) for g in distinct if g is not f)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(antichain, "FEW", 0)
        patch.setattr(antichain, "_BLOCK", data.draw(st.sampled_from([1, 3, 1024])))
        assert uncovered(distinct) == expected
        assert set(Subscription(drawn, schema)) == set(expected)


def union(kind):
    """1,024 filters of 64 attributes that are hard to tell apart."""
    rows = []
    for i in range(1024):
        if kind == "alike":  # equal but for the last two attributes, which never agree
            ends = [5000] * 62 + [5000 - i, 5000 + i]
            rows.append({f"a{j}": ValueSet.interval(0, end) for j, end in enumerate(ends)})
        else:  # each covers the ones before, with gaps and the same first and last values
            values = ValueSet.of(0, 10_000) | ValueSet.interval(4999 - i, 5000 + i)
            rows.append({f"a{j}": values for j in range(16)})
    return [Filter(WIDE, row) for row in rows]


@pytest.mark.parametrize(("kind", "left"), [("alike", 1024), ("nested", 1)])
def test_a_large_union_takes_no_half_minute(kind, left):
    filters = union(kind)
    begun = time.process_time()
    found = Subscription(filters, WIDE)
    assert len(found) == left
    assert time.process_time() - begun < 6  # pairs took 27 s; now tenths of a second


def test_what_costs_too_much_is_refused_before_it_is_done():
    filters = union("alike")
    data = encode_subscription(Subscription(filters, WIDE))
    begun = time.process_time()
    with pytest.raises(CodecError, match="costs at most 200000 steps, got one of"):
        decode_subscription(WIDE, data, most=200_000)
    assert time.process_time() - begun < 3
    assert cost([Filter(WIDE)]) < cost([filters[0]]) < 1_000
    assert cost(filters[:2]) < cost(filters[:100]) < cost(filters)
    few = Subscription(filters[:2], WIDE)
    assert decode_subscription(WIDE, encode_subscription(few), most=10_000) == few


@given(st.data())
def test_costs_grow_with_filters_and_values(data):
    schema = data.draw(st.none() | strategies.schemas(small=True))
    some = data.draw(st.lists(strategies.filters(schema, small=True), max_size=6))
    assert cost(some) <= cost([*some, data.draw(strategies.filters(schema, small=True))])
