"""What a node sees where: counted event by event, whether it waits to be counted or not."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.observation import FRESH, Observations
from sievenet.control.descriptions import CELL_BITS, MAX_CELLS, Seen, Way

events = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 7),
        st.integers(1, 2),
        st.none() | st.integers(-1_000, 10**9),
        st.integers(1, FRESH),
    ),
    max_size=12,
)


@given(events)
def test_every_event_is_counted_once_also_of_more_than_wait_together(several):
    seen, expected, took = Observations(), Counter(), []
    for category, cell, publisher, nanoseconds, times in several:
        for _ in range(times):
            seen.single(category, cell << 128 - CELL_BITS | 12_345, publisher, nanoseconds)
        expected[category, cell, publisher, nanoseconds is not None] += times
        took += [] if nanoseconds is None else [times * max(0, nanoseconds) / 1e9]
    cells, (by_content, directed) = seen.taken()
    assert len(cells) == len({(each.category, each.cell, each.publisher) for each in cells})
    found = Counter()
    for each in cells:
        found[each.category, each.cell, each.publisher, True] += each.wanted
        found[each.category, each.cell, each.publisher, False] += each.unwanted
    assert +found == expected
    assert by_content.events == sum(n for (*_, wanted), n in expected.items() if wanted)
    assert by_content.seconds == pytest.approx(sum(took), rel=1e-9)
    assert directed == Way()
    assert seen.taken() == ((), (Way(), Way()))


def test_of_many_cells_the_largest_counts_are_told_and_no_more_is_kept_than_is_bounded():
    seen = Observations()
    for cell in range(20 * MAX_CELLS):
        for _ in range(2 if cell % 16 == 1 else 1):
            seen.single(1, cell << 128 - CELL_BITS, 7, None)
    cells, _ = seen.taken()
    assert len(cells) == MAX_CELLS  # of 16 times as many that were kept, every sixteenth came twice
    assert set(cells) == {Seen(1, 16 * i + 1, 7, 0, 2) for i in range(MAX_CELLS)}
