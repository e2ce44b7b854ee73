"""Who has how much of switches (`rooms`), for all switches that a request concerns at once."""

from __future__ import annotations

from typing import Any

from sievenet.control.deployment.tree.layout import CAPACITY, HELD, HOLDS, SHARE, SHARES
from sievenet.jit import compiled

__all__ = ["claimed", "keep", "slack"]

#: Entries of a table in which one more or less is little.
_SMALL = 8


@compiled
def slack(limit: int) -> int:
    """Entries that a merge may leave unused: what comes next takes them, and to undo merges takes long.

    None in a small table, where each counts and little is to be looked at.
    """
    return 1 + limit // 32 if limit >= _SMALL else 0


@compiled
def keep(tables: Any, part: Any, at: int, column: int, entries: int) -> None:
    """A holder has so many entries of a switch: its share, or what it may hold."""
    tables[at, SHARES + column] += entries - part[at, column]
    part[at, column] = entries


@compiled
def claimed(tables: Any, part: Any, rows: Any, most: Any) -> bool:
    """Let a holder have so many entries at most, if there is plainly room at all switches; else nothing changes."""
    for i in range(rows.size):
        at = rows[i]
        room = tables[at, CAPACITY] - tables[at, HELD] + part[at, HOLDS]
        if tables[at, CAPACITY] >= 0 and (most[i] > room or part[at, SHARE] >= room):
            return False
    for i in range(rows.size):
        if most[i] > part[rows[i], HOLDS]:
            keep(tables, part, rows[i], HOLDS, most[i])
    return True
