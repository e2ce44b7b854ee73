"""What a switch holds of a lane, whatever the form of its tables: flows in, flow changes out.

`Deployment` (one table of dz) and `CellDeployment` (a table of cells per out port) know keys and merges.  Here they
get what `Holdings` needs of both: flows in their place, changes in an order that loses nothing and needs one spare
entry, and merges found again in what a switch holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from sievenet.control.deployment.cells import CellDeployment, Entry
from sievenet.control.deployment.definition import NOBODY
from sievenet.control.deployment.deployment import Deployment
from sievenet.control.deployment.keys import Ports, Table, covers
from sievenet.control.deployment.passage import passage, peak
from sievenet.control.deployment.sweep import changes_of
from sievenet.control.registrations.changes import Entries
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.network import Add, Delete, Flow, FlowChange, FlowTable, Match

__all__ = ["CellTables", "DzTable", "Held"]


class Held(ABC):
    """The deployed table of one lane on one switch."""

    #: The most entries on the way through the last `steps`.
    most: int = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def told(self) -> int:
        """Entries that the switch had when changes were last taken."""

    @property
    @abstractmethod
    def wide(self) -> bool:
        """Whether entries match everything, or there are none: no smaller table would do."""

    @property
    @abstractmethod
    def least(self) -> int:
        """The fewest entries that would do."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many entries there should be."""

    @abstractmethod
    def merged(self) -> bool:
        """Whether there are merges."""

    @abstractmethod
    def follow(self, changes: Iterable[FlowChange]) -> Sequence[Any]:
        """The ideal table changes; returns the keys concerned."""

    @abstractmethod
    def update(self) -> None:
        """Bring the table up to date."""

    @abstractmethod
    def fit(self, limit: int, *, least: bool = True, near: Iterable[Any] = ()) -> None:
        """Merge until so many entries are left."""

    @abstractmethod
    def relax(self, limit: int) -> None:
        """Undo merges as far as there is room."""

    @abstractmethod
    def remerge(self, merges: Iterable[Any]) -> None:
        """Have these merges and no others."""

    @abstractmethod
    def flows(self) -> Sequence[Flow]:
        """What the switch is given, now; made only if somebody looks."""

    @abstractmethod
    def steps(self, room: int | None) -> list[FlowChange]:
        """What to tell the switch since the last time, with never more than so many entries."""

    @abstractmethod
    def saw(self, held: Sequence[Flow]) -> None:
        """What the switch holds: have the merges found there."""

    @abstractmethod
    def forget(self) -> None:
        """What changed is not to be told: the switch is read."""

    @abstractmethod
    def passage(self, holds: FlowTable, wanted: FlowTable, room: int | None) -> list[FlowChange]:
        """The changes that put a switch right."""

    @abstractmethod
    def merging(self) -> Iterator[tuple[Dz | Cell, int, float]]:
        """Merged entries, what each stands for, and the share of what it sends too far, if all is even."""


