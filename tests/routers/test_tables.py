"""Poset and forest against brute force, under adds, removes and placements without covering tests."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.errors import InvalidInput
from sievenet.routers.bounds import Bounds
from sievenet.routers.forest import Forest
from sievenet.routers.poset import Poset
from sievenet.testing import strategies
from tests.routers.bruteforce import PLANE, Levels, check_forest, check_poset, strictly
from tests.seeds import examples

INTERFACES = ("a", "b", "c")


@st.composite
def boxes(draw):
    """Boxes of a small plane: they nest, meet and repeat often."""
    sides = {}
    for name in ("x", "y"):
        lo, hi = sorted(draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
        sides[name] = ValueSet.interval(lo, hi)
    return Filter(PLANE, sides)


steps = st.lists(st.tuples(boxes(), st.sampled_from(INTERFACES), st.booleans(), st.booleans()), max_size=40)


def all_related(table, numbers, wanted):
    preds = {n for n, f in numbers.items() if strictly(f, wanted)}
    succs = {n for n, f in numbers.items() if strictly(wanted, f)}
    return preds, succs


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.sampled_from([(True, True), (False, True), (False, False)]))
def test_poset_is_as_brute_force_has_it(changes, how):
    levels = Levels()
    poset = Poset(index=how[0], prune=how[1], on_level=levels)
    wanted = {}
    for box, interface, add, placed in changes:
        if not add:
            assert poset.unsubscribe(box, interface) == (interface in wanted.get(box, ()))
            wanted.get(box, set()).discard(interface)
            if not wanted.get(box, True):
                del wanted[box]
        elif placed and box not in wanted:
            # As after offloading: all predecessors and successors are given, nothing is tested.
            tests = poset.tests
            related = all_related(poset, {e.id: e.filter for e in poset}, box)
            poset.link(box, *poset.immediate(*related)).subscribers[interface] = None
            assert poset.tests == tests
            wanted[box] = {interface}
        else:
            poset.subscribe(box, interface)
            wanted.setdefault(box, set()).add(interface)
    check_poset(poset, wanted)
    assert levels == {e.id: e.level for e in poset}
    poset.watch(None)
    poset.rebuild()
    check_poset(poset, wanted)


@settings(max_examples=examples(100), deadline=None)
@given(steps)
def test_elimination_keeps_what_is_wanted_and_no_more(changes):
    """With elimination each interface has an antichain that covers all it asked for."""
    poset = Poset()
    asked = {i: [] for i in INTERFACES}
    for box, interface, add, _ in changes:
        if add:
            poset.subscribe(box, interface, eliminate=True)
            asked[interface].append(box)
        else:
            gone = poset.withdraw(box, interface)
            assert all(box.covers(f) for f in gone)
            asked[interface] = [f for f in asked[interface] if not box.covers(f)]
    for interface, filters in asked.items():
        held = {e.filter for e in poset if interface in e.subscribers}
        # Whatever was given up covered what it had eliminated too: Siena's unsubscription takes all of it.
        assert held == {f for f in filters if not any(strictly(g, f) for g in filters)}
    check_poset(poset, {e.filter: set(e.subscribers) for e in poset})


@settings(max_examples=examples(120), deadline=None)
@given(steps, st.booleans(), st.sampled_from(["none", "path", "all"]), st.sampled_from([None, 0, 64]))
def test_forest_is_pure_and_maximal(changes, balanced, eliminate, few):
    levels = Levels()
    forest = Forest(balanced=balanced, eliminate=eliminate, on_level=levels, index=few is not None)
    forest.few = few or 0
    wanted = {}
    for box, interface, add, placed in changes:
        if not add:
            had = interface in wanted.get(box, ())
            removed = forest.unsubscribe(box, interface)
            assert removed == had or eliminate != "none"
            wanted.get(box, set()).discard(interface)
        elif placed and box not in forest:
            tests = forest.tests
            forest.attach(box, interface, *all_related(forest, {n.id: n.filter for n in forest}, box))
            # Taking out what elimination empties may need some; placing needs none.
            assert forest.tests == tests or eliminate != "none"
            wanted.setdefault(box, set()).add(interface)
        else:
            forest.subscribe(box, interface)
            wanted.setdefault(box, set()).add(interface)
        check_forest(forest)
    if eliminate == "none":
        assert {n.filter: set(n.subscribers) for n in forest} == {f: s for f, s in wanted.items() if s}
    if eliminate == "all":
        for one, other in itertools.permutations(forest, 2):
            if strictly(one.filter, other.filter):
                assert not set(one.subscribers) & set(other.subscribers)
    assert levels == {n.id: n.level for n in forest}
    forest.watch(None)
    forest.rebuild()
    check_forest(forest)


def test_balance_gathers_an_interface():
    """A filter that fits below two nodes goes where its interface is."""

    def box(x0, x1, y0, y1):
        return Filter(PLANE, {"x": ValueSet.interval(x0, x1), "y": ValueSet.interval(y0, y1)})

    forest = Forest(balanced=True)
    forest.subscribe(box(0, 6, 0, 4), "a")
    forest.subscribe(box(0, 4, 0, 6), "b")
    mine = forest.subscribe(box(1, 2, 1, 2), "b")
    assert forest.nodes[mine.parent].subscribers.keys() == {"b"}


def test_tests_are_counted_and_pruning_saves_some():
    boxed = [
        Filter(PLANE, {"x": ValueSet.interval(x, x + 1), "y": ValueSet.interval(y, y + 1)})
        for x in range(7)
        for y in range(7)
    ]
    cells = [Filter(PLANE, {"x": ValueSet.of(x), "y": ValueSet.of(y)}) for x in range(8) for y in range(8)]
    counted = {}
    for prune in (False, True):
        poset = Poset(index=False, prune=prune)
        for f in cells + boxed:
            poset.subscribe(f, "a")
        for box in boxed:
            poset.unsubscribe(box, "a")
            poset.subscribe(box, "a")
        counted[prune] = poset.tests
    assert 0 < counted[True] < counted[False]
    poset = Poset()
    for f in cells + boxed:
        poset.subscribe(f, "a")
    # With an index only what is really related is tested: each box and its four cells.
    assert poset.tests == 4 * len(boxed)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.one_of(st.none(), strategies.schemas()).flatmap(
        lambda s: st.tuples(st.lists(strategies.filters(s), min_size=1, max_size=12), st.integers(0, 5))
    )
)
def test_bounds_miss_nothing(drawn):
    """Whatever the types are: what covers a filter is above it, what it covers is below it."""
    filters, gone = drawn
    filters = [f for f in filters if not f.empty]
    bounds = Bounds()
    kept = dict(enumerate(filters))
    for number, each in kept.items():
        bounds.add(number, each)
    for number in range(min(gone, len(filters))):
        bounds.remove(number)
        del kept[number]
    if gone and filters:
        bounds.add(100, filters[0])
        kept[100] = filters[0]
    assert len(bounds) == len(kept)
    for each in filters:
        assert {n for n, f in kept.items() if f.covers(each)} <= set(bounds.above(each)) <= set(kept)
        assert {n for n, f in kept.items() if each.covers(f)} <= set(bounds.below(each)) <= set(kept)


def test_bounds_tell_far_filters_apart():
    """Numbers of any size, strings, truth values: what is far apart is not a candidate."""
    bounds = Bounds()
    values = [-(10**300), -5, 0, 5, 2**62, 1e300, "", "IBM", "IBN", "z" * 50, False, True]
    for number, value in enumerate(values):
        bounds.add(number, Filter(None, {"a": ValueSet.of(value)}))
    for number, value in enumerate(values):
        assert bounds.above(Filter(None, {"a": ValueSet.of(value)})) == [number]
    assert bounds.below(Filter(None, {"a": ValueSet.interval(-10, 10)})) == [1, 2, 3]
    assert bounds.below(Filter(None, {"b": ValueSet.of(1)})) == []
    assert bounds.above(Filter(None, {"b": ValueSet.of(1)})) == []
    assert sorted(bounds.below(Filter(None))) == list(range(len(values)))
    for number in range(1000, 2000):
        bounds.add(number, Filter(None, {"b": ValueSet.of(number)}))
    assert bounds.above(Filter(None, {"b": ValueSet.of(1500), "a": ValueSet.of(5)})) == [3, 1500]


def test_a_hundred_thousand_unrelated_filters_would_do():
    """Ten thousand here: as many covering tests as there are, if each were compared with all, would take a minute."""
    line = Schema("line", (Attribute("x", "int", lo=0, hi=10**6),))
    poset, forest = Poset(), Forest()
    for i in range(10_000):
        wanted = Filter(line, {"x": ValueSet.interval(97 * i % 10_000 * 100, 97 * i % 10_000 * 100 + 99)})
        poset.subscribe(wanted, "a")
        forest.subscribe(wanted, "a")
    assert len(poset.roots) == len(forest.roots) == 10_000
    assert poset.tests == 0
    assert forest.tests < 5000


def test_empty_and_repeated_filters_are_refused():
    poset, forest = Poset(), Forest()
    with pytest.raises(InvalidInput, match="something matches"):
        poset.subscribe(Filter.nothing(PLANE), "a")
    with pytest.raises(InvalidInput, match="something matches"):
        forest.subscribe(Filter.nothing(PLANE), "a")
    poset.subscribe(Filter(PLANE), "a")
    with pytest.raises(InvalidInput, match="not there yet"):
        poset.link(Filter(PLANE), set(), set())
    assert len(poset) == 1
    assert Filter(PLANE) in poset
    assert len(forest) == 0
