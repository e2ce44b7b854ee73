"""A switch: flows in, decisions out.

Pure: it neither sends nor waits.  Both drivers of the embedded data plane (real time and
virtual time) use this one class, as do the tests that compare it with brute force.

Lookups come in two forms.  `lookup` finds the decision for one packet in a structure that
is cheap to change (`classifier`); `lookup_batch` compiles the table (`compiled`) the first
time it is asked after a change, and finds decisions for arrays of codes by binary search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.dataplane.classifier import Classifier, Entry
from sievenet.dataplane.compiled import Compiled, compile_entries
from sievenet.dataplane.plane import Count
from sievenet.errors import Rejected
from sievenet.network.flow import Delete, FlowChange, FlowKey
from sievenet.network.table import FlowTable

__all__ = ["Switch"]


class Switch:
    """A flow table with counters."""

    def __init__(self, name: str, capacity: int | None = None) -> None:
        self.name: Final = name
        #: How many flows fit; None means any number.
        self.capacity = capacity
        #: Packets that no flow wanted.
        self.unmatched = 0
        #: Counts changes, so that whatever is derived from the table knows its age.
        self.version = 0
        self._categories: dict[int, Classifier] = {}
        self._size = 0
        #: Compiled tables by (category, in-port), each with the version it was made from.
        self._compiled: dict[tuple[int, int | None], tuple[int, Compiled]] = {}
        self._changed: dict[int, int] = {}

    # -- the table ---------------------------------------------------------------------------

    def apply(self, changes: Sequence[FlowChange]) -> None:
        """Carry out changes in order, or none of them and `Rejected` if the table would overflow on the way."""
        if self.capacity is not None:
            self._check_room(changes)
        for change in changes:
            flow = change.flow.check()
            category = flow.match.category
            classifier = self._categories.get(category)
            if classifier is None:
                if isinstance(change, Delete):
                    continue
                classifier = self._categories[category] = Classifier()
            before = classifier.size
            if isinstance(change, Delete):
                classifier.remove(flow)
                if not classifier.size:
                    del self._categories[category]
            else:
                classifier.put(flow)
            self._size += classifier.size - before
            self.version += 1
            self._changed[category] = self.version

    def _check_room(self, changes: Iterable[FlowChange]) -> None:
        size = self._size
        touched: dict[FlowKey, bool] = {}
        for change in changes:
            flow = change.flow.check()
            key = flow.key
            there = touched.get(key)
            if there is None:
                classifier = self._categories.get(flow.match.category)
                there = classifier is not None and classifier.get(flow) is not None
            wanted = not isinstance(change, Delete)
            size += wanted - there
            touched[key] = wanted
            assert self.capacity is not None
            if size > self.capacity:
                raise Rejected(f"Switch {self.name} is full: {self.capacity} flows fit, {change} would be one more")

    def clear(self) -> None:
        """Forget all flows and counts, as a switch does that lost power."""
        self._categories.clear()
        self._compiled.clear()
        self._changed.clear()
        self._size = 0
        self.unmatched = 0
        self.version += 1

    def table(self) -> FlowTable:
        """The flows, as a value."""
        return FlowTable(e.flow for c in self._categories.values() for e in c.entries())

    def counts(self) -> dict[FlowKey, Count]:
        """What each flow has counted."""
        return {e.flow.key: Count(e.packets, e.bytes) for c in self._categories.values() for e in c.entries()}

    def categories(self) -> tuple[int, ...]:
        """The categories that have flows."""
        return tuple(self._categories)

    def classifier(self, category: int) -> Classifier | None:
        """The flows of a category, for those who ask whether in-ports or masks matter."""
        return self._categories.get(category)

    def __len__(self) -> int:
        return self._size

    # -- looking up --------------------------------------------------------------------------

    def lookup(self, category: int, code: int, in_port: int | None = None) -> tuple[Entry, ...]:
        """The entries that decide a packet, one per table at most.  Counts nothing."""
        classifier = self._categories.get(category)
        return () if classifier is None else classifier.lookup(code, in_port)

    def decide(self, category: int, cells: Sequence[bytes], in_port: int | None) -> tuple[Entry, ...]:
        """The same for a packet that is in these cells, of all that have flows in the category."""
        classifier = self._categories.get(category)
        return () if classifier is None else classifier.decide(cells, in_port)

    def forward(self, category: int, code: int, in_port: int, size: int = 0) -> frozenset[int]:
        """The ports a packet leaves by, counted."""
        decision = self.lookup(category, code, in_port)
        if not decision:
            self.unmatched += 1
            return frozenset()
        for entry in decision:
            entry.packets += 1
            entry.bytes += size
        ports = decision[0].flow.ports if len(decision) == 1 else frozenset().union(*(e.flow.ports for e in decision))
        return ports - {in_port}

    def compiled(self, category: int, in_port: int | None) -> Compiled | None:
        """The table of a category as packets from one port meet it, compiled; None if it has no flows."""
        classifier = self._categories.get(category)
        if classifier is None:
            return None
        if not classifier.in_ports:
            in_port = None  # one form serves all
        changed = self._changed.get(category, 0)
        known = self._compiled.get((category, in_port))
        if known is not None and known[0] == changed:
            return known[1]
        for key in [k for k in self._compiled if k[0] == category and self._compiled[k][0] != changed]:
            del self._compiled[key]
        fresh = compile_entries(classifier.entries(), in_port)
        self._compiled[category, in_port] = (changed, fresh)
        return fresh

    def lookup_batch(
        self, category: int, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64], in_port: int | None = None
    ) -> tuple[npt.NDArray[np.int64], list[tuple[Entry, ...]]]:
        """For codes from one port: the number of each one's decision, and the decisions.  Counts nothing."""
        compiled = self.compiled(category, in_port)
        if compiled is None:
            return np.zeros(hi.size, np.int64), [()]
        return compiled.find(hi, lo), compiled.decisions
