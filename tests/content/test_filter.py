"""The algebra of filters and subscriptions against brute force over all points."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import ABSENT, ALL, EMPTY, Attribute, Filter, Record, Schema, Subscription, ValueSet
from sievenet.errors import FilterError, SchemaError
from sievenet.testing import strategies

NAMES = ("a", "b")
RECORDS = tuple(strategies.record_points(NAMES))


@st.composite
def several(draw, make, count):
    """A number of filters or subscriptions of one small schema, or schemaless ones, and all points."""
    if draw(st.booleans()):
        schema = draw(strategies.schemas(3, small=True))
        found, where = [draw(make(schema, small=True)) for _ in range(count)], tuple(strategies.points(schema))
    else:
        found = [draw(make(None, small=True)) for _ in range(count)]
        where = RECORDS
    return (*found, where)


@st.composite
def two_names(draw, schema, small):
    """Filters; the schemaless ones only of the names that the points have."""
    each = draw(strategies.filters(schema, small))
    return each if schema else Filter(None, {n: v for n, v in each.constraints.items() if n in NAMES})


@st.composite
def unions(draw, schema, small):
    return Subscription(draw(st.lists(two_names(schema, small), max_size=4)), schema)


def inside(wanted, where):
    return {i for i, point in enumerate(where) if wanted.matches(point)}


@given(several(two_names, 2))
def test_filter_relations_are_those_of_sets(case):
    a, b, where = case
    mine, theirs = inside(a, where), inside(b, where)
    assert a.covers(b) == (mine >= theirs)
    assert a.overlaps(b) == bool(mine & theirs)
    assert a.empty == (not mine)
    assert (a == b) == (mine == theirs)
    if a == b:
        assert hash(a) == hash(b)


@given(several(two_names, 2))
def test_filter_operations_are_those_of_sets(case):
    a, b, where = case
    mine, theirs = inside(a, where), inside(b, where)
    both = a.intersect(b)
    assert inside(both, where) == mine & theirs
    assert both == Filter(a.schema, both.constraints) or both.empty
    merged, perfect = a.merge(b)
    assert merged.covers(a)
    assert merged.covers(b)
    assert perfect == (inside(merged, where) == mine | theirs)
    parts = a.minus(b)
    assert set().union(*(inside(p, where) for p in parts)) == mine - theirs
    assert not any(p.overlaps(q) for p, q in itertools.combinations(parts, 2))
    assert not any(p.empty for p in parts)


@given(several(two_names, 3))
def test_merge_is_the_smallest_cover(case):
    a, b, c, _ = case
    if c.covers(a) and c.covers(b):
        assert c.covers(a.merge(b).filter)


@given(several(unions, 2))
def test_subscriptions_are_unions(case):
    a, b, where = case
    mine, theirs = inside(a, where), inside(b, where)
    assert a.covers(b) == (mine >= theirs)
    assert a.overlaps(b) == bool(mine & theirs)
    assert a.equivalent(b) == (mine == theirs)
    assert inside(a.intersect(b), where) == mine & theirs
    assert inside(a.union(b), where) == mine | theirs
    assert a.covers(a)
    assert not any(p.covers(q) for p, q in itertools.permutations(a.filters, 2))


@given(several(unions, 1), st.randoms())
def test_subscription_does_not_depend_on_the_order(case, random):
    each, _ = case
    shuffled = list(each.filters)
    random.shuffle(shuffled)
    assert Subscription(shuffled, each.schema) == each
    assert hash(Subscription(shuffled, each.schema)) == hash(each)


@given(st.data())
def test_matching_is_membership_of_each_value(data):
    schema = data.draw(strategies.schemas())
    each, event = data.draw(strategies.filters(schema)), data.draw(strategies.events(schema))
    expected = not each.empty and all(event[n] in values for n, values in each.constraints.items())
    assert each.matches(event) == expected


# -- what properties do not say ----------------------------------------------------------------

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=0, hi=10_000),
    ),
)


def test_canonical_form_leaves_out_whole_domains():
    each = Filter(STOCK, {"volume": ValueSet.interval(-5, 20_000), "price": ValueSet.of(3)})
    assert list(each.constraints) == ["price"]
    assert Filter(STOCK, {"price": ALL, "symbol": ValueSet.prefix("")}) == Filter(STOCK)
    assert Filter(STOCK, {"price": ValueSet.interval(2000, None)}) == Filter.nothing(STOCK)
    assert Filter(STOCK, {"price": ABSENT}).empty
    assert Filter(STOCK)["price"] == STOCK["price"].domain
    assert Filter.nothing(STOCK)["price"] == EMPTY
    assert Filter()["anything"] == ALL


def test_constraints_are_in_the_schemas_order():
    each = Filter(STOCK, {"volume": ValueSet.of(1), "symbol": ValueSet.of("IBM")})
    assert list(each.constraints) == ["symbol", "volume"]
    assert list(Filter(None, {"b": ValueSet.of(1), "a": ValueSet.of(1)}).constraints) == ["a", "b"]


def test_enumerations_meet_exactly():
    two = Filter(STOCK, {"symbol": ValueSet.of("AAPL", "MSFT")})
    one = Filter(STOCK, {"symbol": ValueSet.of("IBM")})
    assert not two.overlaps(one)
    assert two.merge(one) == (Filter(STOCK), True)


def test_covering_by_several_filters_is_found():
    low = Filter(STOCK, {"price": ValueSet.interval(None, 500)})
    high = Filter(STOCK, {"price": ValueSet.interval(500, None, open_lo=True)})
    assert Subscription([low, high]).equivalent(Subscription([Filter(STOCK)]))
    assert not Subscription([low]).covers(Subscription([Filter(STOCK)]))
    assert Subscription([low]).covers(Subscription([], STOCK))


@pytest.mark.unwatched
def test_a_union_of_very_many_filters_is_covered_without_recursion():
    many = Subscription(Filter(STOCK, {"volume": ValueSet.of(2 * i)}) for i in range(600))
    even = Filter(STOCK, {"volume": ValueSet.of(*range(0, 1200, 2))})
    assert many.covers(Subscription([even]))
    assert not many.covers(Subscription([Filter(STOCK)]))


def test_schemas_do_not_mix():
    other = Schema("stock", STOCK.attributes, version=2)
    mine, theirs = Filter(STOCK), Filter(other)
    assert mine != theirs
    for ask in (mine.covers, mine.overlaps, mine.intersect, mine.merge):
        with pytest.raises(FilterError, match="Expected a filter of stock version 1, got `stock version 2`"):
            ask(theirs)
    with pytest.raises(FilterError, match="a schemaless kind"):
        mine.covers(Filter())
    with pytest.raises(FilterError):
        Subscription([mine, Filter.nothing(other)])
    with pytest.raises(FilterError, match="a subscription of stock version 1"):
        Subscription([mine]).covers(Subscription([theirs]))
    event = other.event(symbol="IBM", price=1, volume=1)
    with pytest.raises(SchemaError, match="an event of stock version 1, got stock version 2"):
        mine.matches(event)
    with pytest.raises(SchemaError, match="got a schemaless record"):
        mine.matches(Record({}))
    # An equal schema that is another object is as good.
    same = Schema.from_json(STOCK.to_json())
    assert mine.matches(same.event(symbol="IBM", price=1, volume=1))
    assert mine == Filter(same)
    assert Filter() != "a string"


def test_unknown_attributes_are_refused():
    with pytest.raises(SchemaError, match=r"an attribute of stock \(symbol, price, volume\), got 'prise'"):
        Filter(STOCK, {"prise": ALL})
    with pytest.raises(FilterError, match="UTF-8"):
        Filter(None, {"\ud800": ALL})


def test_schemaless_filters_see_events_of_any_schema():
    each = Filter(None, {"price": ValueSet.interval(1, None), "bid": ABSENT})
    assert each.matches(STOCK.event(symbol="IBM", price=2, volume=1))
    assert not each.matches(Record({"price": 2, "bid": 1}))
    assert not each.matches(Record({"price": "2"}))


def test_repr_shows_the_text():
    assert repr(Filter(STOCK)) == "<Filter stock: any>"
    assert repr(Subscription([], STOCK)) == "<Subscription stock: none>"
