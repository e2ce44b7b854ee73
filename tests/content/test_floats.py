"""Numbers are separate points: every operation agrees with brute force over floats next to all ends.

Ends are drawn close together, down to neighbouring floats, around zero, powers of two and the ends of the domain, and
each property is compared with what explicit floats say: all ends, their neighbours, and the neighbours of those.
"""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sievenet.content import (
    Attribute,
    EventBatch,
    Filter,
    Record,
    Schema,
    Subscription,
    ValueSet,
    decode_filter,
    encode_filter,
    explain,
    parse_filter,
    parse_subscription,
)
from sievenet.content.number import (
    EXACT,
    float_at,
    float_key,
    float_keys,
    floats_at,
    next_float,
    next_number,
    previous_number,
)
from sievenet.errors import ParseError
from sievenet.testing.strategies import near_floats as floats

BIG = math.nextafter(math.inf, 0)
DOMAINS = [(0.0, 1000.0), (-1.0, 1.0), (0.0, 5e-324), (-5e-324, 5e-324), (0.0, BIG), (1e17, 1e17 + 64), (7.0, 7.0)]


def up(x, steps=1):
    for _ in range(abs(steps)):
        x = math.nextafter(x, math.inf if steps > 0 else -math.inf)
    return x


def around(values):
    """Floats and whole numbers at and next to values."""
    found = {0.0, 5e-324, -5e-324}
    for value in values:
        found |= {up(float(value), steps) for steps in range(-2, 3)}
    return sorted(f for f in found if math.isfinite(f))


@st.composite
def spaces(draw):
    """A schema of one float, ends near each other in its domain, and all floats worth asking about."""
    lo, hi = draw(st.sampled_from(DOMAINS))
    schema = Schema("s", (Attribute("x", "float", lo=lo, hi=hi),))
    ends = draw(st.lists(floats(lo, hi), min_size=1, max_size=4))
    points = [p for p in around([lo, hi, *ends]) if lo <= p <= hi]
    return schema, ends, points


@st.composite
def sets(draw, ends):
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted((draw(st.sampled_from(ends)), draw(st.sampled_from(ends))))
        kind = draw(st.sampled_from(["point", "between", "up", "down"]))
        opens = {"open_lo": draw(st.booleans()), "open_hi": draw(st.booleans())}
        match kind:
            case "point":
                parts.append((ValueSet.of(a, b), lambda x, a=a, b=b: x in (a, b)))
            case "between":
                test = lambda x, a=a, b=b, o=opens: _above(x, a, o["open_lo"]) and _above(-x, -b, o["open_hi"])  # noqa: E731
                parts.append((ValueSet.interval(a, b, **opens), test))
            case "up":
                test = lambda x, a=a, o=opens: _above(x, a, o["open_lo"])  # noqa: E731
                parts.append((ValueSet.interval(a, None, open_lo=opens["open_lo"]), test))
            case _:
                test = lambda x, b=b, o=opens: _above(-x, -b, o["open_hi"])  # noqa: E731
                parts.append((ValueSet.interval(None, b, open_hi=opens["open_hi"]), test))
    union = ValueSet.union_of(values for values, _ in parts)
    if draw(st.booleans()):
        return ~union, lambda x: not any(test(x) for _, test in parts)
    return union, lambda x: any(test(x) for _, test in parts)


def _above(x, a, is_open):
    return x > a if is_open else x >= a


@given(st.data())
def test_the_algebra_agrees_with_explicit_floats(data):
    schema, ends, points = data.draw(spaces())
    (one, in_one), (two, in_two) = data.draw(sets(ends)), data.draw(sets(ends))
    a, b = Filter(schema, {"x": one}), Filter(schema, {"x": two})
    mine, theirs = [in_one(p) for p in points], [in_two(p) for p in points]
    events = [schema.event(x=p) for p in points]
    assert [a.matches(e) for e in events] == mine
    # Between points that are further apart nothing changes, so points decide everything.
    assert a.empty == (not any(mine))
    assert (a == b) == (mine == theirs)
    assert a.covers(b) == all(m or not t for m, t in zip(mine, theirs, strict=True))
    assert a.overlaps(b) == any(m and t for m, t in zip(mine, theirs, strict=True))
    assert [a.intersect(b).matches(e) for e in events] == [m and t for m, t in zip(mine, theirs, strict=True)]
    merged, perfect = a.merge(b)
    assert perfect
    assert [merged.matches(e) for e in events] == [m or t for m, t in zip(mine, theirs, strict=True)]
    assert merged == Filter(schema, {"x": one | two})
    rest = Subscription(a.minus(b), schema)
    assert [rest.matches(e) for e in events] == [m and not t for m, t in zip(mine, theirs, strict=True)]
    assert Subscription([a, b], schema).equivalent(Subscription([merged], schema))


@given(st.data())
def test_text_and_bytes_keep_every_float(data):
    schema, ends, points = data.draw(spaces())
    values, inside = data.draw(sets(ends))
    each = Filter(schema, {"x": values})
    assert parse_filter(str(each), schema) == each
    assert decode_filter(schema, encode_filter(each)) == each
    for p in points:
        told = explain(each, schema.event(x=p))
        assert told.matches == inside(p)
    free = Filter(None, {"x": values})
    assert parse_filter(str(free)) == free
    assert decode_filter(None, encode_filter(free)) == free
    assert [free.matches(Record({"x": p})) for p in points] == [inside(p) for p in points]


