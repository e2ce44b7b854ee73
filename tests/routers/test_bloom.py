"""Bloom routing: bits claim too much now and then, never too little."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Filter, Record, ValueSet
from sievenet.errors import InvalidInput
from sievenet.routers.bloom.bfposet import BfPoset
from sievenet.routers.bloom.edge import EdgeRouter
from sievenet.routers.bloom.trees import BfTree, SbsTree
from sievenet.testing import strategies
from tests.seeds import examples

bit_sets = st.sets(st.integers(0, 31), max_size=8).map(lambda places: sum(1 << p for p in places))
changes = st.lists(st.tuples(bit_sets, st.sampled_from("abc"), st.booleans()), max_size=40)


@settings(max_examples=examples(100), deadline=None)
@given(changes, st.lists(bit_sets, max_size=10), st.sampled_from([None, 1, 4, 32]))
def test_trees_find_exactly_what_lies_inside(steps, asked, height):
    tree = SbsTree() if height is None else BfTree(32, height)
    held = []
    for bits, interface, add in steps:
        if add:
            tree.add(bits, interface)
            held.append((bits, interface))
        else:
            tree.remove(bits, interface)
            if (bits, interface) in held:
                held.remove((bits, interface))
    for bits in asked:
        assert tree.match(bits) == {i for b, i in held if b & bits == b}
    for bits, interface in held:
        tree.remove(bits, interface)
    assert tree.nodes() == 0
    assert tree.match((1 << 32) - 1) == set()


def test_the_sparse_tree_is_smaller():
    rng = random.Random(1)
    plain, sparse = BfTree(1024, 64), SbsTree()
    for i in range(300):
        bits = sum({1 << rng.randrange(1024) for _ in range(6)})
        plain.add(bits, i)
        sparse.add(bits, i)
    assert sparse.nodes() < plain.nodes() / 5
    with pytest.raises(InvalidInput, match="divides"):
        BfTree(1024, 7)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.one_of(st.none(), strategies.schemas(small=True)).flatmap(
        lambda s: st.tuples(
            st.just(s),
            st.lists(strategies.filters(s, small=True), min_size=1, max_size=12),
            st.lists(strategies.records(small=True) if s is None else strategies.events(s, small=True), max_size=8),
            st.integers(0, 12),
        )
    )
)
def test_events_that_match_have_all_bits(drawn):
    schema, filters, events, kept = drawn
    filters = [f for f in filters if not f.empty]
    poset = BfPoset(schema, width=4096)
    bits = [poset.add(f) for f in filters]
    for f in filters[kept:]:
        poset.remove(f)
    for event in events:
        found = poset.event(event)
        for f, mine in zip(filters[:kept], bits, strict=False):
            if f.matches(event):
                assert mine & found == mine
    for f in filters[:kept]:
        poset.remove(f)
    assert all(poset.event(event) == 0 for event in events)


def test_edge_routing_along_a_chain():
    """One encoding at the edge; on the way only lookups; nobody who wants an event misses it, few get it in vain."""
    rng = random.Random(2)

    def box():
        sides = {}
        for name in "ab":
            lo = rng.randrange(80)
            sides[name] = ValueSet.interval(lo, lo + rng.randrange(5, 20))
        return Filter(None, sides)

    routers = [EdgeRouter(None, height=None if i % 2 else 64) for i in range(3)]
    wanted = {i: [box() for _ in range(20)] for i in range(3)}
    for home, filters in wanted.items():
        for f in filters:
            for i, router in enumerate(routers):
                router.add(f, "here" if i == home else "left" if home < i else "right")
    reached = needed = 0
    for _ in range(200):
        event = Record({"a": rng.randrange(100), "b": rng.randrange(100)})
        bits = routers[0].encode(event)
        at, by, got = 0, None, set()
        while True:
            there = routers[at].interfaces(bits, by)
            if "here" in there:
                got.add(at)
            if "right" not in there:
                break
            at, by = at + 1, "left"
        really = {i for i, filters in wanted.items() if any(f.matches(event) for f in filters)}
        assert really <= got
        reached += len(got)
        needed += len(really)
    assert needed > 50
    assert reached <= needed * 1.1
    for home, filters in wanted.items():
        for f in filters:
            for i, router in enumerate(routers):
                router.remove(f, "here" if i == home else "left" if home < i else "right")
    assert all(router.interfaces((1 << 1024) - 1) == set() for router in routers)
    with pytest.raises(InvalidInput, match="hashes"):
        BfPoset(None, hashes=0)
