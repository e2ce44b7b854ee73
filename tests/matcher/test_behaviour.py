"""What a matcher promises besides being right: keys, order, errors, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Record, Schema, Subscription, ValueSet
from sievenet.errors import EventError, FilterError, InvalidInput, SchemaError
from sievenet.matcher import Matcher, Matches
from sievenet.matcher.keytable import KeyTable
from sievenet.workload import Mixed
from tests.seeds import examples

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=999), Attribute("s", "str")))
OTHER = Schema("t", (Attribute("x", "int", lo=0, hi=99),))


def below(limit):
    return Filter(SCHEMA, {"x": ValueSet.interval(None, limit, open_hi=True)})


def event(x, s=""):
    return SCHEMA.event(x=x, s=s)


def test_an_empty_matcher_matches_nothing():
    found = Matcher(SCHEMA)
    assert len(found) == 0
    assert found.match(event(1)) == []
    matches = found.match_batch([event(1), event(2)])
    assert len(matches) == 2
    assert matches.keys.tolist() == []
    assert len(found.match_batch(EventBatch.of(SCHEMA, {"x": [], "s": []}))) == 0
    assert Matcher(None).match_batch([]).offsets.tolist() == [0]


def test_match_all_and_match_nothing():
    found = Matcher(SCHEMA)
    found.add(1, Filter(SCHEMA))
    found.add(2, Filter.nothing(SCHEMA))
    found.add(3, Subscription((), SCHEMA))
    assert 2 in found
    assert 3 in found
    assert found.match(event(5)) == [1]
    loose = Matcher(None)
    loose.add_many(range(300), [Filter()] * 300)
    assert loose.match(Record({})) == list(range(300))
    found.remove(2)
    assert 2 not in found


def test_each_key_once_and_ascending():
    found = Matcher(SCHEMA)
    overlapping = Subscription([below(500), Filter(SCHEMA, {"s": ValueSet.prefix("a")})])
    keys = [9, -4, 1 << 62, 0]
    found.add_many(keys, [overlapping] * 4)
    assert found.match(event(1, "ab")) == sorted(keys)
    assert found.match_batch([event(1, "ab")] * 50)[49].tolist() == sorted(keys)
    assert set(found) == set(keys)


def test_a_key_is_replaced():
    found = Matcher(SCHEMA)
    found.add(1, below(10))
    found.add(1, below(3))
    assert found.match(event(5)) == []
    found.add_many([2, 1], [below(5), Subscription([below(100), Filter(SCHEMA, {"s": ValueSet.of("z")})])])
    assert found.match(event(4)) == [1, 2]
    assert len(found) == 2
    assert found.statistics().filters == 3
    found.remove_many([1])
    assert found.match(event(4)) == [2]


def test_many_matches_grow_the_room():
    found = Matcher(SCHEMA)
    found.add_many(range(2000), [below(1 + i % 999) for i in range(2000)])
    assert len(found.match(event(0))) == 2000
    counts = found.counts_batch([event(0)] * 60)
    assert counts.tolist() == [2000] * 60


def test_wrong_things_are_refused_and_change_nothing():
    found = Matcher(SCHEMA)
    found.add(1, below(10))
    with pytest.raises(FilterError):
        found.add(2, Filter(OTHER))
    with pytest.raises(FilterError):
        found.add_many([2, 3], [below(1), Filter(None)])
    with pytest.raises(InvalidInput):
        found.add_many([2, 2], [below(1), below(2)])
    with pytest.raises(ValueError):
        found.add_many([2, 3], [below(1)])
    with pytest.raises(InvalidInput):
        found.add(2, "x < 1")
    with pytest.raises(InvalidInput):
        found.add("2", below(1))
    with pytest.raises(InvalidInput):
        found.add(1 << 63, below(1))
    with pytest.raises(InvalidInput):
        found.remove(2)
    with pytest.raises(InvalidInput):
        found.remove_many([1, 2])
    with pytest.raises(InvalidInput):
        found.remove_many([1, 1])
    with pytest.raises(SchemaError):
        found.match(OTHER.event(x=1))
    with pytest.raises(SchemaError):
        found.match(Record({"x": 1}))
    with pytest.raises(SchemaError):
        found.match_batch(EventBatch.of(OTHER, {"x": [1]}))
    with pytest.raises(FilterError):
        Matcher(None).add(1, below(1))
    with pytest.raises(EventError):
        Matcher(None).match(5)
    assert found.match(event(5)) == [1]
    assert len(found) == 1
    assert "1" not in found
    assert found.statistics().filters == 1


def test_keys_of_numpy():
    found = Matcher(SCHEMA)
    found.add_many(np.arange(3), [below(10)] * 3)
    found.add(np.int32(7), below(10))
    assert found.match(event(1)) == [0, 1, 2, 7]
    assert np.int64(7) in found


def test_matches_reads_like_a_sequence():
    matches = Matches(np.array([0, 2, 2, 3]), np.array([4, 5, 6]))
    assert [each.tolist() for each in matches] == [[4, 5], [], [6]]
    assert matches[-1].tolist() == [6]
    assert matches.counts.tolist() == [2, 0, 1]
    assert matches.events.tolist() == [0, 0, 2]
    with pytest.raises(IndexError):
        matches[3]


def test_schemaless_attributes_come_with_filters():
    found = Matcher(None)
    found.add_many(range(400), [Filter(None, {f"a{i}": ValueSet.interval(i, None)}) for i in range(400)])
    assert found.match(Record({"a7": 7, "a8": 7})) == [7]
    found.add(1000, Filter(None, {"new": ValueSet.of("x"), "a7": ValueSet.of(7)}))
    assert found.match(Record({"new": "x", "a7": 7.0})) == [7, 1000]
    assert found.match({"new": "x", "a7": True}) == []
    assert [m.tolist() for m in found.match_batch([Record({"a399": 1e9}), Record({"z": 1})] * 30)][:2] == [[399], []]


def test_the_answer_does_not_depend_on_how_it_came():
    load = Mixed(match=5e-3, seed=5)
    wanted = list(load.subscriptions(1500))
    batch = load.events(200)
    at_once, one_by_one = Matcher(load.schema), Matcher(load.schema)
    at_once.add_many(range(1500), wanted)
    for key in reversed(range(1500)):
        one_by_one.add(key, wanted[key])
        if key % 100 == 0:
            one_by_one.match(batch[0])
    a, b = at_once.match_batch(batch), one_by_one.match_batch(batch)
    assert np.array_equal(a.offsets, b.offsets)
    assert np.array_equal(a.keys, b.keys)


def test_memory_is_bounded_and_returned():
    load = Mixed(match=1e-3, seed=2)
    wanted = list(load.subscriptions(4000))
    found = Matcher(load.schema)
    found.add_many(range(4000), wanted)
    found.match(load.events(1)[0])
    full = found.statistics()
    assert full.bytes <= 600 * 4000
    assert full.levels[0].slots <= 1.5 * 4000
    assert full.filters == full.subscriptions == 4000
    found.remove_many(range(100, 4000))
    found.match(load.events(1)[0])
    assert found.statistics().bytes < full.bytes / 5
    # Churn does not accumulate.
    for turn in range(10):
        found.add_many(range(100, 1000), wanted[100:1000])
        found.match(load.events(1)[0])
        found.remove_many(range(100, 1000))
        found.match(load.events(1)[0])
        assert found.statistics().filters == 100, turn
    assert found.statistics().bytes < full.bytes / 5


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ppt"), st.integers(-20, 20) | st.integers(-(1 << 63), (1 << 63) - 1))))
def test_key_table_is_a_dictionary(steps):
    table, model = KeyTable(), {}
    for row, (what, key) in enumerate(steps):
        if what == "p":
            assert table.put(key, row) == model.get(key, -1)
            model[key] = row
        else:
            assert table.take(key) == model.pop(key, -1)
    assert len(table) == len(model)
    assert sorted(table) == sorted(model)
    assert all(table.find(key) == row for key, row in model.items())


def test_key_table_grows_and_shrinks():
    table = KeyTable()
    keys = np.arange(0, 1 << 40, 1 << 25)
    assert (table.put_many(keys, np.arange(len(keys))) < 0).all()
    full = table.nbytes
    assert full <= 48 * len(keys)
    assert all(table.take(int(key)) == row for row, key in enumerate(keys[:-10]))
    assert sorted(table) == keys[-10:].tolist()
    assert table.nbytes < full / 100


def test_a_few_filters_become_a_level_when_they_were_walked_over_often():
    schema = Schema("line", (Attribute("x", "int", lo=0, hi=999),))
    found = Matcher(schema)
    found.add_many(range(100), [Filter(schema, {"x": ValueSet.interval(i, i + 9)}) for i in range(100)])
    batch = EventBatch.of(schema, {"x": np.arange(1000)})
    before = [keys.tolist() for keys in found.match_batch(batch)]
    assert found.statistics().pending == 100
    for _ in range(3):
        assert [keys.tolist() for keys in found.match_batch(batch)] == before
    assert found.statistics().pending == 0
    assert found.match(schema.event(x=9)) == before[9] == list(range(10))


def test_compact_makes_one_level_and_changes_no_answer():
    load = Mixed(match=2e-3, seed=3)
    wanted, batch = list(load.subscriptions(900)), load.events(40)
    found = Matcher(load.schema)
    for start in range(0, 900, 300):
        found.add_many(range(start, start + 300), wanted[start : start + 300])
        found.match_batch(batch)
    found.add_many([1300, 1301], wanted[:2])
    before = found.match_batch(batch)
    assert len(found.statistics().levels) > 1
    found.compact()
    (level,) = found.statistics().levels
    assert level.filters == found.statistics().filters
    after = found.match_batch(batch)
    assert (after.keys.tolist(), after.offsets.tolist()) == (before.keys.tolist(), before.offsets.tolist())
    found.compact()
    found.remove_many(list(found))
    found.compact()
    assert found.match_batch(batch).keys.tolist() == []
