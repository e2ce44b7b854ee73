"""The parts of a cache, each by itself: overload, release, ring and spill, queue, search, responsibilities."""

import os
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.cache import drops, messages
from sievenet.cache.cache import Cache
from sievenet.cache.doubts import Doubts
from sievenet.cache.held import Held
from sievenet.cache.interruptions import Interruptions
from sievenet.cache.looks import Looks
from sievenet.cache.messages import Dropped, Ended, Missing, Position, Progress, Take, Taken
from sievenet.cache.overload import Meter, Pace, PortMeter
from sievenet.cache.queue import Queue
from sievenet.cache.record import key_of, packed
from sievenet.cache.release import Release
from sievenet.cache.responsibility import Load, choice, move
from sievenet.cache.ring import Ring
from sievenet.cache.search import search
from sievenet.cache.spill import Spill
from sievenet.cache.states import TRANSITIONS, State, diagram
from sievenet.cache.subscriber import Deliver, Lost, Say, Subscriber
from sievenet.cachehost.disks import Disks
from sievenet.errors import CodecError, InvalidInput, Unavailable
from tests.cache.world import Remainders


def record(number, publisher=1, life=7, size=20):
    return packed(publisher, life, number, 0, b"x" * size)


# -- overload ------------------------------------------------------------------------------


def test_the_event_that_is_one_too_many_is_noticed_at_once():
    meter = Meter(1000)
    assert not any(meter.arrived(1, 5.0 + i / 2000) for i in range(101))
    assert meter.arrived(1, 5.06)
    # A new window begins anew.
    assert not meter.arrived(1, 5.101)


@given(st.floats(1, 1e5), st.integers(2, 400))
def test_a_steady_rate_below_the_limit_is_no_overload(limit, count):
    meter = Meter(limit)
    assert not any(meter.arrived(1, i / (0.99 * limit)) for i in range(count))


def test_low_limits_have_longer_windows():
    meter = Meter(5)
    assert not any(meter.arrived(1, 0.01 * i) for i in range(11))
    assert meter.arrived(1, 0.2)


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_rate(limit):
    with pytest.raises(InvalidInput):
        Meter(limit)


def test_the_pace_is_measured_while_events_wait():
    pace = Pace(10_000)
    taken = 0
    for i in range(50):
        taken += 20  # 200 per second
        assert not pace.looked(taken, 50, i / 10)
    assert 190 < pace.rate < 210
    assert pace.looked(taken, 150, 5.1)
    assert not Pace(100).looked(0, 40, 0.0)
    assert Pace(100).looked(0, 60, 0.0)


# -- release -------------------------------------------------------------------------------


def drive(release, limit, seconds, take):
    """Send as fast as allowed to a subscriber that takes at a rate; what was sent in each window of 100 ms."""
    now, sent, taken, windows = 0.0, 0, 0.0, [0]
    while now < seconds:
        now += 0.005
        taken = min(sent, taken + take(now) * 0.005)
        if round(now / 0.005) % 20 == 0:
            release.reported(int(taken), sent, now)
            windows.append(0)
        allowed = release.allowed(sent - int(taken), now)
        release.sent(allowed)
        sent += allowed
        windows[-1] += allowed
    return sent, taken, windows


def test_release_is_near_the_limit_and_never_above():
    sent, _, windows = drive(Release(1000, 0.0), 1000, 10, lambda now: 1e9)
    assert 0.95 * 1000 * 10 <= sent <= 1000 * 10
    assert max(windows) <= 101


def test_release_follows_a_subscriber_that_slows_down_within_a_second():
    _, _, windows = drive(Release(1000, 0.0), 1000, 10, lambda now: 1e9 if now < 5 else 200)
    assert sum(windows[65:100]) <= 1.1 * 200 * 3.5
    _, _, windows = drive(Release(None, 0.0), None, 10, lambda now: 2000 if now < 5 else 300)
    assert 0.9 * 2000 <= sum(windows[30:50]) / 2 <= 1.2 * 2000
    assert 0.8 * 300 <= sum(windows[70:100]) / 3 <= 1.2 * 300


# -- ring and spill ------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.integers(0, 5))
def test_a_ring_reads_what_it_has(sizes, drop):
    ring, sent = Ring(seconds=drop, max_bytes=300_000), []
    for now, size in enumerate(sizes):
        some = [record(len(sent) + i) for i in range(size)]
        assert ring.append(some, float(now)) == len(sent)
        sent += some
        ring.trim(float(now))
        assert ring.next == len(sent)
        assert ring.memory <= 300_000 + (4096 + size) * 200
        some = range(ring.first, ring.next, 7)
        assert ring.read(some) == [sent[i] for i in some]
    assert ring.between(0, len(sent)) == sent[ring.first :]


