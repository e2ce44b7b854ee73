"""The quick way to cover, against the plan's own."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, encode_subscription, parse_subscription
from sievenet.control.commands import decode_content
from sievenet.control.covering import Coverer
from sievenet.index import Cell, Plan
from tests.seeds import examples

SCHEMA = Schema(
    "mixed",
    (
        Attribute("n", "int", lo=-5, hi=100),
        Attribute("f", "float", lo=0, hi=1),
        Attribute("s", "str", values=("a", "b", "c", "d", "e")),
        Attribute("b", "bool"),
    ),
)
PLANS = (
    Plan.regular(SCHEMA, 9),
    Plan.regular(SCHEMA, 7, dimensions=["n", "f"]),
    Plan.adaptive(SCHEMA, {"n": [3, 10, 40]}, 8),
    Plan.selective(SCHEMA, [{"n": (0, 50)}, {"n": (30, 100), "f": (0.2, 0.9)}], 10, rest=True),
    Plan.regular(SCHEMA, 9, kind="cells"),
    Plan.selective(SCHEMA, [{"n": (0, 50)}, {"n": (30, 100), "f": (0.2, 0.9)}], 10, kind="cells", rest=True),
)


@st.composite
def contents(draw):
    def one():
        limits = {}
        if draw(st.booleans()):
            a, b = sorted((draw(st.integers(-5, 100)), draw(st.integers(-5, 100))))
            limits["n"] = ValueSet.interval(a, b)
            if draw(st.integers(0, 5)) == 0:
                limits["n"] = limits["n"] | ValueSet.of(draw(st.integers(-5, 100)))
        if draw(st.booleans()):
            a, b = sorted((draw(st.floats(0, 1)), draw(st.floats(0, 1))))
            limits["f"] = ValueSet.interval(a, b)
        if draw(st.booleans()):
            limits["s"] = ValueSet.of(*draw(st.sets(st.sampled_from("abcde"), min_size=1)))
        if draw(st.booleans()):
            limits["b"] = ValueSet.of(draw(st.booleans()))
        return Filter(SCHEMA, limits)

    return Subscription([one() for _ in range(draw(st.integers(1, 2)))], SCHEMA)


@settings(max_examples=examples(150), deadline=None)
@given(contents(), st.sampled_from(PLANS), st.integers(1, 9))
def test_same_as_the_plan(content, plan, budget):
    coverer = Coverer(plan, budget)
    for _ in range(2):  # the second time from what it remembers
        found = [Cell.of_key(key) for key in coverer.keys(content, wants=True)]
        assert sorted(found) == sorted(plan.cover(content, budget))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(contents(), max_size=6), st.sampled_from(PLANS), st.integers(1, 9), st.booleans())
def test_many_at_once_are_the_same_as_one_by_one(many, plan, budget, wants):
    coverer = Coverer(plan, budget)
    pairs = [(encode_subscription(content), content) for content in many]
    found = coverer.many(pairs)
    for data, content in pairs:
        if data in found:
            assert found[data] == Coverer(plan, budget).keys(content, wants)


WHOLE = Schema(
    "whole",
    (
        Attribute("n", "int", lo=-5, hi=300),
        Attribute("large", "int", lo=0, hi=1 << 40),
        Attribute("s", "str", values=("a", "b", "c", "d", "e")),
        Attribute("f", "float", lo=0, hi=1),
    ),
)


WHOLE_PLANS = (
    Plan.regular(WHOLE, 12),
    Plan.regular(WHOLE, 9, dimensions=["s", "n"]),
    Plan.adaptive(WHOLE, {"n": [3, 10, 40]}, 8),
)
ends = st.integers(-5, 300)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(ends, ends, st.sampled_from("abcde"), st.booleans()), min_size=2), st.sampled_from(WHOLE_PLANS)
)
def test_what_is_read_from_bytes_is_what_was_said(rows, plan):
    """Whole numbers and names are read as they are; everything else is left to who has it decoded, or to the plan."""
    coverer = Coverer(plan, 4)
    contents = []
    for i, (a, b, s, odd) in enumerate(rows):
        limits = {"n": ValueSet.interval(min(a, b), max(a, b)), "s": ValueSet.of(s)}
        if odd:
            limits |= {"f": ValueSet.interval(0.25, 0.5)} if i % 2 else {"n": limits["n"] | ValueSet.of(300)}
        contents.append(Subscription([Filter(WHOLE, limits)], WHOLE))
    read = coverer.many((encode_subscription(each), None) for each in contents)
    for (_, _, _, odd), each in zip(rows, contents, strict=True):
        data = encode_subscription(each)
        assert data in read or odd or not read
        if data in read:
            assert read[data] == Coverer(plan, 4).keys(each, wants=True)


def test_bytes_that_say_nothing_are_not_read():
    coverer = Coverer(Plan.regular(WHOLE, 12), 4)
    good = encode_subscription(Subscription([Filter(WHOLE, {"n": ValueSet.interval(3, 5)})]))
    broken = [b"", good[:-1], good + b"\0", b"\0" + good[1:], bytes(len(good)), b"\xff" * 40, good[:3] + b"\xff" * 20]
    broken += [bytes([*good[:i], good[i] ^ 0x80, *good[i + 1 :]]) for i in range(len(good))]
    assert list(coverer.many((data, None) for data in (good, *broken))) == [good]
    assert coverer.many([(good, None)]) == {}


@settings(max_examples=examples(100), deadline=None)
@given(contents(), st.integers(-5, 100), st.floats(0, 1), st.sampled_from("abcde"), st.booleans())
def test_an_advertisement_announces_every_code_of_its_events(content, n, f, s, b):
    event = SCHEMA.event(n=n, f=f, s=s, b=b)
    for plan in PLANS:
        offered = [Cell.of_key(key).masked for key in Coverer(plan, 4).keys(content, wants=False)]
        if content.matches(event):
            assert all(any(code.code & m == v for v, m in offered) for code in plan.encode(event))


def test_nothing_wanted_is_nothing():
    assert Coverer(PLANS[0], 4).keys(Subscription([], SCHEMA), wants=True) == []


def test_numbers_that_version_0_1_stored_are_read():
    """There a number's cut had a side: 1 for right behind the number."""
    schema = Schema("s", (Attribute("x", "float", lo=0, hi=1000), Attribute("n", "int", lo=0, hi=9)))
    old = [[("x", ((2, 420.5, 1), (2, 1000.0, 1))), ("n", ((2, 3, 0), (2, 6, 0)))]]
    found = decode_content(schema, msgspec.msgpack.encode(old))
    assert found == parse_subscription("x > 420.5 and n in [3, 5]", schema)
    assert decode_content(schema, encode_subscription(found)) == found
    nothing = [[("x", ((2, 499.99999999999994, 1), (2, 500.0, 0)))]]
    assert len(decode_content(schema, msgspec.msgpack.encode(nothing))) == 0
