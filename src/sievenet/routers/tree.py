"""Routing along one tree: simple, identity, covering, merging, each also with advertisements; `schemes` decides what is
told, channels carry it, and events go where the exact matcher says. B-DRP uses the same channels for its interests.

On a tree a message never comes back, so an event leaves by every wanting interface but the one it came by, and the sets
told are defined link by link. The tree is the overlay's (`overlay.Overlay.tree_neighbours`); when it changes, channels
that are no longer on it are dropped and new ones are filled, while events go to everybody (`readiness`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from sievenet.content.filter import Filter
from sievenet.routers.channel import Holder, Teller
from sievenet.routers.intake import Intake
from sievenet.routers.messages import ADVERTISEMENT, SUBSCRIPTION, AskWhole, Delta, Item, Whole
from sievenet.routers.refinement import Advertised, Merging, Refining
from sievenet.routers.routing import Context, Interface, Rows, Settings
from sievenet.routers.schemes import LOCAL, Covering, Flat, Scheme, Want
from sievenet.routers.shipment import Shipment

__all__ = ["TreeRouting"]


class TreeRouting:
    """Told sets on channels along the tree."""

    broadcasts = False

    def __init__(self, context: Context, intake: Intake | None = None) -> None:
        self.context = context
        self._intake = intake
        self._schemes: dict[int, Scheme] = {}
        self._offers: dict[int, Scheme] = {}
        self._tellers: dict[str, Teller] = {}
        self._holders: dict[str, Holder] = {}
        self._epoch = context.incarnation << 16
        #: Neighbours with a new channel, to be told everything once.
        self._fresh: list[str] = []
        sample = make_scheme(context.settings, Covering)
        self.tagged = sample.tagged
        # Where clients do all the comparing, one table is enough: the local one passes everything on.
        self.covering = sample.covering and (intake is None or not intake.place_all)
        self._offer: Callable[[], Scheme] = Covering if sample.covering else lambda: Flat[Want](sample.tagged)

    # -- the schemes ----------------------------------------------------------------------

    def _scheme(self, kind: int, category: int) -> Scheme:
        schemes = self._schemes if kind == SUBSCRIPTION else self._offers
        found = schemes.get(category)
        if found is None:
            intake = self._intake
            if kind == SUBSCRIPTION:
                make = Covering if intake is None else lambda: intake.covering(category)
                found = make_scheme(self.context.settings, make)
            else:
                found = self._offer()
            schemes[category] = found
            for neighbour in self._tellers:
                found.join(neighbour)
        return found

    def local(self, kind: int, category: int, added: list[Want], removed: list[Want]) -> None:
        """What local clients want or offer changed."""
        if kind == ADVERTISEMENT and not self.context.settings.advertisements:
            return
        scheme = self._scheme(kind, category)
        if added:
            scheme.subscribe_many(added, LOCAL)
        for want in removed:
            scheme.unsubscribe(want, LOCAL)

    # -- channels -------------------------------------------------------------------------

    def topology_changed(self) -> None:
        """Channels follow the tree."""
        near = set(self.context.states.overlay.tree_neighbours(self.context.name))
        for neighbour in sorted(self._tellers.keys() - near):
            self.lost(neighbour)
        for neighbour in sorted(near - self._tellers.keys()):
            self._epoch += 1
            self._tellers[neighbour] = Teller(self._epoch)
            self._holders[neighbour] = Holder()
            for scheme in (*self._schemes.values(), *self._offers.values()):
                scheme.join(neighbour)
            # The side that learns of the link last asks when the other side is ready.
            self._fresh.append(neighbour)
            self.context.send(neighbour, AskWhole())

    def announce(self) -> None:
        """Nothing: channels are filled as they begin."""

    def in_step(self, neighbour: str) -> bool:
        """Whether all that a neighbour told so far is held."""
        holder = self._holders.get(neighbour)
        return holder is not None and holder.started and not holder.waiting

    def lost(self, neighbour: str) -> None:
        """Forget a neighbour and what it told."""
        holder = self._holders.pop(neighbour, None)
        if holder is not None:
            self._apply(neighbour, [], holder.clear())
        self._tellers.pop(neighbour, None)
        for scheme in (*self._schemes.values(), *self._offers.values()):
            scheme.leave(neighbour)

    def greet(self, neighbour: str) -> tuple[int, int, int]:
        """Where the channel to a neighbour stands."""
        # One that was not told anything yet is about to be.
        teller = None if neighbour in self._fresh else self._tellers.get(neighbour)
        return (0, 0, 0) if teller is None else (teller.epoch, teller.number, teller.digest)

    def greeted(self, neighbour: str, epoch: int, number: int, digest: int) -> None:
        """Compare what is held with what was told; ask for all of it if they differ."""
        holder = self._holders.get(neighbour)
        if holder is not None and epoch and not holder.current(epoch, number, digest):
            # Asked at every greeting until it comes: the question or its answer may be lost too.
            self._ask(neighbour, holder)

    def _ask(self, neighbour: str, holder: Holder) -> None:
        holder.waiting = True
        self.context.send(neighbour, AskWhole())

    def receive(self, neighbour: str, message: Any) -> None:
        """Changes of what a neighbour tells."""
        holder = self._holders.get(neighbour)
        match message:
            case AskWhole():
                if neighbour in self._tellers and neighbour not in self._fresh:
                    self._fresh.append(neighbour)
            case Delta() if holder is not None and not holder.waiting:
                if not holder.expects(message):
                    self._ask(neighbour, holder)
                    return
                self._learn(message.schemas, message.added)
                self._apply(neighbour, *holder.delta(message))
            case Whole() if holder is not None:
                self._learn(message.schemas, message.items)
                self._apply(neighbour, *holder.whole(message))

    def _learn(self, schemas: tuple[bytes, ...], items: tuple[Item, ...]) -> None:
        """Raise if something is malformed, before any of its message is applied."""
        self.context.catalogue.learn(schemas)
        for item in items:
            self._check(item)

    def _check(self, item: Item) -> None:
        self.context.catalogue.want(item)

    def _apply(self, neighbour: str, added: list[Item], removed: list[Item]) -> None:
        catalogue = self.context.catalogue
        # Additions first: a filter that replaces another leaves no gap.
        crowds: dict[tuple[int, int], list[Want]] = {}
        for item in added:
            crowds.setdefault((item.kind, item.category), []).append(catalogue.want(item))
        for (kind, category), wants in crowds.items():
            self._scheme(kind, category).subscribe_many(wants, neighbour)
        for item in added:
            want = catalogue.want(item)
            if item.kind == SUBSCRIPTION:
                self._enter(neighbour, item, want.filter)
            elif isinstance(wanting := self._scheme(SUBSCRIPTION, item.category), Advertised):
                wanting.offer(neighbour, want.filter)
        for item in removed:
            want = catalogue.want(item)
            self._scheme(item.kind, item.category).unsubscribe(want, neighbour)
            if item.kind == SUBSCRIPTION:
                self._take_out(neighbour, item, want.filter)
            elif isinstance(wanting := self._scheme(SUBSCRIPTION, item.category), Advertised):
                wanting.retract(neighbour, want.filter)

    def _enter(self, neighbour: str, item: Item, wanted: Filter) -> None:
        """Forward by a filter that a neighbour told."""
        self.context.forwarding(item.category).add(("router", neighbour), wanted)

    def _take_out(self, neighbour: str, item: Item, wanted: Filter) -> None:
        """Forward by it no longer."""
        self.context.forwarding(item.category).remove(("router", neighbour), wanted)

    def elsewhere(self, category: int) -> list[Filter]:
        """The matcher knows all."""
        return []

    def flush(self) -> None:
        """Tell neighbours what changed."""
        added: dict[str, list[Item]] = {}
        removed: dict[str, list[Item]] = {}
        catalogue = self.context.catalogue
        for kind, schemes in ((ADVERTISEMENT, self._offers), (SUBSCRIPTION, self._schemes)):
            for category, scheme in schemes.items():
                for neighbour, change in scheme.changes().items():
                    added.setdefault(neighbour, []).extend(catalogue.item(kind, category, w) for w in change.added)
                    removed.setdefault(neighbour, []).extend(catalogue.item(kind, category, w) for w in change.removed)
        for neighbour, items in added.items():
            teller = self._tellers[neighbour]
            delta = teller.change(items, removed[neighbour], catalogue.encoded)
            if delta is not None and neighbour not in self._fresh:
                self.context.send(neighbour, delta)
        self._introduce()

    def _introduce(self) -> None:
        """Tell neighbours with a new channel everything."""
        fresh, self._fresh = self._fresh, []
        for neighbour in fresh:
            if neighbour in self._tellers:
                self.context.send(neighbour, self._tellers[neighbour].whole(self.context.catalogue.encoded))

    # -- events ---------------------------------------------------------------------------

    def onward(self, shipment: Shipment, by: Interface, wanted: dict[Hashable, Rows]) -> list[tuple[str, Shipment]]:
        """To every wanting neighbour but the one it came from."""
        return [
            (interface[1], shipment.take(rows).onward())
            for interface, rows in wanted.items()
            if isinstance(interface, tuple) and interface[0] == "router" and interface != by
        ]

    def settle_to(self, issuer: str, by: str | None) -> list[str]:
        """Down the tree."""
        return [n for n in self._tellers if n != by]

    def tick(self) -> None:
        """Nothing: greetings renew channels."""

    # -- telling --------------------------------------------------------------------------

    def size(self) -> int:
        """Entries of the routing table."""
        return sum(s.size() for s in (*self._schemes.values(), *self._offers.values()))

    def tests(self) -> int:
        """Covering tests so far."""
        return sum(s.tests() for s in (*self._schemes.values(), *self._offers.values()))

    def explain(self, category: int, wanted: Filter) -> dict[str, Any]:
        """Where a filter sits in the table, and what became of it towards each neighbour."""
        scheme = self._scheme(SUBSCRIPTION, category)
        found: dict[str, Any] = {"scheme": self.context.settings.scheme, "neighbours": {}}
        inner = scheme
        while isinstance(inner, Refining):
            inner = inner.inner
        if isinstance(inner, Covering):
            found.update(_place(inner, wanted))
        for neighbour in self._tellers:
            told = [w.filter for w in scheme.told(neighbour)]
            found["neighbours"][neighbour] = _verdict(scheme, told, neighbour, wanted)
        return found


def _place(covering: Covering, wanted: Filter) -> dict[str, Any]:
    poset = covering.poset
    entry = poset.get(wanted)
    if entry is None:
        above, below = poset.place(wanted)
        return {
            "present": False,
            "predecessors": sorted(str(poset.entries[i].filter) for i in above),
            "successors": sorted(str(poset.entries[i].filter) for i in below),
        }
    return {
        "present": True,
        "level": entry.level,
        "root": entry.id in poset.roots,
        "interfaces": sorted(str(i) or "local clients" for i in entry.subscribers),
        "predecessors": sorted(str(poset.entries[i].filter) for i in entry.preds),
        "successors": sorted(str(poset.entries[i].filter) for i in entry.succs),
    }


def _verdict(scheme: Scheme, told: list[Filter], neighbour: str, wanted: Filter) -> str:
    if wanted in told:
        return "forwarded"
    cover = next((f for f in told if f.covers(wanted)), None)
    if cover is not None:
        return f"not forwarded: {cover} was, and covers it"
    if isinstance(scheme, Advertised) and any(w.filter.covers(wanted) for w in scheme.inner.told(neighbour)):
        return "not forwarded: no advertisement from there overlaps it"
    return "not forwarded: nobody else wants it"


def make_scheme(settings: Settings, covering: Callable[[], Covering]) -> Scheme:
    """The scheme of one category."""
    scheme: Scheme
    match settings.scheme:
        case "simple" | "identity" | "edge":
            scheme = Flat[Want](tagged=settings.scheme == "simple")
        case "merging":
            scheme = Merging(covering(), settings.bound)
        case _:
            scheme = covering()
    return Advertised(scheme) if settings.advertisements else scheme
