"""What is printed parses back, and reads well."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import (
    ABSENT,
    ALL,
    EMPTY,
    PRESENT,
    Attribute,
    Filter,
    Record,
    Schema,
    Subscription,
    ValueSet,
    literal,
    parse_event,
    parse_filter,
    parse_subscription,
    values_text,
)
from sievenet.testing import strategies

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "BRK.B", "IBM", "MSFT")),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=-10, hi=10_000),
        Attribute("halted", "bool"),
        Attribute("note", "str"),
    ),
)
SIZES = st.booleans()


@given(st.data(), SIZES)
def test_filters_parse_back(data, small):
    schema = data.draw(st.none() | strategies.schemas(small=small))
    each = data.draw(strategies.filters(schema, small))
    assert parse_filter(str(each), schema) == each


@given(st.data(), SIZES)
def test_subscriptions_parse_back(data, small):
    schema = data.draw(st.none() | strategies.schemas(small=small))
    each = data.draw(strategies.subscriptions(schema, small))
    assert parse_subscription(str(each), schema) == each
    if schema is not None:
        assert parse_subscription(str(each), {"other": STOCK, schema.name: schema}) == each


@given(st.data())
def test_events_parse_back(data):
    schema = data.draw(strategies.schemas())
    event = data.draw(strategies.events(schema))
    assert parse_event(str(event), schema).values == event.values


@given(strategies.records())
def test_records_parse_back(record):
    found = parse_event(str(record), None)
    assert found.fields == record.fields
    assert [type(v) for _, v in found.items()] == [type(v) for _, v in record.items()]


@pytest.mark.parametrize(
    "text",
    [
        "any",
        "none",
        "price > 420",
        "price >= 420.5",
        "price < 420",
        "price <= 1e-07",
        "price = 3",
        "price != 3",
        "price not in {1, 2, 3}",
        "price in (1, 2]",
        "price in [0, 5) | {7} | (9, inf)".replace("[0", "(-inf"),
        "volume >= 421",
        "volume <= -1",
        "volume in [100, 499]",
        "volume in {1, 3} | [5, 6]",
        "halted = true",
        "halted = false",
        'symbol = "IBM"',
        'symbol != "IBM"',
        'symbol in {"AAPL", "BRK.B"}',
        'note = ""',
        'note != "x"',
        'note prefix "ab"',
        'note not prefix "ab"',
        'note > "m"',
        'note < "m"',
        'note in ["a", "c")',
        'note in {"a"} | ["b", "d"] | prefix "x"',
        'symbol = "IBM" and price > 3 and volume >= 5',
        r'note = "a\u0000\n\"\\é"',
    ],
)
def test_text_stays_as_people_write_it(text):
    assert str(parse_filter(text, STOCK)) == f"stock: {text}"


@pytest.mark.parametrize(
    "text",
    [
        "any",
        "none",
        "x exists",
        "x absent",
        "x = true",
        "x > 5",
        'x >= "m"',
        "x != 5",
        'x not in {true, 5, "a"}',
        "x number",
        "x string",
        "x bool",
        "x in bool | string",
        "x absent | = 5",
        "x absent | != 5",
        'x absent | in number | {"a"}',
        'x in {true} | (-inf, 2) | {3, "a"}',
        'x exists and y prefix "ab"',
        '"two words" > 5',
        '"and" = 1 and "é" = 2',
        "x > 5 or y > 5",
    ],
)
def test_schemaless_text_stays_as_people_write_it(text):
    assert str(parse_subscription(text)) == text


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("price > 420 and price <= 500 and price != 450", "price in (420, 450) | (450, 500]"),
        ("price == 3.0", "price = 3"),
        ("volume in 1000..5000", "volume in [1000, 5000]"),
        ("volume > 1e3", "volume >= 1001"),
        ("volume in (1, 5) | [5, 9]", "volume in [2, 9]"),
        ("symbol in {IBM, BRK.B}", 'symbol in {"BRK.B", "IBM"}'),
        ("symbol not in {IBM, MSFT}", 'symbol in {"AAPL", "BRK.B"}'),
        ("symbol >= IBM", 'symbol in {"IBM", "MSFT"}'),
        ('symbol >= "J"', 'symbol = "MSFT"'),
        ('symbol prefix "A"', 'symbol = "AAPL"'),
        ("symbol in {AAPL} | {IBM} | {MSFT}", 'symbol != "BRK.B"'),
        ("price exists and note any", "any"),
        ("price absent", "none"),
        ("true", "any"),
        ("true and price > 3", "price > 3"),
        ("price > 3 and none", "none"),
        ("false", "none"),
        ("price < 5 and price > 6", "none"),
        ("price in [0, 1000]", "any"),
        ('note in "a".."b"', 'note in ["a", "b"]'),
        ("halted != true", "halted = false"),
        ("price not in [1, 5) | {7}", "price in (-inf, 1) | [5, 7) | (7, inf)"),
        ("price number and note string and halted bool", "any"),
        ("price not exists", "none"),
        ("  stock :price>1", "price > 1"),
        ("volume >-1", "volume >= 0"),
        ("volume > +5", "volume >= 6"),
        ("price > .5", "price > 0.5"),
        (r'note = "\0"', r'note = "\u0000"'),
    ],
)
def test_other_ways_to_say_it(written, printed):
    assert str(parse_filter(written, STOCK)) == f"stock: {printed}"


def test_or_takes_the_schema_once_or_each_time():
    once = parse_subscription("stock: price > 5 or volume = 3", {"stock": STOCK})
    assert once == parse_subscription("stock: price > 5 or stock: volume = 3", {"stock": STOCK})
    assert once == parse_subscription("volume = 3 or price > 5", STOCK)
    assert str(once) == "stock: price > 5 or volume = 3"
    assert str(Subscription([], STOCK)) == "stock: none"


def test_long_runs_of_an_enumeration_print_as_intervals():
    members = tuple(f"m{i:03}" for i in range(100))
    schema = Schema("s", (Attribute("e", "str", values=members),))
    some = Filter(schema, {"e": ValueSet.of(*members[20:50], members[60])})
    assert str(some) == 's: e in ["m020", "m049"] | {"m060"}'
    assert parse_filter(str(some), schema) == some


def test_literals():
    assert [literal(v) for v in (True, 1, 1.0, 1e300, "a\tb")] == ["true", "1", "1.0", "1e+300", '"a\\tb"']


def test_sets_alone():
    assert [values_text(v) for v in (EMPTY, ALL, PRESENT, ABSENT)] == ["none", "any", "exists", "absent"]
    price = STOCK["price"]
    assert values_text(ALL, price) == "any"
    assert values_text(ValueSet.of("x"), price) == "none"
    assert values_text(ValueSet.interval(420, None), price) == ">= 420"


def test_events_and_records_as_text():
    event = STOCK.event(symbol="IBM", price=1, volume=2, halted=False, note="a b")
    assert str(event) == 'stock: symbol="IBM", price=1.0, volume=2, halted=false, note="a b"'
    assert str(Record({"b c": 1, "a": "x"})) == 'a="x", "b c"=1'