def test_what_is_needed_goes_to_disk_and_what_is_not_goes_away(tmp_path):
    ring = Ring(seconds=1, max_bytes=200_000, spill=Spill(tmp_path, 10_000_000))
    sent = [record(i) for i in range(20_000)]
    for at in range(0, 20_000, 500):
        ring.append(sent[at : at + 500], at / 1000)
        ring.trim(at / 1000, needed=100)
    assert ring.first <= 100
    assert ring.memory <= 600_000
    assert ring.disk > 0
    assert ring.between(100, 20_000) == sent[100:]
    ring.trim(1000.0)
    assert ring.next - ring.first <= 4096
    assert ring.disk < 1_000_000


def test_the_disk_is_bounded_too(tmp_path):
    ring = Ring(seconds=1e9, max_bytes=200_000, spill=Spill(tmp_path, 500_000))
    for at in range(40):
        ring.append([record(at * 500 + i) for i in range(500)], float(at))
        ring.trim(float(at), needed=0)
    assert ring.disk <= 500_000
    assert ring.first > 0
    assert ring.between(0, 20_000) == [record(i) for i in range(ring.first, 20_000)]


def test_a_durable_ring_survives_and_a_torn_frame_is_dropped(tmp_path):
    def make(durable=True):
        return Ring(seconds=1e9, max_bytes=1 << 20, spill=Spill(tmp_path, 1 << 24), durable=durable)

    ring, sent = make(), [record(i) for i in range(10_000)]
    for at in range(0, 10_000, 100):
        ring.append(sent[at : at + 100], float(at))
    # As after kill -9: nothing was closed, and a frame is torn.
    newest = max(tmp_path.iterdir())
    data = newest.read_bytes()
    newest.write_bytes(data[:-5])
    again = make()
    assert again.between(0, 10_000) == sent[:9900]
    again.append(sent[9900:], 1e6)
    assert again.between(0, 10_000) == sent
    assert make().between(0, 10_000) == sent
    # Another ring does not take what it does not trust.
    assert make(durable=False).next == 0


def test_a_segment_that_was_changed_is_not_believed(tmp_path):
    spill = Spill(tmp_path, 1 << 20)
    spill.append(0, [b"one", b"two"], [1.0, 2.0])
    spill.append(0, [b"three"], [3.0])
    spill.close()
    path = next(iter(tmp_path.iterdir()))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert Spill(tmp_path, 1 << 20).read(0) == ([b"one", b"two"], array("d", [1.0, 2.0]))
    data[20] ^= 1
    path.write_bytes(bytes(data))
    assert Spill(tmp_path, 1 << 20).read(0)[0] == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="Cannot keep events"):
        Spill(tmp_path / "file" / "below", 1)


def test_what_a_full_disk_took_by_half_hides_nothing_that_comes_later(tmp_path, monkeypatch):
    spill, write = Spill(tmp_path, 1 << 20), os.write
    spill.append(0, [b"one"], [1.0])

    def full(handle, data):
        if len(data) > 20:
            return write(handle, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Unavailable, match="No space left"):
        spill.append(0, [b"two"], [2.0])
    ring = Ring(max_bytes=1000, spill=Spill(tmp_path / "ring", 1 << 20), durable=True)
    ring.append([record(1)], 1.0)
    assert ring.failures == 1
    assert "No space left" in ring.trouble
    monkeypatch.setattr(os, "write", write)
    spill.append(0, [b"three"], [3.0])
    assert spill.read(0)[0] == [b"one", b"three"]
    # What the disk did not take is written with what comes next.
    ring.append([record(2)], 1.0)
    assert Ring(spill=Spill(tmp_path / "ring", 1 << 20), durable=True).between(0, 9) == [record(1), record(2)]


def test_a_durable_ring_knows_since_when_its_disk_takes_nothing_and_writes_all_of_it_later(tmp_path, monkeypatch):
    ring, write = Ring(seconds=1e9, spill=Spill(tmp_path, 1 << 24), durable=True), os.write

    def full(handle, data):
        raise OSError(28, "No space left on device")

    ring.append([record(0)], 1.0)
    assert ring.unwritten is None
    monkeypatch.setattr(os, "write", full)
    for at in range(20):  # several blocks
        ring.append([record(i) for i in range(1 + 500 * at, 501 + 500 * at)], 2.0 + at)
    assert (ring.unwritten, ring.failures) == (2.0, 1)
    assert "No space left" in ring.trouble
    assert Ring(spill=Spill(tmp_path, 1 << 24), durable=True).next == 1
    # With room again, all of it is written, though nothing more comes.
    monkeypatch.setattr(os, "write", write)
    ring.trim(30.0)
    assert ring.unwritten is None
    again = Ring(seconds=1e9, spill=Spill(tmp_path, 1 << 24), durable=True)
    assert again.between(0, 1 << 20) == [record(i) for i in range(10_001)]
    # Its own bound may be too small as well.
    small = Ring(seconds=1e9, spill=Spill(tmp_path / "small", 1000), durable=True)
    small.append([record(i) for i in range(100)], 5.0)
    assert (small.unwritten, small.failures) == (5.0, 0)
    assert "room for all that comes within 1,000 bytes" in small.trouble


