"""Changes in columns: the same as those that are worked out in one process; nonsense is refused."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from sievenet.control.configurators import messages as m
from sievenet.control.configurators.columns import HEAD
from sievenet.control.configurators.packed import pack, unpack
from sievenet.control.registrations import Puts
from sievenet.control.registrations.changes import changes_of
from sievenet.control.registrations.trie import Trie
from sievenet.control.routes import Routes, Wires
from sievenet.control.trees import TreeKeeper
from sievenet.errors import CodecError
from sievenet.network import Testbed
from tests.seeds import seeds


def tries(seed: int):
    """Two trees with the same registrations, and what is put into both later."""
    r = random.Random(seed)
    topology = Testbed.build()
    wires = Wires(topology)
    clients = [wires.attach(topology.attachment(host).switch, 100 + i) for i, host in enumerate(topology.hosts)]
    routes = Routes(wires, TreeKeeper(topology, 1, ()).trees[0])
    pair = Trie(wires, routes), Trie(wires, routes)

    def put(times: int) -> None:
        for _ in range(times):
            wire, wants = r.choice(clients), r.random() < 0.6
            keys = [1 << length | r.randrange(1 << length) for length in (r.randint(0, 70), r.randint(0, 4))]
            for tree in pair:
                tree.put(wire, keys, wants=wants, adding=True)
            if r.random() < 0.3:
                for tree in pair:
                    tree.put(wire, keys[:1], wants=wants, adding=False)

    return wires, pair, put


@pytest.mark.parametrize("seed", seeds(6))
def test_columns_say_what_changes_say(seed):
    wires, (one, other), put = tries(seed)
    for times in (1, 10, 40, 0, 5):
        put(times)
        expected = changes_of(3, wires, one.changed(0))
        found = unpack(3, wires.names, pack(1, 2, 3, wires, other.walked()))
        for step in ("first", "second", "between"):
            ours, theirs = getattr(found, step), getattr(expected, step)
            assert {switch: list(each) for switch, each in ours.items()} == {s: list(e) for s, e in theirs.items()}
            assert all(len(each) == len(list(each)) > 0 for each in ours.values())
        assert found.used == expected.used


def test_columns_that_do_not_fit_are_refused():
    wires, (_, tree), put = tries(1)
    put(30)
    tree.walked()
    some = tree.registered()
    tree.put_all(Puts(*(column[::2] for column in some)).undone())
    put(30)
    answer = pack(1, 2, 3, wires, tree.walked())
    numbers = np.frombuffer(answer.rows, np.uint32)
    _, sets, ports, firstly, rows, secondly, more = numbers[:HEAD].tolist()
    assert min(sets, ports, firstly, rows, secondly, more) > 1  # there is something of everything
    first = HEAD + sets + ports
    second = first + 2 * firstly + 3 * rows

    def with_number(at: int, number: int) -> m.Answer:
        changed = numbers.copy()
        changed[at] = number
        return msgspec.structs.replace(answer, rows=changed.tobytes())

    change = msgspec.structs.replace
    for broken in (
        change(answer, places=answer.places[:-1]),
        change(answer, places=answer.places[:16]),
        change(answer, rows=answer.rows[:-1]),
        change(answer, rows=answer.rows[:-4]),
        change(answer, rows=answer.rows[: 4 * HEAD - 4]),
        *(with_number(at, int(numbers[at]) + 1) for at in range(HEAD)),
        with_number(3, 1 << 31),
        with_number(HEAD, 1 << 31),  # a set that ends behind all
        with_number(first - ports - 1, ports - 1),  # the last set does not end with the ports
        with_number(first - ports, 0),  # a port 0
        with_number(first, len(wires.names)),  # no such switch
        with_number(first + firstly, 0),  # a switch without a row
        with_number(first + 2 * firstly - 1, rows - 1),  # a row of no switch
        with_number(first + 2 * firstly, 0),  # no such change
        with_number(first + 2 * firstly, 4),
        with_number(first + 2 * firstly + rows, len(answer.places) // 16),  # no such dz
        with_number(second - 1, sets),  # no such set
        with_number(second, len(wires.names)),
        with_number(second + 2 * secondly + 2 * more, sets),
        with_number(len(numbers) - 1, sets),
    ):
        with pytest.raises(CodecError):
            unpack(3, wires.names, broken)
