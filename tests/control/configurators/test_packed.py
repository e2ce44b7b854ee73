"""Changes in columns: the same as those that are worked out in one process; nonsense is refused."""

from __future__ import annotations

import random

import msgspec
import pytest

from sievenet.control.configurators.packed import pack, unpack
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
    answer = pack(1, 2, 3, wires, tree.walked())
    first = answer.first
    change = msgspec.structs.replace
    for broken in (
        change(answer, places=answer.places[:-1]),
        change(answer, places=answer.places[:16]),
        change(answer, sets=answer.sets[:4]),
        change(answer, sets=answer.sets[:-1]),
        change(answer, ports=answer.ports[:-4]),
        change(answer, ports=bytes(4) + answer.ports[4:]),
        change(answer, first=change(first, places=first.places[:-4])),
        change(answer, first=change(first, whats=b"\x07" + first.whats[1:])),
        change(answer, first=change(first, ends=first.ends[:-4])),
        change(answer, first=change(first, ends=first.ends[4:8] + first.ends[4:])),
        change(answer, first=change(first, switches=b"\xff\xff\0\0" + first.switches[4:])),
    ):
        with pytest.raises(CodecError):
            unpack(3, wires.names, broken)
