"""A passage: from one table to another in steps of which none loses a delivery, in a table of limited size.

`network.difference` makes before it breaks, and so needs room for all that comes beside all that goes.  A full table
has a single spare entry.  It is enough:

1. Changes fall into *regions*, below the largest dz that change.  Regions do not concern each other, so each is
   carried out by itself: those that give back entries first, those that need some last.  A merge is a region (add the
   merged entry, then delete what it covers), and so is its undoing.
2. A region that still needs more than there is gets an *umbrella* while it changes: one entry around it, of higher
   priority than any dz, to all ports of the region before or after.  Below it anything may be deleted before anything
   is added; then the umbrella goes.

      |        add umbrella        |   delete, change, add below it   |   delete umbrella   |
      n                            n+1                       at most max(n, n') + 1         n'

So at no time are there more than max(n, n') + 1 entries.  For any packet, the ports at each time hold those that both
tables agree on.  The umbrella sends too far, for as long as a switch takes for a few changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sievenet.index import Dz
from sievenet.network import TOP_PRIORITY, Add, Delete, Flow, FlowChange, FlowTable, Match, difference

__all__ = ["UMBRELLA", "deletions_first", "passage", "peak", "ports_of", "under_catch_all"]

#: Above the priority of any dz, below that of diversions and of flows that hold while a plan changes.
UMBRELLA: Final = 300


def passage(old: FlowTable, new: FlowTable, room: int | None) -> list[FlowChange]:
    """The changes from one table to another; with `room` there are never more entries than that, if it can be."""
    changes = difference(old, new)
    size = len(old)
    if room is None or peak(size, changes) <= room:
        return changes
    done: list[FlowChange] = []
    left = [flow for flow in old if flow.priority == UMBRELLA]  # by a passage that was cut off
    for before, after in _regions(old, new, left):
        some = difference(before, after)
        if any(flow.priority == UMBRELLA for flow in before):
            some = deletions_first(some)
        elif peak(size, some) > room:
            some = _below_umbrella(before, after, lambda dz: ports_of(old, dz) | ports_of(new, dz))
        done += some
        size += len(after) - len(before)
    return done


def under_catch_all(holds: FlowTable, wanted: FlowTable) -> list[FlowChange]:
    """The changes where a catch-all flow is in one of the tables: below it anything may go first."""
    changes = difference(holds, wanted)
    if not any(flow.priority == TOP_PRIORITY for table in (holds, wanted) for flow in table):
        return changes

    def turn(change: FlowChange) -> int:
        if change.flow.priority == TOP_PRIORITY:
            return 4 if isinstance(change, Delete) else 0
        return 1 if isinstance(change, Delete) else 2

    return sorted(changes, key=turn)


def ports_of(table: Iterable[Flow], dz: Dz) -> frozenset[int]:
    """The ports that a table uses in a dz."""
    inside: set[int] = set()
    around: Flow | None = None
    for flow in table:
        cell = flow.match.cell
        if isinstance(cell, Dz):
            if dz.covers(cell):
                inside |= flow.ports
            elif cell.covers(dz) and (around is None or flow.precedence > around.precedence):
                around = flow
    return frozenset(inside | (around.ports if around is not None else set()))


def peak(size: int, changes: Iterable[FlowChange]) -> int:
    """The most entries there are while changes are carried out."""
    most = size
    for change in changes:
        size += isinstance(change, Add) - isinstance(change, Delete)
        most = max(most, size)
    return most


def _regions(old: FlowTable, new: FlowTable, left: list[Flow]) -> list[tuple[FlowTable, FlowTable]]:
    """What changes, by region: its flows before and after, unchanged ones left out.

    What shrinks comes first; before that, what lies below umbrellas left behind, each with its umbrella.
    """
    before, after = old.by_key(), new.by_key()
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    under = [(_dz(flow.match.cell), ([flow], list[Flow]())) for flow in left]
    tops: list[Dz] = []
    regions: list[tuple[list[Flow], list[Flow]]] = []
    special: tuple[list[Flow], list[Flow]] = ([], [])
    for key in sorted(changed, key=lambda key: _dz(key.match.cell)):
        cell = key.match.cell
        if key.priority == UMBRELLA:
            continue
        if isinstance(cell, Dz) and key.priority == cell.length and key.in_port is None:
            if not tops or not tops[-1].covers(cell):
                tops.append(cell)
                regions.append(next((region for top, region in under if top.covers(cell)), ([], [])))
            region = regions[-1]
        else:
            region = special  # catch-all flows: new ones before all else, old ones last
        if key in before:
            region[0].append(before[key])
        if key in after:
            region[1].append(after[key])
    sheltered = [region for _, region in under]
    regions = [region for region in regions if not any(region is each for each in sheltered)]
    regions.sort(key=_turn)
    gone = {flow.key for flow in special[0]} - {flow.key for flow in special[1]}
    kept = [flow for flow in special[0] if flow.key not in gone]
    last = [flow for flow in special[0] if flow.key in gone]
    ordered = [(kept, special[1]), *sheltered, *regions, (last, [])]
    return [(FlowTable(was), FlowTable(now)) for was, now in ordered if was or now]


def _turn(region: tuple[list[Flow], list[Flow]]) -> tuple[bool, int]:
    """What only gives back comes first: a passage that was cut off may have left no spare entry."""
    before = {flow.key for flow in region[0]}
    return any(flow.key not in before for flow in region[1]), len(region[1]) - len(region[0])


def _dz(cell: object) -> Dz:
    return cell if isinstance(cell, Dz) else Dz(0, 0)


def _below_umbrella(before: FlowTable, after: FlowTable, ports: Callable[[Dz], frozenset[int]]) -> list[FlowChange]:
    changes = difference(before, after)
    if not len(before):
        return changes  # nothing to protect
    top = min(_dz(flow.match.cell) for table in (before, after) for flow in table)
    umbrella = Flow(Match(next(iter(before)).match.category, top), ports(top), UMBRELLA)
    return [Add(umbrella), *deletions_first(changes), Delete(umbrella)]


def deletions_first(changes: list[FlowChange]) -> list[FlowChange]:
    """What goes before what changes and what comes; umbrellas last."""

    def turn(change: FlowChange) -> int:
        return 0 if not isinstance(change, Delete) else 1 if change.flow.priority == UMBRELLA else -1

    return sorted(changes, key=turn)
