"""The delay model: the inverse with its branch, against scipy, quadrature and simulation."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from sievenet.errors import InvalidInput
from sievenet.transport.latch import DelayModel, lambert_w_minus, latch_factor, two_laplace_cdf


@given(st.floats(-1 / math.e + 1e-6, -1e-300))
def test_lower_branch_agrees_with_scipy(x):
    assert lambert_w_minus(x) == pytest.approx(lambertw(x, k=-1).real, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("x", [-1 / math.e + 1e-12, -0.3, -0.2, -0.1, -1e-3, -1e-9, -1e-100])
def test_lower_branch_is_precise_away_from_the_branch_point(x):
    w = lambert_w_minus(x)
    assert w <= -1
    assert w * math.exp(w) == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize("x", [0.0, 0.1, -0.4, math.nan, -math.inf])
def test_outside_the_branch_is_refused(x):
    with pytest.raises(InvalidInput):
        lambert_w_minus(x)


@given(st.floats(1e-6, 0.5), st.floats(1e-6, 100))
def test_inverse_undoes_the_distribution(p_late, b):
    assert two_laplace_cdf(b * latch_factor(p_late), b) == pytest.approx(1 - p_late, rel=1e-9)


def test_printed_inverse_is_wrong():
    """b·[W₀(4e⁻²(p - 1)) + 2] of the print gives back something else than p, and the sign of a wait is lost."""
    for p in (0.8, 0.95, 0.99):
        printed = float(lambertw(4 * math.exp(-2) * (p - 1), k=0).real) + 2
        assert abs(two_laplace_cdf(printed, 1.0) - p) > 1e-3
        assert two_laplace_cdf(latch_factor(1 - p), 1.0) == pytest.approx(p)


def test_cdf_is_that_of_two_laplace_variables():
    rng = random.Random(3)

    def laplace():
        return rng.expovariate(1) - rng.expovariate(1)

    drawn = [laplace() + laplace() for _ in range(40_000)]
    for x in (-3, -1, -0.2, 0.2, 1, 3):
        share = sum(each < x for each in drawn) / len(drawn)
        assert share == pytest.approx(two_laplace_cdf(x, 1.0), abs=0.01)


def test_scale_is_the_maximum_likelihood_estimate():
    model = DelayModel(0.05, 4)
    for x in (1.0, -2.0, 3.0, -6.0):
        model.add(x)
    assert model.scale == pytest.approx(2 / (3 * 4) * 12)
    model.add(4.0)  # replaces the oldest
    assert model.scale == pytest.approx(2 / (3 * 4) * 15)


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=60))
def test_ring_is_bounded_and_sane(samples):
    model = DelayModel(0.2, 10)
    for x in samples:
        model.add(x)
    kept = [abs(x) for x in samples if abs(x) <= 3600][-10:]
    assert len(model) == len(kept)
    assert model.scale == pytest.approx(2 / 3 * sum(kept) / max(1, len(kept)), abs=1e-6)
    assert 0 <= model.bound() < math.inf


def test_two_paths_are_waited_for():
    """Half of the messages take a path that is 40 ms longer: the Laplace tail would be too short."""
    plain, safe = DelayModel(0.05, 25, guarded=False), DelayModel(0.05, 25)
    rng = random.Random(1)
    delays = [0.1 + 0.04 * rng.randrange(2) + rng.expovariate(1000) for _ in range(26)]
    for a, b in itertools.pairwise(delays):
        plain.add(b - a)
        safe.add(b - a)
    assert safe.bound() >= 0.039
    assert safe.bound() >= plain.bound()


def test_violation_probability_falls_with_the_interval():
    model = DelayModel()
    assert model.violation(0.1) == 0
    for x in (0.01, -0.02, 0.01):
        model.add(x)
    steps = [model.violation(d) for d in (-1, 0, 0.01, 0.05, 1)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == 1
    assert model.violation(math.inf) == 0


@pytest.mark.parametrize("bad", [0, -0.1, 0.6, math.nan])
def test_bad_probability_is_refused(bad):
    with pytest.raises(InvalidInput):
        DelayModel(bad)


def test_empty_ring_is_refused():
    with pytest.raises(InvalidInput):
        DelayModel(0.05, 0)
