"""A deployment: the table that a switch holds of one lane, kept up to date as its ideal table changes.

It is the function of `definition`, computed where something changes only.  Four tables lie behind each other:

    ideal ──▶ wanted ──▶ merged ──▶ whole ──▶ table
          transforms  merges     halves   what the switch is told

All but the first are one prefix tree in arrays (`tree.layout`), which compiled code keeps: a full table is merged while
somebody waits for an answer, and a request concerns many switches.  A node has what is wanted there, whether
there is a merge, and what follows from both.  A change of one entry climbs from there as long as something is
different: few steps, whatever the size of the table.

Which merges there are is chosen elsewhere: at once when an entry does not fit (`fit`, by `tree.choice`), or for the
whole network (`aggregation`).  Merges may lie in each other; an entry belongs to the smallest around it.  `merge` and
`split` are inverse steps; a split gives back one or two entries' worth of precision, so that merges are undone little
by little as room returns.

`tell` hands out what changed in the table since the last time, in a safe order (`tree.differences`); `sweep` does all
this for the tables of many switches at once.

Cost: O(depth) per changed entry; a merge that loses one is looked through until its ports are found at others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from sievenet.control.deployment.definition import NOBODY, ports_at, reduced
from sievenet.control.deployment.keys import Ports, Table, Transform, common, covers, keys_of, place, space, words_of
from sievenet.control.deployment.nests import added_space
from sievenet.control.deployment.sets import PortSets
from sievenet.control.deployment.tree.layout import (
    AS_ONE,
    BEFORE,
    ENTRIES,
    GIVES,
    LENGTH,
    MERGE,
    MERGES,
    PLACE,
    PORTS,
    THERE,
    TOLD,
    WANT,
    WANTED,
    WANTS,
    WAS,
    Arrays,
    empty,
    roomy,
    wider,
)

__all__ = ["Deployment"]

#: Merges that are tried in vain before the rest is left alone.
_TRIES: Final = 4

#: What a switch is told, as rows (`tree.differences`): what to do, a key, its length; the ports of each, in bytes.
Told = tuple[Any, list[Ports], int]


class Deployment:
    """One lane's table on one switch."""

    def __init__(self, root: int, ideal: Table | None = None) -> None:
        self.root = root
        #: Which bit is which port.
        self.sets = PortSets()
        self._arrays: Arrays = empty(*words_of(root))
        #: Where the tree is, in numbers, for compiled code that follows many (`tree.sweep`).
        self.place = np.zeros(PLACE, np.int64)
        self._transforms: tuple[Transform, ...] = ()
        #: The ideal table, if there are transforms; else it is what is wanted.
        self._ideal: dict[int, Ports] = {}
        self._stale = False
        self._say()
        self.put_all((ideal or {}).items())
        self.forget()

    def __len__(self) -> int:
        return self._arrays.nodes.item(ENTRIES)  # of node 0

    @property
    def told(self) -> int:
        """Entries that the switch had when changes were last taken."""
        return self._arrays.meta.item(TOLD)

    @property
    def table(self) -> dict[int, Ports]:
        """What the switch is given."""
        return self._listed(THERE, AS_ONE)

    def kept(self) -> Callable[[], dict[int, Ports]]:
        """The table as it is now, worked out when somebody asks."""
        a, sets = self._arrays, self.sets
        nodes = kernels().listed(a, 0, THERE)
        keys, lengths, masks = a.keys[nodes], a.nodes[nodes, LENGTH], a.masks[nodes, AS_ONE]

        def table() -> dict[int, Ports]:
            wide = np.pad(masks, ((0, 0), (0, sets.words - masks.shape[1])))  # ports may have come since
            return dict(zip(keys_of(keys, lengths), _each(sets, wide), strict=True))

        return table

    @property
    def ideal(self) -> dict[int, Ports]:
        """What there should be."""
        return self._ideal if self._transforms else self._listed(WANTED, WANT)

    @property
    def merges(self) -> set[int]:
        """Where entries are made one."""
        return set(self._listed(MERGE, GIVES))

    # -- what goes in ------------------------------------------------------------------------

    def put(self, key: int, ports: Ports | None) -> None:
        """An entry of the ideal table changes, or goes (None)."""
        self.put_all([(key, ports)])

    def put_all(self, entries: Iterable[tuple[int, Ports | None]]) -> None:
        """Entries of the ideal table change, or go (None)."""
        if self._transforms:
            self._stale = True
            for key, ports in entries:
                _set(self._ideal, key, ports)
        else:
            self._want(entries)

    def transform(self, transforms: Sequence[Transform]) -> None:
        """Put these between the ideal table and what is deployed."""
        if transforms and not self._transforms:
            self._ideal = self._listed(WANTED, WANT)
        self._stale = bool(transforms or self._transforms)
        self._transforms = tuple(transforms)
        self.update()

    def update(self) -> None:
        """Bring the table up to date, after any number of `put`."""
        if self._stale:
            self._stale = False
            table: dict[int, Ports] = self._ideal
            for each in self._transforms:
                table = each(table)
            gone: list[tuple[int, Ports | None]] = [
                (key, None) for key in self._listed(WANTED, WANT) if key not in table
            ]
            self._want([*gone, *table.items()])

    def taken(self) -> dict[int, tuple[Ports | None, Ports | None]]:
        """What changed in `table` since the last time: dz, ports before and now."""
        a = self._arrays
        found = kernels().changes(a)
        had, has = a.nodes[found, BEFORE].tolist(), a.nodes[found, THERE].tolist()
        was, now = self._ports(found, WAS), self._ports(found, AS_ONE)
        changed = {
            key: (was[i] if had[i] else None, now[i] if has[i] else None) for i, key in enumerate(self._keys(found))
        }
        self.forget()
        return changed

    def forget(self) -> None:
        """What changed is not to be told."""
        kernels().forget(self._arrays)

    def tell(self, room: int | None) -> Told:
        """What to tell the switch since the last time, with room for so many entries; and the most there are."""
        rows, sets, most = kernels().steps(self._arrays, -1 if room is None else room)
        return rows, _each(self.sets, sets), int(most)

    # -- merging -----------------------------------------------------------------------------

    def merge(self, key: int) -> None:
        """Make all below a dz one entry."""
        self._use(roomy(self._arrays, 6))
        hi, lo, length = words_of(key)
        kernels().merge_inside(self._arrays, np.uint64(hi), np.uint64(lo), length)

    def split(self, key: int) -> None:
        """Undo a merge by one step: each half of the dz becomes an entry, and the dz itself if it had one."""
        mine, inside = self._belonging(key), self._merges_below(key)[1:]
        parts = [[each for each in mine if covers(half, each)] for half in (2 * key, 2 * key + 1)]
        parts.append([key] if mine and mine[0] == key else [])
        alone = self._around(key >> 1) is None
        merges = [common(part[0], part[-1]) for part in parts if len(part) > 1 or (part and not alone)]
        around = 0
        for each in inside:
            if (around and covers(around, each)) or any(covers(merge, each) for merge in merges):
                merges.append(each)
            elif not alone or self._belonging(each) != [each]:
                around = each
                merges.append(each)
            # Else it was carved out of this one alone, and is a single entry like any other now.
        self._arrange(key, merges)

    def remerge(self, merges: Iterable[int]) -> None:
        """Have these merges and no others."""
        wanted = sorted((key for key in set(merges) if covers(self.root, key)), key=place)
        before = sorted(self.merges, key=place)
        groups: dict[int, list[int]] = {}
        top = 0
        for key in sorted({*wanted, *before}, key=place):
            top = top if top and covers(top, key) else key
            groups.setdefault(top, []).append(key)
        chosen, had = set(wanted), set(before)
        for top, group in groups.items():
            now = [key for key in group if key in chosen]
            if now != [key for key in group if key in had]:
                self._arrange(top, now)

    def fit(self, limit: int, *, least: bool = True, near: Iterable[int] = ()) -> None:
        """Merge until so many entries are left: where that adds least (LA-C), or beside the first dz (LA-B)."""
        hi, lo, _ = words_of(next(iter(near), 1))
        kernels().fit(self._arrays, limit, least, np.uint64(hi), np.uint64(lo))

    def relax(self, limit: int) -> None:
        """Undo merges as far as there is room, the largest first; of those in others only when these are gone."""
        if self._arrays.meta[WANTS] <= limit:
            self.remerge(())
            return
        tried: list[tuple[int, int, int]] = []
        while len(self) < limit and len(tried) < _TRIES:
            node = int(kernels().widest(self._arrays, np.array(tried, np.uint64).reshape(-1, 3)))
            if node < 0:
                return
            (key,) = self._keys(np.array([node]))
            before = self._merges_below(key)
            self.split(key)
            if len(self) > limit:
                self._arrange(key, before)
                tried.append(words_of(key))

    @property
    def has_merges(self) -> bool:
        """Whether there are merges."""
        return bool(self._arrays.nodes[0, MERGES])

    @property
    def wanted(self) -> Table:
        """What there would be to deploy if there were room for anything, but for what changes nothing."""
        return reduced(self._listed(WANTED, WANT), self.root) if self.has_merges else self.table

    def cost(self) -> Iterator[tuple[int, int, float]]:
        """Entries with merges in them: how many each stands for, the share of what it sends too far, if all is even."""
        found: dict[int, tuple[int, float]] = {}
        wanted, table = self._listed(WANTED, WANT), self.table
        for key, ports in self._listed(MERGE, GIVES).items():
            below, holes = self._belonging(key), self._merges_below(key)[1:]
            if not below:
                continue  # carved out of another: it adds nothing
            added = added_space(wanted, key, below, holes, ports, ports_at(wanted, key, self.root))
            at = key
            while at not in table and at > self.root:
                at >>= 1  # made one with its other half
            count, sum_ = found.get(at, (0, 0.0))
            found[at] = count + len(below), sum_ + added
        for at in sorted(found, key=place):
            ports = table.get(at, NOBODY)
            yield at, found[at][0], min(1.0, found[at][1] / (space(at) * max(1, len(ports))))

    # -- the tree ----------------------------------------------------------------------------

    def _want(self, entries: Iterable[tuple[int, Ports | None]]) -> None:
        """What is wanted changes."""
        words: list[int] = []
        sets: list[Ports] = []
        for key, ports in entries:
            words += words_of(key)
            words.append(ports is not None)
            sets.append(ports or NOBODY)
        if sets:
            self.want_rows(words, sets)

    def want_rows(self, words: list[int], sets: Sequence[Ports]) -> None:
        """The same for rows of the words of a key, its length, and whether there is an entry; and the ports of each."""
        known = [self.sets.known(ports) for ports in sets]
        if None in known:
            self._learn(frozenset[int]().union(*sets))
            known = [self.sets.known(ports) for ports in sets]
        data = b"".join(each for each in known if each is not None)
        self._use(roomy(self._arrays, 2 * len(sets)))
        masks = np.frombuffer(data, np.uint64).reshape(len(sets), -1)
        kernels().put_all(self._arrays, np.array(words, np.uint64).reshape(-1, 4), masks)

    def _use(self, arrays: Arrays) -> None:
        """The tree is in these arrays now."""
        if arrays is not self._arrays:
            self._arrays = arrays
            self._say()

    def _say(self) -> None:
        """Say in `place` where the tree is."""
        a = self._arrays
        assert all(each.flags.c_contiguous for each in a)
        self.place[:PORTS] = *(each.ctypes.data for each in a), *a.masks.shape[::2]
        self._say_ports()

    def _say_ports(self) -> None:
        self.place[PORTS:] = self.sets.order.ctypes.data, len(self.sets.order)

    def prepare(self, entries: int, ports: Collection[int]) -> None:
        """Make room for changes of so many entries, and know these ports."""
        self._learn(ports)
        self._use(roomy(self._arrays, 2 * entries))

    def _learn(self, ports: Collection[int]) -> None:
        """Ports that were not in use before; the tree's sets are made wide enough."""
        if len(self.sets) + len(ports) > 64 * self.sets.words:
            self._renumber()
        if self.sets.learn(ports):
            self._use(wider(self._arrays, self.sets.words))
        self._say_ports()

    def _renumber(self) -> None:
        """Give bits to the ports in use only: those of clients that are gone need none."""
        a, old = self._arrays, self.sets
        used = old.ports(np.bitwise_or.reduce(a.masks.reshape(-1, a.masks.shape[2]), axis=0).tobytes())
        if 2 * len(used) > len(old):
            return
        self.sets = PortSets()
        self.sets.learn(sorted(used))
        masks = np.zeros((*a.masks.shape[:2], self.sets.words), np.uint64)
        for at in zip(*np.nonzero(a.masks.any(axis=2)), strict=True):
            data = self.sets.known(old.ports(a.masks[at].tobytes()))
            assert data is not None
            masks[at] = np.frombuffer(data, np.uint64)
        self._use(a._replace(masks=masks))

    def _keys(self, nodes: Any) -> list[int]:
        return keys_of(self._arrays.keys[nodes], self._arrays.nodes[nodes, LENGTH])

    def _ports(self, nodes: Any, column: int) -> list[Ports]:
        return _each(self.sets, self._arrays.masks[nodes, column])

    def _listed(self, column: int, ports: int, below: int = 0) -> dict[int, Ports]:
        nodes = kernels().listed(self._arrays, below, column)
        return dict(zip(self._keys(nodes), self._ports(nodes, ports), strict=True))

    def _node(self, key: int) -> tuple[int, int]:
        """The innermost node at or around a dz, and the first at or below it, or -1."""
        hi, lo, length = words_of(key)
        at, below = kernels().find(self._arrays, np.uint64(hi), np.uint64(lo), length)
        return int(at), int(below)

    def _around(self, key: int) -> int | None:
        """The smallest merge around a dz."""
        if not covers(self.root, key):
            return None
        found = int(kernels().around(self._arrays, self._node(key)[0]))
        return self._keys(np.array([found]))[0] if found >= 0 else None

    def _merges_below(self, key: int) -> list[int]:
        """The merges at and below a dz, in order."""
        below = self._node(key)[1]
        return list(self._listed(MERGE, GIVES, below)) if below >= 0 else []

    def _belonging(self, merge: int) -> list[int]:
        """The entries that belong to a merge, in order."""
        below = self._node(merge)[1]
        return self._keys(kernels().belonging(self._arrays, below)) if below >= 0 else []

    def _arrange(self, key: int, merges: Sequence[int]) -> None:
        """Have these merges at a dz and below it, and no others there."""
        self._use(roomy(self._arrays, 2 * len(merges) + 4))
        rows = np.array([words_of(each) for each in merges], np.uint64).reshape(-1, 3)
        hi, lo, length = words_of(key)
        kernels().arrange(self._arrays, np.uint64(hi), np.uint64(lo), length, rows)


_kernels: Any = None


def kernels() -> Any:
    """The compiled code, loaded when a switch has a limit."""
    global _kernels
    if _kernels is None:
        from sievenet.control.deployment.tree import choice, differences, merging, nodes, shares, sweep

        parts = (nodes, merging, choice, differences, shares, sweep)
        _kernels = SimpleNamespace(**{name: each for part in parts for name, each in vars(part).items()})
    return _kernels


def _each(known: PortSets, sets: Any) -> list[Ports]:
    data, size, ports = sets.tobytes(), 8 * sets.shape[1], known.ports
    return [ports(data[at : at + size]) for at in range(0, len(data), size)]


def _set(table: dict[int, Ports], key: int, ports: Ports | None) -> None:
    if ports is None:
        table.pop(key, None)
    else:
        table[key] = ports
