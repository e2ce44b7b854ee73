"""A deployment: the table that a switch holds of one lane, kept up to date as its ideal table changes.

It is the function of `definition`, computed where something changes only.  Four tables lie behind each other:

    ideal ──▶ wanted ──▶ merged ──▶ whole ──▶ table
          transforms  merges     halves   what the switch is told

`whole` says of every dz that entries cover completely which ports it has as one, or None if its halves differ; a dz
is in `table` iff it is whole and not made one with its other half.  A change of one entry climbs from there as long as
something is different: few steps, whatever the size of the table.

Which merges there are is chosen elsewhere: at once when an entry does not fit (`fit`, by `Neighbours`), or for the
whole network (`aggregation`).  `merge` and `split` are inverse steps; a split gives back one or two entries' worth of
precision, so that merges are undone little by little as room returns.

`taken` hands out what changed in `table` since the last time, which `passage` turns into changes in a safe order.

Cost: O(log n + steps) per changed entry, apart from two sorted lists (a move of a few kilobytes at most), and a
merge that loses an entry is united again, in the number of its entries.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sievenet.control.deployment.definition import NOBODY, ports_at, reduced
from sievenet.control.deployment.keys import Ports, Table, Transform, common, covers, place, space, stretch
from sievenet.control.deployment.neighbours import Neighbours

__all__ = ["Deployment"]

#: Merges that are tried in vain before the rest is left alone.
_TRIES: Final = 4


class Places:
    """Dz in their order."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []

    def add(self, key: int) -> None:
        insort(self._order, (place(key), key))

    def remove(self, key: int) -> None:
        at = bisect_left(self._order, (place(key), key))
        del self._order[at]

    def below(self, key: int) -> list[int]:
        """A dz and those that it covers, as far as they are here."""
        first, last = stretch(key)
        order = self._order
        return [each for _, each in order[bisect_left(order, (first, 0)) : bisect_left(order, (last, 0))]]

    def any_below(self, key: int) -> bool:
        """Whether there are any."""
        first, last = stretch(key)
        at = bisect_left(self._order, (first, 0))
        return at < len(self._order) and self._order[at][0] < last

    def around(self, key: int) -> int | None:
        """The dz that covers one, if none here covers another."""
        at = bisect_left(self._order, (place(key), key + 1))
        if at and covers(self._order[at - 1][1], key):
            return self._order[at - 1][1]
        return None


