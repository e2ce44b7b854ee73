"""From which number on a subscription gets a publisher's events."""

from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.entitlement import _SPAN, Entitlements

A, B = (1, 10), (2, 20)


def test_what_was_published_before_is_not_due_and_others_are_not_concerned():
    found = Entitlements()
    assert not found.first
    assert found.told(7, {"since": [[1, 10, 5]]}) == {"since": [[1, 10, 5]]}
    found.told(8, None)
    found.told(9, {"narrowed": b""})
    assert found.first
    assert found.due([7, 8], A, 4) == [8]
    assert found.due([7, 8], A, 5) == [7, 8]
    assert found.due([7, 8], B, 0) == [7, 8]
    assert found.due_many([[7], [], [7, 9]], [A, A, B], [1, 1, 1]) == [[], [], [7, 9]]
    found.drop(7)
    assert not found.first
    assert found.due([7], A, 4) == [7]


@given(st.integers(1, 1 << 40), st.lists(st.integers(0, 1 << 41), max_size=20))
def test_an_entry_is_forgotten_when_nothing_so_old_can_come_any_more(first, numbers):
    found, highest = Entitlements(), 0
    found.told(7, {"since": [[*A, first]]})
    for number in numbers:
        if number < highest - _SPAN:
            continue  # no publisher keeps as much
        highest = max(highest, number)
        assert found.due([7], A, number) == ([7] if number >= first else [])
    found.due([7], A, first + _SPAN)
    assert not found.first
