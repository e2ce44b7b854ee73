"""What publishers keep for matchers that die."""

from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.retention import COUNT, SILENCE, Retention
from sievenet.dataplane.packet import Packet
from sievenet.transport.duplicates import DuplicateWindow


def packet(sequence, category=1, size=0):
    return Packet(category, 0, 9, sequence, 0, 0, bytes(size))


def drained(retention, category=1):
    """What is sent before it goes on as ever."""
    found = []
    while (packets := retention.following(category)) is not None:
        found += [each.sequence for each in packets]
        retention.left(category)
    return found


def again(retention, category=1):
    retention.rewind(category)
    return drained(retention, category)


def test_nothing_is_kept_unless_it_is_asked_for():
    retention = Retention()
    assert not retention
    some = [packet(1), packet(2)]
    assert retention.passed(some, 0.0) == some
    assert again(retention) == []


def test_what_is_kept_is_sent_again_in_order_and_what_was_passed_on_is_not():
    retention = Retention()
    for i in range(10):
        retention.keep(1, word=i, now=0.0, forget=max(0, i - 2))
        assert retention.passed([packet(i), packet(100 + i, category=2)], float(i)) != []
    # The last word said that all before the seventh is forgotten.
    assert again(retention) == [7, 8, 9]
    assert again(retention, category=2) == []
    retention.drop(1)
    assert not retention


def test_nothing_is_forgotten_by_the_clock_until_the_daemon_must_be_another():
    retention = Retention()
    retention.keep(1, word=1, now=0.0)
    retention.passed([packet(0)], 1.0)
    retention.passed([packet(1)], SILENCE - 1)
    assert again(retention) == [0, 1]
    assert retention.passed([packet(2)], SILENCE + 1) == [packet(2)]
    assert not retention


def test_while_no_daemon_is_there_everything_is_kept_for_the_next_one():
    retention = Retention()
    retention.keep(1, word=7, now=0.0)
    for i in range(4):
        assert retention.passed([packet(i)], i * SILENCE, alone=True) == [packet(i)]
    retention.renewed(9 * SILENCE)
    retention.passed([packet(4)], 9 * SILENCE + 1)
    assert again(retention) == [0, 1, 2, 3, 4]


def test_a_pause_keeps_what_is_published_and_sends_it_after():
    retention = Retention()
    retention.keep(1, word=1, now=0.0)
    retention.passed([packet(0)], 0.0)
    retention.pause(1)
    assert retention.passed([packet(1), packet(5, category=2)], 1.0) == [packet(5, category=2)]
    assert drained(retention) == [1]
    retention.pause(1)
    assert retention.passed([packet(2)], 1.0) == []
    assert again(retention) == [0, 1, 2]
    assert retention.passed([packet(3)], 2.0) == [packet(3)]


def test_what_is_published_while_it_is_sent_again_comes_after_it():
    retention = Retention()
    retention.keep(1, word=1, now=0.0)
    retention.passed([packet(0), packet(1)], 0.0)
    retention.rewind(1)
    found = []
    for i in range(2, 5):
        found += [each.sequence for each in retention.following(1)]
        retention.left(1)
        assert retention.passed([packet(i)], 0.0) == []
    assert found + drained(retention) == [0, 1, 2, 3, 4]
    assert retention.passed([packet(5)], 0.0) == [packet(5)]


def test_another_connection_keeps_what_was_kept_and_counts_from_the_beginning():
    retention = Retention()
    retention.keep(1, word=70, now=0.0)
    retention.passed([packet(0)], 0.0)
    retention.renewed(1.0)
    retention.keep(1, word=3, now=1.0)
    retention.passed([packet(1)], 1.0)
    assert again(retention) == [0, 1]
    retention.keep(1, word=5, now=2.0, forget=3)
    assert again(retention) == [1]


def test_it_is_bounded_and_counts_what_it_forgets_too_early():
    retention = Retention(size=1000)
    retention.keep(1, word=1, now=0.0)
    for i in range(100):
        retention.passed([packet(i, size=46)], 0.0)
    assert retention.forgotten == 90
    # All that is missing has been passed on by then.
    retention.keep(1, word=2, now=0.0)
    retention.keep(1, word=3, now=0.0, forget=2)
    assert retention.forgotten == 0
    for i in range(100, 111):
        retention.passed([packet(i, size=46)], 0.0)
    assert retention.rewind(1) == 1
    assert drained(retention) == list(range(101, 111))
    # What was not sent yet is never forgotten; the publisher has to wait.
    retention.pause(1)
    for i in range(111, 141):
        retention.passed([packet(i, size=46)], 0.0)
    assert retention.full(1)
    assert drained(retention) == list(range(111, 141))
    assert not retention.full(1)


def test_no_more_is_kept_than_receivers_can_tell_from_duplicates():
    retention, window = Retention(), DuplicateWindow(span=1 << 17)
    retention.keep(1, word=1, now=0.0)
    for i in range(COUNT + 10):
        retention.passed([packet(i)], 0.0)
    assert retention.forgotten == 10
    assert window.fresh(1, 1, COUNT + 10)
    assert all(window.fresh(1, 1, each) for each in again(retention))


@given(st.lists(st.integers(0, 60), max_size=60), st.lists(st.integers(0, 60), max_size=60), st.integers(9, 64))
def test_a_window_that_is_widened_lets_nothing_pass_twice_and_all_that_cannot_have_come(before, after, span):
    window = DuplicateWindow(span=8)
    came = {each for each in before if window.fresh(1, 1, each)}
    # Of a number that shares its slot with a newer one nobody knows any more.
    unknown = {each for each in range(61) if any(each < one and (one - each) % 8 == 0 for one in came)}
    window.widen(span)
    newest = max(came, default=0)
    for each in after:
        fresh = window.fresh(1, 1, each)
        assert not (fresh and each in came)
        newest = max(newest, each)
        if each > newest - span:
            assert fresh == (each not in came | unknown)
        if fresh:
            came.add(each)
