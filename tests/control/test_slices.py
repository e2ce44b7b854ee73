"""The order in which a partition takes what waits: broad before narrow, within slices of requests of one type."""

from __future__ import annotations

import random
from collections import deque

import pytest

from sievenet.control.config import ControlConfig
from sievenet.control.parts import Part, Slices
from sievenet.control.state import Registration
from sievenet.errors import InvalidInput
from sievenet.network import Testbed
from tests.control.test_stateful import drive as drive_alone
from tests.seeds import seeds


def part(breadth: int, add: bool = True, wants: bool = True) -> Part:
    """A request for one dz, the broader the larger the number, up to 20."""
    keys = (1 << 20 - breadth,)
    entry = Registration(1, wants, b"")
    if not add:
        entry.keys = keys
    return Part(entry, 0, add, keys if add else (), None)


def taken(slices: Slices, queue: deque[Part], most: int = 1) -> list[int]:
    """How broad they are, in the order in which they are taken; negative if they are taken back."""
    found = []
    while queue:
        for each in slices.take(queue, most):
            breadth = 21 - (each.keys or each.entry.keys)[0].bit_length()
            found.append(breadth if each.add else -breadth)
    return found


def everywhere(key: int) -> bool:
    return True


def test_broad_first_and_back_narrow_first():
    queue = deque([part(3), part(1), part(2), part(3, add=False), part(1, add=False), part(4)])
    assert taken(Slices(10, everywhere), queue) == [3, 2, 1, -1, -3, 4]


def test_in_the_order_of_arrival_unless_told_otherwise():
    queue = deque(part(each) for each in (1, 3, 2))
    assert taken(Slices(1, everywhere), queue) == [1, 3, 2]


def test_nothing_overtakes_another_type():
    queue = deque([part(1), part(9, wants=False), part(2), part(5)])
    assert taken(Slices(10, everywhere), queue) == [1, 9, 5, 2]


def test_breadth_is_that_in_the_partition():
    first, second = part(3, add=False), part(2, add=False)
    first.entry.keys = (0b11111, 0b10)  # mostly elsewhere
    second.entry.keys = (0b1111,)
    queue = deque([second, first])
    assert Slices(2, lambda key: key != 0b10).take(queue, 1) == [first]


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_nobody_waits_longer_than_for_a_slice(seed):
    r = random.Random(seed)
    size, most = r.randint(1, 8), r.randint(1, 5)
    slices, queue, came, went = Slices(size, everywhere), deque(), [], []
    while len(went) < 60:
        for _ in range(r.randrange(2 * most)):
            if len(came) < 60:
                came.append(part(r.randint(1, 20), r.random() < 0.7))
                queue.append(came[-1])
        some = slices.take(queue, most)
        if r.random() < 0.2:  # a switch refuses: they are the next ones again
            slices.put_back(queue, some)
            some = slices.take(queue, 1)
        went += some
    assert {id(each) for each in went} == {id(each) for each in came}
    assert max(went.index(each) - came.index(each) for each in came) <= size + most
    types = [(each.add, each.entry.wants) for each in came]
    assert [(each.add, each.entry.wants) for each in went] == types


@pytest.mark.parametrize("seed", seeds(6))
def test_tables_are_those_of_any_order(seed):
    modes = {"mode": "sea", "configurators": 2} if seed % 3 == 0 else {}
    drive_alone(Testbed.build(), seed, 25, failures=seed % 2 == 1, partitions=4, batch=1 + seed % 2, slice=8, **modes)


def test_what_is_no_slice():
    with pytest.raises(InvalidInput):
        ControlConfig(slice=0)