class DzTable(Deployment, Held):
    """One table of dz."""

    def __init__(self, category: int, root: int, ideal: Iterable[Flow] = ()) -> None:
        self._category = category
        super().__init__(root, {f.match.cell.key: f.ports for f in ideal if isinstance(f.match.cell, Dz)})

    @property
    def wide(self) -> bool:
        """Whether no smaller table would do."""
        return not len(self) or (len(self) == 1 and self.root in self.table)

    @property
    def least(self) -> int:
        """One, or none."""
        return min(len(self), 1)

    @property
    def count(self) -> int:
        """How many entries there should be."""
        return len(self.ideal)

    def merged(self) -> bool:
        """Whether there are merges."""
        return self.has_merges

    def follow(self, changes: Iterable[FlowChange]) -> Sequence[int]:
        """The ideal table changes."""
        if isinstance(changes, Entries) and not self._transforms:
            return self._follow(changes)
        entries: dict[int, Ports | None] = {}
        for change in changes:
            cell = change.flow.match.cell
            assert isinstance(cell, Dz)
            entries[cell.key] = None if isinstance(change, Delete) else change.flow.ports
        self.put_all(entries.items())
        return list(entries)

    def _follow(self, changes: Entries) -> Sequence[int]:
        """The same for what comes straight from the registrations."""
        places, rows = changes.places, changes.rows
        words: list[int] = []
        for place, ports in rows:
            words += places[place]
            words.append(ports is not None)
        self.want_rows(words, [ports or NOBODY for _, ports in rows])
        hi, lo, length = places[rows[0][0]]
        return [1 << length | (hi << 64 | lo) >> CODE_BITS - length]

    def flow(self, key: int, ports: Ports) -> Flow:
        """The flow of a dz."""
        dz = Dz.of_key(key)
        return Flow(Match(self._category, dz), ports, dz.length)

    def flows(self) -> Sequence[Flow]:
        """What the switch is given."""
        return _Flows(len(self), self.kept(), self.flow)

    def steps(self, room: int | None) -> list[FlowChange]:
        """What to tell the switch since the last time."""
        rows, sets, self.most = self.tell(room)
        return changes_of(self._category, rows, sets)

    def saw(self, held: Sequence[Flow]) -> None:
        """Have the merges that a switch holds."""
        self.remerge(())
        keys = [f.match.cell.key for f in held if isinstance(f.match.cell, Dz) and f.priority == f.match.cell.length]
        table = self.table
        outer = [key for key in keys if key not in table]
        # What lies in a merge is carved out of it.
        self.remerge({key for key in keys if any(covers(each, key) for each in outer)})
        self.forget()

    def passage(self, holds: FlowTable, wanted: FlowTable, room: int | None) -> list[FlowChange]:
        """The changes that put a switch right."""
        return passage(holds, wanted, room)

    def merging(self) -> Iterator[tuple[Dz | Cell, int, float]]:
        """Merged entries, what each stands for, and the share sent too far."""
        return ((Dz.of_key(key), entries, share) for key, entries, share in self.cost())