def test_the_log_hears_of_a_disk_once_and_when_that_is_over(tmp_path, monkeypatch):
    ring, other, write = Ring(spill=Spill(tmp_path, 1 << 24), durable=True), Ring(), os.write
    disks = Disks({"ev": ring, "other": other})

    def full(handle, data):
        raise OSError(28, "No space left on device")

    def second(now):
        ring.append([record(int(now))], now)
        return disks.complaints(now)

    assert second(1.0) == []
    monkeypatch.setattr(os, "write", full)
    [told] = second(2.0)
    assert "events of ev are not durable until they can be written: Cannot write" in told
    assert [second(float(now)) for now in range(3, 80)] == [[]] * 77
    why, seconds = disks.trouble(80.0)
    assert "No space left" in why
    assert seconds == 78.0
    # A disk that takes something now and then is not over it.
    monkeypatch.setattr(os, "write", write)
    assert second(81.0) == []
    assert disks.trouble(81.0) == ("", 0.0)
    monkeypatch.setattr(os, "write", full)
    assert second(85.0) == []
    assert disks.trouble(86.0)[1] == 1.0
    monkeypatch.setattr(os, "write", write)
    assert [second(float(now)) for now in range(87, 95)] == [[]] * 8
    assert second(95.0) == ["events of ev are durable again: all are written"]
    # Where nothing is to be durable, each complaint is heard once a minute at most.
    told = []
    for now in range(100, 200):
        other.failures, other.trouble = other.failures + 1, f"no room at {now}"
        told += disks.complaints(float(now))
    assert told == ["events of other: no room at 100", "events of other: no room at 160"]


@pytest.mark.parametrize("policy", ["end", "oldest"])
def test_a_segment_that_cannot_be_read_back_ends_or_drops_what_waits(tmp_path, policy):
    ring = Ring(seconds=1e9, max_bytes=100_000, spill=Spill(tmp_path, 1 << 24))
    found = Queue(9, ring, None, policy, 100_000, 0.0)
    found.join(1, 1, 0.0)
    for at in range(0, 12_000, 1000):
        found.push(range(ring.append([record(i) for i in range(at, at + 1000)], 0.0), ring.next))
        ring.trim(0.0, needed=0)
    damaged = min(tmp_path.iterdir())
    damaged.write_bytes(b"?" * damaged.stat().st_size)
    assert found.take(0.0, 50) == []
    runs = found.take(0.0, 50)
    if policy == "end":
        assert "it is damaged" in found.ended
        assert runs == []
    else:
        assert key_of(runs[0].records[0])[2] == ring.first == found.dropped > 0
    # Who asks is told what is gone.
    answer = search(ring, Take(1, (Position(1, 7, 5),), back=10.0, age=10.0), -100.0, Interruptions(), 1.0)
    assert answer.missing == (Missing(1, 7, 6, ring.first - 1),)
    assert len(answer.records) == ring.next - ring.first


def test_a_question_that_was_on_its_way_for_a_while_means_the_time_at_which_it_was_asked():
    ring = Ring(seconds=1e9)
    ring.append([record(i) for i in range(5)], 1.0)
    ring.append([record(0, publisher=2)], 1.1)
    # Asked 0.01 s after the subscription began at 1.0, heard at 1.2.
    take = Take(1, (Position(1, 7, 2),), back=2.0, age=0.01)
    assert [key_of(each)[::2] for each in search(ring, take, 0.0, Interruptions(), 1.2).records] == [
        (1, 3), (1, 4), (2, 0),
    ]  # fmt: skip


def test_what_was_dropped_before_a_position_is_named_and_told_if_it_never_came():
    cache, told = Cache(seed=1), []
    cache.open("x", lambda: Ring(seconds=100), Remainders(), 0.0)
    cache.assign(1, "x", {0, 1}, "need", 0.0)
    subscriber = Subscriber(1000, now=0.0)
    for number in range(20):
        value = number % 3
        event = packed(1, 7, number, 0, bytes([value]))
        cache.arrive("x", [event], 0.5)
        if value < 2 and number not in (6, 7, 9):
            subscriber.plain((1, 7, number), number, 0.5)
    [say] = subscriber.overran(0.6, 1.0)
    assert say.word.check
    for each in subscriber.hear(cache.hear(1, say.word, 0.61), 0.62):
        told += each.missing if isinstance(each, Lost) else ()
    assert [(each.first, each.last) for each in told] == [(6, 7), (9, 9)]


