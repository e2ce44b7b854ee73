"""Held events: what came by the plain path while a cache is asked or serves, per source, bounded. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from sievenet.cache.record import Key, Source

__all__ = ["Held"]

#: The event's name, the event, and whether some before it may be missing.
_Entry = tuple[Key, Any, bool]


class Held:
    """At most so many events, each source's in the order in which they came."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sources: dict[Source, deque[_Entry]] = {}
        #: Sources whose next event may not follow what is held of them.
        self._broken: set[Source] = set()
        #: Sources in the order in which their events came; of events that are gone too.
        self._order: deque[Source] = deque()
        self._count = 0
        #: The first number of each source that came since the plain path has been without a break.
        self._whole: dict[Source, int] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, key: Key, item: Any) -> _Entry | None:
        """Hold an event; the one that has been held longest, if there is no room for both."""
        source = key[:2]
        self._sources.setdefault(source, deque()).append((key, item, source in self._broken))
        self._broken.discard(source)
        self._whole.setdefault(source, key[2])
        self._order.append(source)
        self._count += 1
        if self._count <= self._limit:
            if len(self._order) > 2 * self._limit + 64:
                self._order = deque(key[:2] for key, *_ in self._everything())
            return None
        while True:
            oldest = self._order.popleft()
            if self._sources.get(oldest):
                self._count -= 1
                return self._sources[oldest].popleft()

    def interrupted(self) -> None:
        """What comes from now on may not follow what is held."""
        self._broken |= {source for source, own in self._sources.items() if own}

    def path_broke(self) -> None:
        """The plain path was taken away, stands again, or lost something: what came so far is from before that."""
        self._whole.clear()

    def whole(self, key: Key) -> bool:
        """Whether an event, and all of its source that came after it, came without a break of the plain path."""
        return key[2] >= self._whole.get(key[:2], 1 << 64)

    def before(self, key: Key) -> Iterator[_Entry]:
        """Those of a source before a number, and that one itself, which are then held no more."""
        own = self._sources.get(key[:2])
        while own and own[0][0][2] <= key[2]:
            self._count -= 1
            found = own.popleft()
            if found[0] != key:
                yield found

    def without(self, source: Source, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of a range of numbers that are not held."""
        for (_, _, number), *_ in self._sources.get(source, ()):
            if first <= number <= last:
                if first < number:
                    yield first, number - 1
                first = number + 1
        if first <= last:
            yield first, last

    def all(self) -> tuple[list[_Entry], set[Source]]:
        """All of them, which are then held no more; and the sources of which some may be missing behind them."""
        found, broken = list(self._everything()), self._broken
        self._sources.clear()
        self._order.clear()
        self._count, self._broken = 0, set()
        return found, broken

    def _everything(self) -> Iterator[_Entry]:
        for own in self._sources.values():
            yield from own
