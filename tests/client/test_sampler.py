"""A sample of what is published: every event as likely as any other, bounded in events and bytes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.sampler import MAX_SAMPLE, Reservoir, Sampler
from sievenet.content import Attribute, Schema, decode_batch

SCHEMA = Schema("n", (Attribute("x", "int", lo=0, hi=1 << 40),))


def events(numbers):
    return [SCHEMA.event(b"payload", x=n) for n in numbers]


@given(sizes=st.lists(st.integers(0, 50), max_size=20), size=st.integers(1, 20), seed=st.integers(0, 1000))
def test_a_reservoir_holds_some_of_what_it_saw(sizes, size, seed):
    reservoir, at = Reservoir(size, Random(seed)), 0
    for each in sizes:
        reservoir.offer(events(range(at, at + each)))
        at += each
    found = [event["x"] for event in reservoir.kept]
    assert reservoir.seen == at
    assert len(found) == len(set(found)) == min(at, size)
    assert all(0 <= n < at for n in found)


@pytest.mark.parametrize("chunk", [1, 7, 200])
def test_every_event_is_as_likely(chunk):
    count, size, rounds = 200, 10, 2000
    hits, random, pool = [0] * count, Random(3), events(range(count))
    for _ in range(rounds):
        reservoir = Reservoir(size, random)
        for start in range(0, count, chunk):
            reservoir.offer(pool[start : start + chunk])
        for event in reservoir.kept:
            hits[event["x"]] += 1
    expected = rounds * size / count
    # Chi squared of 199 degrees of freedom: above 280 once in 10,000 times.
    assert sum((h - expected) ** 2 / expected for h in hits) < 280


def test_a_sample_has_no_payloads_and_begins_anew():
    sampler = Sampler(seed=1)
    sampler.size = 5
    sampler.offer(SCHEMA, events(range(100)))
    [(schema, seen, count, data)] = list(sampler.taken())
    batch = decode_batch(schema, data)
    assert (seen, count, len(batch), batch.payloads) == (100, 5, 5, None)
    assert list(sampler.taken()) == []


def test_a_sample_stays_small():
    wide = Schema("w", (Attribute("s", "str"),))
    sampler = Sampler(seed=1)
    sampler.size = 256
    sampler.offer(wide, [wide.event(s=f"{i}" * 80) for i in range(1000, 1400)])
    [(_, seen, count, data)] = list(sampler.taken())
    assert seen == 400
    assert 0 < count < 256
    assert len(data) <= MAX_SAMPLE
