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


def test_drift_and_new_wishes_end_a_long_rest_and_are_watched_first():
    for rate, wanted in ((0.8, 0), (0.7, 12)):
        governor = made(share=1.0)
        assert not governor.due(1, 200, 0.7, 0, now=-5.0)
        for at in (0.0, 10.0, 30.0, 70.0):
            governor.began(1, 0.7, 0, at)
            governor.ended(1, 0.1, at)
        assert not governor.due(1, 200, 0.72, 10, now=85.0, of=100), "a tenth of all wishes is no drift"
        assert governor.since(1) == -5.0
        assert not governor.due(1, 200, rate, wanted, now=86.0, of=100)
        assert governor.since(1) == 86.0
        # Further wishes do not begin it anew, or there would never be a search.
        assert not governor.due(1, 200, rate, wanted + 50, now=90.0, of=100)
        assert not governor.due(1, 50, rate, wanted, now=91.0, of=100), "too few events since then"
        assert governor.due(1, 200, rate, wanted, now=91.0, of=100)
        governor.began(1, rate, wanted, 91.0)
        assert governor.since(1) == 86.0


def test_a_new_plan_s_rate_is_what_drift_is_measured_from():
    governor = made(watch=0.0, share=1.0, pause=10.0)
    governor.due(1, 200, 0.7, 0, now=0.0)
    governor.began(1, 0.7, 0, 0.0)
    governor.ended(1, 0.1, 0.0)
    governor.changed(1, 1.0)
    for now in (2.0, 9.0, 15.0):
        governor.due(1, 200, 0.34, 1, now)
    assert governor.since(1) == 0.0, "it has 34 %, and keeps them"
    governor.due(1, 200, 0.4, 1, now=16.0)
    assert governor.since(1) == 16.0


def test_searches_without_news_leave_half_of_the_share_to_drifts():
    governor, now = made(rest=1.0, longest=1.0), 0.0
    begun = []
    while now < 400.0:
        if governor.due(1, 200, 0.7, 0, now):
            governor.began(1, 0.7, 0, now)
            governor.ended(1, 2.0, now)
            begun.append(now)
        now += 1.0
    # The second with a sample four times as long, the third with one twice as long; then there is nothing new.
    assert begun[:4] == [5.0, 20.0, 40.0, 120.0]
    assert all(later - earlier == 40.0 for earlier, later in pairwise(begun[3:]))
    governor.due(1, 200, 0.9, 0, now)
    assert governor.due(1, 200, 0.9, 0, now + 5.0)


def test_a_change_needs_a_margin_and_then_a_pause():
    governor = made(watch=0.0, share=1.0, margin=0.1)
    assert governor.judged(10.0, 9.5) == "keep"
    assert governor.judged(0.0, 0.0) == "keep"
    assert governor.judged(10.0, 8.9) == "apply"
    assert made(mode="suggest").judged(10.0, 1.0) == "suggest"
    # About as little on the links, and hosts are spared something: but never more on the links for that.
    assert governor.judged(10.0, 9.5, 0.07, 0.01) == "apply"
    assert governor.judged(10.0, 9.5, 0.07, 0.065) == "keep"
    assert governor.judged(10.0, 10.1, 0.7, 0.01) == "keep"
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
