"""Holdings: the deployed tables of one lane, on the switches whose table is not simply the ideal one.

That is so where a switch has a limit (`rooms`), or where somebody put a transform between (`divert`).  Everywhere else
the lane sends what its registrations say, and nothing here costs anything.

A lane changes its tables in two steps (`registrations`): one that adds delivery, one that takes away.  So each switch
goes through three ideal tables, before, between and after, and the same number of deployed ones:

    ideal      I₀ ──────▶ I₁ ──────▶ I₂
    deployed   D₀ ──────▶ D₁ ──────▶ D₂        each encloses its ideal table and fits;
                 passage    passage            between two, whatever both agree on is delivered

Why nothing is lost: D₀ and D₁ both enclose I₀ (I₁ has all of it), D₁ and D₂ both enclose I₂.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

from sievenet.control.deployment.definition import ports_at
from sievenet.control.deployment.deployment import Deployment
from sievenet.control.deployment.keys import Ports, Table, Transform, covers
from sievenet.control.deployment.passage import deletions_first, passage, peak, steps
from sievenet.control.deployment.rooms import Rooms
from sievenet.control.registrations import Changes
from sievenet.index import Dz
from sievenet.network import Delete, Flow, FlowChange, FlowTable, Match

__all__ = ["Holdings"]

#: Looks at a switch without room, before it is put right in any order.
_WAITS: Final = 8


class Holdings:
    """Deployed tables by switch."""

    def __init__(self, rooms: Rooms, who: Hashable, category: int, root: int, *, least: bool = True) -> None:
        self.who = who
        self._rooms = rooms
        self._category = category
        self._root = root
        #: Whether a full table is merged where that adds least (LA-C), or beside the new entry (LA-B).
        self._least = least
        self._of: dict[str, Deployment] = {}
        self._transforms: dict[str, tuple[Transform, ...]] = {}
        #: How often a switch was left as it was, since others left no room.
        self._waits: dict[str, int] = {}
        #: How often a table was merged at once, since it was too large.
        self.merged = 0
        #: Switches where something changed without being told to the switch.
        self._untold: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    def __contains__(self, switch: str) -> bool:
        return switch in self._of

    def __getitem__(self, switch: str) -> Deployment:
        return self._of[switch]

    def items(self) -> Iterator[tuple[str, Deployment]]:
        """All of them."""
        return iter(self._of.items())

    def table(self, switch: str) -> list[Flow]:
        """What a switch is to hold."""
        return [self._flow(key, ports) for key, ports in self._of[switch].table.items()]

    # -- which switches ----------------------------------------------------------------------

    def open(self, switch: str, ideal: Iterable[Flow]) -> None:
        """A switch gets a limit, or a transform; the ideal table is what it has now."""
        if switch not in self._of:
            self._of[switch] = Deployment(self._root, _table(ideal))

    def close(self, switch: str) -> None:
        """A switch has the ideal table again."""
        self._of.pop(switch, None)
        self._transforms.pop(switch, None)
        self._rooms.settle(switch, self.who, 0)

    def divert(self, switch: str, transforms: Sequence[Transform]) -> None:
        """Put these between the ideal table and the deployed one, in this order; none ends it.

        The switch must have been opened.  What follows is told to it by the lane (`Lane.refit`).
        """
        self._transforms[switch] = tuple(transforms)
        self._of[switch].transform(transforms)
        self._untold.add(switch)

    # -- following the ideal table -----------------------------------------------------------

    def absorb(self, changes: Changes) -> None:
        """The ideal tables changed; the switches are not told, but read."""
        for switch in {*changes.first, *changes.second} & self._of.keys():
            deployment = self._of[switch]
            near = _put(deployment, (*changes.first.get(switch, ()), *changes.second.get(switch, ())))
            self._fit(switch, near)
            deployment.taken()
            self._rooms.share(switch, self.who, len(deployment))

    def remerge(self, switch: str, merges: Iterable[int]) -> None:
        """Merge there, and nowhere else as far as it fits; told to the switch by the lane (`Lane.refit`)."""
        if switch in self._of:
            self._of[switch].remerge(merges)
            self._untold.add(switch)

    def advance(self, changes: Changes, refits: Iterable[str] = ()) -> dict[str, int]:
        """Replace the changes of ideal tables by those of deployed ones; returns the most entries on the way.

        Where the room is another (`refits`), merges are made or undone.
        """
        needs: dict[str, int] = {}
        again = {switch for switch in (*refits, *self._untold) if switch in self._of}
        self._untold.clear()
        for switch in [s for s in self._of if s in changes.first or s in changes.second or s in again]:
            deployment, most = self._of[switch], 0
            for step, taking in ((changes.first, False), (changes.second, True)):
                if taking and switch not in step:
                    break
                if taking:
                    changes.between[switch] = _Flows(deployment.table.copy(), self._flow)
                size = deployment.told
                near = _put(deployment, step.pop(switch, ()))
                self._fit(switch, near, relax=taking or switch in again)
                told = self._told(switch, size)
                most = max(most, peak(size, told), len(deployment))
                if told:
                    step[switch] = told
            needs[switch] = most
            self._rooms.share(switch, self.who, len(deployment))
        return needs

    def fit(self, switch: str) -> None:
        """Follow the room at a switch without telling it, for it is read."""
        if switch in self._of:
            self._fit(switch)
            self._of[switch].taken()
            self._rooms.share(switch, self.who, len(self._of[switch]))

    def _fit(self, switch: str, near: Sequence[int] = (), *, relax: bool = False) -> None:
        deployment = self._of[switch]
        deployment.update()
        limit = self._rooms.limit(switch, self.who)
        if limit is not None:
            if relax and limit > 0 and deployment.merges:
                deployment.relax(limit)
            if len(deployment) > limit:
                deployment.fit(limit, least=self._least, near=near)
                self.merged += 1
                if len(deployment) < limit - 1:  # merged halves became alike, and those around them: too much
                    deployment.relax(limit)
            elif limit < 1:
                deployment.fit(limit)

    def _told(self, switch: str, size: int) -> list[FlowChange]:
        """What to tell the switch, with the spare entry beside the larger of the two tables."""
        deployment = self._of[switch]
        changed = deployment.taken()
        room = max(size, len(deployment)) + 1 if switch in self._rooms.capacity else None
        return steps(changed, size, room, self._flow, lambda key: _ports_in(deployment.table, changed, key, self._root))

    def _flow(self, key: int, ports: Ports) -> Flow:
        dz = Dz.of_key(key)
        return Flow(Match(self._category, dz), ports, dz.length)

    # -- what switches hold ------------------------------------------------------------------

    def settle(self, switches: Iterable[str]) -> None:
        """Nothing is under way there: each has its table."""
        for switch in switches:
            if switch in self._of and switch in self._rooms.capacity:
                self._rooms.settle(switch, self.who, len(self._of[switch]))

    def steady(self, switch: str) -> bool:
        """Whether a table is a single entry for everything, or empty."""
        deployment = self._of.get(switch)
        return deployment is None or deployment.table.keys() <= {self._root}

    def saw(self, switch: str, holds: Iterable[Flow]) -> None:
        """What a switch holds of this lane at the start: merges chosen in an earlier life go on."""
        deployment = self._of.get(switch)
        if deployment is None or switch not in self._rooms.capacity:
            return
        held = list(holds)
        deployment.remerge(())
        keys = [f.match.cell.key for f in held if isinstance(f.match.cell, Dz) and f.priority == f.match.cell.length]
        deployment.remerge(key for key in keys if key not in deployment.table)
        deployment.taken()
        self._rooms.share(switch, self.who, len(deployment))
        self._rooms.found(switch, self.who, len(held))

    def difference(self, switch: str, holds: FlowTable, wanted: FlowTable) -> list[FlowChange] | None:
        """The changes that put a switch right; None if others, who are at work there, leave no room now."""
        room = self._rooms.room(switch, self.who)
        changes = passage(holds, wanted, room)
        if room is None:
            return changes
        self._rooms.found(switch, self.who, len(holds))
        if peak(len(holds), changes) > room:
            waits = self._waits.get(switch, 0)
            if waits < _WAITS and self._rooms.busy(switch, self.who):
                self._waits[switch] = waits + 1
                return None
            changes = deletions_first(changes)  # there is no other way
        self._waits.pop(switch, None)
        self._rooms.hold(switch, self.who, peak(len(holds), changes))
        return changes


class _Flows(Sequence[Flow]):
    """The flows of a table as it was, made when somebody wants them: a switch that has to be put right."""

    def __init__(self, table: Table, flow: Callable[[int, Ports], Flow]) -> None:
        self._table = table
        self._flow = flow

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Flow]:
        return (self._flow(key, ports) for key, ports in self._table.items())

    @overload
    def __getitem__(self, at: int) -> Flow: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Flow]: ...

    def __getitem__(self, at: int | slice) -> Flow | Sequence[Flow]:
        return list(self)[at]


def _put(deployment: Deployment, changes: Sequence[FlowChange]) -> list[int]:
    """Changes of an ideal table; returns the dz concerned."""
    near = []
    for change in changes:
        cell = change.flow.match.cell
        assert isinstance(cell, Dz)
        near.append(cell.key)
        deployment.put(cell.key, None if isinstance(change, Delete) else change.flow.ports)
    return near


def _table(flows: Iterable[Flow]) -> dict[int, Ports]:
    return {flow.match.cell.key: flow.ports for flow in flows if isinstance(flow.match.cell, Dz)}


def _ports_in(table: Table, changed: Mapping[int, tuple[Ports | None, Ports | None]], key: int, root: int) -> Ports:
    """The ports that a table and what it was before use in a dz."""
    before = {**table, **{k: was for k, (was, _) in changed.items() if was is not None}}
    for k, (was, _) in changed.items():
        if was is None:
            before.pop(k, None)
    found: set[int] = set()
    for each in (table, before):
        found |= ports_at(each, key, root)
        found.update(*(ports for k, ports in each.items() if covers(key, k)))
    return frozenset(found)
