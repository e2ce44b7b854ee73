"""A deployment: the table that a switch holds of one lane, kept up to date as its ideal table changes.

It is the function of `definition`, computed where something changes only.  Four tables lie behind each other:

    ideal ──▶ wanted ──▶ merged ──▶ whole ──▶ table
          transforms  merges     halves   what the switch is told

`whole` says of every dz that entries cover completely which ports it has as one, or None if its halves differ; a dz
is in `table` iff it is whole and not made one with its other half.  A change of one entry climbs from there as long as
something is different: few steps, whatever the size of the table.

Which merges there are is chosen elsewhere: at once when an entry does not fit (`fit`, by `Neighbours`), or for the
whole network (`aggregation`).  Merges may lie in each other; an entry belongs to the smallest around it.  `merge` and
`split` are inverse steps; a split gives back one or two entries' worth of precision, so that merges are undone little
by little as room returns.

`taken` hands out what changed in `table` since the last time, which `passage` turns into changes in a safe order.

Cost: O(log n + steps) per changed entry, apart from two sorted lists (a move of a few kilobytes at most), and a
merge that loses an entry is united again, in the number of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sievenet.control.deployment.definition import NOBODY, ports_at, reduced
from sievenet.control.deployment.keys import Ports, Table, Transform, common, covers, place, space
from sievenet.control.deployment.neighbours import Neighbours
from sievenet.control.deployment.nests import added_space, any_nested, inner_ports
from sievenet.control.deployment.places import Places

__all__ = ["Deployment"]

#: Merges that are tried in vain before the rest is left alone.
_TRIES: Final = 4


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
        #: The ports of those that belong to each merge, and whether a merge may lie in another.
        self._inner: dict[int, Ports] = {}
        self._nested = False
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
        below = self._wanted_order.below(key)
        if not below:
            return
        if self._nested or self._around(key) is not None:
            self._arrange(key, [key])
            return
        for each in self._merge_order.below(key):  # the same, for this frequent case
            self.merges.discard(each)
            self._merge_order.remove(each)
            del self._inner[each]
            self._put(each, None)
        wanted, merged = self._wanted, self._merged
        for each in below:
            if each != key and each in merged:
                self._put(each, None)
        self.merges.add(key)
        self._merge_order.add(key)
        self._inner[key] = frozenset[int]().union(*[wanted[each] for each in below])
        self._refresh(key)

    def split(self, key: int) -> None:
        """Undo a merge by one step: each half of the dz becomes an entry, and the dz itself if it had one."""
        mine, inside = self._belonging(key), self._merge_order.below(key)[1:]
        parts = [[each for each in mine if covers(half, each)] for half in (2 * key, 2 * key + 1)]
        parts.append([key] if key in self._wanted else [])
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
        self._arrange(key, sorted(merges, key=place))

    def remerge(self, merges: Iterable[int]) -> None:
        """Have these merges and no others."""
        wanted = {key for key in merges if covers(self.root, key)}
        before = self.merges.copy()
        top = 0
        for key in sorted(wanted | before, key=place):
            if top and covers(top, key):
                continue
            top = key
            now = sorted((each for each in wanted if covers(top, each)), key=place)
            if now != self._merge_order.below(top):
                self._arrange(top, now)

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
        """Undo merges as far as there is room, the largest first; of those in others only when these are gone."""
        tried: set[int] = set()
        while len(self.table) < limit and len(tried) < _TRIES and (left := self._outer() - tried):
            key = max(left, key=lambda k: (space(k) * len(self._merged[k]), k))
            before = self._merge_order.below(key)
            self.split(key)
            if len(self.table) > limit:
                self._arrange(key, before)
                tried.add(key)

    @property
    def wanted(self) -> Table:
        """What there would be to deploy if there were room for anything, but for what changes nothing."""
        return reduced(self._wanted, self.root) if self.merges else self.table

    def cost(self) -> Iterator[tuple[int, int, float]]:
        """Entries with merges in them: how many each stands for, the share of what it sends too far, if all is even."""
        found: dict[int, tuple[int, float]] = {}
        for key in self.merges:
            below, ports = self._belonging(key), self._merged[key]
            holes = self._merge_order.below(key)[1:] if self._nested else []
            added = added_space(self._wanted, key, below, holes, ports, ports_at(self._wanted, key, self.root))
            at = key
            while at not in self.table and at > self.root:
                at >>= 1  # made one with its other half
            count, sum_ = found.get(at, (0, 0.0))
            found[at] = count + len(below), sum_ + added
        for at in sorted(found, key=place):
            ports = self.table.get(at, NOBODY)
            yield at, found[at][0], min(1.0, found[at][1] / (space(at) * max(1, len(ports))))

    # -- one step after the other ------------------------------------------------------------

    def _around(self, key: int) -> int | None:
        """The smallest merge around a dz."""
        merges = self.merges
        if not merges:
            return None
        if not self._nested:
            return self._merge_order.before(key)
        while key >= self.root:
            if key in merges:
                return key
            key >>= 1
        return None

    def _outer(self) -> set[int]:
        """The merges that lie in no other."""
        return {each for each in self.merges if self._around(each >> 1) is None} if self._nested else self.merges

    def _belonging(self, merge: int) -> list[int]:
        """The entries that belong to a merge, in order."""
        below = self._wanted_order.below(merge)
        if not self._nested:
            return below
        inside = iter([*self._merge_order.below(merge)[1:], 0])
        found, hole, next_ = [], 0, next(inside)
        for key in below:
            while next_ and place(next_) <= place(key):
                if not (hole and covers(hole, next_)):
                    hole = next_
                next_ = next(inside)
            if not (hole and covers(hole, key)):
                found.append(key)
        return found

    def _arrange(self, key: int, merges: Sequence[int]) -> None:
        """Have these merges, in order, at a dz and below it, and no others there."""
        old, below = self._merge_order.below(key), self._wanted_order.below(key)
        for each in old:
            self.merges.discard(each)
            self._merge_order.remove(each)
            del self._inner[each]
        outer = self._around(key)
        inner = inner_ports(self._wanted, below, merges)
        for each in inner:
            self.merges.add(each)
            self._merge_order.add(each)
        self._nested = self._nested or bool(inner and outer) or any_nested(merges)
        self._inner |= inner
        if outer is None:  # entries that belong to none are as they were
            single = [each for each in below if self._around(each) is None] if inner else below
        else:
            single = []
        for each in {*old, *below} - inner.keys() - set(single):
            self._put(each, None)
        for each in single:
            self._put(each, self._wanted[each])
        for each, ports in inner.items():
            self._put(each, ports | ports_at(self._wanted, each, self.root))
        if outer is not None:
            self._gather(outer)

    def _gather(self, merge: int) -> None:
        """What belongs to a merge has changed: its ports are others, or it is smaller, or there is none.

        One that is carved out of another stays as large as it is: what it gave up would go to the ports of the other.
        """
        mine = self._belonging(merge)
        tight = common(mine[0], mine[-1]) if mine else 0
        if tight == merge or (mine and self._nested and self._around(merge >> 1) is not None):
            self._inner[merge] = frozenset[int]().union(*(self._wanted[each] for each in mine))
            self._refresh(merge)
            return
        self.merges.discard(merge)
        self._merge_order.remove(merge)
        del self._inner[merge]
        self._put(merge, None)
        if len(mine) > 1 or (mine and self._around(tight) is not None):
            self.merges.add(tight)
            self._merge_order.add(tight)
            self._inner[tight] = frozenset[int]().union(*(self._wanted[each] for each in mine))
            self._refresh(tight)
        elif mine:
            self._put(tight, self._wanted[tight])

    def _refresh(self, merge: int) -> None:
        self._put(merge, self._inner[merge] | ports_at(self._wanted, merge, self.root))

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
        if not self.merges:
            self._put(key, ports)
            return
        merge = self._around(key)
        if merge is None:
            self._put(key, ports)
        elif ports is not None and (old is None or old <= ports):
            if not ports <= self._inner[merge]:
                self._inner[merge] |= ports
                self._refresh(merge)
        else:
            self._gather(merge)
        if merge is None or self._nested:  # entries around merges count for them
            for each in self._merge_order.below(key):
                if each != key:
                    self._refresh(each)

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
