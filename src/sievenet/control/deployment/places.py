"""Places: a set of dz in their order, in which each stands before all that it covers, and those before all others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from sievenet.control.deployment.keys import covers, key_at, place, stretch

__all__ = ["Places"]


class Places:
    """Dz in their order."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: list[int] = []

    def add(self, key: int) -> None:
        """One that is not here yet."""
        insort(self._order, place(key))

    def remove(self, key: int) -> None:
        """One that is here."""
        del self._order[bisect_left(self._order, place(key))]

    def below(self, key: int) -> list[int]:
        """A dz and those that it covers, as far as they are here, in order."""
        first, last = stretch(key)
        order = self._order
        at = bisect_left(order, first)
        if at == len(order) or order[at] >= last:
            return []
        return [key_at(each) for each in order[at : bisect_left(order, last, at)]]

    def any_below(self, key: int) -> bool:
        """Whether there are any."""
        first, last = stretch(key)
        at = bisect_left(self._order, first)
        return at < len(self._order) and self._order[at] < last

    def before(self, key: int) -> int | None:
        """The last one up to a dz if it covers that; there may be others that do."""
        at = bisect_right(self._order, place(key))
        if at:
            found = key_at(self._order[at - 1])
            if covers(found, key):
                return found
        return None
