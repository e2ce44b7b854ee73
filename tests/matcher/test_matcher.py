"""A matcher against the filters' own `matches`: the same answer, always."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.matcher import Matcher, level, matcher
from sievenet.workload import Mixed
from tests.matcher import strategies as ours
from tests.seeds import examples

SCHEMA = ours.SCHEMA


def brute(wanted, event):
    return sorted(key for key, each in wanted.items() if each.matches(event))


def agree(found, wanted, events):
    """Single events, batches and counts all say what the filters say."""
    expected = [brute(wanted, event) for event in events]
    assert [found.match(event) for event in events] == expected
    matches = found.match_batch(events)
    assert [keys.tolist() for keys in matches] == expected
    # Enough of them to be sorted and matched by columns.
    times = 1 + 40 // len(events)
    assert [keys.tolist() for keys in found.match_batch(list(events) * times)] == expected * times
    assert matches.offsets.dtype == matches.keys.dtype == np.int64
    assert found.counts_batch(events).tolist() == [len(keys) for keys in expected] == matches.counts.tolist()


#: Blocks of their own even for a handful of filters: as bitmaps, and as sorted lists wherever that is possible.
FORCED = {"natural": None, "bitmaps": 0.0, "lists": 1e9}
forced_or_not = pytest.mark.parametrize("narrow", FORCED.values(), ids=FORCED)


def clustered(monkeypatch, narrow):
    """Blocks of their own, and slices, even for a handful of filters."""
    if narrow is not None:
        monkeypatch.setattr(level, "_WORTH", 1)
        monkeypatch.setattr(level, "_SLICED", 1)
        monkeypatch.setattr(level, "_NARROW", narrow)


WITH_SCHEMA = (SCHEMA, ours.filters(), ours.events)
SCHEMALESS = (None, ours.loose_filters(), ours.records)


@forced_or_not
@pytest.mark.parametrize("walk", [0, 256])
@pytest.mark.parametrize(("schema", "filters", "events"), [WITH_SCHEMA, SCHEMALESS], ids=["schema", "schemaless"])
def test_agrees_with_matches(monkeypatch, narrow, walk, schema, filters, events):
    monkeypatch.setattr(matcher, "_WALKED", walk)
    clustered(monkeypatch, narrow)

    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(ours.subscriptions(filters, schema), max_size=12), st.lists(events, min_size=1, max_size=8))
    def check(wanted, events):
        found = Matcher(schema)
        found.add_many(range(len(wanted)), wanted)
        agree(found, dict(enumerate(wanted)), events)

    check()


class Coming(RuleBasedStateMachine):
    """Subscriptions come, change and go between matches, while levels merge underneath."""

    schema = SCHEMA
    one = ours.subscriptions(ours.filters(), SCHEMA)
    event = ours.events

    @initialize(walked=st.sampled_from([0, 2, 5]), narrow=st.sampled_from(list(FORCED.values())))
    def start(self, walked, narrow):
        self.before = matcher._WALKED, level._WORTH, level._SLICED, level._NARROW
        matcher._WALKED = walked
        if narrow is not None:
            level._WORTH = level._SLICED = 1
            level._NARROW = narrow
        self.found = Matcher(self.schema)
        self.wanted = {}

    def teardown(self):
        if hasattr(self, "before"):
            matcher._WALKED, level._WORTH, level._SLICED, level._NARROW = self.before

    @rule(data=st.data(), key=st.integers(-5, 5))
    def add(self, data, key):
        self.wanted[key] = what = data.draw(self.one)
        self.found.add(key, what)

    @rule(data=st.data(), start=st.integers(-5, 30), count=st.integers(1, 12))
    def add_many(self, data, start, count):
        some = data.draw(st.lists(self.one, min_size=count, max_size=count))
        keys = range(start, start + count)
        self.found.add_many(keys, some)
        self.wanted.update(zip(keys, some, strict=True))

    @rule(data=st.data())
    def remove(self, data):
        if self.wanted:
            keys = data.draw(st.lists(st.sampled_from(sorted(self.wanted)), unique=True))
            self.found.remove_many(keys)
            for key in keys:
                del self.wanted[key]

    @rule(data=st.data())
    def match(self, data):
        events = data.draw(st.lists(self.event, min_size=1, max_size=3))
        agree(self.found, self.wanted, events)

    @invariant()
    def knows_its_keys(self):
        if hasattr(self, "found"):
            assert len(self.found) == len(self.wanted)
            assert set(self.found) == set(self.wanted)
            assert self.found.statistics().subscriptions == len(self.wanted)


class ComingSchemaless(Coming):
    schema = None
    one = ours.subscriptions(ours.loose_filters(), None)
    event = ours.records


TestComing = pytest.mark.unwatched(Coming.TestCase)
TestComing.settings = settings(max_examples=examples(40), stateful_step_count=12, deadline=None)
TestComingSchemaless = pytest.mark.unwatched(ComingSchemaless.TestCase)
TestComingSchemaless.settings = settings(max_examples=examples(40), stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("worth", [64, 512])
def test_agrees_with_matches_at_size(monkeypatch, worth):
    """Full blocks, copies, edges at quantiles, several chunks, and growing in levels."""
    monkeypatch.setattr(level, "_WORTH", worth)
    monkeypatch.setattr(matcher, "_CHUNK", 100)
    load = Mixed(match=2e-3, seed=3)
    wanted = dict(enumerate(load.subscriptions(3000)))
    batch = load.events(250)
    found = Matcher(load.schema)
    found.add_many(range(1000), [wanted[key] for key in range(1000)])
    for key in range(1000, 3000):
        found.add(key, wanted[key])
        if key % 300 == 0:
            found.match(batch[0])
    for key in range(0, 3000, 7):
        found.remove(key)
        del wanted[key]
    expected = [brute(wanted, event) for event in batch]
    assert [found.match(event) for event in batch] == expected
    assert len(found.statistics().levels) > 1
    assert [keys.tolist() for keys in found.match_batch(batch)] == expected
    # So many events that the levels become one.
    for _ in range(200):
        found.counts_batch(batch)
    assert len(found.statistics().levels) == 1
    assert [keys.tolist() for keys in found.match_batch(batch)] == expected
    clustered_blocks = found.statistics().levels[0]
    assert (clustered_blocks.unclustered < clustered_blocks.blocks) == (worth == 64)


def test_narrow_filters_are_found_in_sorted_lists():
    """Thousands that hardly overlap, some removed, some alike, and one that reaches over all others of its block."""
    schema = Schema("line", (Attribute("x", "int", lo=0, hi=9_999), Attribute("y", "int", lo=0, hi=9)))
    rng = random.Random(5)
    wanted = {}
    for key in range(3000):
        lo = rng.randrange(10_000)
        rest = {"y": ValueSet.interval(0, rng.randrange(10))} if key % 3 else {}
        wanted[key] = Filter(schema, {"x": ValueSet.interval(lo, lo + rng.randrange(6)), **rest})
    wanted[1234] = Filter(schema, {"x": ValueSet.interval(4_000, 4_400)})
    found = Matcher(schema)
    found.add_many(wanted, wanted.values())
    events = [schema.event(x=rng.randrange(10_000), y=rng.randrange(10)) for _ in range(400)]
    assert found.match_batch(events).keys.tolist() == [key for event in events for key in brute(wanted, event)]
    (built,) = found._levels.values()
    assert len(built.marks) >= 10
    found.remove_many(range(0, 3000, 5))
    for key in range(0, 3000, 5):
        del wanted[key]
    agree(found, wanted, [*events[:40], schema.event(x=0, y=0), schema.event(x=9_999, y=9)])


@pytest.mark.parametrize("lines", ["whole", "uneven", "doubles"])
def test_narrow_filters_anywhere_on_the_line_are_told_apart(lines):
    """Over all 64 bits, so that marks are coarse; most in one place, so that many marks are alike; and doubles."""
    top = 2**63 - 1
    schema = Schema("line", (Attribute("x", "int", lo=-top, hi=top), Attribute("z", "float", lo=-1e9, hi=1e9)))
    rng, wanted, points = random.Random(7), {}, []
    for key in range(2500):
        if lines == "doubles":
            lo = rng.choice((rng.uniform(-1e9, 1e9), rng.uniform(-1e-9, 1e-9)))
            wanted[key] = Filter(schema, {"z": ValueSet.interval(lo, lo + abs(lo) * 1e-6)})
            points.append((0, lo + abs(lo) * rng.choice((-1e-12, 0, 5e-7, 2e-6))))
        else:
            lo = rng.randrange(-top, top - 9) if lines == "whole" or key % 250 == 0 else rng.randrange(20_000)
            wanted[key] = Filter(schema, {"x": ValueSet.interval(lo, lo + rng.randrange(9))})
            points.append((max(-top, min(top, lo + rng.randrange(-2, 11))), 0.0))
    wanted[2500] = Filter(schema, {"x": ValueSet.interval(-top, -top), "z": ValueSet.interval(0.0, 0.0)})
    found = Matcher(schema)
    found.add_many(wanted, wanted.values())
    events = [schema.event(x=x, z=z) for x, z in [*points[::5], (-top, 0.0), (top, 0.0)]]
    assert found.match_batch(events).keys.tolist() == [key for event in events for key in brute(wanted, event)]
    assert sum(len(each.marks) for each in found._levels.values()) >= 5
    agree(found, wanted, events[:60])
