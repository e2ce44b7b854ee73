"""The crowd: who stands at a door with room for so many, and who goes when one more comes.

    strangers   no login shown yet     │ the one that has stood longest makes room for whoever comes
    members     by name, so many each  │ stay

Nobody can be told from an attacker before a login is shown. If whoever came first could stay, somebody without a login
would shut everybody out by coming early and saying nothing more. So a place is safe only for those who are known; a
stranger has it for as long as it takes others to fill the rest, which the pace of handshakes bounds. One member's
connections are bounded too, and leave room for others. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Crowd"]

C = TypeVar("C")

#: Connections below which nobody looks which of them have ended.
_FEW: Final = 16


class _Group(Generic[C]):
    """Connections in the order in which they came; those that have ended are left out when there are twice as many."""

    def __init__(self, gone: Callable[[C], bool]) -> None:
        self._gone = gone
        self.all: dict[C, None] = {}
        self._look_at = _FEW

    def add(self, connection: C) -> None:
        """One more."""
        if len(self.all) >= self._look_at:
            self.look()
        self.all[connection] = None

    def look(self) -> None:
        """Leave out those that have ended."""
        self.all = {each: None for each in self.all if not self._gone(each)}
        self._look_at = max(_FEW, 2 * len(self.all))


class Crowd(Generic[C]):
    """Connections; ``gone`` tells those that have ended, ``each`` is how many one member may have."""

    def __init__(self, each: int, gone: Callable[[C], bool]) -> None:
        self._each, self._gone = each, gone
        self._strangers: _Group[C] = _Group(gone)
        self._members: dict[str, _Group[C]] = {}

    def come(self, connection: C) -> None:
        """A stranger has come."""
        self._strangers.add(connection)

    def oldest(self) -> C | None:
        """Takes out the stranger that has stood longest; None if there is none.

        >>> crowd = Crowd[str](2, lambda connection: False)
        >>> for each in ("first", "second", "third"):
        ...     crowd.come(each)
        >>> crowd.know("first", "alice"), crowd.oldest(), crowd.oldest(), crowd.oldest()
        (True, 'second', 'third', None)
        """
        strangers = self._strangers.all
        while strangers:
            connection = next(iter(strangers))
            del strangers[connection]
            if not self._gone(connection):
                return connection
        return None

    def know(self, connection: C, name: str) -> bool:
        """A connection is a member's (or, without a name, allowed to anybody); False if it is one too many.

        >>> crowd = Crowd[int](2, lambda connection: connection == 1)
        >>> [crowd.know(connection, "alice") for connection in (1, 2, 3, 4, 3)]
        [True, True, True, False, True]
        """
        if name:
            mine = self._members.setdefault(name, _Group(self._gone))
            if connection not in mine.all:
                if len(mine.all) >= self._each:
                    mine.look()
                if len(mine.all) >= self._each:
                    return False
                mine.add(connection)
        self._strangers.all.pop(connection, None)
        return True
