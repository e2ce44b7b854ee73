"""The tree of prefixes against the definition, at every moment of a change; rows that wait until nobody reads them."""

import random

import numpy as np
import pytest

from sievenet.dataplane.kernel import pool as pools
from sievenet.dataplane.kernel import prefixes
from sievenet.dataplane.kernel.pool import Pool
from sievenet.dataplane.kernel.prefixes import Prefixes
from sievenet.dataplane.kernel.ranges import Ranges
from sievenet.errors import Rejected
from tests.seeds import seeds

_CHILD, _HEAD = 1 << 31, 1 << 30


class Memory:
    """What the kernel would have; `wrote` is called after each word that is written."""

    def __init__(self, wrote=lambda: None):
        self._data = memoryview(bytearray(64 * 4096 * 128))
        self.bytes, self.words, self.rows, self.most = self._data, self, 0, 64 * 4096
        self._words = self._data.cast("I")
        self.wrote = wrote

    def __getitem__(self, at):
        return self._words[at]

    def __setitem__(self, at, value):
        self._words[at] = value
        self.wrote()

    def grow(self):
        self.rows = max(4096, 2 * self.rows)

    def view(self, kind):
        return np.frombuffer(self._data, kind, self.rows * prefixes.SIZE // kind.itemsize)


def steps(memory, code, table):
    """As the program looks for a code, step by step; the last value is what it finds."""
    by_flow = {flow: prefix for prefix, flow in table.items()}
    slot, best = 3 << 24 | code >> 116, 0
    for _ in range(29):
        yield None
        node, step = slot & 0xFFFFFF, slot >> 24 & 31
        if slot & _HEAD:
            best = memory[node * 32 + 20] or best
            path = int.from_bytes(memory.bytes[node * 128 + 64 : node * 128 + 80], "big")
            if (path ^ code) >> 128 - 4 * step:
                slot = 0
                break
        slot = memory[node * 32 + (code >> 124 - 4 * step & 15)]
        if not slot & _CHILD:
            break
    yield None
    if slot and has(by_flow[slot], code):
        best = slot
    yield best


def has(prefix, code):
    length = prefix.bit_length() - 1
    return 1 << length | code >> 128 - length == prefix


def found(memory, code, table):
    *_, last = steps(memory, code, table)
    return last


def wanted(code, table):
    return next((table[p] for n in range(128, 15, -1) if (p := 1 << n | code >> 128 - n) in table), 0)


def random_prefix(rng, table, longest):
    """Often near another, so that they meet."""
    if table and rng.random() < 0.5:
        other = rng.choice(sorted(table))
        prefix = other >> rng.randrange(other.bit_length() - 16)
        while prefix.bit_length() <= 128 and rng.random() < 0.7:
            prefix = prefix << 1 | rng.randrange(2)
        return prefix
    length = rng.randrange(longest + 1)
    return (1 << 16 | rng.choice([0, 1, 17, 40_000])) << length | rng.getrandbits(length)


def random_code(rng, table):
    """Of a flow, or nearly."""
    prefix = rng.choice(sorted(table)) if table else 1 << 16 | 1
    free = 129 - prefix.bit_length()
    code = (prefix << free | rng.getrandbits(free)) & (1 << 128) - 1
    return code ^ (1 << rng.randrange(112) if rng.random() < 0.3 else 0)


def history(rng, count):
    """Changes of a table: put or remove, prefix, flow; and the table before and after."""
    table, longest = {}, rng.choice([3, 6, 12, 30, 112])
    for number in range(1, count + 1):
        if table and rng.random() < (0.3 if number < count / 2 else 0.6):
            prefix = rng.choice(sorted(table))
            after = {each: flow for each, flow in table.items() if each != prefix}
            yield "remove", prefix, table[prefix], table, after
        else:
            prefix = random_prefix(rng, table, longest)
            if prefix in table:
                continue
            after = table | {prefix: number}
            yield "put", prefix, number, table, after
        table = after


def carry_out(tree, what, prefix, flow):
    if what == "put":
        tree.put(prefix, flow)
    else:
        tree.remove(flow)


@pytest.mark.parametrize("seed", seeds(4))
def test_every_look_finds_what_there_was_before_a_change_or_after(seed):
    """At every word that a change writes, and for packets that began before it and end after it."""
    rng = random.Random(seed)
    memory = Memory()
    tree = Prefixes(memory)
    for what, prefix, flow, before, after in history(rng, 150):
        codes = [random_code(rng, before | after) for _ in range(3)]
        allowed = {code: {wanted(code, before), wanted(code, after)} for code in codes}
        both = before | after
        under_way = []
        for code in codes:
            look = steps(memory, code, both)
            for _ in range(rng.randrange(1, 6)):
                if (value := next(look)) is not None:
                    break
            if value is None:
                under_way.append((code, look))

        def now(codes=codes, allowed=allowed, both=both):
            assert all(found(memory, code, both) in allowed[code] for code in codes)

        memory.wrote = now
        carry_out(tree, what, prefix, flow)
        memory.wrote = lambda: None
        assert all(found(memory, code, after) == wanted(code, after) for code in codes)
        for code, look in under_way:
            *_, last = look
            assert last in allowed[code]


@pytest.mark.parametrize("seed", seeds(4))
def test_the_next_process_mends_what_the_last_one_left_half_done(seed):
    """It may be killed at any word; what it was about to take out is in again."""

    class Killed(Exception):
        pass

    rng = random.Random(seed)
    memory = Memory()
    tree = Prefixes(memory)
    killed = 0
    for what, prefix, flow, before, after in history(rng, 200):
        left = rng.randrange(12)

        def die():
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        memory.wrote = die
        try:
            carry_out(tree, what, prefix, flow)
        except Killed:
            killed += 1
            memory.wrote = lambda: None
            tree = Prefixes(memory)
            tree.adopt(before | after)
            for code in [random_code(rng, before | after) for _ in range(8)]:
                assert found(memory, code, before | after) == wanted(code, before | after)
            if what == "remove":
                tree.remove(flow)
        memory.wrote = lambda: None
        code = random_code(rng, after)
        assert found(memory, code, after) == wanted(code, after)
        # There are not more nodes than are set aside for so many flows, and none without need.
        assert len(tree._reached()) <= 4 / 3 * len(after) + 1
    assert killed > 10
    for flow in after.values():
        tree.remove(flow)
    assert not tree._reached()


def test_numbers_rest_until_nobody_reads_them(monkeypatch):
    monkeypatch.setattr(pools, "_MANY", 4)
    waits, ends = [], iter([6, 0, 0])
    pool = Pool(1, 4, lambda: next(ends), lambda: waits.append(1))
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]
    pool.give(2)
    # As long as few rest, it grows, which waits as well.
    assert [pool.take() for _ in range(3)] == [2, 4, 5]
    assert not waits
    for number in (1, 2, 3, 4):
        pool.give(number)
    assert sorted(pool.take() for _ in range(4)) == [1, 2, 3, 4]
    assert len(waits) == 1
    with pytest.raises(Rejected, match="full"):
        pool.take()
    # What an earlier process had in use stays so.
    pool = Pool(1, 6, wait=lambda: waits.append(1))
    pool.keep([2, 5])
    assert sorted(pool.take() for _ in range(3)) == [1, 3, 4]
    assert len(waits) == 2


def test_ranges_rest_until_nobody_reads_them():
    waits = []
    array = np.zeros(6, np.uint64)
    ranges = Ranges(array, lambda: waits.append(1))
    pairs = [frozenset({i, i + 1}) for i in range(1, 6)]
    taken = [ranges.take(pair) for pair in pairs[:3]]
    assert [ranges.read(each) for each in taken] == pairs[:3]
    assert ranges.take(pairs[1]) == taken[1]
    ranges.release(pairs[1])
    with pytest.raises(Rejected, match="full"):
        ranges.take(pairs[3])
    ranges.release(pairs[0])
    assert array[:2].tolist() == [1, 2]
    assert not waits
    assert ranges.read(ranges.take(pairs[3])) == pairs[3]
    assert len(waits) == 1
    # A single output is not in the array at all, and an empty set is nowhere.
    for ports in (frozenset({7}), frozenset()):
        assert ranges.read(ranges.take(ports)) == ports
        ranges.release(ports)