@given(st.data())
def test_keys_of_a_line_are_its_values_in_order(data):
    schema, ends, points = data.draw(spaces())
    values, inside = data.draw(sets(ends))
    line = schema["x"].line
    keys = [line.key(p) for p in points]
    assert keys == line.keys(EventBatch.of(schema, {"x": points}).column("x")).tolist()
    assert keys == sorted(set(keys))
    assert [line.value(k) for k in keys] == points
    assert (line.first, line.last) == (keys[0], keys[-1])
    pairs = line.pairs(schema["x"].canonical(values))
    assert [any(a <= k <= b for a, b in zip(pairs[::2], pairs[1::2], strict=True)) for k in keys] == [
        inside(p) for p in points
    ]


@given(
    st.integers(-(1 << 65), 1 << 65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([EXACT, -EXACT])
)
def test_the_next_number_has_nothing_before_it(value):
    behind = next_number(value)
    assert behind > value
    assert previous_number(behind) == value
    assert next_number(previous_number(value)) == value
    near = [
        float(value),
        up(float(value)),
        up(float(value), -1),
        math.floor(value),
        math.ceil(value),
        math.floor(value) + 1,
    ]
    assert not any(value < n < behind for n in near)
    assert next_float(value) >= value
    assert up(next_float(value), -1) < value


@given(st.lists(floats(-BIG, BIG), min_size=1))
def test_float_keys(values):
    keys = float_keys(np.array(values))
    assert keys.tolist() == [float_key(v) for v in values]
    assert floats_at(keys).tolist() == values
    assert [float_at(k) for k in keys.tolist()] == values
    for value, key in zip(values, keys.tolist(), strict=True):
        assert math.isinf(up(value)) or float_key(up(value)) == key + 1
    assert (float_key(-0.0), struct.pack("d", float_at(0))) == (0, struct.pack("d", 0.0))


# -- as people meet it --------------------------------------------------------------------------

STOCK = Schema("stock", (Attribute("price", "float", lo=0, hi=1000), Attribute("volume", "int", lo=0, hi=100)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("price > 499.99999999999994 and price < 500", "stock: none"),
        ("price > 420", "stock: price > 420"),
        ("price >= 420", "stock: price >= 420"),
        ("price < 0.1", "stock: price < 0.1"),
        ("price <= 0.1", "stock: price <= 0.1"),
        ("price in (1, 5.5]", "stock: price in (1, 5.5]"),
        ("price != 3", "stock: price != 3"),
        ("price in {1, 2, 3.5}", "stock: price in {1, 2, 3.5}"),
        ("price <= 5 | > 5", "stock: any"),
        ("price > 0", "stock: price > 0"),
        ("price >= -0.0", "stock: any"),
        ("price > 999.9999999999999", "stock: price = 1000"),
    ],
)
def test_text(text, shown):
    assert str(parse_filter(text, STOCK)) == shown
    assert parse_filter(shown, STOCK) == parse_filter(text, STOCK)


def test_two_halves_of_a_line_are_everything():
    both = parse_subscription("price <= 7.1 or price > 7.1", STOCK)
    assert both.covers(Subscription([Filter(STOCK)]))
    first, second = both.filters
    assert first.merge(second) == (Filter(STOCK), True)


def test_whole_numbers_between_fractions():
    some = Filter(STOCK, {"volume": ValueSet.interval(2.5, 3.5, open_lo=True)})
    assert some == parse_filter("volume = 3", STOCK)
    assert Filter(STOCK, {"volume": ValueSet.interval(2.25, 2.75)}).empty
    assert Filter(STOCK, {"volume": ValueSet.interval(2, 3, open_lo=True, open_hi=True)}).empty


@given(st.integers(EXACT - 3, EXACT + 9), st.booleans(), st.booleans())
@example(EXACT + 1, True, False)
def test_whole_numbers_that_no_float_is(value, open_lo, negative):
    value = -value if negative else value
    values = ValueSet.interval(value, value + 3, open_lo=open_lo)
    near = [value + i for i in range(-3, 6)]
    inside = [value <= n <= value + 3 and not (open_lo and n == value) for n in near]
    each = Filter(None, {"x": values})
    assert [each.matches(Record({"x": n})) for n in near] == inside
    assert [each.matches(Record({"x": float(n)})) for n in near] == [
        value <= float(n) <= value + 3 and not (open_lo and float(n) == value) for n in near
    ]
    assert parse_filter(str(each)) == each
    wide = Schema("wide", (Attribute("x", "float", lo=-1e17, hi=1e17),))
    real = Filter(wide, {"x": values})
    assert [real.matches(wide.event(x=float(n))) for n in near] == [each.matches(Record({"x": float(n)})) for n in near]
    assert real.empty == (not any(each.matches(Record({"x": float(n)})) for n in near))


def test_an_interval_without_any_number_is_refused():
    with pytest.raises(ParseError, match="from low to high that holds a value"):
        parse_filter("price in (499.99999999999994, 500)", STOCK)
