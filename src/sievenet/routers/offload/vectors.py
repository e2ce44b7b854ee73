"""The table as vectors: its layers cut into pieces of at most ``size`` filters, kept up to date change by change.

    level 0   [f3 f9 f12 f20]  [f31 f44]        a vector belongs to one level, so its filters are unrelated
    level 1   [f1 f7]                           and the work for each is alike

The table tells of every filter that comes, goes or moves to another level (`Vectors.moved` is its ``on_level``). Each
vector counts versions and remembers its last changes, so that a client which has version v gets what changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from sievenet.routers.offload.messages import VectorUpdate

__all__ = ["Vector", "Vectors"]


@dataclass(slots=True)
class Vector:
    """Some filters of one level."""

    id: int
    level: int
    #: Members, and their bytes once somebody needed them.
    members: dict[int, bytes | None] = field(default_factory=dict)
    version: int = 0
    #: The last changes: the n-th from the end led to version ``version - n + 1``.
    log: list[tuple[int, bool]] = field(default_factory=list)

    def note(self, number: int, is_new: bool, keep: int) -> None:
        """A member came or went."""
        if is_new:
            self.members[number] = None
        else:
            del self.members[number]
        self.version += 1
        self.log.append((number, is_new))
        if len(self.log) > keep:
            del self.log[: len(self.log) - keep // 2]

    def update(self, base: int, data: Callable[[int], bytes]) -> VectorUpdate:
        """What a client with version ``base`` needs; all of it if that is too old."""
        changes = self.version - base
        if not base or changes > len(self.log):
            return VectorUpdate(self.id, 0, self.version, self._encoded(self.members, data))
        added: dict[int, None] = {}
        removed: dict[int, None] = {}
        for number, is_new in self.log[len(self.log) - changes :]:
            if is_new:
                added[number] = None
                removed.pop(number, None)
            elif added.pop(number, 0) == 0:
                removed[number] = None
        return VectorUpdate(self.id, base, self.version, self._encoded(added, data), tuple(removed))

    def _encoded(self, numbers: Iterable[int], data: Callable[[int], bytes]) -> dict[int, bytes]:
        members = self.members
        found: dict[int, bytes] = {}
        for number in numbers:
            encoded = members[number]
            if encoded is None:
                encoded = members[number] = data(number)
            found[number] = encoded
        return found


class Vectors:
    """All vectors of a table; ``numbers`` gives each its own."""

    def __init__(self, size: int, numbers: Iterator[int] | None = None) -> None:
        self._size = size
        self.vectors: dict[int, Vector] = {}
        self._home: dict[int, Vector] = {}
        #: Vectors of each level with room.
        self._open: dict[int, list[Vector]] = {}
        self._numbers = numbers or count(1)

    def moved(self, number: int, was: int | None, level: int | None) -> None:
        """A filter came, went, or is on another level."""
        if was is not None:
            old = self._home.pop(number)
            if len(old.members) == self._size:
                self._open.setdefault(old.level, []).append(old)
            old.note(number, False, 4 * self._size)
            if not old.members:
                self._open[old.level].remove(old)
                del self.vectors[old.id]
        if level is not None:
            near = self._open.setdefault(level, [])
            if not near:
                number_of_vector = next(self._numbers)
                vector = self.vectors[number_of_vector] = Vector(number_of_vector, level)
                near.append(vector)
            home = self._home[number] = near[-1]
            home.note(number, True, 4 * self._size)
            if len(home.members) == self._size:
                near.pop()

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Vector]:
        return iter(self.vectors.values())
