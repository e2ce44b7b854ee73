"""One content switch in the kernel: its maps, and changing them while packets pass.

Tables are memory that the program reads and this process writes: a change takes no call of the system.  For any packet
a change of one flow happens in one step, and changes come in an order of which every step is safe
(`network.table.make_before_break`).  So they are carried out one after the other and are in effect when the call
returns: there is no second copy of a table and no version to flip.

    ordinary flows   `prefixes`, a tree             special ones   `rows`, and `cells` for each      cells   `sets`
                         └──────────── records: what it matches, where it goes, what it has counted ────────────┘
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sievenet.dataplane.kernel import bpf, prefixes, records
from sievenet.dataplane.kernel.chunks import Chunks
from sievenet.dataplane.kernel.entry import (
    CELL,
    Row,
    bits_of,
    cell_key,
    is_ordinary,
    ordinary_flow,
    prefix_of,
    special_flow,
)
from sievenet.dataplane.kernel.maps import CAPACITY, DEVICE, PORT, PORTS, REASONS, Rack, pinned_maps
from sievenet.dataplane.kernel.permits import Permits
from sievenet.dataplane.kernel.prefixes import Prefixes
from sievenet.dataplane.kernel.ranges import MOST, Ranges
from sievenet.dataplane.kernel.records import Records
from sievenet.dataplane.kernel.rows import ROWS, SpecialRows, Versions
from sievenet.dataplane.kernel.sets import MASKS, PortSets, check_masked
from sievenet.dataplane.plane import Count, PortCount, SwitchCounters
from sievenet.errors import Rejected, Unavailable
from sievenet.network.flow import Add, Delete, Flow, FlowChange, FlowKey
from sievenet.network.table import FlowTable
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["KernelSwitch"]

log = logging.getLogger("sievenet.kernel")

#: Rows in which a device may be, from that of its number on.
_TRIES: Final = 4
#: Nobody's port: its row has the counts of clients whose numbers others have had since.
_DEPARTED: Final = 0
#: Fields of a port that count.
_COUNTED: Final = ("rp", "rb", "sp", "sb", "dropped")


class KernelSwitch:
    """A switch of the topology."""

    def __init__(
        self, name: str, maps: Mapping[str, bpf.Map], program: int, capacity: int | None, place: tuple[int, int]
    ) -> None:
        self.name = name
        #: Its number in its rack, and how many there are, as devices say it.
        self._owner = place[1] << 16 | place[0]
        self.maps = maps
        #: What is attached to its devices.
        self.program = program
        self.capacity = capacity
        self._ranges = Ranges(maps["outputs"].view(np.dtype("u8")))
        self._ports: NDArray[Any] = maps["ports"].view(PORT)
        self._devices: NDArray[Any] = maps["devices"].view(DEVICE)
        self._reasons: NDArray[Any] = maps["reasons"].view(np.dtype("u8"))
        self.closed = False
        #: What it holds, ordinary flows by prefix: flow and number of its record; 0 for a cell of a port's table.
        self._flows: dict[FlowKey | int, tuple[Flow, int]] = {}
        self._records = Records(Chunks(maps["flows"], records.SIZE))
        self._prefixes = Prefixes(Chunks(maps["nodes"], prefixes.SIZE))
        #: For whoever comes after us: which records are in the tree.
        self._ordinary: NDArray[Any] = maps["ordinary"].view(np.dtype("u1"))
        self._marks = self._ordinary.data  # which is quicker for one
        #: Which versions of rows and masks are in force.
        self._state: NDArray[Any] = maps["state"].view(np.dtype("u4"))
        self._rows = SpecialRows(Versions(maps["rows"], self._state, 0))
        #: The tables of out ports.
        self._sets = PortSets(maps, self._records, Versions(maps["masks"], self._state, 1))
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
    def create(cls, names: Sequence[str], capacity: int | None = None) -> list[KernelSwitch]:
        """New, empty switches, attached to nothing yet, which share one program."""
        rack = Rack(len(names), capacity)
        try:
            return [
                cls(name, rack.maps(number), rack.program(), capacity, (number, len(names)))
                for number, name in enumerate(names)
            ]
        finally:
            rack.close()

    # -- outliving its process -----------------------------------------------------------------------

    def pin(self, folder: Path) -> None:
        """Keep maps and program alive, in a folder of a bpf file system."""
        folder.mkdir()
        for key, entry in self.maps.items():
            bpf.pin(entry.descriptor, str(folder / key))
        bpf.pin(self.program, str(folder / "sieve"))

    @classmethod
    def adopt(
        cls, name: str, folder: Path, capacity: int | None = None, place: tuple[int, int] = (0, 1)
    ) -> KernelSwitch:
        """The switch that was pinned there, with all that it holds; its place among those that it was made with."""
        maps = pinned_maps(folder, capacity, *place)
        switch = cls(name, maps, bpf.pinned(str(folder / "sieve")), capacity, place)
        switch._remember()
        return switch

    def _remember(self) -> None:
        """Learn what the maps hold."""
        for flow in self._sets.remember():
            self._flows[flow.key] = flow, 0
        for flow, number in self._read():
            self._flows[prefix_of(flow) if self._ordinary[number] else flow.key] = flow, number
            self._ranges.adopt(self._records.read(number).outputs)
            if not self._ordinary[number]:
                self._rows.enter(Row.of(flow))
        self._rows.tidy()
        self._records.keep({number for _, number in self._flows.values()} | self._sets.records())
        plain = ((flow, number) for flow, number in self._flows.values() if number and self._ordinary[number])
        self._prefixes.adopt({prefix_of(flow): number for flow, number in plain})
        self.permits.remember()
        self._clients = {int(number) for number in np.flatnonzero(self._ports["way"]) if number >= CLIENT_PORTS}
        self._set_odd()

    # -- ports ---------------------------------------------------------------------------------------

    def add_port(self, port: int, device: int, *, host: bool, straight: bool) -> None:
        """A device of the switch's namespace is this port; a host's, or a link's.

        `straight` skips the device and its queue, and hands packets to the other end of a virtual link.
        """
        self._ways[port] = 2 if straight else 1
        self._set(port, device, self._ways[port])
        before = (self._devices["owner"] == self._owner) & (self._devices["port"] == port)
        self._devices["index"][before & (self._devices["index"] != device)] = 0
        for at in range(device, device + _TRIES):
            row = self._devices[at % len(self._devices)]
            if row["index"] in (0, device):
                row["port"], row["host"], row["odd"], row["owner"] = port, host, self._state.any(), self._owner
                bpf.fence()
                row["index"] = device
                return
        raise Unavailable(f"Switch {self.name}: {_TRIES} devices are where number {device} would be, and no more fit")

    def _set_odd(self, odd: bool = False) -> None:
        """Tell the program at every device whether there is more than ordinary flows, or will be at once."""
        self._devices["odd"][self._devices["owner"] == self._owner] = odd or self._state.any()

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
        flows = [change.flow for change in changes]
        plain = [prefix_of(flow) if not flow.table and is_ordinary(flow) else 0 for flow in flows]
        self._check(changes, plain)
        if not all(plain):
            self._set_odd(True)
        try:
            for change, prefix in zip(changes, plain, strict=True):
                if isinstance(change, Delete):
                    self._delete(change.flow, prefix)
                else:
                    self._put(change.flow, prefix, isinstance(change, Add))
        finally:
            if not all(plain):
                self._set_odd()
        wide, self._wide = self._wide, self._sets.widened > 0
        if self._wide and not wide:
            log.warning(
                "switch %s: cells of over %d masks; some are wider there, and let more through", self.name, MASKS
            )

    def _check(self, changes: Sequence[FlowChange], plain: Sequence[int]) -> None:
        """`Rejected` if changes do not fit; `plain` has the prefixes of ordinary flows, and 0 for others."""
        for number, change in enumerate(changes, 1):
            if len(change.flow.ports) > MOST:
                count = len(change.flow.ports)
                raise Rejected(f"Switch {self.name} refuses change {number}: {count} outputs, at most {MOST}")
        self._sets.check(self.name, changes)
        special = (c.flow for c, prefix in zip(changes, plain, strict=True) if not prefix and not c.flow.table)
        rows = {row for row in map(Row.of, special) if row not in self._rows}
        if rows and len(rows) + len(self._rows) > ROWS:
            raise Rejected(f"Switch {self.name}: {ROWS} combinations of mask and priority fit, got more")
        most = self.capacity or CAPACITY
        if len(self._flows) + len(changes) > most:
            self._check_size(changes, plain, most)

    def _check_size(self, changes: Sequence[FlowChange], plain: Sequence[int], most: int) -> None:
        size = len(self._flows)
        there: dict[FlowKey | int, bool] = {}
        for change, prefix in zip(changes, plain, strict=True):
            wanted, key = not isinstance(change, Delete), prefix or change.flow.key
            if there.get(key, key in self._flows) != wanted:
                size += 1 if wanted else -1
            there[key] = wanted
            if size > most:
                raise Rejected(f"Switch {self.name} is full: {most} flows fit, {change} would be one more")

    def _put(self, flow: Flow, prefix: int, fresh: bool) -> None:
        key = prefix or flow.key
        if flow.table:
            self._sets.put(flow)
            self._flows[key] = flow, 0
            return
        outputs = self._ranges.take(flow.ports)
        known = self._flows.get(key)
        if known is not None:
            number = known[1]
            if fresh:
                self._records.reset(number)
            bpf.fence()
            self._records.redirect(number, outputs)
            self._ranges.release(known[0].ports)
        elif prefix:
            number = self._records.add_prefix(prefix, flow.priority, outputs)
            self._marks[number] = 1
            self._prefixes.put(prefix, number)
        else:
            (bits, mask), in_port = bits_of(flow), flow.in_port or 0
            row = self._rows.enter(Row.of(flow))
            number = self._records.add(bits, mask, outputs, row, in_port)
            self.maps["cells"].put(cell_key(row, in_port, bits), number.to_bytes(4, "little"))
        self._flows[key] = flow, number

    def _delete(self, flow: Flow, prefix: int) -> None:
        known = self._flows.pop(prefix or flow.key, None)
        if known is None:
            return
        held, number = known
        if held.table:
            self._sets.remove(held)
            return
        if prefix:
            self._prefixes.remove(number)
            self._marks[number] = 0
        else:
            record = self._records.read(number)
            self.maps["cells"].remove(cell_key(record.row, record.in_port, record.bits))
            self._rows.leave(Row.of(held))
        self._ranges.release(held.ports)
        self._records.forget(number)

    # -- reading -------------------------------------------------------------------------------------

    def table(self) -> FlowTable:
        """What the kernel holds."""
        return FlowTable([*(flow for flow, _ in self._read()), *self._sets.read()])

    def _read(self) -> list[tuple[Flow, int]]:
        """Flows that are no cells of ports' tables, and their records."""
        found = []
        for number in np.flatnonzero(self._ordinary).tolist():
            record = self._records.read(number)
            found.append((ordinary_flow(record.bits, record.ones, self._ranges.read(record.outputs)), number))
        rows = self._rows.by_number()
        for key, data in self.maps["cells"].items():
            if row := rows.get(CELL.unpack(key)[0]):
                number = int.from_bytes(data, "little")
                record = self._records.read(number)
                ports = self._ranges.read(record.outputs)
                found.append((special_flow(record.bits, row, record.in_port, ports), number))
        return found

    def counters(self) -> SwitchCounters:
        """What it has counted."""
        flows = {}
        for flow, number in self._flows.values():
            flows[flow.key] = self._records.count(number or self._sets.record(flow))
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

    def passed(self) -> int:
        """Packets that came by any port."""
        return int(self._ports["rp"].sum())

    def reasons(self) -> dict[str, int]:
        """Packets dropped, by reason."""
        return {reason: int(self._reasons[i]) for i, reason in enumerate(REASONS)}

    def clear(self) -> None:
        """Forget all flows, and what was counted."""
        self.apply([Delete(flow) for flow, _ in list(self._flows.values())])
        self._reasons[:] = 0
        for field in _COUNTED:
            self._ports[field] = 0

    def close(self) -> None:
        """Give up its maps and program; what is pinned or attached stays."""
        self.closed = True
        os.close(self.program)
        for entry in self.maps.values():
            entry.close()
