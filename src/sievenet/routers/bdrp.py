"""B-DRP: routers tell everybody the Bloom filters of what their clients want; the first router picks the destinations.

Interests are broadcast along the tree on the same channels as subscriptions are (`tree`), as entries (bits, router). A
publisher's router turns an event into bits once and finds, in an sbstree, the routers with an interest inside them.
Their names travel with the event; every router on the way splits it by next hop (`overlay`, shortest paths), and
matches nothing. At its destinations the exact matcher decides, so false positives of the bits cost hops, and no
client sees one.

An event's bits contain those of every filter it matches (`transport.bloom`), so no destination is missed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from sievenet.content.filter import Filter
from sievenet.errors import CodecError, SchemaError
from sievenet.routers.bloom.trees import SbsTree
from sievenet.routers.messages import INTEREST, SUBSCRIPTION, Item
from sievenet.routers.routing import Context, Interface, Rows
from sievenet.routers.schemes import LOCAL, Flat, Want
from sievenet.routers.shipment import Shipment
from sievenet.routers.tree import TreeRouting
from sievenet.transport.bloom import Tagger

__all__ = ["BdrpRouting"]


class BdrpRouting(TreeRouting):
    """Interests as bits, events with destinations."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.tagged, self.covering = False, True
        self._interests: Flat[Item] = Flat(tagged=True)
        self._taggers: dict[int, Tagger] = {}
        self._trees: dict[int, SbsTree] = {}
        #: How many local filters have the same bits.
        self._shared: dict[Item, int] = {}

    def _tagger(self, category: int) -> Tagger:
        found = self._taggers.get(category)
        if found is None:
            schema = self.context.catalogue.schemas[category]
            found = self._taggers[category] = Tagger(schema, self.context.settings.bits)
        return found

    def _interest(self, category: int, wanted: Filter) -> Item:
        bits = self._tagger(category).filter(wanted)
        return Item(INTEREST, category, bits.to_bytes(self.context.settings.bits // 8, "big"), self.context.name)

    def local(self, kind: int, category: int, added: list[Want], removed: list[Want]) -> None:
        """What local clients want changed."""
        if kind != SUBSCRIPTION:
            return
        for want in added:
            item = self._interest(category, want.filter)
            self._shared[item] = self._shared.get(item, 0) + 1
            if self._shared[item] == 1:
                self._interests.subscribe(item, LOCAL)
        for want in removed:
            item = self._interest(category, want.filter)
            self._shared[item] -= 1
            if not self._shared[item]:
                del self._shared[item]
                self._interests.unsubscribe(item, LOCAL)

    def topology_changed(self) -> None:
        """Channels follow the tree."""
        super().topology_changed()
        for neighbour in self._tellers:
            self._interests.join(neighbour)

    def lost(self, neighbour: str) -> None:
        """Forget a neighbour and what it told."""
        super().lost(neighbour)
        self._interests.leave(neighbour)

    def _check(self, item: Item) -> None:
        if item.kind != INTEREST or len(item.data) * 8 != self.context.settings.bits:
            raise CodecError(expected=f"an interest of {self.context.settings.bits} bits", got=item, where="channel")
        if item.category not in self.context.catalogue.schemas:
            raise SchemaError(expected="a known category", got=item.category, where="channel")

    def _apply(self, neighbour: str, added: list[Item], removed: list[Item]) -> None:
        for item in added:
            self._interests.subscribe(item, neighbour)
            self._trees.setdefault(item.category, SbsTree()).add(int.from_bytes(item.data, "big"), item.tag)
        for item in removed:
            self._interests.unsubscribe(item, neighbour)
            self._trees[item.category].remove(int.from_bytes(item.data, "big"), item.tag)

    def flush(self) -> None:
        """Tell neighbours what changed."""
        for neighbour, change in self._interests.changes().items():
            delta = self._tellers[neighbour].change(change.added, change.removed, self.context.catalogue.encoded)
            if delta is not None and neighbour not in self._fresh:
                self.context.send(neighbour, delta)
        self._introduce()

    def onward(self, shipment: Shipment, by: Interface, wanted: dict[Hashable, Rows]) -> list[tuple[str, Shipment]]:
        """Choose destinations at the first router; split by next hop at every one."""
        groups: dict[tuple[str, ...], list[int]] = {}
        if shipment.destinations is None:
            if by[0] == "router":
                return []
            for row, names in enumerate(self._destinations(shipment)):
                if names:
                    groups.setdefault(names, []).append(row)
        else:
            rest = tuple(d for d in shipment.destinations if d != self.context.name)
            if rest:
                groups[rest] = list(range(len(shipment)))
        overlay, me = self.context.states.overlay, self.context.name
        found: list[tuple[str, Shipment]] = []
        for names, rows in groups.items():
            hops: dict[str, list[str]] = {}
            for name in names:
                hop = overlay.next_hop(me, name)
                if hop is not None:
                    hops.setdefault(hop, []).append(name)
            part = shipment.take(np.array(rows, np.int64))
            found += [(hop, replace(part.onward(), destinations=tuple(there))) for hop, there in hops.items()]
        return found

    def _destinations(self, shipment: Shipment) -> list[tuple[str, ...]]:
        tree = self._trees.get(shipment.category)
        if tree is None:
            return [()] * len(shipment)
        bits = self._tagger(shipment.category).event
        return [tuple(sorted(str(name) for name in tree.match(bits(event)))) for event in shipment.rows()]

    def elsewhere(self, category: int) -> list[Filter]:
        """Only bits are known of what others want: it may be anything."""
        tree = self._trees.get(category)
        return [] if tree is None or tree.empty else [Filter(self.context.catalogue.schemas[category])]

    def size(self) -> int:
        """Interests known."""
        return self._interests.size()

    def explain(self, category: int, wanted: Filter) -> dict[str, Any]:
        """Its bits, and the routers that want as much."""
        item = self._interest(category, wanted)
        mine = int.from_bytes(item.data, "big")
        near = {
            neighbour: "told" if item in self._interests.told(neighbour) else "not told: no client here wants it"
            for neighbour in self._tellers
        }
        return {"scheme": "bdrp", "present": item in self._shared, "bits": f"{mine:x}", "neighbours": near}