def test_counters_of_a_port_are_told_apart_from_those_of_another():
    meter = PortMeter()
    meter.looked(1000, 5, 1.0)
    assert (meter.rate, meter.drops) == (0.0, 0)
    meter.looked(1500, 7, 1.5)
    assert (meter.rate, meter.drops) == (1000.0, 2)
    meter.looked(20, 0, 2.0)
    assert (meter.rate, meter.drops) == (0.0, 0)
    meter.looked(30, 0, 2.5)
    assert (meter.rate, meter.drops) == (20.0, 0)


# -- queue and search ----------------------------------------------------------------------


def queue(policy="end", most=10_000):
    ring = Ring()
    ring.append([record(i) for i in range(1000)], 0.0)
    return ring, Queue(1, ring, None, policy, most, 0.0)


def test_what_was_lost_is_sent_again_and_what_all_have_is_let_go():
    _, found = queue()
    found.push(range(100))
    found.join(1, 1, 0.0)
    found.join(2, 1, 0.0)
    [first] = found.take(0.0, 50)
    assert (first.first, len(first.records)) == (0, 50)
    found.reported(1, 50, 50, False, 0.1)
    found.reported(2, 20, 20, True, 0.2)
    [again] = found.take(0.2, 10)
    assert again.first == 20
    assert again.records == first.records[20:30]
    found.reported(2, 50, 50, False, 0.3)
    assert found.needed >= 50
    # Silence is loss too.
    found.take(0.3, 20)
    assert found.take(1.5, 10)[0].first == 50


@pytest.mark.parametrize(("policy", "kept"), [("oldest", [*range(50, 150)]), ("newest", [*range(100)])])
def test_a_full_queue_drops_what_it_is_told_to(policy, kept):
    _, found = queue(policy, 100)
    for at in range(0, 150, 10):
        found.push(range(at, at + 10))
    found.join(1, 1, 0.0)
    sent = []
    for step in range(40):
        for run in found.take(step / 10, 100):
            sent += [key_of(each)[2] for each in run.records]
            found.reported(1, run.first + len(run.records), run.first + len(run.records), False, step / 10 + 0.05)
    assert sent == kept
    assert found.dropped == 50


