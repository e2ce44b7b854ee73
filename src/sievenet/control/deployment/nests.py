"""Nests: what a merge sends too far, with others carved out of it."""

from __future__ import annotations

from collections.abc import Sequence

from sievenet.control.deployment.keys import Ports, Table, covers, place, space

__all__ = ["added_space"]


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
