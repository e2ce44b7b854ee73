"""A whole network compiled for batches of events.

For one category, the tables of all switches become one set of arrays, and each event walks
the network inside one compiled loop (`kernels.walk`): a binary search per switch, a list of
ports per decision, until it has reached every client or host.

    port ──▶ segment (a switch's boundaries) ──▶ decision ──▶ ports ──▶ far ports ──▶ …

Faithful in what the tables do, in flow and port counters, in links and switches that are
down, and in each delivery's delay and loss along its path.  Not modelled: bandwidth, queues,
jitter and reordering, which depend on the other packets; send packet by packet for those.

Where flows have masks, a batch is cut into classes first (`signatures`).  The network is compiled for the classes that
occur, with their numbers for codes, and serves that batch alone.

Cost: compiling is proportional to the number of flows, once after a change (switches that did
not change are reused); carrying takes about a tenth of a microsecond per event and switch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.dataplane.classifier import Entry
from sievenet.dataplane.compiled import Compiled, Intervals, compile_classes, compile_entries
from sievenet.dataplane.forwarding import Forwarding
from sievenet.dataplane.switch import Switch
from sievenet.dataplane.walks import Port
from sievenet.errors import InvalidInput

__all__ = ["CompiledNetwork", "Deliveries"]

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Deliveries:
    """Which event reached which port, and how long after it was sent."""

    row: _Ints
    #: An index into `ports`.
    port: _Ints
    delay: npt.NDArray[np.float64]
    #: (switch, port number) of hosts and clients.
    ports: list[tuple[str, int]]

    def __len__(self) -> int:
        return len(self.row)

    def by_port(self) -> dict[tuple[str, int], _Ints]:
        """The events that reached each port."""
        order = np.argsort(self.port, kind="stable")
        rows, ports = self.row[order], self.port[order]
        cuts = np.flatnonzero(np.diff(ports)) + 1
        firsts = ports[np.concatenate(([0], cuts))] if ports.size else ports
        return {self.ports[int(p)]: part for p, part in zip(firsts, np.split(rows, cuts), strict=False)}


_NOTHING: Final = compile_entries((), None)


class _Segments:
    """The compiled tables of one switch: one for all in-ports, or one for each."""

    def __init__(
        self, switch: Switch, category: int, numbers: list[int], classes: list[list[bytes]] | None = None
    ) -> None:
        self.version: Final = switch.version
        self.numbers: Final = numbers
        classifier = switch.classifier(category)
        self.tables: dict[int | None, Compiled] = {}
        if classifier is None:
            self.tables[None] = _NOTHING
            return
        for number in numbers if classifier.in_ports else [None]:
            if classes is not None:
                self.tables[number] = compile_classes([classifier.decide(cells, number) for cells in classes])
                continue
            table = switch.compiled(category, number)
            assert table is not None
            self.tables[number] = table


class CompiledNetwork:
    """The tables of one category in all switches, as arrays."""

    def __init__(
        self,
        forwarding: Forwarding,
        category: int,
        previous: CompiledNetwork | None = None,
        classes: list[list[bytes]] | None = None,
    ) -> None:
        self.category: Final = category
        self._lasting: Final = classes is None
        self._forwarding: Final = forwarding
        self._state: Final = self._look()
        self._ports: Final[list[Port]] = list(forwarding.ports.values())
        self._number: Final = {port: i for i, port in enumerate(self._ports)}
        by_switch: dict[str, list[int]] = {name: [] for name in forwarding.switches}
        for port in self._ports:
            by_switch[port.switch.name].append(port.number)
        same = previous is not None and previous.category == category and previous._lasting and classes is None
        reused = previous._segments if previous is not None and same else {}
        self._segments: Final[dict[str, _Segments]] = {}
        for name, switch in forwarding.switches.items():
            old = reused.get(name)
            fresh = old is not None and old.version == switch.version and old.numbers == by_switch[name]
            self._segments[name] = (
                old if fresh and old is not None else _Segments(switch, category, by_switch[name], classes)
            )
        self._join()
        self._wire()
        if previous is not None:
            previous.retire()
        forwarding.settlers.append(self.settle)

    def retire(self) -> None:
        """Pass on what was counted; somebody newer takes over."""
        self.settle()
        self._forwarding.settlers.remove(self.settle)

    def _look(self) -> tuple[Any, ...]:
        f = self._forwarding
        return (
            frozenset(f.down_switches),
            frozenset(f.down_links),
            f.attachments,
            tuple(switch.version for switch in f.switches.values()),
        )

    def current(self, category: int) -> bool:
        """Whether nothing has changed since it was compiled for this category."""
        return self._lasting and category == self.category and self._state == self._look()

    def number(self, port: Port) -> int:
        """The index of a port in the arrays."""
        return self._number[port]

    def _join(self) -> None:
        """Put the tables of all switches one after the other."""
        parts_hi, parts_lo, parts_decision = [], [], []
        begins, ends = [], []
        self._entries: list[tuple[Entry, ...]] = []
        self._owner: list[Switch] = []
        ports: list[int] = []
        ports_start = [0]
        segment_of = np.full(len(self._ports), -1, np.int64)
        by_place = {(p.switch.name, p.number): i for i, p in enumerate(self._ports)}
        at = 0
        for name, segments in self._segments.items():
            if name in self._forwarding.down_switches:
                continue
            known: dict[int, int] = {}
            for in_port, table in segments.tables.items():
                assert isinstance(table, Intervals)
                parts_hi.append(table.starts_hi)
                parts_lo.append(table.starts_lo)
                parts_decision.append(table.decision + len(self._entries))
                begins.append(at)
                at += table.decision.size
                ends.append(at)
                known[-1 if in_port is None else in_port] = len(begins) - 1
                for decision in table.decisions:
                    self._entries.append(decision)
                    self._owner.append(self._forwarding.switches[name])
                    numbers = frozenset().union(*(entry.flow.ports for entry in decision))
                    ports += [by_place[name, n] for n in sorted(numbers) if (name, n) in by_place]
                    ports_start.append(len(ports))
            for number in segments.numbers:
                segment_of[by_place[name, number]] = known.get(number, known.get(-1, -1))
        self._arrays = (
            segment_of,
            np.array(begins, np.int64),
            np.array(ends, np.int64),
            np.concatenate(parts_hi) if parts_hi else np.zeros(0, np.uint64),
            np.concatenate(parts_lo) if parts_lo else np.zeros(0, np.uint64),
            np.concatenate(parts_decision) if parts_decision else np.zeros(0, np.int64),
            np.array(ports_start, np.int64),
            np.array(ports, np.int64),
        )

    def _wire(self) -> None:
        """What is at the other end of each port, and the way there."""
        down = self._dead = frozenset(self._forwarding.down_switches)
        count = len(self._ports)
        #: Not yet passed on: packets and bytes per decision; sent, bytes sent and dropped per port.
        sizes = (len(self._entries), len(self._entries), count, count, count)
        self._counts = tuple(np.zeros(size, np.int64) for size in sizes)
        self._came, self._came_bytes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._far = np.full(count, -1, np.int64)
        self._alive = np.zeros(count, np.bool_)
        self._delay = np.zeros(count)
        self._loss = np.zeros(count)
        self._delay_in = np.zeros(count)
        self._loss_in = np.zeros(count)
        for i, port in enumerate(self._ports):
            far = port.far
            if far is not None:
                self._far[i] = self._number[far]
            self._alive[i] = port.pipe_out.up and (far is None or far.switch.name not in down)
            self._delay[i] = port.pipe_out.delay
            self._loss[i] = port.pipe_out.loss
            self._delay_in[i] = port.pipe_in.delay
            self._loss_in[i] = port.pipe_in.loss if port.pipe_in.up else 1.0

    def carry(self, entry: _Ints, hi: _Words, lo: _Words, size: _Ints, seed: int) -> Deliveries:
        """Carry events that come in by the given ports."""
        from sievenet.dataplane.kernels import walk

        kernel: Any = walk

        if not len(entry) == len(hi) == len(lo) == len(size):
            raise InvalidInput(expected="arrays of one length", got=(len(entry), len(hi), len(lo), len(size)))
        # The way from the client to its switch comes first.
        rng = np.random.default_rng(seed)
        enters = rng.random(len(entry)) >= self._loss_in[entry]
        self._counts[-1][:] += np.bincount(entry[~enters], minlength=len(self._ports))
        rows = np.flatnonzero(enters)
        # Neighbouring codes search the same places: in ascending order the tables stay in the processor's cache.
        rows = rows[np.lexsort((lo[rows], hi[rows]))]
        entry, hi, lo, size = entry[rows], hi[rows], lo[rows], size[rows]
        count = len(self._ports)
        seen, stack, late = np.full(count, -1, np.int64), np.zeros(count + 1, np.int64), np.zeros(count)
        parts: list[tuple[_Ints, _Ints, npt.NDArray[np.float64]]] = []
        room = max(4 * count, 1 << 16)
        row = 0
        while row < len(rows):
            out_row, out_port, out_delay = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            row, made, looped = kernel(
                row, hi, lo, size, entry, *self._arrays, self._far, self._alive, self._delay, self._loss,
                np.uint64(seed & 0xFFFFFFFFFFFFFFFF), *self._counts,
                seen, stack, late, out_row, out_port, out_delay,
            )  # fmt: skip
            self._forwarding.looped += looped
            parts.append((out_row[:made], out_port[:made], out_delay[:made]))
            room = min(2 * room, 1 << 24)
        self._came += np.bincount(entry, minlength=count)
        self._came_bytes += np.bincount(entry, weights=size, minlength=count).astype(np.int64)
        if not parts:
            parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        found, ports, delays = (np.concatenate(column) for column in zip(*parts, strict=True))
        delays += self._delay_in[entry[found]]
        found = rows[found]
        order = np.argsort(found, kind="stable")
        places = [(port.switch.name, port.number) for port in self._ports]
        return Deliveries(found[order], ports[order], delays[order], places)

    def settle(self) -> None:
        """Pass on to flows and ports what they have missed."""
        decisions, decision_bytes, sent, sent_bytes, dropped = self._counts
        for d in np.flatnonzero(decisions).tolist():
            packets, octets = int(decisions[d]), int(decision_bytes[d])
            if not self._entries[d]:
                self._owner[d].unmatched += packets
            for hit in self._entries[d]:
                hit.packets += packets
                hit.bytes += octets
        came, came_bytes = self._came, self._came_bytes
        for i in np.flatnonzero(came | sent | dropped).tolist():
            port = self._ports[i]
            if port.switch.name in self._dead:
                port.dropped += int(came[i] + dropped[i])
                continue
            port.received += int(came[i])
            port.received_bytes += int(came_bytes[i])
            port.sent += int(sent[i])
            port.sent_bytes += int(sent_bytes[i])
            port.dropped += int(dropped[i])
            if port.far is not None:
                port.far.received += int(sent[i])
                port.far.received_bytes += int(sent_bytes[i])
        for array in (*self._counts, came, came_bytes):
            array[:] = 0
