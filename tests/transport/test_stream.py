"""Order and loss detection of one publisher at one receiver."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.transport.codec import Header, Record
from sievenet.transport.latch import ConstantLatch, DelayModel
from sievenet.transport.stream import MAX_JUMP, Limits, Stream
from tests.seeds import examples

MINE, OTHER = 0b11, 0b100


def header(sequence, departure, entries=(), *, epoch=1, previous=1000, digest=False):
    return Header(9, epoch, sequence, departure, previous, Record.of(list(entries), 1), None, digest)


def session(latch=0.1, **options):
    return Stream(9, (MINE,), ConstantLatch(latch), **options)


def numbers(released):
    return [each.header.sequence for each in released]


def test_in_order_is_delivered_at_once():
    s = session()
    assert [numbers(s.arrive(header(i, i * 0.1), i, i * 0.1)) for i in range(3)] == [[0], [1], [2]]
    assert s.timer() is None


def test_wanted_gap_is_waited_for_and_filled():
    s = session()
    s.arrive(header(5, 5.0), "a", 5.0)
    assert s.arrive(header(8, 5.3, [(1000, OTHER), (1000, MINE)]), "c", 5.3) == []
    assert s.waiting == 1
    out = s.arrive(header(6, 5.1), "b", 5.35)
    assert numbers(out) == [6, 8]
    assert out[1].held > 0
    assert s.counts.losses == s.counts.late == 0


def test_unwanted_gap_is_not_waited_for():
    s = session()
    s.arrive(header(5, 5.0), None, 5.0)
    assert numbers(s.arrive(header(8, 5.3, [(1000, OTHER), (1000, OTHER)]), None, 5.3)) == [8]


def test_deadline_reports_the_loss():
    s = session()
    s.arrive(header(5, 5.0), None, 5.0)
    s.arrive(header(7, 5.3, [(1000, MINE)]), None, 5.3)
    due = s.timer()
    assert due == 5.3 + 0.1
    released, losses = s.expire(due)
    assert numbers(released) == [7]
    assert [(x.sequence, x.bits, x.width) for x in losses] == [(6, MINE, 1)]
    late = s.arrive(header(6, 5.1), None, 5.6)
    assert numbers(late) == [6]
    assert late[0].late
    assert s.counts.late == 1


def test_late_can_be_dropped():
    s = session(late="drop")
    s.arrive(header(5, 5.0), None, 5.0)
    s.arrive(header(7, 5.3, [(1000, MINE)]), None, 5.3)
    s.expire(6.0)
    assert s.arrive(header(6, 5.1), None, 6.1) == []
    assert s.counts.late_dropped == 1


def test_basic_mode_holds_every_gap_and_reports_what_did_not_come():
    s = session()
    s.arrive(header(1, 1.0), None, 1.0)
    assert s.arrive(header(3, 1.1), None, 1.1) == []
    assert numbers(s.arrive(header(2, 1.05), None, 1.15)) == [2, 3]
    assert s.arrive(header(6, 1.3), None, 1.3) == []
    assert s.arrive(header(5, 1.25), None, 1.35) == []  # 4 may still come
    released, losses = s.expire(s.timer())
    assert numbers(released) == [5, 6]
    assert [(x.sequence, x.last) for x in losses] == [(4, 4)]
    s.arrive(header(20, 1.5), None, 1.5)
    assert [(x.sequence, x.last) for x in s.expire(9.0)[1]] == [(7, 19)]


def test_gap_beyond_the_record_waits_for_its_earliest():
    s = Stream(9, (MINE,), DelayModel(0.2, 5))
    for i in range(6):
        s.arrive(header(i, i * 0.01), None, i * 0.01 + (0.03 if i % 2 else 0.0))
    s.arrive(header(20, 0.06, [(100, OTHER)] * 2, previous=100), None, 0.061)
    assert s.uncovered == 12
    assert s.timer() is not None
    assert s.expire(9.0)[1] == []


def test_without_order_losses_are_found_and_nothing_held():
    s = session(order=False)
    s.arrive(header(1, 1.0), None, 1.0)
    assert numbers(s.arrive(header(3, 1.1, [(1000, MINE)]), None, 1.1)) == [3]
    assert [x.sequence for x in s.expire(2.0)[1]] == [2]
    assert numbers(s.arrive(header(2, 1.05), None, 2.1)) == [2]


def test_duplicates_are_dropped():
    s = session()
    s.arrive(header(1, 1.0), None, 1.0)
    assert s.arrive(header(1, 1.0), None, 1.1) == []
    assert s.counts.duplicates == 1


def test_repair_fills_in_order_when_lost_is_held():
    s = session(hold_lost=True)
    s.arrive(header(1, 1.0), None, 1.0)
    s.arrive(header(3, 1.1, [(1000, MINE)]), None, 1.1)
    released, losses = s.expire(1.3)
    assert (numbers(released), len(losses)) == ([], 1)
    assert numbers(s.repaired(header(2, 1.05), None, 1.5)) == [2, 3]
    assert s.repaired(header(2, 1.05), None, 1.6) == []
    assert not s.due(1, 2)


def test_abandoned_loss_lets_go():
    s = session(hold_lost=True)
    s.arrive(header(1, 1.0), None, 1.0)
    s.arrive(header(3, 1.1, [(1000, MINE)]), None, 1.1)
    s.expire(1.3)
    assert numbers(s.abandon(1, 2, 1.4)) == [3]
    assert s.abandon(7, 2, 1.4) == []


def test_repair_describes_more_losses():
    s = session(order=False, recover=True, inquire=True)
    s.arrive(header(1, 1.0), None, 1.0)
    s.arrive(header(9, 1.1, [(10, MINE)]), None, 1.1)
    assert [x.sequence for x in s.expire(2.0)[1]] == [8]
    s.repaired(header(8, 1.09, [(10, MINE), (10, OTHER)]), None, 2.1)
    assert [x.sequence for x in s.expire(3.0)[1]] == [7]
    assert s.repaired(header(12, 2.0), None, 3.0)[0].header.sequence == 12
    assert s.repaired(header(3, 1.0, epoch=0), None, 3.0) == []


def test_digest_finds_what_no_message_shows():
    s = session()
    s.digest(header(4, 1.0, [(10, MINE)], digest=True), 1.0)  # first contact: what was before is not missed
    assert s.timer() is None
    s.arrive(header(4, 1.1), None, 1.1)
    s.digest(header(8, 2.0, [(10, MINE), (10, OTHER), (10, MINE), (10, MINE)], digest=True), 2.0)
    assert [x.sequence for x in s.expire(9.0)[1]] == [5, 7]
    before = s.counts.stale
    s.digest(header(3, 2.0, epoch=0, digest=True), 9.0)
    s.digest(header(8 + 2 * MAX_JUMP, 2.0, digest=True), 9.0)
    assert s.counts.stale == before + 1
    assert s.counts.absurd == 1
    assert s.top == 7


def test_another_life_is_another_stream():
    s = session()
    s.arrive(header(100, 1.0), None, 1.0)
    assert s.arrive(header(0, 2.0, epoch=2), None, 2.0) == []
    s.digest(header(5, 3.0, epoch=3, digest=True), 3.0)
    assert (s.epoch, s.top, s.counts.stale) == (1, 100, 2)
    assert numbers(s.arrive(header(101, 1.1), None, 3.1)) == [101]


def test_one_absurd_jump_is_harmless_and_a_confirmed_one_is_followed():
    s = session()
    s.arrive(header(10, 1.0), None, 1.0)
    assert s.arrive(header(1 << 60, 1.1), None, 1.1) == []
    assert numbers(s.arrive(header(11, 1.2), None, 1.2)) == [11]
    assert s.counts.absurd == 1
    far = 5 * MAX_JUMP
    assert s.arrive(header(far, 1.3), None, 1.3) == []
    assert s.arrive(header(far + 1, 1.4), None, 1.4) == []
    released, losses = s.expire(9.0)
    assert numbers(released) == [far + 1]
    assert [(x.sequence, x.last) for x in losses] == [(12, far)]  # what was skipped is told


@pytest.mark.parametrize("late", ["deliver", "drop"])
@pytest.mark.parametrize("recover", [False, True])
def test_a_jump_that_later_messages_contradict_is_taken_back(late, recover):
    s = session(late=late, hold_lost=recover, inquire=recover)
    s.arrive(header(10, 1.0, [(100, OTHER)]), None, 1.0)
    s.arrive(header(10 + (1 << 15), 1.1, [(100, OTHER)]), None, 1.1)  # a flipped bit
    got = []
    for i in range(20):
        now = 1.2 + i / 10
        got += s.expire(now)[0]
        got += s.arrive(header(12 + i, now, [(100, OTHER)]), None, now)
    assert numbers(got)[-19:] == list(range(13, 32))
    assert not any(each.late for each in got[-18:])
    assert s.top == 31
    assert s.asking() is None


def test_a_digest_that_leaps_is_taken_back_too():
    s = session(hold_lost=True, inquire=True)
    s.arrive(header(10, 1.0), None, 1.0)
    s.digest(header(5000, 1.1, digest=True), 1.1)
    for i in (1, 2):
        s.digest(header(11, 1.1 + i, digest=True), 1.1 + i)
    s.expire(9.0)
    assert (s.top, s.asking()) == (10, None)
    part = Header(9, 1, 4, 9.0, 1000, Record.of([(10, MINE)], 1), None, digest=True, part=True)
    for _ in range(3):
        s.digest(part, 9.0)  # a page about older messages contradicts nothing
    assert s.top == 10


def test_every_number_is_settled_missing_or_unknown():
    s = session(order=False, recover=True, inquire=True)
    s.arrive(header(0, 0.0), None, 0.0)
    s.arrive(header(10_000, 1.0, [(10, MINE), (10, OTHER)]), None, 1.0)
    assert [x.sequence for x in s.expire(9.0)[1]] == [9999]
    assert s.asking() == (1, 9997)
    part = Header(9, 1, 5001, 9.0, 10, Record.of([(10, MINE), (10, OTHER)], 1), None, digest=True, part=True)
    s.digest(part, 9.0)
    assert [x.sequence for x in s.expire(19.0)[1]] == [5000]
    assert s.due(1, 5000)
    assert s.due(1, 4998)
    assert not s.due(1, 4999)
    assert numbers(s.repaired(header(5000, 0.5), None, 20.0)) == [5000]  # however far back
    assert [(x.sequence, x.last) for x in s.untold(4990, 5010)] == [(4990, 4998), (5001, 5010)]
    _, lost = s.close(30.0)
    assert [(x.sequence, x.last) for x in lost] == [(1, 4989), (5011, 9997)]


def test_far_future_departure_is_harmless():
    s = Stream(9, (MINE,), DelayModel())
    s.arrive(header(1, 1.0), None, 1.0)
    s.arrive(header(2, 1e11), None, 1.1)
    s.arrive(header(3, 1.2), None, 1.2)
    s.arrive(header(5, 1.3, [(10, MINE)]), None, 1.3)
    assert s.timer() <= 1.3 + 5.0


def test_state_is_bounded():
    s = session(latch=4.0, limits=Limits(held=10, missing=20))
    s.arrive(header(0, 0.0), None, 0.0)
    for i in range(1, 100):
        s.arrive(header(2 * i, i * 0.001, [(10, MINE)]), None, i * 0.001)
    assert s.waiting <= 10
    assert len(s._missing) <= 20
    assert s.counts.overflows > 0
    s.close(1.0)
    assert s.waiting == 0


@settings(max_examples=examples(150))
@given(st.integers(0, 10_000), st.integers(0, 5), st.booleans(), st.floats(0.0, 0.3))
def test_everything_is_delivered_once_and_in_order_given_time(seed, record, hold, loss):
    """Whatever the reordering: nothing twice, nothing invented, and order kept except for what came late."""
    rng = random.Random(seed)
    bits = [rng.choice((MINE, OTHER)) for _ in range(60)]
    made = []
    for i in range(60):
        entries = [(10_000, bits[j]) for j in range(i - 1, max(-1, i - 1 - record), -1)]
        made.append(header(i, i * 0.01, entries, previous=10_000))
    wanted = [i for i in range(60) if bits[i] == MINE and (i == 0 or rng.random() >= loss)]
    arrivals = sorted((i * 0.01 + rng.expovariate(50), i) for i in wanted)
    s = Stream(9, (MINE,), DelayModel(0.05, 10), hold_lost=False, late="deliver" if hold else "drop")
    out = []
    for now, i in arrivals:
        while (due := s.timer()) is not None and due <= now:
            out += s.expire(due)[0]
        out += s.arrive(made[i], i, now)
    while (due := s.timer()) is not None:
        out += s.expire(due)[0]
    assert s.waiting == 0
    got = [x.item for x in out]
    assert len(set(got)) == len(got)
    assert set(got) <= set(wanted)
    assert len(got) + s.counts.late_dropped == len(wanted)
    punctual = [x.item for x in out if not x.late]
    assert punctual == sorted(punctual)


def test_a_digest_of_an_unknown_stretch_keeps_every_loss():
    s = session(hold_lost=True)
    s.arrive(header(0, 0.0), 0, 0.0)
    # 1-6 are missing, and the record reaches back to 6 only: 1-5 are an unknown stretch.
    s.arrive(header(7, 0.7, [(1000, MINE)]), 7, 0.7)
    s.digest(header(8, 0.8, [(1000, MINE)] * 8, digest=True), 0.8)
    _, losses = s.expire(10.0)
    assert sorted(loss.sequence for loss in losses) == [1, 2, 3, 4, 5, 6]


def test_what_left_after_the_subscription_stood_is_missed_even_before_the_first_message():
    entries = [(1_000_000, MINE), (1_000_000, OTHER), (1_000_000, MINE), (1_000_000, MINE)]  # left at 9, 8, 7, 6
    s = session(since=6.5, recover=True)
    assert s.arrive(header(4, 10.0, entries, previous=1_000_000), "d", 10.0) == []
    _, losses = s.expire(10.2)
    assert sorted(loss.sequence for loss in losses) == [1, 3]  # 2 is not wanted, 0 is from before
    assert numbers(s.repaired(header(1, 7.0), "b", 10.3)) == [1]


def test_first_message_waits_for_repairs_of_those_before_it():
    s = session(since=5.0, hold_lost=True)
    assert s.arrive(header(2, 10.0, [(1_000_000, MINE)] * 2, previous=1_000_000), "c", 10.0) == []
    s.expire(11.0)
    assert numbers(s.repaired(header(0, 8.0), "a", 11.0)) == [0]
    assert numbers(s.repaired(header(1, 9.0), "b", 11.1)) == [1, 2]


def test_nothing_is_missed_from_before_the_subscription():
    for since in (float("inf"), 12.0, 9.9995):
        s = session(since=since)
        assert numbers(s.arrive(header(3, 10.0, [(1000, MINE)] * 3), "x", 10.0)) == [3]
        assert s.timer() is None


def test_first_digest_tells_what_was_lost_since_the_subscription():
    s = session(since=8.5)
    entries = [(1_000_000, MINE), (1_000_000, OTHER), (1_000_000, MINE)]  # of 2, 1, 0: left at 9, 8, 7
    s.digest(header(3, 10.0, entries, previous=1_000_000, digest=True), 10.0)
    _, losses = s.expire(20.0)
    assert [loss.sequence for loss in losses] == [2]


def test_repairs_of_what_is_not_due_are_of_no_use():
    s = session(since=8.5, hold_lost=True)
    entries = [(1_000_000, MINE), (1_000_000, OTHER), (1_000_000, MINE)]  # of 2, 1, 0: left at 9, 8, 7
    s.digest(header(3, 10.0, entries, previous=1_000_000, digest=True), 10.0)
    assert s.due(1, 2)  # missed here
    assert not s.due(1, 0)  # from before the subscription
    assert not s.due(2, 2)  # of another life
    assert s.due(1, 3)  # newer than all that came
    s.expire(20.0)
    assert s.due(1, 2)
    s.abandon(1, 2, 21.0)
    assert not s.due(1, 2)  # told to be gone
