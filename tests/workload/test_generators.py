"""Every generator: repeatable, in its domain, and shaped as its settings say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Schema, StringColumn, ValueSet
from sievenet.errors import InvalidInput, SchemaError
from sievenet.workload import Drift, Hotspots, Mixed, Ticks, Uniform, Workload, grid, load_schema, random_factor
from sievenet.workload.draws import BLOCK, zipf_weights

EVERY_TYPE = Schema(
    "every",
    (
        Attribute("i", "int", lo=-5, hi=20),
        Attribute("f", "float", lo=-1.5, hi=2.5),
        Attribute("s", "str", values=("a", "b", "c", "d")),
        Attribute("b", "bool"),
        Attribute("one", "int", lo=7, hi=7),
    ),
)
GENERATORS: list[Workload] = [
    Uniform(selectivity=0.5),
    Uniform(schema=EVERY_TYPE, selectivity=0.5, constrained=(1, 4), seed=5),
    Hotspots(),
    Hotspots(schema=EVERY_TYPE, background=0.3, constrained=(2, 3), correlation=0.7, seed=5),
    Mixed(match=0.05),
    Mixed(floats=1, ints=0, strings=1, bools=0, vocabulary=2, set_size=2, constrained=(1, 2), match=0.5),
    Ticks(),
]


def columns(batch):
    return [c.codes if isinstance(c, StringColumn) else c for c in batch.columns]


@pytest.mark.parametrize("load", GENERATORS, ids=lambda g: type(g).__name__)
def test_more_rows_begin_with_the_fewer_and_windows_agree(load):
    whole, part = load.events(BLOCK + 50), load.events(20, start=BLOCK - 10)
    for a, b in zip(columns(whole), columns(part), strict=True):
        assert (a[BLOCK - 10 : BLOCK + 10] == b).all()
    whole, part = load.subscriptions(BLOCK + 50), load.subscriptions(20, start=BLOCK - 10)
    assert whole[BLOCK - 10 : BLOCK + 10].filters() == part.filters()
    assert len(load.events(0)) == 0
    assert load.subscriptions(0).filters() == []


@pytest.mark.parametrize("load", GENERATORS, ids=lambda g: type(g).__name__)
def test_filters_are_canonical_and_agree_with_the_arrays(load):
    wanted, batch = load.subscriptions(60), load.events(60)
    for i, each in enumerate(wanted):
        # Equal to the filter that the checked constructor makes, so in canonical form.
        assert each == Filter(load.schema, each.constraints) == wanted[i]
        assert set(each.constraints) <= {load.schema.attributes[j].name for j in np.flatnonzero(wanted.used[i])}
    matrix = wanted.matrix(batch)
    assert matrix.any()
    assert not matrix.all()
    for i, event in enumerate(batch):
        assert [f.matches(event) for f in wanted] == matrix[i].tolist()
    assert (wanted.matches_per_event(batch) == matrix.sum(axis=1)).all()


def test_seeds_differ():
    assert (columns(Uniform(seed=1).events(50))[0] != columns(Uniform(seed=2).events(50))[0]).any()
    assert (Hotspots(seed=1).centres() != Hotspots(seed=2).centres()).all()


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 0.98), st.integers(0, 1000))
def test_selectivity_is_the_mean_width(selectivity, seed):
    for load in (Uniform(selectivity=selectivity, seed=seed), Hotspots(selectivity=selectivity, seed=seed)):
        wanted = load.subscriptions(10_000)  # so many that 0.02 is six standard deviations
        widths = (wanted.hi - wanted.lo + 1) / 1024
        assert np.allclose(widths.mean(axis=0), selectivity, atol=0.02)
        assert (wanted.lo >= 0).all()
        assert (wanted.hi <= 1023).all()
        assert (wanted.lo <= wanted.hi).all()


def test_selectivity_per_dimension():
    wanted = Uniform(schema=grid(3), selectivity=(0.1, 0.5, 0.9)).subscriptions(4000)
    assert np.allclose((wanted.hi - wanted.lo + 1).mean(axis=0) / 1024, (0.1, 0.5, 0.9), atol=0.01)


def test_uniform_is_uniform():
    (x,) = columns(Uniform(schema=grid(1, hi=9)).events(50_000))
    assert np.allclose(np.bincount(x) / 50_000, 0.1, atol=0.006)


def test_as_many_attributes_are_constrained_as_asked():
    used = Uniform(schema=grid(10), constrained=(2, 5)).subscriptions(5000).used.sum(axis=1)
    assert np.allclose(np.bincount(used, minlength=6)[2:] / 5000, 0.25, atol=0.03)


def test_spread_is_the_standard_deviation_per_dimension():
    schema = Schema("s", tuple(Attribute(f"x{i}", "float", lo=0, hi=1) for i in range(3)))
    # A seed whose only hotspot lies well inside, so that nothing is reflected.
    seed = next(s for s in range(100) if (abs(Hotspots(schema=schema, seed=s).centres()[0] - 0.5) < 0.2).all())
    for concentration in (0.0, 1.0, 1.5):
        spread = (0.005, 0.01, 0.02)
        load = Hotspots(schema=schema, hotspots=1, spread=spread, concentration=concentration, seed=seed)
        cube = np.column_stack(columns(load.events(60_000)))
        assert np.allclose(cube.std(axis=0), spread, rtol=0.05)
        assert np.allclose(cube.mean(axis=0), load.centres()[0], atol=0.002)


def test_correlation_follows_the_loadings():
    schema = Schema("s", tuple(Attribute(f"x{i}", "float", lo=0, hi=1) for i in range(4)))
    load = Hotspots(schema=schema, hotspots=1, spread=0.02, correlation=(1.0, 1.0, -0.9, 0.0), seed=2)
    found = np.corrcoef(np.column_stack(columns(load.events(20_000))).T)
    assert found[0, 1] == pytest.approx(1.0, abs=1e-6)
    assert -0.95 < found[0, 2] < -0.6
    assert abs(found[0, 3]) < 0.03
    subscriptions = load.subscriptions(20_000)
    middle = (subscriptions.lo + subscriptions.hi) / 2
    assert np.corrcoef(middle.T)[0, 1] > 0.3


def test_hotspots_are_zipf_popular():
    load = Hotspots(schema=grid(2, hi=99_999), hotspots=8, spread=0.0, popularity=1.0)
    rows, counts = np.unique(np.column_stack(columns(load.events(40_000))), axis=0, return_counts=True)
    assert len(rows) == 8
    assert np.allclose(np.sort(counts)[::-1] / 40_000, zipf_weights(8, 1.0), atol=0.01)


def test_background_events_are_everywhere():
    load = Hotspots(schema=grid(1, hi=9), hotspots=1, spread=0.0, background=0.5)
    assert (np.bincount(columns(load.events(5000))[0], minlength=10) > 150).all()


def test_hotspots_drift_with_time():
    schema = grid(2, hi=99_999)
    load = Hotspots(schema=schema, hotspots=3, spread=0.0, drift=Drift(every=10.0, distance=0.1))
    assert (load.centres(0.0) == load.centres(9.9)).all()
    moved = load.centres(10.0) - load.centres(9.9)
    assert (moved != 0).all()
    assert (abs(moved) <= 0.1).all()
    times = np.array([0.0, 5.0, 10.0, 25.0] * 50)
    cube = np.column_stack(columns(load.events(200, times=times))) / 100_000
    for i, now in enumerate(times.tolist()):
        assert np.isclose(cube[i], load.centres(now), atol=2e-5).all(axis=1).any()
    wanted = load.subscriptions(5, times=25.0)
    assert wanted.filters() != load.subscriptions(5).filters()
    assert (load.centres(1e4) >= 0).all()
    assert (load.centres(1e4) <= 1).all()


def test_gradual_drift_passes_through_the_middle():
    jump = Hotspots(schema=grid(2), hotspots=2, drift=Drift(every=1.0, distance=0.01), seed=4)
    glide = Hotspots(schema=grid(2), hotspots=2, drift=Drift(every=1.0, distance=0.01, gradual=True), seed=4)
    assert np.allclose(glide.centres(3.0), jump.centres(3.0))
    assert np.allclose(glide.centres(3.5), (jump.centres(3.0) + jump.centres(4.0)) / 2)


def test_random_factor():
    factor = random_factor(6, 0.1, 0.4, seed=1)
    assert len(set(factor)) == 6
    assert all(0.1 <= f <= 0.4 for f in factor)
    assert factor == random_factor(6, 0.1, 0.4, seed=1)
    Hotspots(schema=grid(6), spread=factor)


def test_mixed_subscriptions_match_as_often_as_asked():
    load = Mixed(match=1e-3)
    found = load.subscriptions(5000).matches_per_event(load.events(1000)).mean()
    assert 4.0 < found < 5.5
    kinds = {load.schema.attributes[j].type for j in np.flatnonzero(load.subscriptions(200).used.any(axis=0))}
    assert kinds == {"float", "int", "str", "bool"}


def test_mixed_sets_have_distinct_strings():
    wanted = Mixed(strings=2, set_size=8, match=0.3).subscriptions(500)
    for choices in wanted.choices.values():
        sizes = np.diff(choices.offsets)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        assert len(set(zip(rows.tolist(), choices.codes.tolist(), strict=True))) == len(choices.codes)
        assert sizes.max() <= 8


def test_a_string_outside_the_vocabulary_matches_nobody():
    load = Mixed(strings=2, match=0.5, constrained=(7, 7), ints=1, floats=3)
    batch = load.events(5)
    changed = type(batch)(
        batch.schema,
        tuple(
            StringColumn(np.zeros(5, np.int32), ("zz",)) if a.name == "s1" else c
            for a, c in zip(batch.schema.attributes, batch.columns, strict=True)
        ),
    )
    assert not load.subscriptions(50).matrix(changed).any()


def test_a_whole_domain_is_no_constraint():
    wanted = Uniform(schema=grid(1), selectivity=1.0).subscriptions(3)
    assert [str(f) for f in wanted] == ["grid: any"] * 3


def test_matrix_refuses_another_schema():
    with pytest.raises(InvalidInput, match="Expected events of grid, got 'every'"):
        Uniform().subscriptions(1).matrix(Uniform(schema=EVERY_TYPE).events(1))


def test_ticks_walk():
    load = Ticks(seed=3)
    batch = load.events(20_000)
    symbols, prices, volumes = columns(batch)
    assert prices.min() > 0
    assert prices.max() <= 1000
    assert volumes.min() >= 1
    favourite = np.bincount(symbols).argmax()
    walk = prices[symbols == favourite]
    assert abs(np.log(walk[0] / load.opening()[favourite])) < 0.02
    assert 0.001 < np.diff(np.log(walk)).std() < 0.003
    wanted = load.subscriptions(1000)
    assert 1 < wanted.matches_per_event(batch.take(slice(0, 200))).mean() < 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(selectivity=1.5), r"numbers in \[0.0, 1.0\], got 1.5 - at selectivity"),
        (lambda: Uniform(selectivity=(0.1, 0.2)), "one number or 5 of them"),
        (lambda: Uniform(constrained=(0, 3)), "1 <= least <= most <= 5"),
        (lambda: Uniform().events(-1), "at least 0"),
        (lambda: Hotspots(hotspots=9), "1 to 8 hotspots, got 9"),
        (lambda: Hotspots(background=2.0), "background"),
        (lambda: Hotspots(popularity=-1.0), "popularity"),
        (lambda: Hotspots(correlation=2.0), "correlation"),
        (lambda: Hotspots().events(5, times=np.zeros(4)), "one time or 5 of them"),
        (lambda: Drift(every=0.0), "drift.every"),
        (lambda: Drift(distance=-0.1), "drift.distance"),
        (lambda: Hotspots(drift=Drift()).centres(-1.0), "times from 0 on"),
        (lambda: Hotspots(drift=Drift()).centres(1e9), "at most 1000000 moves"),
        (lambda: Mixed(floats=0), "at least one float"),
        (lambda: Mixed(match=0.0), "a probability"),
        (lambda: Mixed(set_size=101), "set_size"),
        (lambda: Ticks(schema=grid()), "a schema with symbol"),
        (lambda: Ticks(volume=0.0), "volume > 0"),
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_free_text_and_huge_numbers_have_no_line():
    with pytest.raises(SchemaError, match="free text - at label"):
        Uniform(schema=load_schema("sensor"))
    with pytest.raises(SchemaError, match=r"2\*\*53"):
        Hotspots(schema=Schema("h", (Attribute("x", "int", lo=0, hi=1 << 60),)))


def test_drift_without_times():
    assert len(Hotspots(drift=Drift()).events(0, times=np.zeros(0))) == 0


def test_sets_of_one_value_in_an_enumeration_merge_with_neighbours():
    wanted = Ticks().subscriptions(300)
    symbols = wanted.schema["symbol"]
    for each in wanted:
        if "symbol" in each.constraints:
            members = [v for v in symbols.values if v in each["symbol"]]
            assert each["symbol"] == symbols.canonical(ValueSet.of(*members))
