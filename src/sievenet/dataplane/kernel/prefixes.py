"""The tree in which a kernel switch finds the longest prefix: four bits at each step, whatever the size of the table.

A node has sixteen slots, one for each value of the four bits that it tests, and is one line of a processor's cache:

    node 12 bits in ──▶ │0│ │2│3│…│         a slot   0         nobody
                         │   │ └──▶ flow              a flow    the longest of those that end in these four bits,
                         │   └────▶ flow                        or the only one below
                         └────────▶ node             a node    there is more below

The first 4,096 nodes are those of the categories, by their first twelve bits.  Steps that all flows below have in
common are left out, and a flow that is alone below a slot is there itself, however long it is: so there are at most 4/3
as many nodes as flows.  What was left out has to be compared: a node has its whole path, and a flow its bits.  Where a
node is, the longest flow that ends in that slot is noted in the node (`flow`); whatever turns out not to match below
falls back to the last one noted on the way.

    slot    31 CHILD, it is a node    30 HEAD, its path or its flow matters    24-28 step    0-23 number
    node    16 slots, 16 bytes of path, flow; 128 bytes

**Changing it while packets pass.**  Every change that a packet can see is one word of four bytes.  New nodes are made
aside and become visible with one slot.  Nodes and flows that are not named any more are left as they are until no
program reads them (`pool`).  A node that gets other nodes above is copied, so that its noted flow stays right for
packets that came the old way.  So a packet finds what the table had before a change or after it.

**After a crash.**  What is named is always a flow of the table, in any state in between; whoever takes over puts all
flows in again, which changes nothing where a flow is in already.

Cost: a few microseconds for a change; a look takes one line of memory for each node, and the flow's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.chunks import Chunks
from sievenet.dataplane.kernel.pool import Pool

__all__ = ["SIZE", "Prefixes", "nodes_for"]

#: Bytes of a node.
SIZE: Final = 128
_WORDS: Final = SIZE // 4
_PATH: Final = 64
_FLOW: Final = 20
#: Nodes of categories, and the step that they test.
_FIRST: Final = 4096
_STEP: Final = 3

_CHILD, _HEAD, _NUMBER = 1 << 31, 1 << 30, (1 << 24) - 1


def nodes_for(flows: int) -> int:
    """How many nodes so many flows may need, and some more for those that rest."""
    return _FIRST + flows + flows // 2 + 64


class Prefixes:
    """The tree of one switch.  A prefix is an integer: a one, and then its bits."""

    def __init__(self, nodes: Chunks) -> None:
        self._chunks = nodes
        while self._chunks.rows < _FIRST:
            self._chunks.grow()
        self._words, self._bytes = self._chunks.words, self._chunks.bytes
        self._pool = Pool(_FIRST, self._chunks.rows, self._grow)
        #: Flows by their prefixes, and prefixes by their flows.
        self._flows: dict[int, int] = {}
        self._prefixes: dict[int, int] = {}

    def _grow(self) -> int:
        if self._chunks.rows == self._chunks.most:
            return 0
        self._chunks.grow()
        return self._chunks.rows

    def put(self, prefix: int, flow: int) -> None:
        """Packets with this prefix, and none longer, are a flow's from now on."""
        self._flows[prefix], self._prefixes[flow] = flow, prefix
        length = prefix.bit_length() - 1
        bpf.fence()
        self._insert(prefix >> (length - 4 * _STEP) & _FIRST - 1, _STEP, prefix, length, flow)

    def remove(self, flow: int) -> None:
        """A flow has no packets any more; those of its prefix are the next longest one's."""
        words, prefix = self._words, self._prefixes.pop(flow)
        del self._flows[prefix]
        length = prefix.bit_length() - 1
        at, step, trail = prefix >> (length - 4 * _STEP) & _FIRST - 1, _STEP, []
        while True:
            end = 4 * step + 4
            if length <= end:
                lower = (self._flows.get(prefix >> less) for less in range(1, length - 4 * step))
                shorter = next(filter(None, lower), 0)
                for place in _places(at, end - length, prefix):
                    self._uncover(place, flow, shorter)
                break
            place = at * _WORDS + (prefix >> (length - end) & 15)
            slot = words[place]
            if slot == flow:
                words[place] = 0
                break
            trail.append(place)
            at, step = slot & _NUMBER, slot >> 24 & 31
        while trail and self._tidy(trail.pop()):
            pass

    def adopt(self, flows: Mapping[int, int]) -> None:
        """These are all flows, by their prefixes; an earlier process may have died while it changed something."""
        self._flows, self._prefixes = dict(flows), {flow: prefix for prefix, flow in flows.items()}
        self._pool.keep(self._reached())
        for prefix, flow in flows.items():
            self.put(prefix, flow)

    def _reached(self) -> Iterable[int]:
        nodes = self._chunks.view(np.dtype("u4")).reshape(-1, _WORDS)[:, :16]
        found, front = [], np.arange(_FIRST)
        while len(front):
            slots = nodes[front].ravel()
            front = slots[slots & _CHILD != 0] & _NUMBER
            found += front.tolist()
        return found

    # -- putting in ------------------------------------------------------------------------------------

    def _insert(self, at: int, step: int, prefix: int, length: int, flow: int) -> None:
        """Put a flow into the tree below a node."""
        words = self._words
        while True:
            end = 4 * step + 4
            if length <= end:
                for place in _places(at, end - length, prefix):
                    self._cover(place, end, length, flow)
                return
            place = at * _WORDS + (prefix >> (length - end) & 15)
            slot = words[place]
            if not slot or slot == flow:
                words[place] = flow
                return
            if not slot & _CHILD:
                self._part(place, step, slot, prefix, length, flow)
                return
            at, below = slot & _NUMBER, slot >> 24 & 31
            if 4 * below >= length or (below > step + 1 and prefix >> (length - 4 * below) != self._path(at, below)):
                self._turn_off(place, step, slot, prefix, length, flow)
                return
            step = below

    def _cover(self, place: int, end: int, length: int, flow: int) -> None:
        """A flow ends in the bits of a slot: it is for all that nobody longer is for."""
        words = self._words
        slot = words[place]
        if slot & _CHILD:
            noted = (slot & _NUMBER) * _WORDS + _FLOW
            held = words[noted] if slot & _HEAD else 0
            if not held or self._length(held) < length:
                words[noted] = flow
                words[place] = slot | _HEAD
        elif not slot or (other := self._length(slot)) < length:
            words[place] = flow
        elif other > end:
            longer = self._prefixes[slot]
            node = self._node(longer, (other - 1) // 4, flow)
            self._insert(node, (other - 1) // 4, longer, other, slot)
            bpf.fence()
            words[place] = _CHILD | _HEAD | (other - 1) // 4 << 24 | node

    def _part(self, place: int, step: int, slot: int, prefix: int, length: int, flow: int) -> None:
        """Where one flow was alone, or ended, there are two."""
        other = self._prefixes[slot]
        long = other.bit_length() - 1
        if long <= 4 * step + 4:
            below = (length - 1) // 4
            node = self._node(prefix, below, slot)
        else:
            below = min(_common(prefix, other), length - 1, long - 1) // 4
            node = self._node(prefix, below, 0)
            self._insert(node, below, other, long, slot)
        self._insert(node, below, prefix, length, flow)
        bpf.fence()
        self._words[place] = self._pointer(node, below, step)

    def _turn_off(self, place: int, step: int, slot: int, prefix: int, length: int, flow: int) -> None:
        """A flow ends, or leaves the others, in steps that were left out: a node comes between."""
        words, child, under = self._words, slot & _NUMBER, slot >> 24 & 31
        path = self._path(child, under)
        below = min(_common(prefix, path), length - 1) // 4
        node = self._node(prefix, below, words[child * _WORDS + _FLOW])
        copy = self._node(path, under, 0)
        words[copy * _WORDS : copy * _WORDS + 16] = words[child * _WORDS : child * _WORDS + 16]
        words[node * _WORDS + (path >> 4 * (under - below - 1) & 15)] = self._pointer(copy, under, below)
        self._insert(node, below, prefix, length, flow)
        bpf.fence()
        words[place] = self._pointer(node, below, step)
        self._pool.give(child)

    # -- taking out ------------------------------------------------------------------------------------

    def _uncover(self, place: int, flow: int, shorter: int) -> None:
        """A flow that ended in the bits of a slot is gone; another may end there."""
        words = self._words
        slot = words[place]
        if slot == flow:
            words[place] = shorter
        elif slot & _HEAD and words[(slot & _NUMBER) * _WORDS + _FLOW] == flow:
            words[(slot & _NUMBER) * _WORDS + _FLOW] = shorter
            self._tidy(place)

    def _tidy(self, place: int) -> bool:
        """Leave out a node that is not needed any more; whether there is nothing in its place now."""
        words, slot = self._words, self._words[place]
        child = slot & _NUMBER
        noted = words[child * _WORDS + _FLOW] if slot & _HEAD else 0
        things = {*words[child * _WORDS : child * _WORDS + 16]} - {0}
        if not things:
            words[place] = noted
        elif noted or len(things) > 1:
            return False
        else:
            (only,) = things
            if only & _CHILD and only & _HEAD and words[(only & _NUMBER) * _WORDS + _FLOW]:
                return False
            words[place] = only | _HEAD if only & _CHILD else only
        self._pool.give(child)
        return not things

    # -- nodes -----------------------------------------------------------------------------------------

    def _node(self, prefix: int, step: int, flow: int) -> int:
        """A node that tests this step of a prefix; nobody knows of it yet."""
        node = self._pool.take()
        length = prefix.bit_length() - 1
        path = (prefix >> (length - 4 * step) ^ 1 << 4 * step) << 128 - 4 * step
        start = node * SIZE
        self._bytes[start : start + _PATH] = bytes(_PATH)
        self._bytes[start + _PATH : start + _PATH + 16] = path.to_bytes(16, "big")
        self._words[node * _WORDS + _FLOW] = flow
        return node

    def _pointer(self, node: int, step: int, above: int) -> int:
        """What a slot says that leads from a step to a node at a later one."""
        head = step > above + 1 or self._words[node * _WORDS + _FLOW]
        return _CHILD | (_HEAD if head else 0) | step << 24 | node

    def _path(self, node: int, step: int) -> int:
        start = node * SIZE + _PATH
        return 1 << 4 * step | int.from_bytes(self._bytes[start : start + 16], "big") >> 128 - 4 * step

    def _length(self, flow: int) -> int:
        return self._prefixes[flow].bit_length() - 1


def _places(at: int, open_bits: int, prefix: int) -> range:
    """The slots of a node that a prefix covers which ends in its bits."""
    first = at * _WORDS + ((prefix << open_bits) & 15)
    return range(first, first + (1 << open_bits))


def _common(a: int, b: int) -> int:
    """How many bits two prefixes have in common."""
    short = min(a.bit_length(), b.bit_length())
    differ = a >> (a.bit_length() - short) ^ b >> (b.bit_length() - short)
    return short - 1 - differ.bit_length()
