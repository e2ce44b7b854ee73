"""Arrival processes: rates, shapes, repeatability."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sievenet.errors import InvalidInput
from sievenet.workload import Bursts, Constant, Greedy, Poisson


@pytest.mark.parametrize("process", [Constant(), Poisson(seed=1), Greedy(), Bursts(seed=2)], ids=repr)
def test_times_ascend_and_longer_answers_begin_with_shorter(process):
    times = process.times(20_000)
    assert len(times) == 20_000
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert (process.times(5_000) == times[:5_000]).all()
    assert len(process.times(0)) == 0


def test_constant():
    assert Constant(rate=4.0).times(3).tolist() == [0.0, 0.25, 0.5]


def test_greedy_sends_all_it_has():
    assert Greedy(rate=2000.0, delay=2.0).times(3).tolist() == [2.0, 2.0005, 2.001]
    assert Greedy(rate=math.inf, delay=1.0).times(3).tolist() == [1.0, 1.0, 1.0]


def test_poisson_has_exponential_gaps():
    gaps = np.diff(Poisson(rate=750.0, seed=3).times(100_000))
    assert gaps.mean() == pytest.approx(1 / 750, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    per_second = np.histogram(Poisson(rate=750.0, seed=3).times(100_000), np.arange(130))[0]
    assert per_second.var() == pytest.approx(per_second.mean(), rel=0.4)


def test_bursts_reproduce_the_setting_of_the_event_caches():
    found = []
    for seed in range(5):
        load = Bursts(seed=seed)
        times = load.times(100_000)
        rate = np.histogram(times, np.arange(0.0, times[-1], 0.1))[0] * 10.0
        found.append((len(load.starts(times[-1])), np.maximum(rate - 1000.0, 0.0).sum() / 10.0 / 100_000))
    starts, lost = np.mean(found, axis=0)
    # Reported: 30 peaks, and 16.7 % of 100,000 events above what the subscriber takes.
    assert 24 <= starts <= 36
    assert 0.13 <= lost <= 0.21


def test_bursts_rise_hold_and_fall():
    load = Bursts(rate=10.0, peak=5000.0, rise=1.0, hold=2.0, gap=1000.0, seed=1)
    times = load.times(30_000)
    start = load.starts(times[-1])[0]
    rate = np.histogram(times, start + np.arange(-1.0, 6.0))[0]
    assert rate[0] < 50
    assert rate[1] == pytest.approx(2500, rel=0.1)
    assert rate[2] == pytest.approx(5000, rel=0.1)
    assert rate[3] == pytest.approx(5000, rel=0.1)
    assert rate[4] == pytest.approx(2500, rel=0.1)
    assert rate[5] < 50


def test_mean_rate_of_bursts():
    load = Bursts(gap=0.7, rate=50.0, peak=500.0, seed=9)
    assert 50_000 / load.times(50_000)[-1] == pytest.approx(load.mean_rate, rel=0.1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Constant(rate=0.0), "rate"),
        (lambda: Poisson(rate=-1.0), "rate"),
        (lambda: Greedy(rate=0.0), "rate"),
        (lambda: Bursts(gap=0.0), "gap"),
        (lambda: Bursts(peak=1.0), "peak"),
        (lambda: Bursts(hold=-1.0), "hold"),
    ],
)
def test_settings_are_checked(make, name):
    with pytest.raises(InvalidInput, match=f"at {name}"):
        make()
