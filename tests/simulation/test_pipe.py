"""The link model, setting by setting."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.network import PERFECT, LinkSettings
from sievenet.simulation import Pipe, VirtualClock


def arrivals(settings, times, size=125, seed=1):
    clock = VirtualClock()
    pipe = Pipe.of(settings, clock, random.Random(seed))
    got = []
    for now in times:
        clock.run(now)
        got.append(pipe.offer(size))
    return pipe, got


def test_a_perfect_pipe_takes_no_time():
    assert arrivals(PERFECT, [0.0, 0.0, 3.5])[1] == [0.0, 0.0, 3.5]


def test_delay():
    assert arrivals(LinkSettings(delay=0.25), [0.0, 1.0])[1] == [0.25, 1.25]


def test_bandwidth_serialises():
    # 125 bytes are 1000 bits: one second each.
    settings = LinkSettings(bandwidth=1000.0, delay=0.5)
    assert arrivals(settings, [0.0, 0.0, 0.0, 10.0])[1] == [1.5, 2.5, 3.5, 11.5]


def test_queue_drops_at_the_tail():
    pipe, got = arrivals(LinkSettings(bandwidth=1000.0, queue=2), [0.0, 0.0, 0.0, 1.0, 1.0])
    assert got == [1.0, 2.0, None, 3.0, None]
    assert pipe.dropped == 2


def test_loss_is_a_share_of_packets():
    pipe, got = arrivals(LinkSettings(loss=0.3), [0.0] * 10_000)
    assert pipe.lost == got.count(None)
    assert 2_800 < pipe.lost < 3_200
    assert arrivals(LinkSettings(loss=1.0), [0.0])[1] == [None]


def test_jitter_keeps_order():
    times = [i * 0.001 for i in range(2_000)]
    _, got = arrivals(LinkSettings(delay=0.01, jitter=0.05), times)
    assert got == sorted(got)
    extra = [a - t - 0.01 for a, t in zip(got, times, strict=True)]
    assert min(extra) >= 0
    assert max(extra) > 0.03
    assert max(extra) <= 0.05


@pytest.mark.parametrize("settings", [LinkSettings(reorder=0.2), LinkSettings(delay=0.1, reorder=0.2)])
def test_reordering_overtakes(settings):
    times = [i * 0.0001 for i in range(2_000)]
    _, got = arrivals(settings, times)
    held = sum(a > t + settings.delay + 1e-12 for a, t in zip(got, times, strict=True))
    assert 300 < held < 500
    assert got != sorted(got)
    assert all(a <= t + settings.delay + max(settings.delay, 0.001) + 1e-9 for a, t in zip(got, times, strict=True))


def test_a_link_that_went_down_forgets_its_queue():
    pipe, _ = arrivals(LinkSettings(bandwidth=1000.0, queue=1), [0.0])
    pipe.reset()
    assert pipe.offer(125) == 1.0


@given(
    st.builds(
        LinkSettings,
        delay=st.floats(0, 1),
        bandwidth=st.none() | st.floats(100, 1e6),
        queue=st.none() | st.integers(1, 5),
        loss=st.floats(0, 1),
        jitter=st.floats(0, 1),
        reorder=st.floats(0, 1),
    ),
    st.lists(st.floats(0, 10), max_size=30).map(sorted),
    st.integers(0, 99),
)
def test_never_earlier_than_physics_allows_and_always_the_same(settings, times, seed):
    _, got = arrivals(settings, times, seed=seed)
    assert got == arrivals(settings, times, seed=seed)[1]
    for now, arrival in zip(times, got, strict=True):
        sending = 0.0 if settings.bandwidth is None else 1000.0 / settings.bandwidth
        assert arrival is None or arrival >= now + sending + settings.delay - 1e-9
