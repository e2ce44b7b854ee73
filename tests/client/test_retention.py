"""What publishers keep for matchers that die."""

from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.retention import Retention
from sievenet.dataplane.packet import Packet
from sievenet.transport.duplicates import DuplicateWindow


def packet(sequence, category=1, size=0):
    return Packet(category, 0, 9, sequence, 0, 0, bytes(size))


def numbers(several):
    return [each.sequence for packets in several for each in packets]


def test_nothing_is_kept_unless_it_is_asked_for():
    retention = Retention()
    assert not retention
    some = [packet(1), packet(2)]
    assert retention.passed(some, 0.0) == some
    assert numbers(retention.resumed(1, 0.0, again=True)) == []


def test_what_is_kept_is_sent_again_in_order_and_what_is_old_is_not():
    retention = Retention()
    retention.keep(1, 2.0)
    for i in range(10):
        assert retention.passed([packet(i), packet(100 + i, category=2)], float(i)) != []
    assert numbers(retention.resumed(1, 9.0, again=True)) == [8, 9]
    assert numbers(retention.resumed(2, 9.0, again=True)) == []
    retention.keep(1, 0.0)
    assert not retention


def test_a_pause_keeps_what_is_published_and_sends_it_after():
    retention = Retention()
    retention.keep(1, 10.0)
    retention.passed([packet(0)], 0.0)
    retention.pause(1)
    assert retention.passed([packet(1), packet(5, category=2)], 1.0) == [packet(5, category=2)]
    assert numbers(retention.resumed(1, 1.0, again=False)) == [1]
    retention.pause(1)
    assert retention.passed([packet(2)], 1.0) == []
    assert numbers(retention.resumed(1, 2.0, again=True)) == [0, 1, 2]
    assert retention.passed([packet(3)], 2.0) == [packet(3)]


def test_it_is_bounded_and_counts_what_it_forgets_too_early():
    retention = Retention(size=1000)
    retention.keep(1, 10.0)
    for i in range(100):
        retention.passed([packet(i, size=46)], 0.0)
    assert numbers(retention.resumed(1, 0.0, again=True)) == list(range(90, 100))
    assert retention.forgotten == 90
    # What was not sent yet is never forgotten; the publisher has to wait.
    retention.pause(1)
    for i in range(100, 130):
        retention.passed([packet(i, size=46)], 0.0)
    assert retention.full(1)
    assert numbers(retention.resumed(1, 0.0, again=False)) == list(range(100, 130))
    assert not retention.full(1)


@given(st.lists(st.integers(0, 60), max_size=60), st.lists(st.integers(0, 60), max_size=60))
def test_a_window_that_is_widened_forgets_nothing(before, after):
    narrow, wide, whole = DuplicateWindow(span=8), DuplicateWindow(span=8), set()
    for each in before:
        if narrow.fresh(1, 1, each):
            whole.add(each)
        wide.fresh(1, 1, each)
    wide.widen(64)
    recent = {each for each in whole if each > max(whole) - 8} if whole else set()
    for each in after:
        assert wide.fresh(1, 1, each) == (each not in recent) or each in whole
        recent.add(each)
