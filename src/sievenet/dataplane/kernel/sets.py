"""The tables of out ports in a kernel switch: for each cell the set of ports that want it.

    masks   number of a mask → category and code under it are asked for        one look per mask and packet
    cells   (mask, category and code under it) → flow, with ports as bits of their slots
    slots   slot → port
    held    (cell, port)                                                       the flows as they were asked for

A table per port would be asked once for each port and mask.  Here the ports that have a cell share its entry, and the
program unites what it finds under all masks, in any order.  So the number of masks is what cells cost: `MASKS` at most.

**More masks than fit.**  A cell may be asked for under any mask with fewer bits than its own: then it is *wider*, and
some events go further than they need, to be dropped by the next switch or the client.  When a new mask does not fit,
two masks are made one, that which both have in common; the two are taken for which this adds least space.  When masks
go, cells get their own masks back one by one.  `held` has the flows themselves, so that the next process finds them.

A port enters and leaves a cell's flow by one bit.  The table of masks changes as a whole (`rows`).  Cells that move to
another mask are there twice before they leave the old one; ports are united, so nothing is lost and nothing doubled.
A port without cells gives back its slot, for others when no packet is under way to the port before (`pool`).
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.entry import CATEGORY, CELL, bits_of, cell_key
from sievenet.dataplane.kernel.pool import Pool
from sievenet.dataplane.kernel.records import Records
from sievenet.dataplane.kernel.rows import ROWS, Versions
from sievenet.errors import InvalidInput, Rejected
from sievenet.index import CODE_BITS, MAX_BITS, Cell, Dz
from sievenet.network.flow import Delete, Flow, FlowChange, FlowKey, Match

__all__ = ["MASKS", "SLOTS", "PortSets", "check_masked"]

#: Masks that are asked for at once; one is kept free for cells that move.
MASKS: Final = ROWS
#: Ports with cells.
SLOTS: Final = 128

_MASK: Final = struct.Struct("=16sII")
#: Numbers of masks, and those of rows are smaller; no two masks ever have one.
_FIRST: Final = 1 << 31
_HELD: Final = struct.Struct("=16s16sII")
_SHIFT: Final = CODE_BITS - MAX_BITS
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
    """A cell under a mask: its record, and how many flows each slot has there."""

    __slots__ = ("number", "slots")

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots: Counter[int] = Counter()


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

    def __init__(self, maps: Mapping[str, bpf.Map], records: Records, versions: Versions) -> None:
        self._cells, self._held = maps["cells"], maps["held"]
        self._slots = maps["slots"].view(np.dtype("u8"))
        self._records, self._versions = records, versions
        self._entries: dict[bytes, _Entry] = {}
        #: Masks in the order in which they are asked for.
        self._order: list[int] = []
        self._rows: dict[int, _Row] = {}
        self._next = _FIRST
        #: The flows of each shape, and under which mask they are.
        self._flows: dict[_Shape, dict[FlowKey, Flow]] = {}
        self._under: dict[_Shape, int] = {}
        self._slot: dict[int, int] = {}
        #: How many cells each port has, and the slots that no port has.
        self._used: Counter[int] = Counter()
        self._free = Pool(0, SLOTS)

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

    def put(self, flow: Flow) -> None:
        """A port has a cell from now on."""
        shape = _Shape.of(flow)
        if flow.key in self._flows.get(shape, ()):
            return
        if shape not in self._flows:
            self._place(shape)
        if flow.table not in self._slot:
            slot = self._slot[flow.table] = self._free.take()
            self._slots[slot] = flow.table
        self._used[flow.table] += 1
        self._flows[shape][flow.key] = flow
        self._held.put(_held_key(flow), bytes(4))
        self._enter(self._under[shape], flow)

    def remove(self, flow: Flow) -> None:
        """A port has a cell no more."""
        shape = _Shape.of(flow)
        if self._flows.get(shape, {}).pop(flow.key, None) is None:
            return
        self._leave(self._under[shape], flow)
        self._held.remove(_held_key(flow))
        self._used[flow.table] -= 1
        if not self._used[flow.table]:
            del self._used[flow.table]
            self._free.give(self._slot.pop(flow.table))
        if not self._flows[shape]:
            del self._flows[shape]
            mask = self._under.pop(shape)
            self._rows[mask].shapes.discard(shape)
            if not self._rows[mask].shapes:
                self._close(mask)
                self._narrow()

    def record(self, flow: Flow) -> int:
        """The record of a flow's cell."""
        return self._entries[self._key(self._under[_Shape.of(flow)], flow)].number

    def _key(self, mask: int, flow: Flow) -> bytes:
        return cell_key(self._rows[mask].number, 0, bits_of(flow)[0] & _packed(mask))

    def _enter(self, mask: int, flow: Flow) -> None:
        key, slot = self._key(mask, flow), self._slot[flow.table]
        entry = self._entries.get(key)
        if entry is None:
            number = self._records.add(bits_of(flow)[0] & _packed(mask), _packed(mask), 0)
            entry = self._entries[key] = _Entry(number)
            self._records.want(number, slot, True)
            self._cells.put(key, number.to_bytes(4, "little"))
        elif slot not in entry.slots:
            self._records.want(entry.number, slot, True)
        entry.slots[slot] += 1

    def _leave(self, mask: int, flow: Flow) -> None:
        key, slot = self._key(mask, flow), self._slot[flow.table]
        entry = self._entries[key]
        entry.slots[slot] -= 1
        if entry.slots[slot]:
            return
        del entry.slots[slot]
        self._records.want(entry.number, slot, False)
        if not entry.slots:
            del self._entries[key]
            self._cells.remove(key)
            self._records.forget(entry.number)

    # -- masks ---------------------------------------------------------------------------------------

    def _place(self, shape: _Shape) -> None:
        """Choose the mask for the first cell of a shape; it may make two masks one."""
        mask = shape.mask
        if mask not in self._rows and len(self._rows) >= MASKS - 1:
            one, other = self._closest(mask)
            if mask in (one, other):
                mask = one & other
            self._unite({one, other} & self._rows.keys(), one & other)
        if mask not in self._rows:
            self._open(mask)
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

    def _unite(self, masks: Iterable[int], common: int) -> None:
        """Cells under some masks are from now on under what these have in common."""
        moving = {mask: list(self._rows[mask].shapes) for mask in masks if mask != common}
        self._move(moving, common)

    def _move(self, moving: Mapping[int, Sequence[_Shape]], to: int) -> None:
        """Shapes go under another mask: they are there before they leave the old one."""
        if not any(moving.values()):
            return
        if to not in self._rows:
            self._open(to)
        for shapes in moving.values():
            for shape in shapes:
                for flow in self._flows[shape].values():
                    self._enter(to, flow)
        for mask, shapes in moving.items():
            for shape in shapes:
                for flow in self._flows[shape].values():
                    self._leave(mask, flow)
                self._assign(shape, to)
            if not self._rows[mask].shapes:
                self._close(mask)

    def _narrow(self) -> None:
        """There is room for a mask: the cells that are too wide by most get their own."""

        def waste(shape: _Shape) -> float:
            wide, own = self._under[shape].bit_count(), shape.mask.bit_count()
            return len(self._flows[shape]) * (2.0**-wide - 2.0**-own)

        wide = [shape for shape, mask in self._under.items() if shape.mask != mask]
        if wide and len(self._rows) < MASKS - 1:
            worst = max(wide, key=waste)
            self._move({self._under[worst]: [worst]}, worst.mask)

    def _assign(self, shape: _Shape, mask: int) -> None:
        before = self._under.get(shape)
        if before is not None:
            self._rows[before].shapes.discard(shape)
        self._under[shape] = mask
        self._rows[mask].shapes.add(shape)

    def _open(self, mask: int) -> None:
        self._rows[mask] = _Row(self._next)
        self._next += 1
        self._order.append(mask)
        self._show()

    def _close(self, mask: int) -> None:
        self._order.remove(mask)
        del self._rows[mask]
        self._show()

    def _show(self) -> None:
        numbers = ((_packed(mask).to_bytes(16, "big"), self._rows[mask].number) for mask in self._order)
        self._versions.show([_MASK.pack(packed, number, 0) for packed, number in numbers])

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> list[Flow]:
        """The flows that the kernel holds."""
        there = {key: self._records.slots(number) for key, number in self._found().items()}
        flows = [_held_flow(key) for key, _ in self._held.items()]
        return [flow for flow in flows if self._is_there(flow, self._under.get(_Shape.of(flow)), there)]

    def _found(self) -> dict[bytes, int]:
        """The records of all cells in the kernel."""
        pairs = ((key, int.from_bytes(data, "little")) for key, data in self._cells.items())
        return {key: number for key, number in pairs if CELL.unpack(key)[0] >= _FIRST}

    def _is_there(self, flow: Flow, mask: int | None, there: Mapping[bytes, int]) -> bool:
        slot = self._slot.get(flow.table)
        return mask is not None and slot is not None and bool(there.get(self._key(mask, flow), 0) >> slot & 1)

    def remember(self) -> list[Flow]:
        """Learn what the kernel holds, set right what somebody who was killed left half done, and return the flows."""
        for data in self._versions.read():
            packed, number, _ = _MASK.unpack(data)
            if number:
                mask = (int.from_bytes(packed, "big") & _CODE) << _SHIFT
                self._rows[mask] = _Row(number)
                self._order.append(mask)
                self._next = max(self._next, number + 1)
        found = self._found()
        there = {key: self._records.slots(number) for key, number in found.items()}
        asked = [(key, _held_flow(key)) for key, _ in self._held.items()]
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
                entry = self._entries.setdefault(key, _Entry(found[key]))
                entry.slots[self._slot[flow.table]] += 1
                self._used[flow.table] += 1
        self._clean(asked, there)
        return [flow for kept in self._flows.values() for flow in kept.values()]

    def _clean(self, asked: Iterable[tuple[bytes, Flow]], there: Mapping[bytes, int]) -> None:
        """Take away what belongs to no flow."""
        for key, flow in asked:
            if flow.key not in self._flows.get(_Shape.of(flow), ()):
                self._held.remove(key)
        for key, bits in there.items():
            entry = self._entries.get(key)
            if entry is None:
                self._cells.remove(key)
                continue
            for slot in set(_bits(bits)) - entry.slots.keys():
                self._records.want(entry.number, slot, False)
        for mask in [mask for mask, row in self._rows.items() if not row.shapes]:
            self._close(mask)
        self._slot = {port: slot for port, slot in self._slot.items() if self._used[port]}
        self._free.keep(self._slot.values())

    def records(self) -> set[int]:
        """The records in use."""
        return {entry.number for entry in self._entries.values()}


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


def _packed(mask: int) -> int:
    """A mask as packets have it, with the category."""
    return CATEGORY | mask >> _SHIFT


def _bits(value: int) -> Iterable[int]:
    return (i for i in range(value.bit_length()) if value >> i & 1)