class Deployment:
    """One lane's table on one switch."""

    def __init__(self, root: int, ideal: Table | None = None) -> None:
        self.root = root
        self.ideal: dict[int, Ports] = {}
        self.merges: set[int] = set()
        #: What the switch is given.
        self.table: dict[int, Ports] = {}
        self._transforms: tuple[Transform, ...] = ()
        self._wanted = self.ideal
        self._wanted_order = Places()
        self._merge_order = Places()
        self._merged: dict[int, Ports] = {}
        self._whole: dict[int, Ports | None] = {}
        self._neighbours: Neighbours | None = None
        #: What changed in `table`, with what was there before.
        self._before: dict[int, Ports | None] = {}
        self._stale = False
        #: Entries that the switch had when changes were last taken.
        self.told = 0
        for key, ports in (ideal or {}).items():
            self.put(key, ports)
        self.taken()

    def __len__(self) -> int:
        return len(self.table)

    # -- what goes in ------------------------------------------------------------------------

    def put(self, key: int, ports: Ports | None) -> None:
        """An entry of the ideal table changes, or goes (None)."""
        if self._transforms:
            self._stale = True
            _set(self.ideal, key, ports)
        else:
            self._want(key, ports)

    def transform(self, transforms: Sequence[Transform]) -> None:
        """Put these between the ideal table and what is deployed."""
        if transforms and not self._transforms:
            self.ideal = dict(self._wanted)
        self._transforms = tuple(transforms)
        self._stale = True
        self.update()
        if not transforms:
            self.ideal = self._wanted

    def update(self) -> None:
        """Bring the table up to date, after any number of `put`."""
        if self._stale:
            self._stale = False
            table: dict[int, Ports] = self.ideal
            for each in self._transforms:
                table = each(table)
            for key in self._wanted.keys() - table.keys():
                self._want(key, None)
            for key, ports in table.items():
                self._want(key, ports)

    def taken(self) -> dict[int, tuple[Ports | None, Ports | None]]:
        """What changed in `table` since the last time: dz, ports before and now."""
        changed = {k: (was, now) for k, was in self._before.items() if (now := self.table.get(k)) != was}
        self._before = {}
        self.told = len(self.table)
        return changed

    # -- merging -----------------------------------------------------------------------------

    def merge(self, key: int) -> None:
        """Make all below a dz one entry."""
        if self.merges and self._merge_order.around(key) is not None:
            return
        for each in self._merge_order.below(key):
            self._drop(each)
        below = self._wanted_order.below(key)
        if not below:
            return
        for each in below:
            if each in self._merged:
                self._put(each, None)
        self.merges.add(key)
        self._merge_order.add(key)
        self._put(key, self._union(key, below))

    def split(self, key: int) -> None:
        """Undo a merge by one step: each half of the dz becomes an entry, and the dz itself if it had one."""
        self._drop(key)
        below = self._wanted_order.below(key)
        for half in (2 * key, 2 * key + 1):
            inside = [each for each in below if covers(half, each)]
            if len(inside) > 1:
                self.merge(common(inside[0], inside[-1]))
            else:
                for each in inside:
                    self._put(each, self._wanted[each])
        if key in self._wanted:
            self._put(key, self._wanted[key])

    def remerge(self, merges: Iterable[int]) -> None:
        """Have these merges and no others."""
        wanted = {key for key in merges if self._wanted_order.any_below(key)}
        for key in self.merges - wanted:
            self._drop(key)
            for each in self._wanted_order.below(key):
                self._put(each, self._wanted[each])
        for key in sorted(wanted - self.merges, key=place):
            if self._merge_order.around(key) is None:
                self.merge(key)

    def fit(self, limit: int, *, least: bool = True, near: Iterable[int] = ()) -> None:
        """Merge until so many entries are left: where that adds least (LA-C), or beside these dz (LA-B)."""
        if limit < 1:
            if self.table and self.table.keys() != {self.root}:
                self.merge(self.root)
            return
        if len(self.table) <= limit:
            return
        if self._neighbours is None:
            self._neighbours = Neighbours(self.table, self.root)
        beside = list(near)
        while len(self.table) > limit:
            self.merge(self._neighbours.cheapest() if least else self._neighbours.nearest(beside))

    def relax(self, limit: int) -> None:
        """Undo merges as far as there is room, the largest first."""
        tried: set[int] = set()
        while len(self.table) < limit and len(tried) < _TRIES and (left := self.merges - tried):
            key = max(left, key=lambda k: (space(k) * len(self._merged[k]), k))
            self.split(key)
            if len(self.table) > limit:
                self.merge(key)
                tried.add(key)

    @property
    def wanted(self) -> Table:
        """What there would be to deploy if there were room for anything, but for what changes nothing."""
        return reduced(self._wanted, self.root) if self.merges else self.table

    def cost(self) -> Iterator[tuple[int, int, float]]:
        """Entries with merges in them: how many each stands for, the share of what it sends too far, if all is even."""
        found: dict[int, tuple[int, float]] = {}
        for key in self.merges:
            below, ports = self._wanted_order.below(key), self._merged[key]
            added = _added(self._wanted, key, below, ports, ports_at(self._wanted, key, self.root))
            at = key
            while at not in self.table and at > self.root:
                at >>= 1  # made one with its other half
            count, sum_ = found.get(at, (0, 0.0))
            found[at] = count + len(below), sum_ + added
        for at in sorted(found, key=place):
            ports = self.table.get(at, NOBODY)
            yield at, found[at][0], min(1.0, found[at][1] / (space(at) * max(1, len(ports))))

    # -- one step after the other ------------------------------------------------------------

    def _want(self, key: int, ports: Ports | None) -> None:
        old = self._wanted.get(key)
        if old == ports:
            return
        if ports is None:
            del self._wanted[key]
            self._wanted_order.remove(key)
        else:
            self._wanted[key] = ports
            if old is None:
                self._wanted_order.add(key)
        merge = self._merge_order.around(key) if self.merges else None
        if merge is None:
            self._put(key, ports)
            if self.merges:
                less = old if old is not None else ports_at(self._wanted, key, self.root)
                more = ports is not None and less <= ports
                for each in self._merge_order.below(key):
                    if more and ports is not None:
                        self._put(each, self._merged[each] | ports)
                    else:
                        self._put(each, self._union(each, self._wanted_order.below(each)))
        elif not self._wanted_order.any_below(merge):
            self._drop(merge)
        elif ports is not None and (old is None or old <= ports):
            if not ports <= self._merged[merge]:
                self._put(merge, self._merged[merge] | ports)
        else:
            below = self._wanted_order.below(merge)
            tight = common(below[0], below[-1])
            if ports is not None or tight == merge:
                self._put(merge, self._union(merge, below))
            else:  # a smaller merge does, or none
                self._drop(merge)
                if len(below) > 1:
                    self.merge(tight)
                else:
                    self._put(tight, self._wanted[tight])

    def _union(self, key: int, below: Iterable[int]) -> Ports:
        return ports_at(self._wanted, key, self.root).union(*(self._wanted[each] for each in below))

    def _drop(self, merge: int) -> None:
        self.merges.discard(merge)
        self._merge_order.remove(merge)
        self._put(merge, None)

    def _put(self, key: int, ports: Ports | None) -> None:
        """An entry of the merged table changes: climb as long as something is different."""
        if self._merged.get(key) == ports:
            return
        _set(self._merged, key, ports)
        merged, whole, root = self._merged, self._whole, self.root
        while True:
            left, right = 2 * key, 2 * key + 1
            had = key in whole
            was = whole.get(key)
            if left in whole and right in whole:
                has, now = True, whole[left] if whole[left] == whole[right] else None
            else:
                now = merged.get(key)
                has = now is not None
            if had == has and was == now:
                return
            if has:
                whole[key] = now
            else:
                del whole[key]
            self._place(key)
            if key <= root:
                return
            self._place(key ^ 1)
            key >>= 1

    def _place(self, key: int) -> None:
        """Whether a dz is in the table."""
        ports = self._whole.get(key)
        if ports is not None and key > self.root and self._whole.get(key ^ 1) == ports:
            ports = None
        was = self.table.get(key)
        if was == ports:
            return
        self._before.setdefault(key, was)
        _set(self.table, key, ports)
        if self._neighbours is not None:
            self._neighbours.changed(key, was is not None, ports is not None)


def _set(table: dict[int, Ports], key: int, ports: Ports | None) -> None:
    if ports is None:
        table.pop(key, None)
    else:
        table[key] = ports


def _added(table: Table, merge: int, below: Sequence[int], ports: Ports, outside: Ports) -> float:
    """The space that a merge sends too much, summed over its ports."""
    added = len(ports - outside) * space(merge)
    open_: list[tuple[int, Ports]] = []  # entries around, with their ports
    for key in below:
        while open_ and not covers(open_[-1][0], key):
            open_.pop()
        around = open_[-1][1] if open_ else outside
        added -= space(key) * len(table[key] - around)
        added += space(key) * len(around - table[key])
        open_.append((key, table[key]))
    return max(0.0, added)
