import contextlib
import gc
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import Ratio, Timing, best_of, least, middle, most, quantiles, quiet_gc, ratio, share


def test_best_of_warms_up_and_repeats():
    calls = []
    timing = best_of(lambda: calls.append(gc.isenabled()), repeats=3, warmup=2)
    assert len(timing.times) == 3
    # The two warm-up calls run with the collector on, the timed ones without.
    assert calls == [True, True, False, False, False]
    assert timing.best == min(timing.times) > 0


# Not the very largest numbers: the sum of two would be infinite, and so their median.
@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from((math.inf, -math.inf, math.nan))))
def test_what_is_no_number_is_not_passed_over(values):
    found = (least(values), middle(values), most(values))
    if not values or any(math.isnan(each) for each in values):
        assert all(map(math.isnan, found))
    else:
        assert (found[0], found[2]) == (min(values), max(values))
        assert math.isnan(found[1]) or found[0] <= found[1] <= found[2]


def test_a_share_of_nothing_is_no_number():
    assert share(1, 4) == 0.25
    assert math.isnan(share(0, 0))
    assert math.isnan(share(1, 0))


def test_ratio_interleaves():
    calls = []
    found = ratio(lambda: calls.append("b"), lambda: calls.append("c"), repeats=3)
    assert "".join(calls) == "bc" + "bcbcbc"
    assert len(found.baseline.times) == len(found.candidate.times) == 3


def test_speedup_is_per_unit_of_work():
    found = Ratio(Timing((4.0, 2.0)), Timing((2.0, 1.0)), baseline_units=10, candidate_units=1000)
    assert found.speedup == pytest.approx(200)
    assert found.spread == pytest.approx((200, 200))
    assert Ratio(Timing((6.0, 2.0)), Timing((2.0, 1.0))).spread == (2.0, 3.0)


def test_timing_sums_up():
    timing = Timing((3.0, 1.0, 2.0))
    assert (timing.best, timing.median, timing.per_second(10)) == (1.0, 2.0, 10.0)


@pytest.mark.parametrize("enabled", [True, False])
def test_quiet_gc_leaves_the_collector_as_it_was(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with contextlib.suppress(KeyError), quiet_gc():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_no_repetition_is_an_error():
    with pytest.raises(ValueError, match="got 0"):
        best_of(lambda: None, repeats=0)
    with pytest.raises(ValueError, match="got 0"):
        ratio(lambda: None, lambda: None, repeats=0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_agree_with_numpy(values, point):
    import numpy as np

    (found,) = quantiles(values, (point,)).values()
    assert found == pytest.approx(float(np.quantile(values, point)), abs=1e-6)


def test_quantiles_are_named():
    assert quantiles(range(101), (0.5, 0.99, 0.999)) == pytest.approx({"p50": 50, "p99": 99, "p99.9": 99.9})
    with pytest.raises(ValueError, match="got none"):
        quantiles([])
    with pytest.raises(ValueError, match=r"got 1\.5"):
        quantiles([1], (1.5,))
