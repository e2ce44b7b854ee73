"""Samples of the last seconds, bounded in pieces and bytes."""

from sievenet.daemon.samples import Samples


def test_only_the_latest_is_kept():
    samples = Samples(age=10.0)
    samples.add(1, "a", 100, 5, b"x", now=0.0)
    samples.add(1, "b", 100, 7, b"y", now=8.0)
    samples.add(2, "b", 100, 3, b"z", now=8.0)
    assert samples.events(1, now=9.0) == 12
    assert samples.events(1, now=11.0) == 7
    assert [piece.events for piece in samples.pieces(1)] == [b"y"]
    assert samples.pieces(3) == []


def test_what_came_before_a_time_can_be_left_out():
    samples = Samples()
    for now in (1.0, 2.0, 3.0):
        samples.add(1, "a", 100, int(now), b"%d" % now, now)
    assert samples.events(1, 3.0, since=0.5) == 6
    assert samples.events(1, 3.0, since=2.0) == 5
    assert samples.events(1, 3.0, since=4.0) == 0
    assert [piece.events for piece in samples.pieces(1, since=2.0)] == [b"2", b"3"]


def test_a_flood_stays_within_bounds():
    samples = Samples()
    for i in range(10_000):
        samples.add(1, f"p{i}", 1, 1, b"x" * 1000, now=0.0)
    assert samples.events(1, 0.0) == len(samples.pieces(1)) <= 1049
    for i in range(10_000):
        samples.add(2, f"p{i}", 1 << 60, 1, b"", now=0.0)
    assert len(samples.pieces(2)) <= 4096
    # Many categories share one bound; when the first of them are of the past, there is room again.
    for number in range(3, 100):
        samples.add(number, "p", 1, 1, b"x" * (1 << 19), now=1.0)
        samples.add(number, "p", 1, 1, b"x" * (1 << 19), now=1.0)
    held = sum(len(piece.events) for number in range(1, 100) for piece in samples.pieces(number))
    assert (32 << 20) - (1 << 20) <= held <= 32 << 20
    samples.add(200, "p", 1, 1, b"x" * (1 << 19), now=100.0)
    assert samples.events(200, 100.0) == 1
    assert samples.events(50, 100.0) == 0
    assert all(piece.seen <= 1 << 32 for piece in samples.pieces(2))
