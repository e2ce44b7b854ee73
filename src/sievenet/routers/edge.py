"""Edge routing at work: the first router turns events into bits, all others look only at the bits.

Every router is told every distinct filter, as with identity-based routing, on the channels of `tree`. What came from a
neighbour goes into the Bloom tables (`bloom.edge`) instead of the matcher, so on its way an event costs a search in an
sbstree (or bftree) and no matching; clients are served by the exact matcher, so false positives of the bits cost hops,
and no client sees one.

    publisher ─▶ r1: bfposet, event → bits ══(events, bits)══▶ r2: bits → neighbours ══▶ r3: exact matcher ─▶ subscriber

The bits name constraints that the *first* router knows. One that it does not know yet has no bit, so an event may miss
a subscription that has not settled; once it has, none is missed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from sievenet.content.filter import Filter
from sievenet.routers.bloom.edge import EdgeRouter
from sievenet.routers.messages import SUBSCRIPTION, Item
from sievenet.routers.routing import Context, Interface, Rows
from sievenet.routers.schemes import LOCAL, Flat, Want
from sievenet.routers.shipment import Octets, Shipment
from sievenet.routers.tree import TreeRouting

__all__ = ["EdgeRouting"]


class EdgeRouting(TreeRouting):
    """Filters told by identity, events forwarded by bits."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._tables: dict[int, EdgeRouter] = {}
        self._octets = context.settings.bits // 8

    def _table(self, category: int) -> EdgeRouter:
        found = self._tables.get(category)
        if found is None:
            settings = self.context.settings
            schema = self.context.catalogue.schemas[category]
            found = EdgeRouter(schema, width=settings.bits, height=settings.height or None)
            self._tables[category] = found
        return found

    def local(self, kind: int, category: int, added: list[Want], removed: list[Want]) -> None:
        """What local clients want changed: their constraints are known here too."""
        super().local(kind, category, added, removed)
        if kind == SUBSCRIPTION:
            for want in added:
                self._table(category).add(want.filter, LOCAL)
            for want in removed:
                self._table(category).remove(want.filter, LOCAL)

    def _enter(self, neighbour: str, item: Item, wanted: Filter) -> None:
        self._table(item.category).add(wanted, neighbour)

    def _take_out(self, neighbour: str, item: Item, wanted: Filter) -> None:
        self._table(item.category).remove(wanted, neighbour)

    def elsewhere(self, category: int) -> list[Filter]:
        """What neighbours want, which the matcher does not know."""
        scheme = self._scheme(SUBSCRIPTION, category)
        assert isinstance(scheme, Flat)
        return [want.filter for want, interfaces in scheme.held() if interfaces - {LOCAL}]

    def onward(self, shipment: Shipment, by: Interface, wanted: dict[Hashable, Rows]) -> list[tuple[str, Shipment]]:
        """Where the bits say; they are made where events enter the overlay."""
        table = self._table(shipment.category)
        if shipment.bits is None:
            if by[0] == "router":
                return []
            shipment = replace(shipment, bits=self._bits(table, shipment))
        elif shipment.bits.shape[1] != self._octets:
            return []
        assert shipment.bits is not None
        rows: dict[str, list[int]] = {}
        known: dict[bytes, set[Hashable]] = {}
        source = by[1] if by[0] == "router" else None
        for row, data in enumerate(map(bytes, shipment.bits)):
            near = known.get(data)
            if near is None:
                near = known[data] = table.interfaces(int.from_bytes(data, "big"), source) - {LOCAL}
            for neighbour in near:
                rows.setdefault(str(neighbour), []).append(row)
        found: list[tuple[str, Shipment]] = []
        for neighbour, some in rows.items():
            chosen = wanted["router", neighbour] = np.array(some, np.int64)
            found.append((neighbour, shipment.take(chosen).onward()))
        return found

    def _bits(self, table: EdgeRouter, shipment: Shipment) -> Octets:
        every = b"".join(table.encode(event).to_bytes(self._octets, "big") for event in shipment.rows())
        return np.frombuffer(every, np.uint8).reshape(len(shipment), self._octets)
