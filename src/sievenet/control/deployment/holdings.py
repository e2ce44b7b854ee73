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

from collections.abc import Collection, Hashable, Iterable, Iterator, KeysView, Sequence
from itertools import count
from typing import Any, Final

from sievenet.control.deployment.board import Board
from sievenet.control.deployment.deployment import kernels
from sievenet.control.deployment.held import CellTables, DzTable, Held
from sievenet.control.deployment.keys import Transform
from sievenet.control.deployment.passage import deletions_first, peak
from sievenet.control.deployment.rooms import Rooms
from sievenet.control.deployment.sweep import Part
from sievenet.control.deployment.tree.layout import ELSEWHERE, TOO_FAR
from sievenet.control.registrations import Changes
from sievenet.errors import InvalidInput
from sievenet.network import Flow, FlowChange, FlowTable, difference

__all__ = ["Holdings"]

#: Looks at a switch without room, before it is put right in any order.
_WAITS: Final = 8
_numbers: Final = count(1)


class Holdings:
    """Deployed tables by switch."""

    def __init__(
        self, rooms: Rooms, who: Hashable, category: int, root: int, *, least: bool = True, cells: bool = False
    ) -> None:
        self.who = who
        #: Which ones of all that ever were: merges are chosen for tables of one plan, not for those that replace them.
        self.number = next(_numbers)
        self._rooms = rooms
        self._category = category
        self._root = root
        #: Whether a full table is merged where that adds least (LA-C), or beside the new entry (LA-B).
        self._least = least
        self._form: type[DzTable | CellTables] = CellTables if cells else DzTable
        self._of: dict[str, Held] = {}
        #: The tables that follow in one call: those of dz without transforms.
        self._board = Board(rooms, who, category)
        self._transforms: dict[str, tuple[Transform, ...]] = {}
        #: How often a switch was left as it was, since others left no room.
        self._waits: dict[str, int] = {}
        #: How often a table was merged at once, since it was too large.
        self.merged = 0
        #: Switches where something changed without being told to the switch.
        self._untold: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    def __contains__(self, switch: object) -> bool:
        return switch in self._of

    def __getitem__(self, switch: str) -> Held:
        return self._of[switch]

    @property
    def switches(self) -> KeysView[str]:
        """Which switches have a table here."""
        return self._of.keys()

    def items(self) -> Iterator[tuple[str, Held]]:
        """All of them."""
        return iter(self._of.items())

    def table(self, switch: str) -> list[Flow]:
        """What a switch is to hold."""
        return list(self._of[switch].flows())

    # -- which switches ----------------------------------------------------------------------

    def open(self, switch: str, ideal: Iterable[Flow]) -> None:
        """A switch gets a limit, or a transform; the ideal table is what it has now."""
        if switch not in self._of:
            table = self._of[switch] = self._form(self._category, self._root, ideal)
            if isinstance(table, DzTable):
                self._board.put(switch, table)

    def close(self, switch: str) -> None:
        """A switch has the ideal table again."""
        self._of.pop(switch, None)
        self._transforms.pop(switch, None)
        self._board.take(switch)
        self._rooms.settle(switch, self.who, 0)

    def divert(self, switch: str, transforms: Sequence[Transform]) -> None:
        """Put these between the ideal table and the deployed one, in this order; none ends it.

        The switch must have been opened.  What follows is told to it by the lane (`Lane.refit`).
        """
        self._transforms[switch] = tuple(transforms)
        table = self._of[switch]
        if not isinstance(table, DzTable):
            raise InvalidInput(expected="a table of dz", got="cells", where=f"divert at {switch}")
        table.transform(transforms)
        if transforms:
            self._board.take(switch)
        else:
            self._board.put(switch, table)
        self._untold.add(switch)

    # -- following the ideal table -----------------------------------------------------------

    def absorb(self, changes: Changes) -> None:
        """The ideal tables changed; the switches are not told, but read."""
        for switch in {*changes.first, *changes.second} & self._of.keys():
            deployment = self._of[switch]
            near = deployment.follow((*changes.first.get(switch, ()), *changes.second.get(switch, ())))
            self._fit(switch, near)
            deployment.forget()
            self._rooms.share(switch, self.who, len(deployment))

    def remerge(self, switch: str, merges: Iterable[Any]) -> None:
        """Merge there, and nowhere else as far as it fits; told to the switch by the lane (`Lane.refit`)."""
        if switch in self._of:
            self._of[switch].remerge(merges)
            self._untold.add(switch)

    def advance(self, changes: Changes, refits: Iterable[str] = ()) -> dict[str, int]:
        """Replace the changes of ideal tables by those of deployed ones; returns the most entries on the way.

        Where the room is another (`refits`), merges are made or undone.
        """
        again = {switch for switch in (*refits, *self._untold) if switch in self._of}
        self._untold.clear()
        swept = self._sweep(changes, again)
        needs = dict(swept)
        left = {*changes.second, *again, *(changes.first.keys() - swept.keys())}
        for switch in [s for s in self._of if s in left] if left else ():
            deployment, most = self._of[switch], swept.get(switch, 0)
            for step, taking in ((changes.first, False), (changes.second, True)):
                if taking and switch not in step:
                    break
                if not taking and switch in swept:
                    continue
                if taking:
                    changes.between[switch] = deployment.flows()
                size = deployment.told
                near = deployment.follow(step.pop(switch, ()))
                self._fit(switch, near, relax=taking or switch in again)
                told = self._told(switch, size)
                most = max(most, deployment.most, len(deployment))
                if told:
                    step[switch] = told
            needs[switch] = most
            self._rooms.share(switch, self.who, len(deployment))
        return needs

    def _sweep(self, changes: Changes, again: Collection[str]) -> dict[str, int]:
        """Let tables follow the first step, as many as can be in one call; returns the most entries on the way."""
        swept, needs = self._board.sweep(changes, again, least=self._least), dict[str, int]()
        if swept is None:
            return needs
        first, (outcomes, batch) = changes.first, swept
        for switch, (state, most, start, end) in zip([*first], outcomes, strict=True):
            if state:
                if state == ELSEWHERE:
                    continue
                self.merged += 1
                if state == TOO_FAR:  # merged halves became alike, and those around them
                    needs[switch] = self._relaxed(switch, first)
                    continue
            needs[switch] = most
            if end > start:
                first[switch] = Part(batch, start, end)
            else:
                del first[switch]
        return needs

    def _relaxed(self, switch: str, step: dict[str, Sequence[FlowChange]]) -> int:
        """Undo merges of a table that has been merged too far, and tell what changed; returns the most on the way."""
        table, limit = self._of[switch], self._rooms.limit(switch, self.who)
        assert limit is not None
        size = table.told
        table.relax(limit)
        step[switch] = self._told(switch, size)
        if not step[switch]:
            del step[switch]
        self._rooms.share(switch, self.who, len(table))
        return max(table.most, len(table))

    def fit(self, switch: str) -> None:
        """Follow the room at a switch without telling it, for it is read."""
        if switch in self._of:
            self._fit(switch)
            self._of[switch].forget()
            self._rooms.share(switch, self.who, len(self._of[switch]))

    def _fit(self, switch: str, near: Sequence[Any] = (), *, relax: bool = False) -> None:
        deployment = self._of[switch]
        deployment.update()
        limit = self._rooms.limit(switch, self.who)
        if limit is not None:
            if relax and limit > 0 and deployment.merged():
                deployment.relax(limit)
            if len(deployment) > limit:
                deployment.fit(limit, least=self._least, near=near)
                self.merged += 1
                if len(deployment) < limit - kernels().slack(
                    limit
                ):  # merged halves became alike, and those around them
                    deployment.relax(limit)
            elif limit < 1:
                deployment.fit(limit)

    def _told(self, switch: str, size: int) -> list[FlowChange]:
        """What to tell the switch, with the spare entry beside the larger of the two tables."""
        deployment = self._of[switch]
        limited = switch in self._rooms.capacity
        return deployment.steps(max(size, len(deployment)) + 1 if limited else None)

    # -- what switches hold ------------------------------------------------------------------

    def settle(self, switches: Iterable[str]) -> None:
        """Nothing is under way there: each has its table."""
        for switch in self._board.settle(switches):
            if switch in self._of and switch in self._rooms.capacity:
                self._rooms.settle(switch, self.who, len(self._of[switch]))

    def steady(self, switch: str) -> bool:
        """Whether entries are for everything (one, or one per port), or there are none."""
        return switch not in self._of or self._of[switch].wide

    def least(self, switch: str) -> int:
        """The fewest entries that a table may have."""
        return self._of[switch].least if switch in self._of else 0

    def saw(self, switch: str, holds: Iterable[Flow]) -> None:
        """What a switch holds of this lane at the start: merges chosen in an earlier life go on."""
        deployment = self._of.get(switch)
        if deployment is None or switch not in self._rooms.capacity:
            return
        held = list(holds)
        deployment.saw(held)
        self._rooms.share(switch, self.who, len(deployment))
        self._rooms.found(switch, self.who, len(held))

    def difference(self, switch: str, holds: FlowTable, wanted: FlowTable) -> list[FlowChange] | None:
        """The changes that put a switch right; None if others, who are at work there, leave no room now."""
        if switch not in self._of:
            return difference(holds, wanted)
        room = self._rooms.room(switch, self.who)
        changes = self._of[switch].passage(holds, wanted, room)
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
