"""Rules and permissions: decided by the algebra of filters, held against brute force."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.access.permissions import EVERYTHING, Permissions
from sievenet.access.rule import parse_rule
from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet, parse_subscription
from sievenet.content.codec import encode_event
from sievenet.daemon.clearance import Inspection
from sievenet.errors import InvalidInput, Rejected
from tests.fabric.harness import SCHEMA as READING
from tests.seeds import examples

STOCK = Schema(
    "stock",
    (Attribute("symbol", "str", values=("AMD", "HPQ", "IBM")), Attribute("price", "int", lo=0, hi=9)),
)


def permissions(*rules):
    return Permissions(tuple(map(parse_rule, rules)), "alice")


def wish(text):
    return parse_subscription(text, STOCK)


def test_what_the_rules_cover_is_allowed_as_it_is():
    mine = permissions('publish stock: symbol in {"IBM"}', "subscribe stock: any")
    assert mine.decide("publish", wish("symbol = IBM and price > 3")) == (wish("symbol = IBM and price > 3"), False)
    assert not mine.decide("subscribe", wish("any")).narrowed
    assert mine.within("subscribe", STOCK) is None


def test_rules_count_together():
    mine = permissions("subscribe stock: price < 5", "subscribe stock: price >= 5")
    assert not mine.decide("subscribe", wish("symbol = IBM")).narrowed


def test_what_goes_beyond_is_refused_and_the_rule_is_named():
    mine = permissions('publish stock: symbol in {"IBM"}')
    with pytest.raises(Rejected, match=r'rule `publish stock: symbol in {"IBM"}` does not let alice publish'):
        mine.decide("publish", wish("price > 3"))
    with pytest.raises(Rejected, match="No rule lets alice subscribe in stock"):
        mine.decide("subscribe", wish("any"))


def test_what_goes_beyond_is_cut_if_the_rule_says_so():
    mine = permissions('publish stock: symbol in {"IBM"} narrow')
    decision = mine.decide("publish", wish("price > 3"))
    assert decision.narrowed
    assert decision.allowed.equivalent(wish("symbol = IBM and price > 3"))
    # Nothing of it is allowed: nothing is left to cut to.
    with pytest.raises(Rejected, match="does not let"):
        mine.decide("publish", wish("symbol = AMD"))


def test_a_rule_allows_nothing_in_a_version_that_it_does_not_fit():
    other = Schema("stock", (Attribute("price", "int", lo=0, hi=9),), version=2)
    mine = permissions('publish stock: symbol = "IBM"')
    with pytest.raises(Rejected, match=r"does not fit stock version 2 and allows nothing in it: .*symbol"):
        mine.decide("publish", Subscription([Filter(other)]))


def test_all_categories():
    assert not permissions("subscribe *: any").decide("subscribe", wish("price = 1")).narrowed
    with pytest.raises(InvalidInput, match="`any` for all categories"):
        parse_rule("subscribe *: price > 1")


@pytest.mark.parametrize(
    "text", ["", "publish", "publish stock", "read stock: any", "publish stock: price >", "publish a b: any", "narrow"]
)
def test_what_is_no_rule_is_told(text):
    with pytest.raises(InvalidInput, match=r"Expected"):
        parse_rule(text)


def test_a_string_that_ends_in_narrow_is_a_string():
    assert not parse_rule('publish stock: symbol = "very narrow"').narrow


BOXES = st.builds(
    lambda symbols, low, span: Filter(
        STOCK, {"symbol": ValueSet.of(*symbols), "price": ValueSet.interval(low, min(9, low + span))}
    ),
    st.sets(st.sampled_from(["AMD", "HPQ", "IBM"]), min_size=1),
    st.integers(0, 9),
    st.integers(0, 9),
)
EVENTS = [STOCK.event(symbol=s, price=p) for s in ("AMD", "HPQ", "IBM") for p in range(10)]


@given(st.lists(BOXES, max_size=4), st.lists(BOXES, min_size=1, max_size=3), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_nothing_but_what_is_wanted_and_allowed_is_granted(allowed, wanted, narrow):
    """For every event: granted iff wanted and allowed; refused iff something wanted is not allowed and none is cut."""
    tail = " narrow" if narrow else ""
    mine = permissions(*(f"subscribe stock: {str(each).removeprefix('stock: ')}{tail}" for each in allowed))
    asked = Subscription(wanted)
    rules = Subscription(allowed, STOCK)
    inside = all(rules.matches(event) for event in EVENTS if asked.matches(event))
    try:
        decision = mine.decide("subscribe", asked)
    except Rejected:
        assert not inside
        assert not narrow or not any(rules.matches(event) and asked.matches(event) for event in EVENTS)
        return
    assert inside or narrow
    assert decision.narrowed is not inside
    for event in EVENTS:
        assert decision.allowed.matches(event) == (asked.matches(event) and rules.matches(event))


def test_a_wish_that_is_too_involved_is_refused_soon():
    """Covering by a union is hard: what takes too long to find out counts as not covered."""
    wide = Schema("wide", tuple(Attribute(f"a{i}", "bool") for i in range(40)))
    rng = random.Random(1)
    # A random formula of three literals per clause, most of which cover everything, and none by few.
    clauses = (
        " and ".join(f"a{i} = {rng.choice(('true', 'false'))}" for i in rng.sample(range(40), 3)) for _ in range(200)
    )
    hard = Permissions(tuple(parse_rule(f"subscribe wide: {each}") for each in clauses))
    begin = time.process_time()
    with pytest.raises(Rejected):
        hard.decide("subscribe", Subscription([Filter(wide)]))
    assert time.process_time() - begin < 10


def test_without_rules_everything_is_allowed():
    assert EVERYTHING.decide("publish", wish("any")).allowed == wish("any")


@given(
    st.lists(
        st.sampled_from(("x < 100", "x in [300, 700]", 'kind = "hot"', "y > 0.5 and ok = true", "any")), max_size=3
    ),
    st.lists(st.tuples(st.integers(0, 1023), st.floats(0, 1), st.sampled_from(("cold", "hot", "warm"))), max_size=30),
    st.integers(0, 1 << 32),
)
def test_many_events_are_judged_as_one_by_one(texts, values, seed):
    """Whatever is among them: events with payloads, of other lengths, flipped bytes."""
    rng = random.Random(seed)
    granted = Permissions(tuple(parse_rule(f"publish reading: {text}") for text in texts))
    events = [READING.event(x=x, y=y, kind=kind, ok=x % 2 == 0) for x, y, kind in values]
    bodies = [encode_event(each) for each in events]
    allowed = [any(parse_subscription(text, READING).matches(each) for text in texts) for each in events]
    for i in range(len(bodies)):
        if rng.random() < 0.1:
            flipped = bytearray(bodies[i])
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            bodies[i] = bytes(flipped) if rng.random() < 0.5 else bodies[i][:-1]
            allowed[i] = None
    checks = Inspection(granted, (), {1: READING}.get)
    together = list(checks.sends(1, bodies))
    assert together == [checks.sends(1, [body])[0] for body in bodies]
    assert all(each == wanted for each, wanted in zip(together, allowed, strict=True) if wanted is not None)
    assert not any(checks.sends(2, bodies))
    assert not any(checks.receives(1, bodies))
