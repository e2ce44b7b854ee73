"""All parts that turn values into numbers agree with one oracle: comparisons of explicit values next to all ends."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Record, Schema, Subscription, ValueSet
from sievenet.content.columns import matching
from sievenet.content.number import EXACT
from sievenet.control.covering import Coverer
from sievenet.index import Dz, Plan
from sievenet.matcher import Matcher
from sievenet.routers.bounds import Bounds
from sievenet.routers.merging import share
from sievenet.routers.offload.disguise import Disguise
from sievenet.testing.strategies import near_floats
from sievenet.transport.bloom import Tagger, covers, covers_any
from sievenet.tuning.deliveries import Wants
from tests.seeds import examples

LARGEST = math.nextafter(math.inf, 0)
TOP = (1 << 63) - 1
SCHEMAS = [
    Schema("s", (Attribute("x", "float", lo=lo, hi=hi), Attribute("n", "int", lo=first, hi=last)))
    for lo, hi, first, last in [
        (0.0, 1000.0, 0, 9),
        (-1.0, 1.0, -TOP, TOP),
        (0.0, LARGEST, EXACT - 2, EXACT + 8),
        (-5e-324, 5e-324, 0, 0),
        (float(EXACT), float(EXACT + 64), -3, TOP - 1),
    ]
]
CODERS = {
    schema: [Plan.regular(schema, 24), Plan.regular(schema, 60, kind="cells"), Plan.regular(schema, 100)]
    for schema in SCHEMAS
}
ABOVE = {False: operator.ge, True: operator.gt}
BELOW = {False: operator.le, True: operator.lt}


@st.composite
def worlds(draw):
    """A schema, rows of values at and next to all ends, and filters with what they should say of each row."""
    schema = draw(st.sampled_from(SCHEMAS))
    x, n = schema.attributes
    xs = draw(st.lists(near_floats(x.lo, x.hi), min_size=1, max_size=3))
    edges = [v for v in (n.lo, n.lo + 1, n.hi - 1, n.hi, EXACT, EXACT + 1, 0) if n.lo <= v <= n.hi]
    ns = draw(st.lists(st.sampled_from(edges), min_size=1, max_size=2))
    floats = sorted({p for v in xs for p in (v, math.nextafter(v, -math.inf), math.nextafter(v, math.inf), x.lo, x.hi)})
    wholes = sorted({p for v in ns for p in (v - 1, v, v + 1, n.lo, n.hi)})
    rows = [(a, b) for a in floats if x.lo <= a <= x.hi for b in wholes if n.lo <= b <= n.hi]
    filters, truth = [], []
    for _ in range(draw(st.integers(1, 4))):
        constraints, tests = {}, []
        for place, ends in ((0, xs), (1, ns)):
            if not draw(st.integers(0, 3)):
                continue
            values, test = draw(pieces(ends))
            constraints[schema.attributes[place].name] = values
            tests.append((place, test))
        filters.append(Filter(schema, constraints))
        truth.append([all(test(row[place]) for place, test in tests) for row in rows])
    return schema, rows, filters, truth


@st.composite
def pieces(draw, ends):
    found, tests = [], []
    for _ in range(draw(st.integers(1, 2))):
        a, b = sorted((draw(st.sampled_from(ends)), draw(st.sampled_from(ends))))
        open_lo, open_hi = draw(st.booleans()), draw(st.booleans())
        found.append(ValueSet.interval(a, b, open_lo=open_lo, open_hi=open_hi))
        tests.append(lambda v, a=a, b=b, lo=ABOVE[open_lo], hi=BELOW[open_hi]: lo(v, a) and hi(v, b))
    union = ValueSet.union_of(found)
    if draw(st.integers(0, 2)):
        return union, lambda v: any(test(v) for test in tests)
    return ~union, lambda v: not any(test(v) for test in tests)


@settings(max_examples=examples(60), deadline=None)
@given(worlds())
def test_everybody_who_matches_agrees(world):
    schema, rows, filters, truth = world
    batch = EventBatch.of(schema, {"x": [x for x, _ in rows], "n": [n for _, n in rows]})
    events = list(batch)
    keys = range(len(filters))
    expected = [[i for i in keys if truth[i][row]] for row in range(len(rows))]
    assert [[i for i in keys if filters[i].matches(e)] for e in events] == expected
    matcher = Matcher(schema)
    matcher.add_many(keys, filters)
    assert [sorted(matcher.match(e)) for e in events] == expected
    assert matcher.counts_batch(batch).tolist() == [len(each) for each in expected]
    for i in keys:
        assert matching(Subscription([filters[i]], schema), batch).tolist() == truth[i]
    assert Wants(schema, filters).per_subscription(batch).tolist() == [sum(each) for each in truth]
    assert Wants(schema, filters).per_event(batch).tolist() == [len(each) for each in expected]
    free = Matcher(None)
    plain = [Filter(None, dict(each.constraints)) if not each.empty else Filter.nothing() for each in filters]
    free.add_many(keys, plain)
    records = [Record({"x": x, "n": n}) for x, n in rows]
    assert [sorted(free.match(r)) for r in records] == expected


@settings(max_examples=examples(60), deadline=None)
@given(worlds())
def test_nobody_who_prunes_misses_anything(world):
    schema, rows, filters, truth = world
    events = [schema.event(x=x, n=n) for x, n in rows]
    tagger = Tagger(schema, 128)
    bits = [tagger.event(e) for e in events]
    disguise, bounds = Disguise(b"secret"), Bounds()
    alive = [i for i, each in enumerate(filters) if not each.empty]
    for i in alive:
        bounds.add(i, filters[i])
    for i, each in enumerate(filters):
        assert each.empty == (not any(truth[i])) or not any(truth[i])
        assert 0.0 <= share(each) <= 1.0 + 1e-9
        if each.empty:
            continue
        wanted, parts = tagger.filter(each), tagger.subscription(Subscription([each], schema))
        for plan in CODERS[schema]:
            cover = plan.cover(each, 8)
            keys = (
                {Dz.of_key(k) for k in Coverer(plan, 8).search(Subscription([each], schema), True)}
                if plan.kind == "dz"
                else None
            )
            for row, event in enumerate(events):
                if truth[i][row]:
                    (code,) = plan.encode(event)
                    cell = code.cell(plan.bits)
                    assert any((m.cell(plan.bits) if plan.kind == "dz" else m).covers(cell) for m in cover)
                    assert keys is None or any(k.covers(code) for k in keys)
                    assert plan.decode(code).matches(event)
        for row in range(len(rows)):
            if truth[i][row]:
                assert covers(bits[row], wanted)
                assert covers_any(bits[row], parts)
        for j in alive:
            if filters[j].covers(each):
                assert j in bounds.above(each)
                assert i in bounds.below(filters[j])
            assert disguise.filter(filters[j]).covers(disguise.filter(each)) == filters[j].covers(each)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_generated_floats_stay_in_their_domains(schema):
    from sievenet.workload.space import column_at, ranges_at

    attribute = schema["x"]
    position = np.array([0.0, 5e-324, 0.5, math.nextafter(1.0, 0), 1.0])
    found = column_at(attribute, position)
    assert ((found >= attribute.lo) & (found <= attribute.hi)).all()
    lo, hi = ranges_at(attribute, position[:-1], position[1:])
    assert ((attribute.lo <= lo) & (lo <= hi) & (hi <= attribute.hi)).all()
