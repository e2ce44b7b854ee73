"""The algebra of sets of values against plain sets of points on a small line."""

import itertools
import math
from bisect import bisect_left

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sievenet.content import ABSENT, ALL, BOOLS, EMPTY, NUMBERS, PRESENT, STRINGS, Attribute, ValueSet
from sievenet.content.valueset import after, before
from sievenet.errors import FilterError
from sievenet.testing import strategies

small_sets = strategies.value_sets(small=True)
LINE = (
    None,
    False,
    True,
    *(i / 2 for i in range(-1, 8)),
    *strategies.SMALL_STRING_POINTS,
)


def inside(values):
    return {(type(p).__name__, p) for p in LINE if p in values}


EVERYWHERE = inside(ALL)


def is_canonical(values):
    cuts = values.cuts
    return len(cuts) % 2 == 0 and all(a < b for a, b in itertools.pairwise(cuts))


@given(small_sets, small_sets)
def test_operations_are_those_of_sets(a, b):
    assert inside(a | b) == inside(a) | inside(b)
    assert inside(a & b) == inside(a) & inside(b)
    assert inside(a - b) == inside(a) - inside(b)
    assert inside(~a) == EVERYWHERE - inside(a)
    assert all(is_canonical(x) for x in (a, a | b, a & b, a - b, ~a))


@given(small_sets, small_sets)
def test_relations_are_those_of_sets(a, b):
    assert a.covers(b) == (inside(a) >= inside(b))
    assert a.overlaps(b) == bool(inside(a) & inside(b))
    assert bool(a) == bool(inside(a))
    assert (a == b) == (inside(a) == inside(b))
    if a == b:
        assert hash(a) == hash(b)


@given(st.lists(small_sets, max_size=5))
def test_union_of_many_is_their_union(sets):
    assert inside(ValueSet.union_of(sets)) == set().union(*map(inside, sets))


@given(strategies.value_sets(), strategies.value_sets(), strategies.values())
def test_laws_hold_for_any_values(a, b, value):
    assert ~~a == a
    assert ~(a | b) == ~a & ~b
    assert (a - b) | (a & b) == a
    assert (value in a | b) == (value in a or value in b)
    assert (value in a & b) == (value in a and value in b)
    assert (value in ~a) != (value in a)
    assert (a | b).covers(a)
    assert a.overlaps(b) == bool(a & b)
    assert a.covers(b) == (not b - a)


@given(st.lists(strategies.values(), max_size=4), strategies.values())
def test_of_holds_exactly_its_values(chosen, value):
    kinds = [(isinstance(v, bool), isinstance(v, str), v) for v in chosen]
    assert (value in ValueSet.of(*chosen)) == ((isinstance(value, bool), isinstance(value, str), value) in kinds)


@given(st.text(max_size=3), st.text(max_size=5))
def test_prefix_holds_what_starts_so(prefix, text):
    assert (text in ValueSet.prefix(prefix)) == text.startswith(prefix)
    assert prefix + text in ValueSet.prefix(prefix)


def test_prefix_of_last_characters():
    last = "\U0010ffff"
    assert ValueSet.prefix(last).cuts[-1] == (4,)
    assert last + "z" in ValueSet.prefix(last)
    assert "a" + last not in ValueSet.prefix(last)
    assert "b" not in ValueSet.prefix("a" + last)
    # The next character behind U+D7FF is U+E000: surrogates are none.
    assert "\ue000" not in ValueSet.prefix("\ud7ff")
    assert "\ud7ffz" in ValueSet.prefix("\ud7ff")


numbers = st.one_of(st.integers(-6, 6), st.integers(-12, 12).map(lambda i: i / 2))


@st.composite
def number_sets(draw):
    pieces = []
    for _ in range(draw(st.integers(0, 3))):
        lo, hi = sorted((draw(numbers), draw(numbers)))
        pieces.append(ValueSet.interval(lo, hi, open_lo=draw(st.booleans()), open_hi=draw(st.booleans())))
    found = ValueSet.union_of(pieces)
    return NUMBERS - found if draw(st.booleans()) else found


@given(number_sets(), number_sets())
def test_rounded_keeps_the_integers_and_is_canonical(a, b):
    whole = range(-9, 10)
    assert [i in a.rounded() for i in whole] == [i in a for i in whole]
    assert (a.rounded() == b.rounded()) == ([i in a for i in whole] == [i in b for i in whole])
    assert is_canonical(a.rounded())


