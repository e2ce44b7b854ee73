"""Filters that enter a table together: as brute force has them, with fewer covering tests."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.errors import InvalidInput
from sievenet.routers.batches import enter_forest, enter_poset
from sievenet.routers.forest import Forest
from sievenet.routers.poset import Poset
from sievenet.routers.schemes import Covering, Want
from tests.routers.bruteforce import PLANE, Levels, check_forest, check_poset, strictly
from tests.seeds import examples

INTERFACES = ("a", "b", "c")


@st.composite
def sets(draw):
    """A stretch, two with a gap, or everything."""
    kind = draw(st.sampled_from(("one", "one", "one", "two", "all")))
    lo, hi = sorted((draw(st.integers(0, 7)), draw(st.integers(0, 7))))
    found = ValueSet.interval(lo, hi)
    return {"one": found, "two": found | ValueSet.of(draw(st.integers(0, 7))), "all": None}[kind]


@st.composite
def filters(draw):
    sides = {name: draw(sets()) for name in ("x", "y")}
    return Filter(PLANE, {name: values for name, values in sides.items() if values is not None})


items = st.tuples(filters(), st.sampled_from(INTERFACES))
rounds = st.lists(st.tuples(st.lists(items, max_size=20), st.lists(items, max_size=4)), max_size=4)


@settings(max_examples=examples(80), deadline=None)
@given(rounds, st.booleans())
def test_a_poset_is_as_if_they_had_come_one_by_one(rounds, index):
    levels, told = Levels(), []
    poset = Poset(index=index, on_level=levels)
    wanted = {}
    for together, gone in rounds:
        enter_poset(poset, together, lambda entry, interface: told.append((entry.filter, interface)))
        assert sorted(map(str, told)) == sorted(map(str, together))
        told.clear()
        for each, interface in together:
            wanted.setdefault(each, set()).add(interface)
        for each, interface in gone:
            poset.unsubscribe(each, interface)
            wanted.get(each, set()).discard(interface)
        wanted = {each: who for each, who in wanted.items() if who}
        check_poset(poset, wanted)
        assert levels == {e.id: e.level for e in poset}


@settings(max_examples=examples(50), deadline=None)
@given(rounds, st.booleans(), st.sampled_from(["none", "path", "all"]))
def test_a_forest_stays_pure_and_maximal(rounds, balanced, eliminate):
    levels = Levels()
    forest = Forest(balanced=balanced, eliminate=eliminate, on_level=levels)
    forest.few = 4
    wanted = set()
    for together, gone in rounds:
        enter_forest(forest, together)
        wanted |= set(together)
        for each, interface in gone:
            forest.unsubscribe(each, interface)
            wanted.discard((each, interface))
        check_forest(forest)
        held = {(n.filter, i) for n in forest for i in n.subscribers}
        assert held <= wanted
        if eliminate == "none":
            assert held == wanted
        elif not gone:
            # What was dropped is covered by another filter of its interface.
            for each, interface in together:
                assert any(i == interface and (f == each or strictly(f, each)) for f, i in held)
        assert levels == {n.id: n.level for n in forest}


@settings(max_examples=examples(40), deadline=None)
@given(rounds)
def test_neighbours_are_told_the_same(rounds):
    """Of a crowd as of each by itself."""
    one, other = Covering(), Covering()
    for scheme in (one, other):
        for neighbour in "ab":
            scheme.join(neighbour)
    for together, gone in rounds:
        for interface in INTERFACES:
            mine = [Want(each) for each, i in together if i == interface]
            one.subscribe_many(mine, interface)
            for want in mine:
                other.subscribe(want, interface)
        for each, interface in gone:
            one.unsubscribe(Want(each), interface)
            other.unsubscribe(Want(each), interface)
        for neighbour in "ab":
            assert one.told(neighbour) == other.told(neighbour)


def test_crowds_share_their_searches():
    line = Schema("line", (Attribute("x", "float", lo=0.0, hi=1.0),))
    rng = random.Random(5)
    crowd = [(Filter(line, {"x": ValueSet.interval(*sorted((rng.random(), rng.random())))}), "a") for _ in range(600)]
    forests, posets = [Forest(), Forest()], [Poset(), Poset()]
    for wanted, interface in crowd:
        forests[0].subscribe(wanted, interface)
        posets[0].subscribe(wanted, interface)
    for first in range(0, len(crowd), 20):
        enter_forest(forests[1], crowd[first : first + 20])
        enter_poset(posets[1], crowd[first : first + 20])
    assert forests[1].tests < 0.9 * forests[0].tests
    assert set(forests[1].root_filters()) == set(forests[0].root_filters()) == set(posets[1].root_filters())
    assert {e.filter: {posets[1].entries[s].filter for s in e.succs} for e in posets[1]} == {
        e.filter: {posets[0].entries[s].filter for s in e.succs} for e in posets[0]
    }


def test_what_is_empty_is_refused_before_anything_is_changed():
    poset = Poset()
    with pytest.raises(InvalidInput):
        enter_poset(poset, [(Filter(PLANE), "a"), (Filter.nothing(PLANE), "a")])
    assert not len(poset)
