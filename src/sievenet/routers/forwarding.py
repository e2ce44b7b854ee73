"""Forwarding: which interfaces want which events, decided by the exact matcher, a batch at a time.

An entry (interface, filter) has a number, which is its key in the matcher; an array gives the interface of each number.
A batch is matched at once, and the pairs (event, key) become distinct pairs (event, interface) by array arithmetic, so
no Python code runs per match.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import EventBatch
from sievenet.content.event import Record
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema

if TYPE_CHECKING:
    from sievenet.matcher import Matcher

__all__ = ["Forwarding"]

Ints = npt.NDArray[np.int64]
_FIRST: Ints = np.zeros(1, np.int64)


class Forwarding:
    """Filters by interface, asked who wants the events of a batch."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._matcher: Matcher | None = None
        #: The number of each entry, and how often it was added.
        self._keys: dict[tuple[Hashable, Filter | Subscription], list[int]] = {}
        self._free: list[int] = []
        self._interfaces: list[Hashable] = []
        self._places: dict[Hashable, int] = {}
        #: The place of the interface of each key.
        self._where: Ints = np.zeros(64, np.int64)
        self._size = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, interface: Hashable, wanted: Filter | Subscription) -> None:
        """Events that match go to this interface; counted, if added more than once."""
        entry = self._keys.get((interface, wanted))
        if entry is not None:
            entry[1] += 1
            return
        key = self._free.pop() if self._free else self._size
        self._size = max(self._size, key + 1)
        if key >= len(self._where):
            self._where = np.resize(self._where, 2 * key)
        place = self._places.get(interface)
        if place is None:
            place = self._places[interface] = len(self._interfaces)
            self._interfaces.append(interface)
        self._where[key] = place
        self._keys[interface, wanted] = [key, 1]
        if self._matcher is None:
            from sievenet.matcher import Matcher

            self._matcher = Matcher(self._schema)
        self._matcher.add(key, wanted)

    def remove(self, interface: Hashable, wanted: Filter | Subscription) -> None:
        """Take one addition back."""
        entry = self._keys.get((interface, wanted))
        if entry is None:
            return
        entry[1] -= 1
        if not entry[1]:
            del self._keys[interface, wanted]
            self._free.append(entry[0])
            assert self._matcher is not None
            self._matcher.remove(entry[0])

    @property
    def reach(self) -> int:
        """How many interfaces there may be for an event."""
        return len(self._interfaces)

    def wants(self, besides: Hashable) -> list[Filter]:
        """The filters of all interfaces but one."""
        found: dict[Filter, None] = {}
        for interface, wanted in self._keys:
            if interface != besides:
                found.update(dict.fromkeys((wanted,) if isinstance(wanted, Filter) else wanted.filters))
        return list(found)

    def interfaces(self, events: EventBatch | Sequence[Record]) -> dict[Hashable, Ints]:
        """The interfaces that want some of these events, and which rows."""
        if self._matcher is None or not self._keys:
            return {}
        if len(events) == 1:
            # One by one: the arrays of a batch would take longer than the answer.
            return {self._interfaces[self._where[key]]: _FIRST for key in self._matcher.match(events[0])}
        found = self._matcher.match_batch(events)
        if not len(found.keys):
            return {}
        count = len(events)
        # One number per (interface, event), ascending: rows of one interface stand together.
        # Not `np.unique`: it hashes, which takes far longer than sorting here.
        pairs = self._where[found.keys] * count + found.events
        pairs.sort()
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        places, rows = np.divmod(pairs, count)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        parts = np.split(rows, starts[1:])
        return {self._interfaces[p]: part for p, part in zip(places[starts].tolist(), parts, strict=True)}
