"""Nests: merges that lie in each other, and which entries belong to which."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sievenet.control.deployment.keys import Ports, Table, covers, place, space

__all__ = ["added_space", "any_nested", "inner_ports"]


def any_nested(merges: Sequence[int]) -> bool:
    """Whether one of some merges, in order, lies in another."""
    return any(covers(a, b) for a, b in pairwise(merges))


def inner_ports(table: Table, below: Sequence[int], merges: Sequence[int]) -> dict[int, Ports]:
    """The ports of those that belong to each of some merges; those to which none does are left out."""
    found: dict[int, set[int]] = {}
    open_: list[int] = []  # merges around
    at = 0
    for key in below:
        while at < len(merges) and place(merges[at]) <= place(key):
            while open_ and not covers(open_[-1], merges[at]):
                open_.pop()
            open_.append(merges[at])
            at += 1
        while open_ and not covers(open_[-1], key):
            open_.pop()
        if open_:
            found.setdefault(open_[-1], set()).update(table[key])
    return {merge: frozenset(ports) for merge, ports in found.items()}


def added_space(
    table: Table, merge: int, below: Sequence[int], holes: Sequence[int], ports: Ports, outside: Ports
) -> float:
    """The space that a merge sends too much, summed over its ports; what is carved out of it does not count."""
    added = len(ports - outside) * space(merge)
    open_: list[tuple[int, Ports | None]] = []  # entries around, with their ports; None for a hole
    for key in sorted((*below, *holes), key=place) if holes else below:
        while open_ and not covers(open_[-1][0], key):
            open_.pop()
        around = open_[-1][1] if open_ else outside
        if around is None:
            continue
        if holes and key in holes:
            added -= space(key) * len(ports - around)
            open_.append((key, None))
            continue
        added -= space(key) * len(table[key] - around)
        added += space(key) * len(around - table[key])
        open_.append((key, table[key]))
    return max(0.0, added)
