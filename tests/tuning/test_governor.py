"""The governor: bounded searches, no change without a margin, no change too soon."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sievenet.tuning.governor import Governor, Rules

RULES = Rules(least=100, watch=5.0, pause=30.0, share=0.1, rest=10.0, longest=80.0)


def made(**changes):
    return Governor(Rules(**{name: getattr(RULES, name) for name in Rules.__slots__} | changes), begin=0.0)


def test_the_first_search_waits_for_events_that_were_watched():
    governor = made()
    assert not governor.due(1, 0, 0.7, 0, now=1.0)
    assert not governor.due(1, 50, 0.7, 0, now=2.0)
    assert not governor.due(1, 150, 0.7, 0, now=6.0)
    assert governor.due(1, 150, 0.7, 0, now=7.0)
    assert not governor.due(1, 150, None, 0, now=7.0), "nothing came: nothing is known"
    assert not governor.due(1, 150, 0.001, 0, now=7.0), "nothing can be gained"
    assert not made(mode="off").due(1, 150, 0.7, 0, now=7.0)


def test_a_search_that_finds_nothing_makes_the_next_one_rarer():
    governor, now, gaps = made(watch=0.0, share=1.0), 0.0, []
    for _ in range(6):
        before = now
        while not governor.due(1, 200, 0.7, 0, now):
            now += 1.0
        gaps.append(now - before)
        governor.began(1, 0.7, 0, now)
        governor.ended(1, 0.1, now)
    assert gaps == [0.0, 10.0, 20.0, 40.0, 80.0, 80.0]


def test_drift_and_new_wishes_end_a_long_rest():
    for rate, wanted in ((0.8, 0), (0.7, 1)):
        governor = made(watch=0.0, share=1.0)
        for at in (0.0, 10.0, 30.0, 70.0):
            governor.began(1, 0.7, 0, at)
            governor.ended(1, 0.1, at)
        assert not governor.due(1, 200, 0.72, 0, now=85.0)
        assert governor.due(1, 200, rate, wanted, now=85.0)


def test_a_change_needs_a_margin_and_then_a_pause():
    governor = made(watch=0.0, share=1.0, margin=0.1)
    assert governor.judged(10.0, 9.5) == "keep"
    assert governor.judged(0.0, 0.0) == "keep"
    assert governor.judged(10.0, 8.9) == "apply"
    assert made(mode="suggest").judged(10.0, 1.0) == "suggest"
    governor.began(1, 0.7, 0, 1.0)
    governor.ended(1, 0.1, 1.0)
    governor.changed(1, 2.0)
    assert not governor.due(1, 200, 0.7, 0, now=31.0)
    assert governor.due(1, 200, 0.7, 0, now=32.0)
    # Another category has not changed.
    assert governor.due(2, 200, 0.7, 0, now=3.0)


@given(
    costs=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=30),
    noise=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5), st.booleans()), min_size=1, max_size=40),
)
def test_searches_never_take_more_than_their_share(costs, noise):
    governor, now, changes = made(watch=0.0), 0.0, []
    for i, cost in enumerate(costs):
        for step in range(20_000):
            rate, wanted, _ = noise[(i + step) % len(noise)]
            if governor.due(i % 3, 200, max(rate, 0.01), wanted, now):
                break
            now += 1.0
        else:
            raise AssertionError("a search is due some time")
        # Before it begins, everything so far is within the share.
        assert governor.spent <= 0.1 * now + 1e-6
        governor.began(i % 3, rate, wanted, now)
        now += cost
        governor.ended(i % 3, cost, now)
        if noise[i % len(noise)][2]:
            changes.append((i % 3, now))
            governor.changed(i % 3, now)
    for category in range(3):
        times = [at for each, at in changes if each == category]
        assert all(later - earlier >= 30.0 for earlier, later in pairwise(times))
