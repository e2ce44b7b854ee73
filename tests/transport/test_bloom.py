"""Bits: an event that matches a filter has the filter's bits, whatever the types, ranges and widths."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import ABSENT, Attribute, Filter, Record, Schema, Subscription, ValueSet, parse_subscription
from sievenet.errors import InvalidInput
from sievenet.testing import strategies as shared
from sievenet.transport.bloom import Tagger, covers, covers_any
from tests.seeds import examples

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT", "ORCL", "SAP")),
        Attribute("price", "float", 0, 1000),
        Attribute("volume", "int", 0, 4095),
        Attribute("note", "str"),
        Attribute("open", "bool"),
    ),
)
TAGGERS = {width: Tagger(STOCK, width) for width in (8, 64, 128, 256, 512)}

events = st.builds(
    lambda s, p, v, n, o: STOCK.event(symbol=s, price=p, volume=v, note=n, open=o),
    st.sampled_from(STOCK["symbol"].values),
    st.floats(0, 1000),
    st.integers(0, 4095),
    st.text("ab\0\U0010ffff", max_size=4),
    st.booleans(),
)


@st.composite
def filters(draw):
    constraints = {}
    if draw(st.booleans()):
        constraints["symbol"] = ValueSet.of(*draw(st.sets(st.sampled_from(STOCK["symbol"].values), min_size=1)))
    for name, numbers in (("price", st.floats(0, 1000)), ("volume", st.integers(0, 4095))):
        if draw(st.booleans()):
            ends = sorted((draw(numbers), draw(numbers)))
            pieces = [ValueSet.interval(*ends, open_lo=draw(st.booleans()), open_hi=draw(st.booleans()))]
            if draw(st.booleans()):
                pieces.append(ValueSet.of(draw(numbers)))
            constraints[name] = ValueSet.union_of(pieces)
    if draw(st.booleans()):
        text = st.text("ab\0\U0010ffff", max_size=3)
        shape = draw(st.sampled_from(["prefix", "equal", "range", "not"]))
        match shape:
            case "prefix":
                constraints["note"] = ValueSet.prefix(draw(text))
            case "equal":
                constraints["note"] = ValueSet.of(draw(text))
            case "range":
                constraints["note"] = ValueSet.interval(*sorted((draw(text), draw(text))))
            case _:
                constraints["note"] = ~ValueSet.of(draw(text))
    if draw(st.booleans()):
        constraints["open"] = ValueSet.of(draw(st.booleans()))
    return Filter(STOCK, constraints)


@settings(max_examples=examples(400))
@given(events, filters(), st.sampled_from(sorted(TAGGERS)))
def test_no_false_negative(event, wanted, width):
    tagger = TAGGERS[width]
    bits = tagger.event(event)
    assert 0 <= bits < 1 << width
    if wanted.matches(event):
        assert covers(bits, tagger.filter(wanted))
        assert covers_any(bits, tagger.subscription(Subscription([wanted])))


@settings(max_examples=examples(300))
@given(events, st.data())
def test_no_false_negative_close_to_the_event(event, data):
    """Filters built around an event match it, so that the law is really put to the test."""
    spread = data.draw(st.floats(0, 20))
    around = data.draw(st.integers(0, 40))
    wanted = Filter(
        STOCK,
        {
            "price": ValueSet.interval(event["price"] - spread, event["price"] + data.draw(st.floats(0, 20))),
            "volume": ValueSet.interval(event["volume"] - around, event["volume"]),
            "symbol": ValueSet.of(event["symbol"]),
            "note": ValueSet.prefix(event["note"][: data.draw(st.integers(0, 3))]),
            "open": ValueSet.of(event["open"]),
        },
    )
    assert wanted.matches(event)
    for tagger in TAGGERS.values():
        assert covers(tagger.event(event), tagger.filter(wanted))
        assert covers_any(tagger.event(event), tagger.subscription(Subscription([wanted])))


@settings(max_examples=examples(300))
@given(st.data())
def test_no_false_negative_in_any_schema(data):
    schema = data.draw(shared.schemas())
    wanted, event = data.draw(shared.filters(schema)), data.draw(shared.events(schema))
    tagger = Tagger(schema, data.draw(st.sampled_from([16, 128, 256])))
    if wanted.matches(event):
        assert covers(tagger.event(event), tagger.filter(wanted))
        assert covers_any(tagger.event(event), tagger.subscription(Subscription([wanted])))


@settings(max_examples=examples(300))
@given(shared.records(small=True), shared.filters(small=True))
def test_no_false_negative_without_schema(record, wanted):
    tagger = Tagger(None, 128)
    if not wanted.empty and wanted.matches(record):
        assert covers(tagger.event(record), tagger.filter(wanted))


@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(0, 1e300),
    st.floats(0, 1e300),
)
def test_free_numbers_in_a_range(value, below, above):
    tagger = Tagger(None, 256)
    lo, hi = float(value) - below, float(value) + above
    for values in (
        ValueSet.interval(lo, hi) if max(abs(lo), abs(hi)) < float("inf") else ValueSet.interval(None, 1e308),
        ValueSet.of(value),
        ValueSet.interval(None, value),
        ValueSet.interval(value, None),
    ):
        wanted = Filter(None, {"x": values})
        record = Record({"x": value})
        if wanted.matches(record):
            assert covers(tagger.event(record), tagger.filter(wanted))


def test_same_number_in_two_types_is_one_value():
    tagger = Tagger(None, 256)
    wanted = tagger.filter(Filter(None, {"x": ValueSet.of(5)}))
    assert covers(tagger.event(Record({"x": 5.0})), wanted)
    assert covers(tagger.event(Record({"x": -0.0})), tagger.filter(Filter(None, {"x": ValueSet.of(0)})))


def test_absence_asks_for_no_bits():
    tagger = Tagger(None, 128)
    assert tagger.filter(Filter(None, {"x": ABSENT | ValueSet.of(3)})) == 0


def test_few_false_positives():
    """Ranges anywhere, also across the middle, are told apart: bits are worth their bytes."""
    rng = random.Random(5)
    schema = Schema("s", tuple(Attribute(n, "int", 0, 1023) for n in "abc"))
    tagger = Tagger(schema, 128)
    wanted = []
    for _ in range(100):
        sides = {}
        for name in "abc":
            start = rng.randrange(900)
            sides[name] = ValueSet.interval(start, start + rng.randrange(30, 120))
        wanted.append(Filter(schema, sides))
    bits = [tagger.subscription(Subscription([each])) for each in wanted]
    assert max(map(len, bits)) <= 32
    wrong = asked = 0
    for _ in range(300):
        event = schema.event(**{name: rng.randrange(1024) for name in "abc"})
        mine = tagger.event(event)
        for each, theirs in zip(wanted, bits, strict=True):
            if not each.matches(event):
                asked += 1
                wrong += covers_any(mine, theirs)
    assert wrong / asked < 0.01


def test_equalities_are_told_apart():
    schema = Schema("s", tuple(Attribute(n, "int", 0, 1023) for n in "abcdefghij"))
    tagger = Tagger(schema, 256)
    wanted = tagger.filter(Filter(schema, {"a": ValueSet.of(500)}))
    rng = random.Random(1)
    events = [schema.event(**{n: rng.randrange(1024) for n in "abcdefghij"}) for _ in range(3000)]
    assert sum(covers(tagger.event(e), wanted) for e in events if e["a"] != 500) <= 6


def test_range_across_the_middle_has_bits():
    tagger = TAGGERS[256]
    middle = tagger.filter(Filter(STOCK, {"volume": ValueSet.interval(2040, 2056)}))
    assert middle.bit_count() > tagger.filter(Filter(STOCK)).bit_count() + 2


def test_subscription_bits_leave_out_the_needless():
    tagger = TAGGERS[128]
    wide = 'stock: price > 0 or symbol = "IBM" and price > 0'
    subscription = parse_subscription(wide, {"stock": STOCK})
    bits = tagger.subscription(subscription)
    assert len(bits) == len(set(bits)) >= 1
    two = tagger.subscription(Subscription([Filter(STOCK), Filter(STOCK, {"open": ValueSet.of(True)})]))
    assert two == (tagger.filter(Filter(STOCK)),)
    assert covers_any((1 << 128) - 1, bits)
    assert not covers_any(0, bits)


def test_other_schema_is_refused():
    with pytest.raises(InvalidInput):
        TAGGERS[128].filter(Filter(None, {}))


@pytest.mark.parametrize("width", [0, 7, 12, 513, 520])
def test_bad_width_is_refused(width):
    with pytest.raises(InvalidInput):
        Tagger(STOCK, width)


def test_caches_are_bounded():
    schema = Schema("wide", (Attribute("x", "int", 0, (1 << 40)),))
    tagger = Tagger(schema, 512)
    for i in range(20_000):
        tagger.event(schema.event(x=i * 52_000_001 % (1 << 40)))
    encoder = tagger._places[0][0]
    assert len(encoder._exact) <= 1 << 14
    assert len(encoder._cells) <= 1 << 14
