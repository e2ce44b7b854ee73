"""Plans: no false negative for any plan, enclosure, monotone covers, round trips, bad input."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.errors import PlanError, SchemaError
from sievenet.index import Axis, Bound, Cell, CellSet, Density, Dz, DzSet, Plan, Region
from tests.index import strategies as own
from tests.seeds import examples

GRID = Schema("grid", (Attribute("x", "int", lo=0, hi=7), Attribute("y", "int", lo=0, hi=7)))


def holds(found, code: Dz, bits: int) -> bool:
    """Whether an event's code meets the entries, as a switch would see it: zeros behind the code."""
    number = code.bits << (bits - code.length)
    if isinstance(found, DzSet):
        return any(m.covers(Dz(number, bits)) for m in found)
    return any(number in m for m in found)


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_no_false_negative_for_any_plan(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema))
    event = data.draw(own.events(schema))
    wanted = data.draw(own.filters(schema))
    # Bring the filter to the event half of the time, for random ones rarely meet.
    if data.draw(st.booleans()):
        near = {n: ValueSet.of(event[n]) for n in wanted.constraints}
        wanted = Filter(schema, {n: wanted[n] | near[n] for n in near})
    asked = data.draw(st.sampled_from([wanted, Subscription([wanted, data.draw(own.filters(schema))], schema)]))
    budget = data.draw(st.integers(1, 12))
    kind = data.draw(st.sampled_from(["dz", "cells"]))
    if not plan.admits(asked):
        with pytest.raises(PlanError, match="with_rest"):
            plan.cover(asked, budget)
        plan = plan.with_rest()
    found = plan.cover(asked, budget, kind=kind)
    assert len(found) <= budget
    codes = plan.encode(event)
    assert all(code.length <= plan.bits for code in codes)
    if asked.matches(event):
        assert any(holds(found, code, plan.bits) for code in codes)
    larger = plan.cover(asked, budget + data.draw(st.integers(1, 9)), kind=kind)
    assert found.covers(larger)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_batches_are_encoded_as_single_events_are(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema))
    listed = data.draw(st.lists(own.events(schema), max_size=6))
    codes = plan.encode_batch(EventBatch.from_events(schema, listed))
    found = {}
    for i in range(len(codes)):
        found.setdefault(int(codes.row[i]), []).append(codes[i])
    for row, event in enumerate(listed):
        expected = [code.interval(128)[0] for code in plan.encode(event)]
        assert sorted(found.get(row, [])) == sorted(expected)
        assert plan.codes(event) == [code.code for code in plan.encode(event)]


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_decoding_encloses_what_was_encoded(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema))
    event = data.draw(own.events(schema))
    for code in plan.encode(event):
        for dz in (code, code.prefix(data.draw(st.integers(0, code.length)))):
            assert plan.decode(dz).matches(event)
        stars = data.draw(st.integers(0, (1 << code.length) - 1)) if code.length < 12 else 0
        mask = code.cell(code.length).mask & ~stars
        assert plan.decode(Cell(code.bits & mask, mask, code.length)).matches(event)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_decoding_is_exact(data):
    plan = Plan.combined(
        GRID,
        6,
        splits=data.draw(st.none() | st.lists(own.split_points(GRID), min_size=1, max_size=1)),
        gray=data.draw(st.booleans()),
    )
    text = data.draw(st.text("01*", min_size=6, max_size=6))
    content = plan.decode(Cell.parse(text))
    for x in range(8):
        for y in range(8):
            event = GRID.event(x=x, y=y)
            (code,) = plan.encode(event)
            assert content.matches(event) == (code.bits in Cell.parse(text))


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_plans_survive_json(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    event = data.draw(own.events(schema))
    assert again.encode(event) == plan.encode(event)
    assert str(again) == str(plan)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_broken_json_is_refused_or_valid(data):
    plan = Plan.selective(GRID, [{"x": (0, 3)}, {"y": (2, 5)}], 6, rest=True)
    text = plan.to_json().decode()
    at = data.draw(st.integers(0, len(text) - 1))
    junk = data.draw(st.sampled_from(["", "9", "-1", '"', "{", "[]", "null", "1e999", "\ud800", "true"]))
    broken = text[:at] + junk + text[at + data.draw(st.integers(0, 4)) :]
    try:
        again = Plan.from_json(broken)
    except (PlanError, SchemaError):
        return
    assert again.encode(GRID.event(x=1, y=1)) is not None if again.schema == GRID else True


def test_json_beyond_the_limit():
    with pytest.raises(PlanError, match="at most"):
        Plan.from_json(b" " * ((1 << 24) + 1))
    with pytest.raises(PlanError):
        Plan.from_json(b"\xff\xfe")


def region(**changes):
    fields = {"prefix": "", "axes": (Axis("x", 3), Axis("y", 3)), "order": (0, 1, 0, 1, 0, 1)}
    return Region(**(fields | changes))


@pytest.mark.parametrize(
    "broken",
    [
        {"bits": 113},
        {"bits": 5},
        {"version": 0},
        {"regions": ()},
        {"regions": (region(prefix="2"),)},
        {"regions": (region(), region())},
        {"regions": (region(axes=(Axis("x", 3), Axis("x", 3))),)},
        {"regions": (region(axes=(Axis("x", 3), Axis("z", 3))),)},
        {"regions": (region(order=(0, 1, 0, 1, 0, 2)),)},
        {"regions": (region(order=(0, 1, 0, 1, 0, 0)),)},
        {"regions": (region(axes=(Axis("x", 3, (1, 2)), Axis("y", 3))),)},
        {"regions": (region(axes=(Axis("x", 3, (9,)), Axis("y", 3))),)},
        {"regions": (region(axes=(Axis("x", 3, (1.5,)), Axis("y", 3))),)},
        {"regions": (region(axes=(Axis("x", 3, (3, 2, 4)), Axis("y", 3))),)},
        {"regions": (region(axes=(Axis("x", 63), Axis("y", 3)), order=(0,) * 63 + (1,) * 3),), "bits": 112},
        {"regions": (region(bounds=(Bound("x", 3, 2),)),)},
        {"regions": (region(bounds=(Bound("x", 0.5, 2),)),)},
        {"regions": (region(bounds=(Bound("x", 0, 99),)),)},
        {"regions": (region(prefix="0", order=(0, 1, 0, 1, 0), axes=(Axis("x", 3), Axis("y", 2)), rest=True),) * 2},
        {"regions": (region(bounds=(Bound("x", 0, 2),), rest=True),)},
    ],
)
def test_contradictory_plans_are_refused(broken):
    fields = {"schema": GRID, "bits": 6, "regions": (region(),)} | broken
    with pytest.raises(PlanError):
        Plan(**fields)


def test_refused_arguments():
    with pytest.raises(PlanError):
        Plan.regular(GRID, 113)
    with pytest.raises(PlanError):
        Plan.regular(GRID, 8, dimensions=["z"])
    with pytest.raises(PlanError):
        Plan.selective(GRID, [], 8)
    with pytest.raises(PlanError):
        Plan.selective(GRID, [{"x": (8, 9)}], 8)
    with pytest.raises(PlanError):
        Plan.selective(GRID, [{"x": (0, 1)}] * 4, 1)
    free = Schema("f", (Attribute("s", "str"),))
    with pytest.raises(PlanError):
        Plan.selective(free, [{"s": ("a", "b")}], 8)
    with pytest.raises(PlanError):
        Plan(free, 8, (Region("", (Axis("s", 1, (5,)),), (0,)),))
    plan = Plan.regular(GRID, 6)
    for budget in (0, 4097):
        with pytest.raises(PlanError):
            plan.cover(Filter(GRID), budget)
    with pytest.raises(PlanError):
        plan.cover(Filter(None, {"x": ValueSet.of(1)}))
    with pytest.raises(SchemaError):
        plan.encode(free.event(s="a"))
    with pytest.raises(SchemaError):
        plan.cover(Filter(free))
    batch = EventBatch.of(GRID, {"x": [1], "y": [2]})
    with pytest.raises(PlanError):
        plan.cover(Filter(GRID), weights=Density.of(Plan.regular(GRID, 5), batch))


def test_the_regular_plan_halves_in_turn():
    plan = Plan.regular(GRID, 6)
    assert str(plan.encode(GRID.event(x=5, y=2))[0]) == "100110"  # 101 and 010
    corner = Filter(GRID, {"x": ValueSet.interval(4, 7), "y": ValueSet.interval(0, 3)})
    assert str(plan.cover(corner)) == "{10}"
    assert plan.decode(Dz.parse("10")) == Subscription([corner])
    assert plan.dimensions == ("x", "y")
    assert plan.cover_dz(Filter.nothing(GRID)) == DzSet()
    assert plan.cover_cells(Filter.nothing(GRID)) == CellSet((), 6)


def test_a_gray_cell_lies_across_the_middle():
    plan = Plan.regular(GRID, 6, kind="cells")
    middle = Filter(GRID, {"x": ValueSet.interval(3, 4), "y": ValueSet.interval(2, 5)})
    assert len(plan.cover(middle, 1)) == 1
    assert plan.cover(middle, 1).measure() == 8
    plain = Plan.regular(GRID, 6, kind="cells", gray=False)
    assert plain.cover(middle, 1).measure() == 64


def test_bits_beyond_use_are_not_spent():
    plan = Plan.regular(GRID, 60)
    assert plan.bits == 60
    assert plan.regions[0].length == 6
    constant = Attribute("c", "int", lo=3, hi=3)
    mixed = Schema("m", (Attribute("b", "bool"), Attribute("i", "int", lo=0, hi=1000), constant))
    assert [a.bits for a in Plan.regular(mixed, 8).regions[0].axes] == [1, 7, 0]


def test_selective_regions():
    plan = Plan.selective(GRID, [{"x": (0, 3), "y": (0, 3)}, {"x": (2, 7), "y": (2, 7)}], 6)
    assert [str(dz)[:1] for dz in plan.encode(GRID.event(x=3, y=3))] == ["0", "1"]
    assert plan.encode(GRID.event(x=0, y=7)) == ()
    inside = Filter(GRID, {"x": ValueSet.interval(2, 3), "y": ValueSet.interval(2, 3)})
    assert all(str(m).startswith("0") for m in plan.cover(inside))
    whole = plan.with_rest()
    assert whole.complete
    assert whole.with_rest() is whole
    assert len(whole.encode(GRID.event(x=0, y=7))) == 1
    assert not plan.admits(Filter(GRID))
    # Two regions together can hold a filter that neither holds alone.
    halves = Plan.selective(GRID, [{"x": (0, 3)}, {"x": (4, 7)}], 6)
    assert halves.admits(Filter(GRID))
    assert halves.cover(Filter(GRID), 1) == DzSet.parse("-")
    assert len(halves.cover(Filter(GRID), 2, kind="cells")) == 2
    assert halves.cover(Filter(GRID), 1, kind="cells").measure() == 64


def test_adaptive_splits_move_the_boundaries():
    plan = Plan.adaptive(GRID, {"x": [1, 2, 3]}, 4, dimensions=["x"])
    lengths = [str(plan.encode(GRID.event(x=x, y=0))[0]) for x in range(8)]
    assert [s[:2] for s in lengths] == ["00", "01", "10", "11", "11", "11", "11", "11"]
    assert lengths == sorted(lengths)


def test_a_halving_is_exact_in_huge_domains():
    schema = Schema("h", (Attribute("x", "int", lo=-(1 << 62), hi=(1 << 62) - 1),))
    plan = Plan.regular(schema, 62)
    assert str(plan.encode(schema.event(x=-1))[0]) == "0" + "1" * 61
    assert str(plan.encode(schema.event(x=0))[0]) == "1" + "0" * 61
    thousand = Schema("t", (Attribute("x", "int", lo=0, hi=999),))
    codes = [plan.encode(thousand.event(x=x))[0].bits for plan in [Plan.regular(thousand, 10)] for x in range(1000)]
    assert codes == [x * 1024 // 1000 for x in range(1000)]


def test_many_spans_and_many_filters_stay_bounded():
    schema = Schema("w", tuple(Attribute(f"a{i}", "int", lo=0, hi=255) for i in range(4)))
    plan = Plan.regular(schema, 32, kind="cells")
    odd = ValueSet.of(*range(1, 256, 2))
    wanted = Filter(schema, {f"a{i}": odd for i in range(4)})
    event = schema.event(a0=1, a1=3, a2=5, a3=255)
    (code,) = plan.encode(event)
    assert holds(plan.cover(wanted, 8), code, 32)
    many = Subscription(
        [Filter(schema, {"a0": ValueSet.of(i), "a1": ValueSet.of(i)}) for i in range(256)]
        + [Filter(schema, {"a2": ValueSet.of(i), "a1": ValueSet.of(i)}) for i in range(256)]
    )
    found = plan.cover(many, 16)
    assert len(found) <= 16
    for i in range(256):
        (code,) = plan.encode(schema.event(a0=i, a1=i, a2=0, a3=0))
        assert holds(found, code, 32)


def test_weights_spend_entries_where_events_are():
    rng = np.random.default_rng(1)
    schema = Schema("w", (Attribute("x", "int", lo=0, hi=1023), Attribute("y", "int", lo=0, hi=1023)))
    # All events are near x = 300, just outside of the filter's lower end in x.
    batch = EventBatch.of(schema, {"x": rng.integers(290, 300, 2000), "y": rng.integers(0, 1024, 2000)})
    wanted = Filter(schema, {"x": ValueSet.interval(300, 700), "y": ValueSet.interval(100, 1000)})
    for kind in ("dz", "cells"):
        plan = Plan.regular(schema, 20, kind=kind)
        density = Density.of(plan, batch, limit=500)
        assert density.events == 500
        plain, weighted = plan.cover(wanted, 6), plan.cover(wanted, 6, weights=density)
        assert density.weight(weighted) <= density.weight(plain)
        assert density.weight(plan.cover(wanted, 24, weights=density)) == 0 if kind == "cells" else True


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_densities_count_codes(data):
    plan = Plan.combined(GRID, 6, gray=data.draw(st.booleans()), kind="cells")
    xs = data.draw(st.lists(st.integers(0, 7), max_size=20))
    batch = EventBatch.of(GRID, {"x": xs, "y": [(x * 5) % 8 for x in xs]})
    density = Density.of(plan, batch)
    numbers = [plan.encode(e)[0].bits for e in batch]
    cell = Cell.parse(data.draw(st.text("01*", min_size=6, max_size=6)))
    assert density.count(cell) == sum(n in cell for n in numbers)
    assert density.count(CellSet([cell])) == density.count(cell)
    dz = cell.enclosing_dz
    assert density.count(dz) == density.count(DzSet([dz])) == sum(dz.covers(Dz(n, 6)) for n in numbers)
    assert density.weight(dz) == (density.count(dz) / len(xs) if xs else 0.0)


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_weighted_covers_enclose_and_never_get_worse(data):
    schema = data.draw(own.schemas())
    plan = data.draw(own.plans(schema)).with_rest()
    batch = EventBatch.from_events(schema, data.draw(st.lists(own.events(schema), max_size=8)))
    density = Density.of(plan, batch)
    wanted = data.draw(own.filters(schema))
    budget = data.draw(st.integers(1, 8))
    found = plan.cover(wanted, budget, weights=density)
    assert len(found) <= budget
    assert found.covers(plan.cover(wanted, budget + 3, weights=density))
    for event in batch:
        assume(wanted.matches(event))
        assert any(holds(found, code, plan.bits) for code in plan.encode(event))


def test_plans_are_values():
    assert Plan.regular(GRID, 6) == Plan.regular(GRID, 6)
    assert Plan.regular(GRID, 6) != Plan.regular(GRID, 6, kind="cells")
    assert json.loads(Plan.regular(GRID, 6).to_json())["format"] == 1
    assert msgspec.structs.replace(Plan.regular(GRID, 6), version=2).version == 2
    assert "x 3 bits" in str(Plan.regular(GRID, 6))