@pytest.mark.parametrize("disk", [0, 1 << 20])
@pytest.mark.parametrize("policy", ["oldest", "newest"])
def test_what_the_ring_had_no_room_for_is_named(policy, disk, tmp_path):
    spill = Spill(tmp_path, disk) if disk else None
    ring = Ring(seconds=1e9, max_bytes=500_000, spill=spill)
    cache = Cache(seed=1)
    cache.open("x", lambda: ring, Remainders(), 0.0)
    cache.assign(1, "x", {0}, "need", 0.0)
    taken = cache.hear(1, Take(0, (), 0.0, 0.0, 100.0, policy), 0.0)
    sent, told, now = [], [], 0.0
    for number in range(30_000):
        cache.arrive("x", [packed(1 + number % 2, 7, number // 2, 0, bytes([0]))], now)
        if number % 100 == 0:
            now += 0.01
            told += [word for _, word in cache.tick(now) if isinstance(word, Dropped)]
        for each in cache.send(now):
            for run in each.runs:
                sent += map(key_of, run.records)
                cache.hear(1, Progress(0, taken.stream, len(sent), len(sent)), now)
    told += [word for _, word in cache.tick(now) if isinstance(word, Dropped)]
    waiting = cache.statistics().waiting
    lost = [(each.publisher, 7, n) for word in told for each in word.missing for n in range(each.first, each.last + 1)]
    assert lost
    assert not any(word.unknown for word in told)
    assert len(lost) + len(sent) + waiting == 30_000
    assert len({*lost, *sent}) == len(lost) + len(sent)
    assert cache.statistics().dropped == len(lost)
    assert bool(disk) == any(tmp_path.iterdir())


def test_a_subscriber_that_wants_events_dropped_goes_on_when_what_it_misses_is_gone():
    ring = Ring(seconds=1e9, max_bytes=500_000)
    cache = Cache(seed=1)
    cache.open("x", lambda: ring, Remainders(), 0.0)
    cache.assign(1, "x", {0}, "need", 0.0)
    taken = cache.hear(1, Take(0, (Position(1, 7, 4),), 9.0, 9.0, 1e6, "oldest"), 0.0)
    cache.arrive("x", [packed(1, 7, number, 0, bytes([0])) for number in range(5, 105)], 0.1)
    assert sum(len(run.records) for run in cache.send(0.2)[0].runs) == 100
    cache.arrive("x", [packed(1, 7, number, 0, bytes([0])) for number in range(105, 20_000)], 0.3)
    cache.tick(0.4)
    assert ring.first > 100
    # It got only ten of the hundred, and the others are gone.
    cache.hear(1, Progress(0, taken.stream, 10, 10, again=True), 0.5)
    cache.send(0.6)
    [(_, ended)] = [each for each in cache.tick(0.7) if isinstance(each[1], Ended)]
    assert not ended.full
    again = cache.hear(1, Take(1, (Position(1, 7, 14),), 9.0, 9.0, 1e6, "oldest"), 0.8)
    assert again.missing == (Missing(1, 7, 15, 5 + ring.first - 1),)


def test_a_damaged_segment_leaves_the_others_and_what_is_dropped_is_told(tmp_path):
    ring = Ring(seconds=1e9, max_bytes=500_000, spill=Spill(tmp_path, 1 << 24))
    for number in range(20_000):
        ring.append([record(number)], 0.0)
    ring.trim(0.0, 0)
    [first, *_] = sorted(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    found = Queue(1, ring, 100.0, "newest", 15_000, 0.0)
    found.join(1, 0, 0.0)
    found.push(range(20_000))
    found.gone.extend(range(10))
    [(_, word)] = drops.words(found, ring)
    assert word.unknown == 10
    assert sum(each.last - each.first + 1 for each in word.missing) == 5_000


def test_end_marks_come_in_their_order():
    _, found = queue()
    found.push(range(3))
    found.join(7, 1, 0.0)
    found.join(8, 1, 0.0)
    found.stop(7)
    found.push(range(3, 5))
    runs = found.take(0.0, 100)
    assert [(run.first, len(run.records), run.leaver) for run in runs] == [(0, 3, None), (3, 0, 7), (4, 2, None)]


def test_a_search_finds_what_is_lacking_and_names_what_nobody_has():
    ring = Ring(seconds=1e9)
    ring.append([record(i) for i in (7, 8, 9)], 1.0)
    ring.append([record(5, publisher=2)], 1.5)
    ring.append([record(i) for i in (14, 15)], 2.0)
    interrupted = Interruptions()
    interrupted.point(4)
    take = Take(1, (Position(1, 7, 8),), back=10.0, age=100.0)
    found = search(ring, take, 0.0, interrupted, 3.0)
    assert [key_of(each)[2] for each in found.records] == [9, 5, 14, 15]
    assert found.missing == (Missing(1, 7, 10, 13), Missing(2, 7, 6, -1))
    # Nothing is missing without an interruption.
    assert search(ring, take, -100.0, Interruptions(), 3.0).missing == ()
    # Who has less than the ring reaches back to is told.
    early = Take(1, (Position(1, 7, 3), Position(9, 9, 1)), back=10.0, age=100.0)
    assert search(ring, early, 0.5, Interruptions(), 3.0).missing == (Missing(1, 7, 4, 6), Missing(9, 9, 2, -1))
    # Sources that are new count from where the subscription began, others from their position.
    late = Take(1, (Position(1, 7, 14),), back=10.0, age=1.2)
    assert [key_of(each)[2] for each in search(ring, late, -100.0, Interruptions(), 3.0).records] == [15]
    # What is too old is not wanted, though the ring has it.
    recent = Take(1, back=1.2, age=1.2)
    assert [key_of(each)[2] for each in search(ring, recent, 2.9, Interruptions(), 3.0).records] == [14, 15]
    behind = Take(1, back=1e9, age=1e9, after=Position(1, 7, 9))
    assert [key_of(each)[2] for each in search(ring, behind, 0.0, Interruptions(), 3.0).records] == [5, 14, 15]
    # A ring that has an event has what came behind it, if it had everything since then; else what it reaches is said.
    assert search(ring, behind, 1.0, Interruptions(), 3.0).reaches is None
    assert search(ring, behind, 1.5, Interruptions(), 3.0).reaches == 1.5
    gone = Take(1, back=1e9, age=1e9, after=Position(1, 7, 2))
    missing = search(ring, gone, 0.0, Interruptions(), 3.0)
    assert (missing.reaches, missing.missing) == (3.0, (Missing(1, 7, 3, 6),))


def test_in_a_span_every_jump_may_be_a_loss():
    ring, found = Ring(seconds=1e9), Interruptions()
    take = Take(1, (Position(1, 7, 0),), back=10.0, age=100.0)

    def missing():
        return [(each.publisher, each.first, each.last) for each in search(ring, take, 0.0, found, 3.0).missing]

    ring.append([record(i) for i in (1, 3, 4)], 1.0)
    assert missing() == []
    found.begin(2)
    ring.append([record(i) for i in (6, 7, 9)], 1.5)
    # Of a source that was not heard before nobody knows what it said first.
    ring.append([record(2, publisher=2)], 1.6)
    assert missing() == [(1, 5, 5), (1, 8, 8), (2, 0, 1), (1, 10, -1), (2, 3, -1)]
    found.end(ring.next)
    ring.append([record(i) for i in (12, 13, 15)], 2.0)
    ring.append([record(i, publisher=2) for i in (3, 5)], 2.0)
    ring.append([record(1, publisher=3)], 2.0)
    assert missing() == [(1, 5, 5), (1, 8, 8), (2, 0, 1), (1, 10, 11), (3, 0, 0)]
    found.forget(7)
    assert not found


# -- the rest ------------------------------------------------------------------------------


def test_a_cache_knows_for_how_long_it_has_everything(tmp_path):
    cache = Cache(seed=1)

    def ring():
        return Ring(seconds=100.0, spill=Spill(tmp_path, 1 << 24), durable=True)

    def arrive(*whens):
        for when in whens:
            cache.arrive("c", [record(int(when))], when)

    def whole(now, since=0.0):
        cache.unassign(7)
        cache.assign(7, "c", None, "need", since)
        return cache.whole(7, now)

    cache.open("c", ring, Remainders(), 1.0)
    assert whole(5.0) == 4.0
    arrive(5.0, 6.0, 7.0)
    assert whole(10.0) == 9.0
    assert whole(10.0, since=4.0) == 6.0
    # It was away, and knows what comes from the next event on.
    cache.interrupted(10.0)
    assert whole(12.0) == 0.0
    arrive(13.0, 14.0)
    assert whole(20.0) == 7.0
    # Its port dropped something, nobody knows yet how much.
    cache.missed(20.0)
    assert whole(20.5) == 0.0
    # Another process goes on with what is on disk.
    cache = Cache(seed=2)
    cache.open("c", ring, Remainders(), 30.0)
    assert whole(30.0) == 0.0
    arrive(31.0)
    assert whole(35.0) == 4.0
    # What is too old is gone.
    cache = Cache(seed=3)
    cache.open("c", lambda: Ring(seconds=10.0), Remainders(), 0.0)
    for when in range(3):
        cache.arrive("c", [record(5000 * when + i) for i in range(5000)], 10.0 * when)
    cache.tick(25.0)
    assert whole(25.0) < 25.0


def test_held_events_are_bounded_and_come_per_source_in_order():
    held = Held(3)
    assert held.add((1, 1, 5), "a") is None
    assert held.add((2, 1, 1), "b") is None
    assert held.add((1, 1, 6), "c") is None
    assert held.add((1, 1, 9), "d") == ((1, 1, 5), "a", False)
    held.interrupted()
    assert held.add((1, 1, 12), "e") == ((2, 1, 1), "b", False)
    assert [each[1] for each in held.before((1, 1, 9))] == ["c"]
    held.interrupted()
    assert held.whole((1, 1, 12))
    held.path_broke()
    assert not held.whole((1, 1, 12))
    # Behind the last ones of both some may be missing, and nothing has come that shows it.
    assert held.all() == ([((1, 1, 12), "e", True)], {(1, 1), (2, 1)})
    assert held.all() == ([], set())
    assert len(held) == 0


def test_doubts_end_with_the_next_event_or_are_told_in_the_end():
    positions = {(1, 1): 7, (2, 1): 3}
    doubts = Doubts(positions)
    doubts.all()
    doubts.beyond((3, 1), 20)  # never delivered, but 20 was dropped
    assert doubts.settled((1, 1), 11) == (Missing(1, 1, 8, 10),)
    assert doubts.settled((1, 1), 20) == ()
    assert doubts.open() == (Missing(2, 1, 4, -1), Missing(3, 1, 20, -1))
    assert doubts.settled((2, 1), 4) == ()
    assert doubts.settled((3, 1), 19) == ()
    doubts.beyond((3, 1), 30)
    assert doubts.settled((3, 1), 25) == (Missing(3, 1, 20, 24),)
    assert doubts.settled((3, 1), 28) == (Missing(3, 1, 26, 27),)
    assert doubts.settled((3, 1), 29) == ()
    assert doubts.settled((3, 1), 33) == (Missing(3, 1, 30, 32),)
    doubts.add([(4, 1)])
    assert doubts.open() == (Missing(4, 1, 0, -1),)
    assert doubts.settled((4, 1), 5) == ()
    assert doubts.open() == ()


def test_an_interruption_that_nothing_came_after_is_told_too():
    ring = Ring(seconds=100)
    ring.append([packed(1, 7, number, 0, b"x") for number in range(5)], 1.0)
    interrupted = Interruptions()
    interrupted.point(ring.next)
    found = search(ring, Take(1, (Position(1, 7, 2),), back=10, age=10), -100.0, interrupted, 2.0)
    assert [key_of(each)[2] for each in found.records] == [3, 4]
    assert found.missing == (Missing(1, 7, 5, -1),)


def test_responsibilities_go_where_the_same_need_is_and_where_least_is():
    loads = {"a": Load({1: "x", 2: "y"}), "b": Load({3: "z"})}
    assert choice(loads, "x") == "a"
    assert choice(loads, "new") == "b"
    assert choice(loads, "new", without=("a", "b")) is None
    assert choice({"a": Load(durable=True), "b": Load()}, "new", past=True) == "a"
    # Nothing comes: what counts is for how many subscriptions each is responsible.
    loads["a"].needs |= {4: "u", 5: "v", 6: "x"}
    first = {1: "a", 2: "a", 3: "b", 4: "a", 5: "a", 6: "a"}
    assert move(loads, first) == ([1, 6], "b")
    loads["a"].active = frozenset((1,))
    assert move(loads, first) == ([2], "b")
    assert move({"a": Load({1: "x"}), "b": Load()}, {1: "a"}) is None
    assert move({"a": Load({1: "x"})}, {1: "a"}) is None


def test_responsibilities_move_by_events_per_second_and_not_by_how_many_they_are():
    loads = {"a": Load({1: "hot", 2: "warm", 3: "cold"}), "b": Load({number: number for number in range(10, 20)})}
    first = {number: name for name, load in loads.items() for number in load.needs}
    for second in range(60):
        loads["a"].reported(1500 * second, [(1, 1000.0, 0.0), (2, 450.0, 0.0), (3, 1.0, 0.0)], float(second))
        loads["b"].reported(20 * second, [], float(second))
    assert loads["a"].rate == pytest.approx(1500, rel=0.01)
    # Ten subscriptions to which little comes are less than three; of these, the one that halves the difference best.
    assert move(loads, first) == ([2], "b")
    assert choice(loads, "new") == "b"
    # What is sent counts as what comes; and what another keeps anyway does not come to it anew.
    loads["b"].needs |= {1: "hot"}
    loads["a"].rates["hot"] = (1000.0, 600.0)
    assert move(loads, first) == ([1], "b")
    loads["a"].active = frozenset((1, 2))
    assert move(loads, first) == ([3], "b")


@given(st.data())
def test_responsibilities_come_to_rest_and_the_heaviest_cache_never_gets_heavier(data):
    names = [f"c{number}" for number in range(data.draw(st.integers(2, 4)))]
    kinds = {need: data.draw(st.tuples(st.floats(0, 1000), st.floats(0, 1000))) for need in range(6)}
    needs = {number: data.draw(st.sampled_from(sorted(kinds))) for number in range(data.draw(st.integers(0, 15)))}
    first = {number: data.draw(st.sampled_from(names)) for number in needs}
    heaviest = float("inf")
    for _ in range(100):
        loads = {}
        for name in names:
            own = {number: need for number, need in needs.items() if first[number] == name}
            rates = {need: kinds[need] for need in own.values()}
            loads[name] = Load(own, rate=sum(map(sum, rates.values())), rates=rates)
        weights = [load.weight(len(load.needs)) for load in loads.values()]
        assert max(weights) <= heaviest + 1e-6
        heaviest = max(weights)
        found = move(loads, first)
        if found is None:
            return
        for number in found[0]:
            first[number] = found[1]
    raise AssertionError("they move for ever")


def test_rates_are_those_of_what_matches_and_of_what_is_sent():
    cache = Cache(seed=1)
    cache.open("x", Ring, Remainders(), 0.0)
    cache.assign(1, "x", {0, 1}, "most", 0.0)
    cache.assign(2, "x", {2}, "some", 0.0)
    cache.assign(3, "x", {9}, "nothing", 0.0)
    assert cache.rates(0.0) == []
    cache.hear(2, Take(0, (), 0.0, 0.0, None), 0.0)
    for number in range(3000):
        cache.arrive("x", [packed(1, 7, number, 0, bytes([number % 3]))], number / 1000)
    sent = sum(len(run.records) for each in cache.send(3.0) for run in each.runs)
    found = {number: each for number, *each in cache.rates(3.0)}
    assert found[1] == pytest.approx((667, 0), rel=0.05)
    assert found[2] == pytest.approx((333, sent / 3), rel=0.05)
    assert 3 not in found
    assert cache.rates(6.0) == []


def test_words_survive_the_wire_and_garbage_does_not():
    take = Take(3, (Position(2**64 - 1, 0, 5),), 1.0, 2.0, 100.0, "oldest", Position(1, 2, 3))
    assert messages.decoded(messages.encoded(take)) == take
    for bad in (b"", b"\xff", b"\x80", messages.encoded(take)[:-1], b"\x82\xa3say\xa4Stop\xa5epoch\xff"):
        with pytest.raises(CodecError):
            messages.decoded(bad)


def test_the_picture_of_states_is_that_of_the_table():
    with open("docs/topics/caches.md", encoding="utf-8") as page:
        assert diagram() in page.read()
    assert {state for state, _ in TRANSITIONS} == {*State} - {State.OVER}


def test_what_a_cache_has_said_stays_doubtful_until_an_event_that_was_not_held():
    doubts = Doubts({(1, 1): 7})
    doubts.beyond((1, 1), 8, said=True)
    doubts.clear()  # another was asked for everything, and nobody says this again
    assert doubts.settled((1, 1), 7) == ()
    assert doubts.settled((1, 1), 9, held=True) == (Missing(1, 1, 8, 8),)
    assert doubts.open() == (Missing(1, 1, 10, -1),)
    assert doubts.settled((1, 1), 14) == (Missing(1, 1, 10, 13),)
    assert doubts.open() == ()
    # A guess ends with any answer too.
    doubts.all()
    assert doubts.settled((1, 1), 9, held=True) == (Missing(1, 1, 8, 8),)
    assert doubts.open() == (Missing(1, 1, 10, -1),)
    doubts.clear()
    assert doubts.open() == ()


def test_what_comes_before_the_past_was_asked_for_comes_behind_it():
    core = Subscriber(None, now=0.0, hold=3)
    core.awaits_past()
    for number in range(5, 10):  # more than it holds
        assert core.plain((1, 1, number), number, 0.1) == []
    [asked] = [each.word for each in core.replay(0.2, 60.0) if isinstance(each, Say)]
    assert asked.positions == ()
    core.hear(Taken(asked.epoch, 7, 0), 0.3)
    found = [core.directed(7, number, (1, 1, number), number, 0.4) for number in range(8)]
    assert [each.item for some in found for each in some if isinstance(each, Deliver)] == list(range(8))


def test_two_interruptions_at_one_place_are_two():
    found = Interruptions()
    found.point(4)
    heard = (4, found.count)
    assert not found.beyond(*heard)
    found.begin(4)
    found.end(4)
    assert found.beyond(*heard).points == {4}


def test_a_look_that_began_before_something_was_wanted_does_not_count():
    looks = Looks()
    first = looks.want()
    assert looks.begin() == first
    second = looks.want()
    looks.end(first)
    assert looks.over(first)
    assert not looks.over(second)
    assert looks.begin() == second
    assert looks.begin() is None
    # What was dropped is told after a look; then not again within a second; and in the end without one.
    looks.doubt(10.0)
    assert not looks.settle(10.1)
    looks.end(looks.begin())
    assert looks.settle(10.2)
    looks.doubt(10.3)
    looks.end(looks.begin())
    assert [when for when in (10.4, 11.1, 11.25) if looks.settle(when)] == [11.25]
    looks.doubt(20.0)
    assert [when for when in (20.1, 24.9, 25.0) if looks.settle(when)] == [25.0]
    assert not looks.doubtful


def test_who_waits_for_an_answer_asks_again_if_its_cache_began_anew():
    core = Subscriber(100, now=0.0)
    core.plain((1, 1, 0), "event", 0.1)
    [asked] = [each.word for each in core.overloaded(0.2) if isinstance(each, Say)]
    [again] = [each.word for each in core.hear(Ended(asked.epoch, "anew", again=True), 0.3) if isinstance(each, Say)]
    assert (again.epoch, again.positions) == (asked.epoch + 1, asked.positions)
    assert core.state is State.TAKING
    # One that is not responsible does not bring it to ask at once.
    assert core.hear(Ended(again.epoch, "not responsible"), 0.4) == []


def test_a_later_overload_does_not_end_the_doubt_about_a_source_that_a_dead_cache_had():
    from sievenet.cache.messages import Drained

    core = Subscriber(100, now=0.0)
    core.plain((1, 1, 0), "event", 0.1)
    core.overloaded(0.2)
    core.hear(Taken(1, 7, 0), 0.3)
    core.lost(0.4)
    open_end = Missing(1, 1, 1, -1)
    core.hear(Taken(2, 8, 0, (open_end,)), 0.5)
    assert core.doubts() == (open_end,)
    core.hear(Drained(2, 8), 0.6)
    core.resumed(0.7)
    core.marked(8, 0, True, 0.8)
    assert str(core.state) == "idle"
    core.overloaded(5.0)
    core.hear(Taken(3, 9, 0), 5.1)
    assert core.doubts() == (open_end,)
