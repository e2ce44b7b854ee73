"""The window passes every packet once, whatever the order, and is bounded."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.packet import MAX_NUMBER
from sievenet.transport.duplicates import DuplicateWindow


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=200))
def test_within_the_span_the_first_copy_passes_and_no_other(arrivals):
    window = DuplicateWindow(span=64)
    seen = set()
    for publisher, sequence in arrivals:
        assert window.fresh(publisher, 0, sequence) is ((publisher, sequence) not in seen)
        seen.add((publisher, sequence))
    assert window.late == 0
    assert window.duplicates == len(arrivals) - len(seen)


@given(st.lists(st.integers(0, 400), max_size=300))
def test_never_twice_even_beyond_the_span(sequences):
    window = DuplicateWindow(span=16)
    passed = [s for s in sequences if window.fresh(7, 0, s)]
    assert len(passed) == len(set(passed))
    assert len(passed) + window.duplicates + window.late == len(sequences)


def test_what_comes_far_behind_is_late_and_not_delivered():
    window = DuplicateWindow(span=4)
    assert window.fresh(1, 0, 7)
    assert not window.fresh(1, 0, 3)
    assert (window.late, window.duplicates) == (1, 0)


def test_the_publisher_unheard_for_longest_is_forgotten():
    window = DuplicateWindow(span=4, sources=2)
    assert window.fresh(1, 0, 0)
    assert window.fresh(2, 0, 0)
    assert not window.fresh(1, 0, 0)
    assert window.fresh(3, 0, 0)  # forgets 2
    assert not window.fresh(1, 0, 0)
    assert window.fresh(2, 0, 0)
    assert window.forgotten == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 40)), max_size=200))
def test_lives_of_a_publisher_do_not_hide_each_other_in_any_order(arrivals):
    """A publisher that comes back counts from 0 again; packets of its earlier lives may still be under way."""
    window = DuplicateWindow(span=64)
    seen = set()
    for packet in arrivals:
        assert window.fresh(*packet) is (packet not in seen)
        seen.add(packet)
    assert (window.late, window.duplicates) == (0, len(arrivals) - len(seen))


def test_a_publisher_that_is_born_all_the_time_is_forgotten_alone():
    window = DuplicateWindow(span=4, sources=8, lives=2)
    assert all(window.fresh(publisher, 0, 0) for publisher in (1, 2, 3))
    assert all(window.fresh(9, life, 0) for life in range(100))
    assert window.forgotten == 98
    assert not any(window.fresh(publisher, 0, 0) for publisher in (1, 2, 3))
    # Its last lives are known.
    assert [window.fresh(9, life, 0) for life in (98, 99)] == [False, False]
    # And the bound holds when everybody has several lives.
    assert all(window.fresh(publisher, life, 0) for publisher in range(10, 40) for life in range(3))
    assert len(window._rings) <= 8
    assert sorted((p, i) for p, lives in window._known.items() for i in lives) == sorted(window._rings)


def test_sequence_numbers_up_to_the_largest():
    window = DuplicateWindow(span=8)
    for sequence in (MAX_NUMBER, MAX_NUMBER - 1):
        assert window.fresh(1, 0, sequence)
        assert not window.fresh(1, 0, sequence)
    many = np.arange(MAX_NUMBER - 40, MAX_NUMBER + 1, dtype=np.uint64)
    same = np.ones(len(many), np.uint64)
    assert DuplicateWindow().fresh_many(same, same, many).all()


def test_more_numbers_than_fit_into_a_turn_of_the_ring_are_asked_together(monkeypatch):
    window, numbers = DuplicateWindow(span=4096), np.arange(0, 9_000, 2, dtype=np.uint64)
    same = np.ones(len(numbers), np.uint64)
    monkeypatch.setattr(window, "fresh", None)  # one by one would fail
    assert window.fresh_many(same, same, numbers).all()
    assert not window.fresh_many(same, same, numbers[-2_000:]).any()
    assert (window.duplicates, window.late) == (2_000, 0)
    assert not window.fresh_many(same, same, numbers[:100]).any()
    assert (window.duplicates, window.late) == (2_000, 100)
