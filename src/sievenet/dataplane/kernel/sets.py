"""The tables of out ports in a kernel switch: for each cell the set of ports that want it.

    masks   number of a mask → category and code under it are asked for        one look per mask and packet
    sets    (mask, category and code under it) → ports, as bits of their slots
    slots   slot → port

A table per port would be asked once for each port and mask.  Here the ports that have a cell share its entry, and the
program unites what it finds under all masks, in any order.  So the number of masks is what cells cost: `ROWS` at most.

Entries are replaced as a whole, which the kernel does in one step.  Masks are kept without a gap: one leaves by putting
the last one in its place first.  In between one mask is there twice, never missing.  A port without cells gives back
its slot; other ports get the slots that have rested longest, since a packet may just be under way to the port before.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.batch import Batch
from sievenet.dataplane.kernel.entry import Row as MaskRow
from sievenet.dataplane.kernel.entry import cell_key, read_cell, row_number
from sievenet.errors import InvalidInput, Rejected
from sievenet.index import CODE_BITS, MAX_BITS
from sievenet.network.flow import Delete, Flow, FlowChange, FlowKey

__all__ = ["MASKS", "SLOTS", "PortSets", "check_masked"]

#: Masks in use at once.
MASKS: Final = 32
#: Ports with cells.
SLOTS: Final = 128

_MASK: Final = struct.Struct("=16sII")
_SET: Final = struct.Struct("=QQII")
_SHIFT: Final = CODE_BITS - MAX_BITS


class _Shape(NamedTuple):
    """A mask, and the bits of the cells' code, which it does not tell; 0 for a dz."""

    mask: int
    width: int

    @classmethod
    def of(cls, flow: Flow) -> _Shape:
        return cls(flow.match.bits[1], getattr(flow.match.cell, "width", 0))

    def encode(self, number: int) -> bytes:
        mask = (0xFFFF << MAX_BITS | self.mask >> _SHIFT).to_bytes(16, "big")
        return _MASK.pack(mask, number, self.width)

    @classmethod
    def decode(cls, data: bytes) -> tuple[_Shape, int]:
        packed, number, width = _MASK.unpack(data)
        return cls((int.from_bytes(packed, "big") & ((1 << MAX_BITS) - 1)) << _SHIFT, width), number


class _Held:
    """A cell that is in some port's table."""

    __slots__ = ("bits", "counter", "shape")

    def __init__(self, shape: _Shape, counter: int) -> None:
        self.shape = shape
        self.counter = counter
        #: The slots of its ports.
        self.bits = 0

    def encode(self) -> bytes:
        return _SET.pack(self.bits & 0xFFFFFFFFFFFFFFFF, self.bits >> 64, self.counter, 0)


def check_masked(flow: Flow) -> None:
    """`InvalidInput` if it is no flow for the table of its port."""
    plain = flow.in_port is None and flow.priority == flow.match.bits[1].bit_count() and flow.ports == {flow.table}
    if not plain or flow.match.bits[1] & ((1 << _SHIFT) - 1):
        raise InvalidInput(
            expected=f"at most {MAX_BITS} bits, which are the priority, and the table of its only port",
            got=str(flow),
            where="flow",
        )


