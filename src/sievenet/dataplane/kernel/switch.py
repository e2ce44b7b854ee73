"""One content switch in the kernel: its maps, and changing them while packets pass.

A change of one entry is atomic in the kernel, and changes come in an order of which every step is safe
(`network.table.make_before_break`).  So they are carried out one after the other, in batches, and are in effect when
the call returns: there is no second copy of a table and no version to flip.  What a flow points at is written before
it and used again long after it (`ranges`).

Rows of special flows are kept in order of precedence without a gap.  A row enters by moving the lower ones down, the
lowest first, and leaves by moving them up: in between one row is there twice, never missing.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.batch import Batch
from sievenet.dataplane.kernel.entry import (
    Action,
    Row,
    cell_key,
    is_ordinary,
    prefix_key,
    read_cell,
    read_prefix,
    row_number,
)
from sievenet.dataplane.kernel.image import linked, shipped
from sievenet.dataplane.kernel.maps import CAPACITY, PORT, PORTS, REASONS, ROWS, map_shapes
from sievenet.dataplane.kernel.permits import Permits
from sievenet.dataplane.kernel.ranges import MOST, Ranges
from sievenet.dataplane.kernel.sets import MASKS, PortSets, check_masked
from sievenet.dataplane.plane import Count, PortCount, SwitchCounters
from sievenet.errors import Rejected
from sievenet.network.flow import Add, Delete, Flow, FlowChange, FlowKey
from sievenet.network.table import FlowTable
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["KernelSwitch"]

log = logging.getLogger("sievenet.kernel")

#: The programs of a switch: the one that is attached, and those that it goes on in, by their place in the map `self`.
_PARTS: Final = ("sieve", "more", "wide", "each", "pour", "drain")
#: Nobody's port: its row has the counts of clients whose numbers others have had since.
_DEPARTED: Final = 0
#: Fields of a port that count.
_COUNTED: Final = ("rp", "rb", "sp", "sb", "dropped")


class KernelSwitch:
    """A switch of the topology."""

    def __init__(
        self, name: str, maps: Mapping[str, bpf.Map], program: int, capacity: int | None, now: Callable[[], float]
    ) -> None:
        self.name = name
        self.maps = maps
        #: What is attached to its devices.
        self.program = program
        self.capacity = capacity
        self._now = now
        self._ranges = Ranges(maps["outputs"].view(np.dtype("u8")))
        self._counts: NDArray[Any] = maps["counts"].view(np.dtype("u8")).reshape(-1, 2)
        self._ports: NDArray[Any] = maps["ports"].view(PORT)
        self._reasons: NDArray[Any] = maps["reasons"].view(np.dtype("u8"))
        #: What it holds: flow, key in its map, counter.
        self._flows: dict[FlowKey, tuple[Flow, bytes, int]] = {}
        #: Counters that no flow uses; the one that has rested longest is taken first.
        self._free_counters = deque(range(maps["counts"].rows - 1))
        #: Rows in the order in which they are tried; number and flows of each.
        self._order: list[Row] = []
        self._rows: dict[Row, list[int]] = {}
        #: The tables of out ports.
        self._sets = PortSets(maps, self._free_counters, self._counts)
        #: Whether cells are wider than they were asked for.
        self._wide = False
        #: How packets leave by each port that has a device: see `struct port` of the program.
        self._ways: dict[int, int] = {}
        self._clients: set[int] = set()
        #: What the queues of its ports dropped, by port.
        self.queued_out: Callable[[], Mapping[int, int]] = dict
        #: In which categories clients may publish.
        self.permits = Permits(maps["permits"], self._ports)

    @classmethod
    def create(
        cls, name: str, capacity: int | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> KernelSwitch:
        """A new, empty switch, attached to nothing yet."""
        maps = {key: bpf.Map.create(key, *shape) for key, shape in map_shapes(capacity or CAPACITY).items()}
        descriptors = {key: entry.descriptor for key, entry in maps.items()}
        # The kernel checks each for a while: on several cores at a time.
        with ThreadPoolExecutor(len(_PARTS)) as pool:
            codes = [linked(shipped()[f"tc/{part}"], descriptors) for part in _PARTS]
            program, *others = pool.map(bpf.load, _PARTS, codes)
        for at, again in enumerate(others):
            maps["self"].put(at.to_bytes(4, "little"), again.to_bytes(4, "little"))
            os.close(again)
        return cls(name, maps, program, capacity, now)

    # -- outliving its process -----------------------------------------------------------------------

    def pin(self, folder: Path) -> None:
        """Keep maps and program alive, in a folder of a bpf file system."""
        folder.mkdir()
        for key, entry in self.maps.items():
            bpf.pin(entry.descriptor, str(folder / key))
        bpf.pin(self.program, str(folder / "sieve"))

    @classmethod
    def adopt(
        cls, name: str, folder: Path, capacity: int | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> KernelSwitch:
        """The switch that was pinned there, with all that it holds."""
        shapes = map_shapes(capacity or CAPACITY)
        maps = {key: bpf.Map(bpf.pinned(str(folder / key)), *shape[1:]) for key, shape in shapes.items()}
        switch = cls(name, maps, bpf.pinned(str(folder / "sieve")), capacity, now)
        switch._remember()
        return switch

    def _remember(self) -> None:
        """Learn what the maps hold."""
        for _, data in sorted(self.maps["rows"].items()):
            row, number = Row.decode(data)
            self._rows[row] = [number, 0]
        self._order = sorted(self._rows, key=_last_first)
        for flow in self._sets.remember():
            self._flows[flow.key] = flow, b"", -1
        for flow, key, action in self._read():
            self._flows[flow.key] = flow, key, action.counter
            self._ranges.adopt(action.first, action.outputs)
            if not is_ordinary(flow):
                self._rows[Row.of(flow)][1] += 1
        self.permits.remember()
        self._clients = {int(number) for number in np.flatnonzero(self._ports["way"]) if number >= CLIENT_PORTS}
        used = {counter for _, _, counter in self._flows.values()} | self._sets.counters()
        free = [counter for counter in self._free_counters if counter not in used]
        self._free_counters.clear()
        self._free_counters.extend(free)

    # -- ports ---------------------------------------------------------------------------------------

    def add_port(self, port: int, device: int, *, host: bool, straight: bool) -> None:
        """A device of the switch's namespace is this port; a host's, or a link's.

        `straight` skips the device and its queue, and hands packets to the other end of a virtual link.
        """
        self._ways[port] = 2 if straight else 1
        self._set(port, device, self._ways[port])
        self.maps["devices"].put(device.to_bytes(4, "little"), port.to_bytes(4, "little") + bytes([host, 0, 0, 0]))

    def add_client(self, number: int, port: int, address: bytes = bytes(16)) -> None:
        """A client is behind this number, at the host behind that port, and sends from that address."""
        row = self._ports[number]
        if number not in self._clients:
            for field in _COUNTED:
                self._ports[_DEPARTED][field] += row[field]
                row[field] = 0
            self.permits.lift(number)
        row["address"] = address
        self._set(number, int(self._ports[port]["device"]), int(self._ports[port]["way"]))
        self._clients.add(number)

    @property
    def clients(self) -> frozenset[int]:
        """The numbers of those who may send."""
        return frozenset(self._clients)

    def remove_client(self, number: int) -> None:
        """Nobody is behind this number any more."""
        self._ports[number]["way"] = 0
        self._clients.discard(number)
        self.permits.take(number)

    def set_carrier(self, port: int, carries: bool) -> None:
        """A link is dead, or alive again: packets for it, and for the clients behind it, are dropped and counted."""
        way = self._ways[port] if carries else 0
        device = self._ports[port]["device"]
        for number in (port, *(client for client in self._clients if self._ports[client]["device"] == device)):
            self._ports[number]["way"] = way

    def _set(self, port: int, device: int, way: int) -> None:
        self._ports[port]["way"] = 0
        self._ports[port]["device"] = device
        self._ports[port]["way"] = way

    # -- flows ---------------------------------------------------------------------------------------

    def apply(self, changes: Sequence[FlowChange]) -> None:
        """Carry out changes in order, in effect when this returns; `Rejected`, and none of them, if some do not fit."""
        for change in changes:
            if change.flow.table:
                check_masked(change.flow)
        plain = [not change.flow.table and is_ordinary(change.flow) for change in changes]
        self._check(changes, plain)
        batch = Batch(self.maps)
        now = self._now()
        try:
            for change, ordinary in zip(changes, plain, strict=True):
                if isinstance(change, Delete):
                    self._delete(change.flow.key, ordinary, batch, now)
                else:
                    self._put(change.flow, ordinary, isinstance(change, Add), batch, now)
        finally:
            batch.flush()
        wide, self._wide = self._wide, self._sets.widened > 0
        if self._wide and not wide:
            log.warning(
                "switch %s: cells of over %d masks; some are wider there, and let more through", self.name, MASKS
            )

    def _check(self, changes: Sequence[FlowChange], plain: Sequence[bool]) -> None:
        for number, change in enumerate(changes, 1):
            if len(change.flow.ports) > MOST:
                count = len(change.flow.ports)
                raise Rejected(f"Switch {self.name} refuses change {number}: {count} outputs, at most {MOST}")
        self._sets.check(self.name, changes)
        special = (c.flow for c, ordinary in zip(changes, plain, strict=True) if not ordinary and not c.flow.table)
        rows = set(map(Row.of, special))
        if rows and len(rows.union(self._order)) > ROWS:
            raise Rejected(f"Switch {self.name}: {ROWS} combinations of mask and priority fit, got more")
        most = self.capacity or CAPACITY
        if len(self._flows) + len(changes) > most:
            self._check_size(changes, most)

    def _check_size(self, changes: Sequence[FlowChange], most: int) -> None:
        size = len(self._flows)
        there: dict[FlowKey, bool] = {}
        for change in changes:
            wanted, key = not isinstance(change, Delete), change.flow.key
            if there.get(key, key in self._flows) != wanted:
                size += 1 if wanted else -1
            there[key] = wanted
            if size > most:
                raise Rejected(f"Switch {self.name} is full: {most} flows fit, {change} would be one more")

    def _put(self, flow: Flow, ordinary: bool, fresh: bool, batch: Batch, now: float) -> None:
        key = flow.key
        known = self._flows.get(key)
        if flow.table:
            self._sets.put(flow, batch)
            self._flows[key] = flow, b"", -1
            return
        counter = known[2] if known is not None else self._free_counters.popleft()
        if fresh or known is None:
            self._counts[counter] = 0
        first = self._ranges.take(flow.ports, now)
        if ordinary:
            where, name = "prefixes", prefix_key(flow)
        else:
            where, name = "cells", cell_key(flow, self._enter(flow, known is None, batch))
        batch.put(where, name, Action(first, len(flow.ports), counter, flow.match.bits[1].bit_count()).encode())
        if known is not None:
            self._ranges.release(known[0].ports, now)
        self._flows[key] = flow, name, counter

    def _delete(self, key: FlowKey, ordinary: bool, batch: Batch, now: float) -> None:
        known = self._flows.pop(key, None)
        if known is None:
            return
        held, name, counter = known
        if held.table:
            self._sets.remove(held, batch)
            return
        if ordinary:
            batch.remove("prefixes", name)
        else:
            batch.remove("cells", name)
            self._leave(held, batch)
        self._ranges.release(held.ports, now)
        self._free_counters.append(counter)

    # -- rows ----------------------------------------------------------------------------------------

    def _enter(self, flow: Flow, new: bool, batch: Batch) -> int:
        """The number of a flow's row, which is there from now on."""
        row = Row.of(flow)
        known = self._rows.get(row)
        if known is None:
            taken = {number for number, _ in self._rows.values()}
            known = self._rows[row] = [next(n for n in range(1, ROWS + 2) if n not in taken), 0]
            batch.flush()
            at = bisect_left(self._order, _last_first(row), key=_last_first)
            self._order.insert(at, row)
            for i in range(len(self._order) - 1, at - 1, -1):
                self._write_row(i)
        known[1] += new
        return known[0]

    def _leave(self, flow: Flow, batch: Batch) -> None:
        row = Row.of(flow)
        known = self._rows[row]
        known[1] -= 1
        if known[1]:
            return
        batch.flush()
        at = self._order.index(row)
        del self._order[at], self._rows[row]
        for i in range(at, len(self._order)):
            self._write_row(i)
        self.maps["rows"].remove(len(self._order).to_bytes(4, "little"))

    def _write_row(self, at: int) -> None:
        row = self._order[at]
        self.maps["rows"].put(at.to_bytes(4, "little"), row.encode(self._rows[row][0]))

    # -- reading -------------------------------------------------------------------------------------

    def table(self) -> FlowTable:
        """What the kernel holds."""
        return FlowTable([*(flow for flow, _, _ in self._read()), *self._sets.read()])

    def _read(self) -> list[tuple[Flow, bytes, Action]]:
        rows = {number: row for _, data in self.maps["rows"].items() for row, number in [Row.decode(data)]}
        found = []
        for key, value in self.maps["prefixes"].items():
            action = Action.decode(value)
            found.append((read_prefix(key, self._ranges.read(action.first, action.outputs)), key, action))
        for key, value in self.maps["cells"].items():
            action, row = Action.decode(value), rows.get(row_number(key))
            if row is not None:
                found.append((read_cell(key, row, self._ranges.read(action.first, action.outputs)), key, action))
        return found

    def counters(self) -> SwitchCounters:
        """What it has counted."""
        flows = {}
        for key, (flow, _, counter) in self._flows.items():
            packets, size = self._counts[self._sets.counter(flow) if flow.table else counter]
            flows[key] = Count(int(packets), int(size))
        ports, full = {}, self.queued_out()
        for number in self._ways.keys() | self._clients:
            rp, rb, sp, sb, dropped = (int(self._ports[number][field]) for field in _COUNTED)
            ports[number] = PortCount(Count(rp, rb), Count(sp, sb), dropped + full.get(number, 0))
        return SwitchCounters(flows, ports, self.reasons()["unmatched"], self.capacity, self._departed())

    def _departed(self) -> PortCount:
        """What clients have counted that have left: their rows keep it until somebody else gets the number."""
        gone = np.ones(PORTS, np.bool_)
        gone[1:CLIENT_PORTS] = False
        gone[list(self._clients)] = False
        rp, rb, sp, sb, dropped = (int(self._ports[field][gone].sum()) for field in _COUNTED)
        return PortCount(Count(rp, rb), Count(sp, sb), dropped)

    def received(self) -> int:
        """Packets that came from clients, those that have left included."""
        taken = self._ports["rp"]
        return int(taken[_DEPARTED] + taken[CLIENT_PORTS:].sum())

    def reasons(self) -> dict[str, int]:
        """Packets dropped, by reason."""
        return {reason: int(self._reasons[i]) for i, reason in enumerate(REASONS)}

    def clear(self) -> None:
        """Forget all flows, and what was counted."""
        self.apply([Delete(flow) for flow, _, _ in list(self._flows.values())])
        self._reasons[:] = 0
        for field in _COUNTED:
            self._ports[field] = 0

    def close(self) -> None:
        """Give up its maps and program; what is pinned or attached stays."""
        os.close(self.program)
        for entry in self.maps.values():
            entry.close()


def _last_first(row: Row) -> tuple[int, ...]:
    """For ascending order of what is tried first."""
    return tuple(-int(value) for value in row)
