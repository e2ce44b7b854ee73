"""The three policies of a full queue, each counted."""

import pytest

from sievenet.client.inbox import Inbox
from sievenet.errors import InvalidInput


def drained(inbox):
    return [inbox.pop() for _ in range(len(inbox))]


def test_drop_oldest_keeps_the_newest():
    inbox = Inbox(3, "drop_oldest")
    assert all(inbox.offer(i) for i in range(5))
    assert inbox.dropped == 2
    assert drained(inbox) == [2, 3, 4]


def test_drop_newest_keeps_the_oldest():
    inbox = Inbox(3, "drop_newest")
    assert all(inbox.offer(i) for i in range(5))
    assert inbox.dropped == 2
    assert drained(inbox) == [0, 1, 2]


def test_wait_refuses_and_drops_nothing():
    inbox = Inbox(2, "wait")
    assert [inbox.offer(i) for i in range(3)] == [True, True, False]
    assert inbox.full
    assert (inbox.dropped, inbox.waits) == (0, 1)
    assert inbox.pop() == 0
    assert inbox.offer(2)
    assert drained(inbox) == [1, 2]


def test_clear_forgets():
    inbox = Inbox(2)
    inbox.offer(1)
    inbox.clear()
    assert len(inbox) == 0


@pytest.mark.parametrize(("limit", "policy", "where"), [(0, "wait", "queue"), (1, "block", "when_full")])
def test_bad_settings_say_what_was_expected(limit, policy, where):
    with pytest.raises(InvalidInput) as caught:
        Inbox(limit, policy)
    assert caught.value.where == where
