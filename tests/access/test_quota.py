"""Token buckets in virtual time, and what over a quota means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.quota import Bucket, Quota, Usage
from sievenet.errors import Rejected


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), max_size=60), st.integers(1, 20))
def test_never_more_than_the_rate_and_one_bucket(steps, rate):
    bucket, now, taken = Bucket(rate), 0.0, 0
    for pause, amount in steps:
        now += pause
        if bucket.take(amount, now):
            taken += amount
            # A large amount is granted from a full bucket and paid for afterwards.
            assert taken <= rate * (now + 1) + 5 + 1e-6
        else:
            assert bucket.wait(amount, now) > 0
            assert bucket.take(amount, now + bucket.wait(amount, now) + 1e-9) or bucket.wait(amount, now + 1) >= 0


def test_whoever_waits_as_told_is_served():
    bucket = Bucket(10)
    assert all(bucket.take(1, 5.0) for _ in range(10))
    assert not bucket.take(1, 5.0)
    assert bucket.take(1, 5.0 + bucket.wait(1, 5.0) + 1e-9)


def test_a_clock_that_goes_back_gives_nothing():
    bucket = Bucket(1)
    assert bucket.take(1, 10.0)
    assert not bucket.take(1, 3.0)
    assert bucket.take(1, 11.1)


def test_errors_name_the_quota():
    usage = Usage(Quota(connections=1, requests=2, subscriptions=3, schemas=1), "of alice")
    usage.connect()
    with pytest.raises(Rejected, match=r"at most 1 connections of alice \(quota\)"):
        usage.connect()
    usage.disconnect()
    usage.connect()
    usage.request(0.0)
    usage.request(0.0)
    with pytest.raises(Rejected, match=r"at most 2 requests per second of alice \(quota\); wait 0.5 s"):
        usage.request(0.0)
    usage.subscription(2)
    with pytest.raises(Rejected, match="at most 3 subscriptions"):
        usage.subscription(3)
    with pytest.raises(Rejected, match="at most 1 schemas"):
        usage.schema(1)
    assert usage.refused == 4


def test_no_quota_refuses_nothing():
    usage = Usage(Quota(), "of alice")
    for _ in range(1000):
        usage.request(0.0)
        usage.connect()
        assert usage.publish(1000, 1 << 20, 0.0)


def test_another_quota_counts_from_now_on():
    usage = Usage(Quota(events=1), "of alice")
    assert usage.publish(1, 10, 0.0)
    assert not usage.publish(1, 10, 0.0)
    usage.change(Quota(events=1000))
    assert usage.publish(500, 10, 0.0)