class PortSets:
    """The cells of all ports of one switch."""

    def __init__(self, maps: Mapping[str, bpf.Map]) -> None:
        self._masks = maps["masks"]
        self._slots = maps["slots"].view(np.dtype("u8"))
        self._sets = maps["sets"]
        self._held: dict[bytes, _Held] = {}
        #: Masks in the order of their rows; number and cells of each.
        self._order: list[_Shape] = []
        self._shapes: dict[_Shape, list[int]] = {}
        self._slot: dict[int, int] = {}
        #: How many cells each port has, and those slots that no port has.
        self._used: Counter[int] = Counter()
        self._free = deque(range(SLOTS))

    # -- changing ------------------------------------------------------------------------------------

    def check(self, name: str, changes: Sequence[FlowChange], there: Mapping[FlowKey, object]) -> None:
        """`Rejected` if at some time in these changes there were too many masks or ports."""
        flows = [change.flow for change in changes if change.flow.table]
        if not flows:
            return
        shapes = {_Shape.of(flow) for flow in flows} | self._shapes.keys()
        ports = {flow.table for flow in flows} | self._slot.keys()
        if len(shapes) > MASKS or len(ports) > SLOTS:
            self._count(name, changes, there)

    def _count(self, name: str, changes: Sequence[FlowChange], there: Mapping[FlowKey, object]) -> None:
        """The same, change by change."""
        held = {key for key in there if key.table}
        shapes = Counter(_Shape(k.match.bits[1], getattr(k.match.cell, "width", 0)) for k in held)
        ports = Counter(key.table for key in held)
        for change in changes:
            flow = change.flow
            if not flow.table or isinstance(change, Delete) != (flow.key in held):
                continue
            sign = -1 if isinstance(change, Delete) else 1
            shapes[_Shape.of(flow)] += sign
            ports[flow.table] += sign
            (held.remove if sign < 0 else held.add)(flow.key)
            masks, outs = sum(map(bool, shapes.values())), sum(map(bool, ports.values()))
            if masks > MASKS or outs > SLOTS:
                what = (
                    f"{MASKS} masks, got cells of {masks}"
                    if masks > MASKS
                    else f"{SLOTS} out ports with cells, got {outs}"
                )
                raise Rejected(
                    f"Switch {name}: expected at most {what}. Take a plan of kind dz (`sievenet plan apply --kind dz`)"
                )

    def put(self, flow: Flow, counters: deque[int], batch: Batch) -> tuple[bytes, int, bool]:
        """A port has a cell from now on; the key of its entry, what counts it, and whether that is new."""
        shape = _Shape.of(flow)
        number = self._enter(shape, batch)
        key = cell_key(flow, number)
        held = self._held.get(key)
        new = held is None
        if held is None:
            held = self._held[key] = _Held(shape, counters.popleft())
            self._shapes[shape][1] += 1
        bit = 1 << self._take(flow.table)
        if not held.bits & bit:
            held.bits |= bit
            self._used[flow.table] += 1
        batch.put("sets", key, held.encode())
        return key, held.counter, new

    def remove(self, flow: Flow, key: bytes, counters: deque[int], batch: Batch) -> None:
        """A port has a cell no more."""
        held = self._held[key]
        held.bits &= ~(1 << self._slot[flow.table])
        if held.bits:
            batch.put("sets", key, held.encode())
        else:
            del self._held[key]
            batch.remove("sets", key)
            counters.append(held.counter)
            self._leave(held.shape, batch)
        self._used[flow.table] -= 1
        if not self._used[flow.table]:
            del self._used[flow.table]
            batch.flush()
            self._free.append(self._slot.pop(flow.table))

    def _take(self, port: int) -> int:
        slot = self._slot.get(port)
        if slot is None:
            slot = self._slot[port] = self._free.popleft()
            self._slots[slot] = port
        return slot

    def _enter(self, shape: _Shape, batch: Batch) -> int:
        known = self._shapes.get(shape)
        if known is None:
            taken = {number for number, _ in self._shapes.values()}
            known = self._shapes[shape] = [next(n for n in range(1, MASKS + 2) if n not in taken), 0]
            batch.flush()
            self._order.append(shape)
            self._write(len(self._order) - 1)
        return known[0]

    def _leave(self, shape: _Shape, batch: Batch) -> None:
        known = self._shapes[shape]
        known[1] -= 1
        if known[1]:
            return
        batch.flush()
        at, last = self._order.index(shape), len(self._order) - 1
        self._order[at] = self._order[last]
        if at < last:
            self._write(at)
        self._masks.remove(last.to_bytes(4, "little"))
        del self._order[last], self._shapes[shape]

    def _write(self, at: int) -> None:
        shape = self._order[at]
        self._masks.put(at.to_bytes(4, "little"), shape.encode(self._shapes[shape][0]))

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> list[tuple[Flow, bytes, int]]:
        """What the kernel holds: flows, the keys of their entries, and what counts them."""
        shapes = {number: shape for _, data in self._masks.items() for shape, number in [_Shape.decode(data)]}
        found = []
        for key, data in self._sets.items():
            shape = shapes.get(row_number(key))
            low, high, counter, _ = _SET.unpack(data)
            if shape is not None:
                ones = shape.mask.bit_count()
                row = MaskRow(ones, False, ones, shape.mask, shape.width)
                for slot in _bits(high << 64 | low):
                    port = int(self._slots[slot])
                    flow = read_cell(key, row, frozenset({port}))
                    found.append((Flow(flow.match, flow.ports, ones, None, port), key, counter))
        return found

    def remember(self) -> list[tuple[Flow, bytes, int]]:
        """Learn what the kernel holds, and return it."""
        for at, data in sorted((int.from_bytes(key, "little"), data) for key, data in self._masks.items()):
            shape, number = _Shape.decode(data)
            # Somebody who was killed while a mask left may have left one twice.
            if shape in self._shapes:
                self._masks.remove(at.to_bytes(4, "little"))
                continue
            self._order.append(shape)
            self._shapes[shape] = [number, 0]
        numbers = {number: shape for shape, (number, _) in self._shapes.items()}
        for key, data in self._sets.items():
            if row_number(key) in numbers:
                low, high, counter, _ = _SET.unpack(data)
                held = self._held[key] = _Held(numbers[row_number(key)], counter)
                held.bits = high << 64 | low
                self._shapes[held.shape][1] += 1
                for slot in _bits(held.bits):
                    port = int(self._slots[slot])
                    self._slot[port] = slot
                    self._used[port] += 1
        self._free = deque(slot for slot in range(SLOTS) if slot not in self._slot.values())
        for shape in [shape for shape, (_, cells) in self._shapes.items() if not cells]:
            self._shapes[shape][1] = 1
            self._leave(shape, Batch({}))
        return self.read()


def _bits(value: int) -> Iterable[int]:
    return (i for i in range(value.bit_length()) if value >> i & 1)
