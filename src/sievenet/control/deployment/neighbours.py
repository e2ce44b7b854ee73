"""Neighbours: which two entries of a table to make one when it is full (the local aggregation of PLEROMA).

In the order of dz (`keys.place`) two entries with the longest common prefix stand side by side, so the candidates are
the n - 1 pairs of neighbours.  A pair is a *lowest* merge point if its neighbours to both sides have less in common:

    00 → a
    010 → b ┐ 01   lowest         merging 00 and 010 would take 011 along: not lowest
    011 → c ┘

- **LA-B** takes the lowest one nearest to the new entry: a few steps.
- **LA-C** takes the one that adds least: space sent too much, summed over ports.  What is inside the common dz and in
  neither entry went to the ports around before, and goes to all of both now.

Costs are in a heap; a pair whose entries have changed since is pushed anew and its old entry skipped, so that a
change costs O(log n), and the cheapest pair is on top but for the skipped.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence

from sievenet.control.deployment.definition import ports_at
from sievenet.control.deployment.keys import Ports, common, covers, key_at, place, space

__all__ = ["Neighbours"]


class Neighbours:
    """The pairs of a table that belongs to somebody else, who tells of every change."""

    def __init__(self, table: dict[int, Ports], root: int) -> None:
        self._table = table
        self._root = root
        self._order = sorted(map(place, table))
        #: The cost of the pair that begins with an entry, as it was last pushed.
        self._cost: dict[tuple[int, int], float] = {}
        self._heap: list[tuple[float, int, int]] = []
        self._stale: set[int] = set(table)

    def changed(self, key: int, was: bool, now: bool) -> None:
        """An entry came, went, or has other ports."""
        order, here = self._order, place(key)
        at = bisect_left(order, here)
        if not now:
            del order[at]
            self._stale.discard(key)
        else:
            if not was:
                order.insert(at, here)
            self._stale.add(key)
        if at:
            self._stale.add(key_at(order[at - 1]))

    # -- LA-B --------------------------------------------------------------------------------

    def nearest(self, near: Sequence[int]) -> int:
        """A lowest merge point beside one of these dz, or beside the first entry."""
        at = bisect_left(self._order, place(near[0])) if near else 0
        order = self._order
        at = min(max(at, 0), len(order) - 2)
        if at and _length(order, at - 1) > _length(order, at):
            at -= 1
        while True:  # towards a neighbour with a longer common prefix there is always an end
            here = _length(order, at)
            if at and _length(order, at - 1) > here:
                at -= 1
            elif at + 2 < len(order) and _length(order, at + 1) > here:
                at += 1
            else:
                break
        return common(key_at(order[at]), key_at(order[at + 1]))

    # -- LA-C --------------------------------------------------------------------------------

    def cheapest(self) -> int:
        """The lowest merge point that adds least."""
        self._push()
        heap, aside = self._heap, []
        found = 0
        while not found:
            cost, a, b = heapq.heappop(heap)
            if self._cost.get((a, b)) != cost:
                continue
            at = bisect_left(self._order, place(a))
            if at + 1 >= len(self._order) or self._order[at] != place(a) or self._order[at + 1] != place(b):
                del self._cost[a, b]
                continue
            aside.append((cost, a, b))
            if self._lowest(at):
                found = common(a, b)
        for each in aside:
            heapq.heappush(heap, each)
        return found

    def _push(self) -> None:
        order = self._order
        for key in self._stale:
            at = bisect_left(order, place(key))
            if at + 1 < len(order) and order[at] == place(key):
                other = key_at(order[at + 1])
                cost = self._price(key, other)
                if self._cost.get((key, other)) != cost:
                    self._cost[key, other] = cost
                    heapq.heappush(self._heap, (cost, key, other))
        self._stale.clear()

    def _price(self, a: int, b: int) -> float:
        mine, other = self._table[a], self._table[b]
        merge = common(a, b)
        if merge == a:
            return (space(a) - space(b)) * len(other - mine) + space(b) * len(mine - other)
        around = self._table.get(merge)
        if around is None:
            around = ports_at(self._table, merge, self._root)
        both = mine | other
        gap = space(merge) - space(a) - space(b)
        return space(a) * len(both - mine) + space(b) * len(both - other) + gap * len(both - around)

    def _lowest(self, at: int) -> bool:
        """Whether merging a pair takes no other pair along; an entry around both may go with them."""
        order, here = self._order, _length(self._order, at)
        if at + 2 < len(order):
            first = key_at(order[at])
            if covers(first, key_at(order[at + 1])) and covers(first, key_at(order[at + 2])):
                return False  # the next pair stands for all three
            if _length(order, at + 1) > here:
                return False
        return not at or _length(order, at - 1) <= here


def _length(order: list[int], at: int) -> int:
    """How much a pair has in common."""
    return common(key_at(order[at]), key_at(order[at + 1])).bit_length()