beyond_floats = st.integers(1 << 53, 1 << 70).flatmap(lambda n: st.sampled_from((n, -n, n | 1, -(n | 1))))


@given(beyond_floats, st.booleans(), st.integers(-3, 3))
@example((1 << 53) + 1, False, 0)
@example((1 << 53) + 3, True, 0)
def test_floated_keeps_the_floats(bound, is_open, ulps):
    values = ValueSet.interval(bound, None, open_lo=is_open)
    near = float(bound)
    for _ in range(abs(ulps)):
        near = math.nextafter(near, math.copysign(math.inf, ulps))
    assert (near in values.floated()) == (near in values)
    assert all(isinstance(cut[1], float) for cut in values.floated().cuts if len(cut) == 3)


@given(small_sets, st.lists(st.sampled_from(strategies.SMALL_STRING_POINTS), min_size=1, unique=True))
def test_among_keeps_the_members_as_runs(values, members):
    members = tuple(sorted(members))
    found = values.among(members)
    chosen = [m in values for m in members]
    assert [m in found for m in members] == chosen
    runs = sum(1 for i, m in enumerate(chosen) if m and (i == 0 or not chosen[i - 1]))
    assert len(found.cuts) == 2 * runs
    for cut in found.cuts:  # every end is a member's
        assert cut in {before(m) for m in members} | {after(m) for m in members}


def test_between_neighbours_there_is_one_cut():
    assert ValueSet.interval(2, 5).rounded() == ValueSet.interval(1, 6, open_lo=True, open_hi=True).rounded()
    assert ValueSet.of(False) | ValueSet.of(True) == BOOLS
    assert ValueSet.interval("a", None, open_lo=True) == ValueSet.interval("a\0", None)
    assert ValueSet.prefix("") == STRINGS
    assert ABSENT | BOOLS | NUMBERS | STRINGS == ALL
    assert ~ALL == EMPTY
    assert ~EMPTY == ALL
    assert ~PRESENT == ABSENT
    assert ValueSet.of(1) == ValueSet.of(1.0)
    assert hash(ValueSet.of(1)) == hash(ValueSet.of(1.0))
    assert True not in ValueSet.of(1)


def test_interval_of_bools():
    assert ValueSet.interval(False, True, open_lo=True) == ValueSet.of(True)
    assert ValueSet.interval(True, None, open_lo=True) == EMPTY
    assert ValueSet.interval(None, True, open_hi=True) == ValueSet.of(False)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ValueSet.interval(None, None), "at least one end"),
        (lambda: ValueSet.interval(1, "a"), "two ends of one type"),
        (lambda: ValueSet.interval(True, 2), "two ends of one type"),
        (lambda: ValueSet.of(math.nan), "a finite number, got nan"),
        (lambda: ValueSet.of(math.inf), "a finite number, got inf"),
        (lambda: ValueSet.of(1 << 2000), r"a number below 2\*\*1024, got `2001 bits`"),
        (lambda: ValueSet.of("\ud800"), "UTF-8 can encode"),
        (lambda: ValueSet.prefix("é" * 2049), "at most 4096 bytes of text, got `4098 bytes`"),
        (lambda: ValueSet.of(None), "a bool, number or string, got None"),
    ],
)
def test_bad_values_are_refused(build, message):
    with pytest.raises(FilterError, match=message):
        build()


@given(small_sets, st.sampled_from(["int", "float", "bool", "enum", "str"]))
def test_canonical_form_is_one_per_subset_of_the_domain(values, kind):
    attribute = {
        "int": Attribute("x", "int", lo=0, hi=3),
        "float": Attribute("x", "float", lo=0, hi=3),
        "bool": Attribute("x", "bool"),
        "enum": Attribute("x", "str", values=("", "ab", "b")),
        "str": Attribute("x", "str"),
    }[kind]
    axis = strategies._axis(attribute)
    found = attribute.canonical(values)
    assert [p in found for p in axis] == [p in values for p in axis]
    assert attribute.domain.covers(found)
    assert attribute.canonical(found) == found
    assert (found == attribute.domain) == all(p in values for p in axis)
    assert bool(found) == any(p in values for p in axis)


def test_small_line_is_complete():
    """Brute force is only as good as its points: every cut a small set can have has one right behind it."""
    for text in strategies.SMALL_STRINGS:
        for cut in (*ValueSet.of(text).cuts, *ValueSet.prefix(text).cuts):
            if len(cut) == 2:
                assert cut[1] in strategies.SMALL_STRING_POINTS
    assert bisect_left(LINE[3:12], 0) == 1
