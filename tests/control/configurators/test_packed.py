"""Changes in columns: the same as those that are made one by one; nonsense is refused."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from sievenet.control.configurators import messages as m
from sievenet.control.configurators.packed import pack, unpack
from sievenet.control.registrations import Puts, Registrations
from sievenet.control.registrations.changes import HEAD
from sievenet.control.registrations.trie import Trie
from sievenet.control.registrations.trie.layout import aligned
from sievenet.control.routes import Routes, Wires
from sievenet.control.trees import TreeKeeper
from sievenet.errors import CodecError
from sievenet.network import Delete, Testbed
from tests.control.plain import listed, one_by_one
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
def test_columns_say_what_a_walk_found(seed):
    wires, (one, other), put = tries(seed)
    for times in (1, 10, 40, 0, 5):
        put(times)
        found = unpack(3, wires.names, pack(1, 2, 3, wires, other.walked()))
        assert listed(found) == one_by_one(3, wires, one.walked())


@pytest.mark.parametrize("shape", [(5, 8), (3, 2, 12), (7,)])
def test_rows_begin_where_lines_of_the_cache_do(shape):
    array = aligned(shape, np.int64)
    assert (array.shape, array.dtype, array.flags.c_contiguous) == (shape, np.int64, True)
    assert array.ctypes.data % 64 == 0


@pytest.mark.parametrize("seed", seeds(6))
def test_switches_apart_are_told_the_same(seed):
    """Those with tables of their own get entries, the others flows as ever; nobody misses anything."""
    wires, pair, put = tries(seed)
    one, other = (Registrations(3, wires, tree.routes) for tree in pair)
    one._tree, other._tree = pair
    r = random.Random(seed)
    for times in (1, 10, 40, 0, 5):
        put(times)
        apart = set(r.sample(wires.names, r.randint(1, len(wires.names))))
        expected, found = listed(one.changes()), listed(other.changes(apart))
        for ours, theirs in zip(found[:2], expected[:2], strict=True):
            assert ours.keys() == theirs.keys()
            for switch, changes in theirs.items():
                if switch not in apart:
                    assert ours[switch] == changes
                    continue
                wanted = {each.flow.key: None if isinstance(each, Delete) else each.flow.ports for each in changes}
                got = {each.flow.key: None if isinstance(each, Delete) else each.flow.ports for each in ours[switch]}
                assert got == wanted
        assert found[2] == {s: each for s, each in expected[2].items() if s not in apart}
        assert found[3] == expected[3]


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
        change(answer, places=bytes(len(answer.places))),
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