class CellTables(Held):
    """A table of cells for each out port."""

    def __init__(self, category: int, root: int, ideal: Iterable[Flow] = ()) -> None:
        self._category = category
        #: How the cell of some bits was first written: as part of the space of a plan's width.
        self._matches: dict[tuple[int, int], Match] = {}
        self._width = 0
        self.deployment = CellDeployment(Dz.of_key(root).masked, [self._entry(flow) for flow in ideal])

    def __len__(self) -> int:
        return len(self.deployment)

    @property
    def told(self) -> int:
        """Entries that the switch had when changes were last taken."""
        return self.deployment.told

    @property
    def wide(self) -> bool:
        """Whether no smaller table would do."""
        return self.deployment.wide

    @property
    def least(self) -> int:
        """One for each port."""
        return self.deployment.least

    @property
    def count(self) -> int:
        """How many entries there should be."""
        return len(self.deployment.ideal)

    def merged(self) -> bool:
        """Whether there are merges."""
        return bool(self.deployment.merges)

    def _entry(self, flow: Flow) -> Entry:
        self._matches.setdefault(flow.match.bits, flow.match)
        if isinstance(flow.match.cell, Cell):
            self._width = max(self._width, flow.match.cell.width)
        return flow.table, *flow.match.bits

    def flow(self, entry: Entry) -> Flow:
        """The flow of a cell for a port."""
        port, value, mask = entry
        match = self._matches.get((value, mask))
        if match is None:
            shift = CODE_BITS - max(self._width, _length(mask))
            match = Match(self._category, Cell(value >> shift, mask >> shift, CODE_BITS - shift))
            self._matches[value, mask] = match
        return Flow(match, frozenset((port,)), mask.bit_count(), table=port)

    def follow(self, changes: Iterable[FlowChange]) -> Sequence[Entry]:
        """The ideal table changes."""
        near = []
        for change in changes:
            near.append(self._entry(change.flow))
            self.deployment.put(near[-1], not isinstance(change, Delete))
        return near

    def update(self) -> None:
        """Bring the table up to date."""
        self.deployment.update()

    def fit(self, limit: int, *, least: bool = True, near: Iterable[Any] = ()) -> None:
        """Merge until so many entries are left."""
        self.deployment.fit(limit, least=least, near=near)

    def relax(self, limit: int) -> None:
        """Undo merges as far as there is room."""
        self.deployment.relax(limit)

    def remerge(self, merges: Iterable[Any]) -> None:
        """Have these merges and no others."""
        self.deployment.remerge(merges)

    def flows(self) -> Sequence[Flow]:
        """What the switch is given."""
        return [self.flow(entry) for entry in sorted(self.deployment.table)]

    def steps(self, room: int | None) -> list[FlowChange]:
        """What to tell the switch since the last time."""
        size = self.told
        came, went = self.deployment.taken()
        root, standing = self.deployment.root, self.deployment.table - came
        new, old = map(self.flow, sorted(came)), map(self.flow, sorted(went))
        done = self._in_order(new, old, size, room, lambda port: (port, *root) in standing)
        self.most = peak(size, done)
        return done

    def saw(self, held: Sequence[Flow]) -> None:
        """Have the merges that a switch holds."""
        self.remerge(())
        entries = [self._entry(flow) for flow in held if flow.table]
        self.remerge([entry for entry in entries if entry not in self.deployment.table])
        self.deployment.taken()

    def forget(self) -> None:
        """What changed is not to be told."""
        self.deployment.taken()

    def passage(self, holds: FlowTable, wanted: FlowTable, room: int | None) -> list[FlowChange]:
        """The changes that put a switch right."""
        before, after = holds.by_key(), wanted.by_key()
        came = [flow for key, flow in after.items() if key not in before]
        went = [flow for key, flow in before.items() if key not in after]
        standing = before.keys() & after.keys()
        return self._in_order(came, went, len(holds), room, lambda port: self._wide(port).key in standing)

    def _wide(self, port: int) -> Flow:
        """The flow of everything for a port."""
        return self.flow((port, *self.deployment.root))

    def _in_order(
        self, came: Iterable[Flow], went: Iterable[Flow], size: int, room: int | None, stands: Callable[[int], bool]
    ) -> list[FlowChange]:
        """What comes before what goes; port by port, if there is no room for that at once.

        A port for which there is still too little has an entry for everything while its others change; it may have
        had it before, and keep it (`stands`).
        """
        by_port: dict[int, tuple[list[Flow], list[Flow]]] = {}
        for number, flows in enumerate((came, went)):
            for flow in flows:
                by_port.setdefault(flow.table, ([], []))[number].append(flow)
        total = sum(len(new) for new, _ in by_port.values())
        if room is None or size + total <= room:
            new_first: list[FlowChange] = [Add(flow) for new, _ in by_port.values() for flow in new]
            return new_first + [Delete(flow) for _, old in by_port.values() for flow in old]
        done: list[FlowChange] = []
        for _, (new, old) in sorted(by_port.items(), key=lambda each: (len(each[1][0]) - len(each[1][1]), each[0])):
            adding: list[FlowChange] = [Add(flow) for flow in new]
            going: list[FlowChange] = [Delete(flow) for flow in old]
            if size + len(new) <= room or not old:
                done += adding + going
            elif stands(old[0].table):
                done += going + adding
            else:
                wide = self._wide(old[0].table)
                comes, goes = wide in new, wide in old
                done += [] if goes else [Add(wide)]
                done += [change for change in going + adding if change.flow != wide]
                done += [] if comes else [Delete(wide)]
            size += len(new) - len(old)
        return done

    def merging(self) -> Iterator[tuple[Dz | Cell, int, float]]:
        """Merged entries, what each stands for, and the share sent too far."""
        found: dict[Dz | Cell, tuple[int, float]] = {}
        for entry, count, share in self.deployment.cost():
            cell = self.flow(entry).match.cell
            before = found.get(cell, (0, 0.0))
            found[cell] = before[0] + count, max(before[1], share)
        return ((cell, count, share) for cell, (count, share) in found.items())


def _length(mask: int) -> int:
    """How many bits there are up to the last that is fixed."""
    return CODE_BITS + 1 - (mask & -mask).bit_length() if mask else 0


class _Flows(Sequence[Flow]):
    """The flows of a table as it was, made when somebody wants them."""

    def __init__(self, count: int, table: Callable[[], Table], flow: Callable[[int, Ports], Flow]) -> None:
        self._count = count
        self._table = table
        self._flow = flow

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Flow]:
        return (self._flow(key, ports) for key, ports in self._table().items())

    @overload
    def __getitem__(self, at: int) -> Flow: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Flow]: ...

    def __getitem__(self, at: int | slice) -> Flow | Sequence[Flow]:
        return list(self)[at]
