"""The window passes every packet once, whatever the order, and is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.window import Window


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=200))
def test_within_the_span_the_first_copy_passes_and_no_other(arrivals):
    window = Window(span=64)
    seen = set()
    for publisher, sequence in arrivals:
        assert window.fresh(publisher, sequence) is ((publisher, sequence) not in seen)
        seen.add((publisher, sequence))
    assert window.late == 0
    assert window.duplicates == len(arrivals) - len(seen)


@given(st.lists(st.integers(0, 400), max_size=300))
def test_never_twice_even_beyond_the_span(sequences):
    window = Window(span=16)
    passed = [s for s in sequences if window.fresh(7, s)]
    assert len(passed) == len(set(passed))
    assert len(passed) + window.duplicates + window.late == len(sequences)


def test_what_comes_far_behind_is_late_and_not_delivered():
    window = Window(span=4)
    assert window.fresh(1, 7)
    assert not window.fresh(1, 3)
    assert (window.late, window.duplicates) == (1, 0)


def test_the_publisher_unheard_for_longest_is_forgotten():
    window = Window(span=4, publishers=2)
    assert window.fresh(1, 0)
    assert window.fresh(2, 0)
    assert not window.fresh(1, 0)
    assert window.fresh(3, 0)  # forgets 2
    assert not window.fresh(1, 0)
    assert window.fresh(2, 0)
    assert window.forgotten == 2


def test_sequence_numbers_up_to_64_bits():
    window = Window(span=8)
    assert window.fresh(1, (1 << 64) - 2)
    assert not window.fresh(1, (1 << 64) - 2)
