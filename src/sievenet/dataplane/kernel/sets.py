"""The tables of out ports in a kernel switch: for each cell the set of ports that want it.

    masks   number of a mask → category and code under it are asked for        one look per mask and packet
    sets    (mask, category and code under it) → ports, as bits of their slots
    slots   slot → port
    held    (cell, port)                                                       the flows as they were asked for

A table per port would be asked once for each port and mask.  Here the ports that have a cell share its entry, and the
program unites what it finds under all masks, in any order.  So the number of masks is what cells cost: `MASKS` at most.

**More masks than fit.**  A cell may be asked for under any mask with fewer bits than its own: then it is *wider*, and
some events go further than they need, to be dropped by the next switch or the client.  When a new mask does not fit,
two masks are made one, that which both have in common; the two are taken for which this adds least space.  When masks
go, cells get their own masks back one by one.  `held` has the flows themselves, so that the next process finds them.

Entries are replaced as a whole, which the kernel does in one step.  Masks are kept without a gap: one leaves by putting
the last one in its place first.  Cells that move to another mask are there twice before they leave the old one; ports
are united, so nothing is lost and nothing doubled.  A port without cells gives back its slot; other ports get the slots
that have rested longest, since a packet may just be under way to the port before.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.batch import Batch
from sievenet.errors import InvalidInput, Rejected
from sievenet.index import CODE_BITS, MAX_BITS, Cell, Dz
from sievenet.network.flow import Delete, Flow, FlowChange, FlowKey, Match

__all__ = ["MASKS", "SLOTS", "PortSets", "check_masked"]

#: Masks that are asked for at once; one is kept free for cells that move.
MASKS: Final = 32
#: Ports with cells.
SLOTS: Final = 128

_MASK: Final = struct.Struct("=16sII")
_KEY: Final = struct.Struct("=II16s")
_SET: Final = struct.Struct("=QQII")
_HELD: Final = struct.Struct("=16s16sII")
_SHIFT: Final = CODE_BITS - MAX_BITS
_CATEGORY: Final = 0xFFFF << MAX_BITS
_CODE: Final = (1 << MAX_BITS) - 1


class _Shape(NamedTuple):
    """A mask, and the bits of the cells' code, which it does not tell; 0 for a dz."""

    mask: int
    width: int

    @classmethod
    def of(cls, flow: Flow | FlowKey) -> _Shape:
        cell = flow.match.cell
        return cls(flow.match.bits[1], cell.width if isinstance(cell, Cell) else 0)


class _Entry:
    """An entry of `sets`: how many flows each slot has there, and what counts it."""

    __slots__ = ("counter", "slots")

    def __init__(self, counter: int) -> None:
        self.counter = counter
        self.slots: Counter[int] = Counter()

    def encode(self) -> bytes:
        bits = sum(1 << slot for slot in self.slots)
        return _SET.pack(bits & 0xFFFFFFFFFFFFFFFF, bits >> 64, self.counter, 0)


