"""Small domains in which everything happens: touching stretches, extreme numbers, prefixes of prefixes."""

from __future__ import annotations

from hypothesis import strategies as st

from sievenet.content import ALL, EMPTY, PRESENT, Attribute, Event, Filter, Record, Schema, Subscription, ValueSet

BIG = (1 << 63) - 1
TINY = 5e-324

SCHEMA = Schema(
    "mixed",
    (
        Attribute("n", "int", lo=-3, hi=3),
        Attribute("big", "int", lo=-BIG, hi=BIG),
        Attribute("x", "float", lo=-1e300, hi=1e300),
        Attribute("free", "str"),
        Attribute("side", "str", values=("", "buy", "hold", "sell")),
        Attribute("on", "bool"),
    ),
)

NUMBERS = {
    "n": st.integers(-3, 3),
    "big": st.one_of(
        st.sampled_from([-BIG, -BIG + 1, BIG - 1, BIG, 1 << 53, (1 << 53) + 1, (1 << 53) + 2, -(1 << 53) - 1]),
        st.integers(-4, 4),
    ),
    "x": st.sampled_from(
        [-1e300, -1.5, -1.0, -TINY, -0.0, 0.0, TINY, 2 * TINY, 0.5, 1.0, 1.0 + 2**-52, 2.0**53, 2.0**53 + 2, 1e300]
    ),
}
WORDS = st.text("ab\0\U0010ffff", max_size=3)
SIDES = st.sampled_from(["", "buy", "hold", "sell"])
VALUES = {**NUMBERS, "free": WORDS, "side": SIDES, "on": st.booleans()}
ANYTHING = st.one_of(st.booleans(), NUMBERS["big"], NUMBERS["x"], st.sampled_from([2.0**63, -(2.0**63)]), WORDS)


@st.composite
def value_sets(draw, values):
    """Points, intervals with any ends, prefixes, and their unions and complements."""
    result = EMPTY
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from("pppiiix"))
        a, b = draw(values), draw(values)
        if kind == "p":
            piece = ValueSet.of(a, b)
        elif kind == "x" and isinstance(a, str):
            piece = ValueSet.prefix(a)
        else:
            if isinstance(a, bool) or isinstance(b, bool) or isinstance(a, str) != isinstance(b, str):
                piece = ValueSet.of(a)
            else:
                a, b = min(a, b), max(a, b)
                ends = draw(st.sampled_from([(a, b), (a, b), (a, None), (None, b)]))
                piece = ValueSet.interval(*ends, open_lo=draw(st.booleans()), open_hi=draw(st.booleans()))
        result = result | piece
    return ~result if draw(st.integers(0, 3)) == 0 else result


@st.composite
def filters(draw):
    names = draw(st.lists(st.sampled_from(list(VALUES)), unique=True, max_size=5))
    return Filter(SCHEMA, {name: draw(value_sets(VALUES[name])) for name in names})


NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def loose_filters(draw):
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    either = st.one_of(value_sets(ANYTHING), st.sampled_from([PRESENT, ALL - PRESENT]))
    return Filter(None, {name: draw(either) for name in names})


def subscriptions(of, schema):
    return st.one_of(of, of, st.lists(of, max_size=3).map(lambda each: Subscription(each, schema)))


events = st.builds(lambda **values: Event(SCHEMA, tuple(values[a.name] for a in SCHEMA.attributes)), **VALUES)
records = (
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), ANYTHING, max_size=4)
    .filter(lambda fields: all(not isinstance(v, int) or abs(v) <= BIG for v in fields.values()))
    .map(Record)
)