class _Row:
    """A mask that is asked for: its number, and the shapes of the cells under it."""

    __slots__ = ("number", "shapes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.shapes: set[_Shape] = set()


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

    def __init__(self, maps: Mapping[str, bpf.Map], counters: deque[int], counts: NDArray[Any]) -> None:
        self._maps = maps
        self._slots = maps["slots"].view(np.dtype("u8"))
        #: Counters that nobody uses, and what they count.
        self._counters, self._counts = counters, counts
        self._entries: dict[bytes, _Entry] = {}
        #: Masks in the order in which they are asked for.
        self._order: list[int] = []
        self._rows: dict[int, _Row] = {}
        #: The flows of each shape, and under which mask they are.
        self._flows: dict[_Shape, dict[FlowKey, Flow]] = {}
        self._under: dict[_Shape, int] = {}
        self._slot: dict[int, int] = {}
        #: How many cells each port has, and the slots that no port has.
        self._used: Counter[int] = Counter()
        self._free = deque(range(SLOTS))

    @property
    def widened(self) -> int:
        """How many flows are under a mask with fewer bits than their own."""
        if len(self._under) < MASKS - 1:
            return 0
        return sum(len(self._flows[shape]) for shape, mask in self._under.items() if shape.mask != mask)

    # -- changing ------------------------------------------------------------------------------------

    def check(self, name: str, changes: Sequence[FlowChange]) -> None:
        """`Rejected` if at some time in these changes too many ports had cells."""
        if len({change.flow.table for change in changes if change.flow.table} | self._slot.keys()) <= SLOTS:
            return
        held = {key for flows in self._flows.values() for key in flows}
        ports = Counter(key.table for key in held)
        for change in changes:
            key = change.flow.key
            if key.table and isinstance(change, Delete) == (key in held):
                ports[key.table] += -1 if key in held else 1
                held ^= {key}
                if sum(map(bool, ports.values())) > SLOTS:
                    raise Rejected(
                        f"Switch {name} has room for {SLOTS} out ports with cells, and more are wanted. "
                        "Take a plan of kind dz (`sievenet plan apply --kind dz`)"
                    )

    def put(self, flow: Flow, batch: Batch) -> None:
        """A port has a cell from now on."""
        shape = _Shape.of(flow)
        if flow.key in self._flows.get(shape, ()):
            return
        if shape not in self._flows:
            self._place(shape, batch)
        if flow.table not in self._slot:
            slot = self._slot[flow.table] = self._free.popleft()
            self._slots[slot] = flow.table
        self._used[flow.table] += 1
        self._flows[shape][flow.key] = flow
        batch.put("held", _held_key(flow), bytes(4))
        self._enter(self._under[shape], flow, batch)

    def remove(self, flow: Flow, batch: Batch) -> None:
        """A port has a cell no more."""
        shape = _Shape.of(flow)
        if self._flows.get(shape, {}).pop(flow.key, None) is None:
            return
        self._leave(self._under[shape], flow, batch)
        batch.remove("held", _held_key(flow))
        self._used[flow.table] -= 1
        if not self._used[flow.table]:
            del self._used[flow.table]
            batch.flush()
            self._free.append(self._slot.pop(flow.table))
        if not self._flows[shape]:
            del self._flows[shape]
            mask = self._under.pop(shape)
            self._rows[mask].shapes.discard(shape)
            if not self._rows[mask].shapes:
                self._close(mask, batch)
                self._narrow(batch)

    def counter(self, flow: Flow) -> int:
        """What counts a flow."""
        return self._entries[self._key(self._under[_Shape.of(flow)], flow)].counter

    def _key(self, mask: int, flow: Flow) -> bytes:
        bits = flow.match.category << MAX_BITS | (flow.match.bits[0] & mask) >> _SHIFT
        return _KEY.pack(self._rows[mask].number, 0, bits.to_bytes(16, "big"))

    def _enter(self, mask: int, flow: Flow, batch: Batch) -> None:
        key = self._key(mask, flow)
        entry = self._entries.get(key)
        if entry is None:
            # Cells that move need counters for both places; where there are none left, they share the last one.
            spare = len(self._counts) - 1
            entry = self._entries[key] = _Entry(self._counters.popleft() if self._counters else spare)
            self._counts[entry.counter] = 0
        entry.slots[self._slot[flow.table]] += 1
        batch.put("sets", key, entry.encode())

    def _leave(self, mask: int, flow: Flow, batch: Batch) -> None:
        key, slot = self._key(mask, flow), self._slot[flow.table]
        entry = self._entries[key]
        entry.slots[slot] -= 1
        if entry.slots[slot]:
            return
        del entry.slots[slot]
        if entry.slots:
            batch.put("sets", key, entry.encode())
        else:
            del self._entries[key]
            batch.remove("sets", key)
            if entry.counter < len(self._counts) - 1:
                self._counters.append(entry.counter)

    # -- masks ---------------------------------------------------------------------------------------

    def _place(self, shape: _Shape, batch: Batch) -> None:
        """Choose the mask for the first cell of a shape; it may make two masks one."""
        mask = shape.mask
        if mask not in self._rows and len(self._rows) >= MASKS - 1:
            one, other = self._closest(mask)
            if mask in (one, other):
                mask = one & other
            self._unite({one, other} & self._rows.keys(), one & other, batch)
        if mask not in self._rows:
            self._open(mask, batch)
        self._flows[shape] = {}
        self._assign(shape, mask)

    def _closest(self, new: int) -> tuple[int, int]:
        """The two masks, the new one among them, that are made one at the least cost in space."""
        sizes = {mask: sum(len(self._flows[s]) for s in row.shapes) for mask, row in self._rows.items()} | {new: 1}

        def cost(pair: tuple[int, int]) -> float:
            (a, b), common = pair, (pair[0] & pair[1]).bit_count()
            wide = (sizes[a] + sizes[b]) * 2.0**-common
            return wide - sizes[a] * 2.0 ** -a.bit_count() - sizes[b] * 2.0 ** -b.bit_count()

        return min(itertools.combinations(sizes, 2), key=cost)

    def _unite(self, masks: Iterable[int], common: int, batch: Batch) -> None:
        """Cells under some masks are from now on under what these have in common."""
        moving = {mask: list(self._rows[mask].shapes) for mask in masks if mask != common}
        self._move(moving, common, batch)

    def _move(self, moving: Mapping[int, Sequence[_Shape]], to: int, batch: Batch) -> None:
        """Shapes go under another mask: they are there before they leave the old one."""
        if not any(moving.values()):
            return
        if to not in self._rows:
            self._open(to, batch)
        for shapes in moving.values():
            for shape in shapes:
                for flow in self._flows[shape].values():
                    self._enter(to, flow, batch)
        batch.flush()
        for mask, shapes in moving.items():
            for shape in shapes:
                for flow in self._flows[shape].values():
                    self._leave(mask, flow, batch)
                self._assign(shape, to)
            if not self._rows[mask].shapes:
                self._close(mask, batch)

    def _narrow(self, batch: Batch) -> None:
        """There is room for a mask: the cells that are too wide by most get their own."""

        def waste(shape: _Shape) -> float:
            wide, own = self._under[shape].bit_count(), shape.mask.bit_count()
            return len(self._flows[shape]) * (2.0**-wide - 2.0**-own)

        wide = [shape for shape, mask in self._under.items() if shape.mask != mask]
        if wide and len(self._rows) < MASKS - 1:
            worst = max(wide, key=waste)
            self._move({self._under[worst]: [worst]}, worst.mask, batch)

    def _assign(self, shape: _Shape, mask: int) -> None:
        before = self._under.get(shape)
        if before is not None:
            self._rows[before].shapes.discard(shape)
        self._under[shape] = mask
        self._rows[mask].shapes.add(shape)

    def _open(self, mask: int, batch: Batch) -> None:
        batch.flush()
        taken = {row.number for row in self._rows.values()}
        self._rows[mask] = _Row(next(n for n in range(1, MASKS + 2) if n not in taken))
        self._order.append(mask)
        self._write(len(self._order) - 1)

    def _close(self, mask: int, batch: Batch) -> None:
        batch.flush()
        at, last = self._order.index(mask), len(self._order) - 1
        self._order[at] = self._order[last]
        if at < last:
            self._write(at)
        self._maps["masks"].remove(last.to_bytes(4, "little"))
        del self._order[last], self._rows[mask]

    def _write(self, at: int) -> None:
        mask = self._order[at]
        packed = (_CATEGORY | mask >> _SHIFT).to_bytes(16, "big")
        self._maps["masks"].put(at.to_bytes(4, "little"), _MASK.pack(packed, self._rows[mask].number, 0))

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> list[Flow]:
        """The flows that the kernel holds."""
        there = {key: _slots_of(data) for key, data in self._maps["sets"].items()}
        flows = [_held_flow(key) for key, _ in self._maps["held"].items()]
        return [flow for flow in flows if self._is_there(flow, self._under.get(_Shape.of(flow)), there)]

    def _is_there(self, flow: Flow, mask: int | None, there: Mapping[bytes, int]) -> bool:
        slot = self._slot.get(flow.table)
        return mask is not None and slot is not None and bool(there.get(self._key(mask, flow), 0) >> slot & 1)

    def remember(self) -> list[Flow]:
        """Learn what the kernel holds, set right what somebody who was killed left half done, and return the flows."""
        for at, data in sorted((int.from_bytes(key, "little"), data) for key, data in self._maps["masks"].items()):
            packed, number, _ = _MASK.unpack(data)
            mask = (int.from_bytes(packed, "big") & _CODE) << _SHIFT
            if mask in self._rows:  # while another left
                self._maps["masks"].remove(at.to_bytes(4, "little"))
                continue
            self._rows[mask] = _Row(number)
            self._order.append(mask)
        found = {key: _SET.unpack(data) for key, data in self._maps["sets"].items()}
        there = {key: high << 64 | low for key, (low, high, _, _) in found.items()}
        asked = [(key, _held_flow(key)) for key, _ in self._maps["held"].items()]
        used = {int(self._slots[slot]): slot for bits in there.values() for slot in _bits(bits)}
        self._slot = {flow.table: used[flow.table] for _, flow in asked if flow.table in used}
        shapes: dict[_Shape, list[Flow]] = {}
        for _, flow in asked:
            shapes.setdefault(_Shape.of(flow), []).append(flow)
        for shape, flows in shapes.items():
            # The finest mask under which all of them are; somebody may have been killed while they moved.
            masks = sorted((m for m in self._rows if m & shape.mask == m), key=int.bit_count, reverse=True)
            counts = [sum(self._is_there(flow, mask, there) for flow in flows) for mask in masks]
            if any(counts):
                best = masks[counts.index(max(counts))]
                self._flows[shape] = {f.key: f for f in flows if self._is_there(f, best, there)}
                self._assign(shape, best)
        for shape, kept in self._flows.items():
            for flow in kept.values():
                key = self._key(self._under[shape], flow)
                entry = self._entries.setdefault(key, _Entry(found[key][2]))
                entry.slots[self._slot[flow.table]] += 1
                self._used[flow.table] += 1
        self._clean(asked, there)
        return [flow for kept in self._flows.values() for flow in kept.values()]

    def _clean(self, asked: Iterable[tuple[bytes, Flow]], there: Mapping[bytes, int]) -> None:
        """Take away what belongs to no flow."""
        for key, flow in asked:
            if flow.key not in self._flows.get(_Shape.of(flow), ()):
                self._maps["held"].remove(key)
        for key, bits in there.items():
            entry = self._entries.get(key)
            if entry is None:
                self._maps["sets"].remove(key)
            elif set(_bits(bits)) != entry.slots.keys():
                self._maps["sets"].put(key, entry.encode())
        for mask in [mask for mask, row in self._rows.items() if not row.shapes]:
            self._close(mask, Batch({}))
        self._slot = {port: slot for port, slot in self._slot.items() if self._used[port]}
        self._free = deque(slot for slot in range(SLOTS) if slot not in self._slot.values())

    def counters(self) -> set[int]:
        """The counters in use."""
        return {entry.counter for entry in self._entries.values()}


def _held_key(flow: Flow) -> bytes:
    value, mask = flow.match.bits
    bits = flow.match.category << MAX_BITS | value >> _SHIFT
    return _HELD.pack(bits.to_bytes(16, "big"), (mask >> _SHIFT).to_bytes(16, "big"), _Shape.of(flow).width, flow.table)


def _held_flow(key: bytes) -> Flow:
    packed, packed_mask, width, port = _HELD.unpack(key)
    bits, mask = int.from_bytes(packed, "big"), int.from_bytes(packed_mask, "big")
    code, ones = bits & _CODE, mask.bit_count()
    cell: Dz | Cell = Dz(code >> (MAX_BITS - ones), ones)
    if width:
        cell = Cell(code >> (MAX_BITS - width), mask >> (MAX_BITS - width), width)
    return Flow(Match(bits >> MAX_BITS, cell), frozenset({port}), ones, None, port)


def _slots_of(data: bytes) -> int:
    low, high, _, _ = _SET.unpack(data)
    return int(high) << 64 | int(low)


def _bits(value: int) -> Iterable[int]:
    return (i for i in range(value.bit_length()) if value >> i & 1)
