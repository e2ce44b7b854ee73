"""CBCB: a broadcast layer pruned by predicates (combined broadcast and content-based routing, Carzaniga et al.).

The broadcast layer is the tree of unique shortest paths from each source. A router keeps, for each neighbour i, the
predicate p(i): what is wanted by the routers behind i. An event from source s goes to the children of this router on
the tree of s whose predicate it matches.

    receiver advertisement   RA(n, p): router n wants p. Broadcast on the tree of n; each router adds p to p(i) of the
                             neighbour it came from, and *drops* it where that changes nothing (ingress filtering)
    sender request, reply    SR goes out on the tree of its issuer, URs come back and are united on the way: the
                             issuer replaces p(i) by what is really wanted, which undoes inflation

**Where ingress filtering is sound.** An RA of n may be dropped if what n' said covers it, only if n' reaches, behind
this router, all that n would reach: reach(n) ⊆ reach(n'). Paths are unique, so behind this router both come in by the
same neighbour, and what n' said serves n there. Without that condition, trees of different shape lose events.

**Soft state.** Routers renew their RA at every beat (an eighth of the lease), and p(i) is what was renewed within a
lease. Only entries younger than a quarter of the lease count as covering, so when n' falls silent, n's next renewal
passes everywhere long before anything of n' expires: a subscriber behind a dropped RA never has a gap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sievenet.content.filter import Filter
from sievenet.routers.messages import SUBSCRIPTION, Item, Receivers, SenderAsks, UpdateReply
from sievenet.routers.routing import Context, Interface, Rows
from sievenet.routers.schemes import Want
from sievenet.routers.shipment import Shipment

__all__ = ["CbcbRouting"]

#: The origin of what update replies say.
_REPLIED = ""
#: Advertisements that may wait for their graph; more than that are lost until they are renewed.
_EARLY = 1 << 12


@dataclass(slots=True)
class _Asked:
    """A sender request under way here."""

    by: str | None
    since: float
    until: float
    waiting: set[str]
    complete: bool = True
    items: dict[Item, None] = field(default_factory=dict)
    #: The issuer's own: what each neighbour answered.
    answers: dict[str, tuple[Item, ...]] = field(default_factory=dict)


class CbcbRouting:
    """Receiver advertisements and sender requests."""

    tagged = False
    covering = True

    broadcasts = True

    def __init__(self, context: Context) -> None:
        self.context = context
        self._mine: dict[Item, None] = {}
        self._number = context.incarnation << 16
        #: neighbour → (origin, entry) → when it was said last.
        self._predicates: dict[str, dict[tuple[str, Item], float]] = {}
        #: Entries that were said in the graph of now, and that no reply has contradicted: only these cover others.
        self._current: set[tuple[str, str, Item]] = set()
        self._heard: dict[str, int] = {}
        #: What came on the trees of a graph that this router does not know yet.
        self._early: list[tuple[str, Receivers]] = []
        self._new: list[Item] = []
        self._asked: dict[tuple[str, int], _Asked] = {}
        self._renewed = self._asks = context.now
        self._tests = 0
        #: Receiver advertisements dropped on ingress.
        self.dropped = 0

    # -- receiver advertisements ----------------------------------------------------------

    def local(self, kind: int, category: int, added: list[Want], removed: list[Want]) -> None:
        """What is new is told at once; what is gone is not told again."""
        if kind != SUBSCRIPTION:
            return
        catalogue = self.context.catalogue
        for want in removed:
            self._mine.pop(catalogue.item(SUBSCRIPTION, category, want), None)
        for want in added:
            item = catalogue.item(SUBSCRIPTION, category, want)
            self._mine[item] = None
            self._new.append(item)

    def flush(self) -> None:
        """Advertise what is new."""
        fresh, self._new = [i for i in self._new if i in self._mine], []
        if fresh:
            self._advertise(tuple(fresh), complete=False)

    def _advertise(self, items: tuple[Item, ...], *, complete: bool) -> None:
        self._number += 1
        schemas, graph = self._schemas(items), self.context.graph
        self._broadcast(Receivers(self.context.name, self._number, complete, items, schemas, graph))

    def announce(self) -> None:
        """Broadcast all that is wanted here."""
        self._advertise(tuple(self._mine), complete=True)

    def _schemas(self, items: Iterable[Item]) -> tuple[bytes, ...]:
        return tuple(self.context.catalogue.encoded[c] for c in sorted({i.category for i in items} - {0}))

    def _broadcast(self, message: Receivers) -> None:
        context = self.context
        for child in context.states.overlay.children(message.origin, context.name):
            context.send(child, message)

    def _receivers(self, neighbour: str, message: Receivers) -> None:
        context = self.context
        overlay = context.states.overlay
        if message.graph != context.graph:
            if message.graph not in context.past and len(self._early) < _EARLY:
                self._early.append((neighbour, message))
            return
        # On the tree of n, an RA of n comes by the next hop towards n.
        if message.origin == context.name or overlay.next_hop(context.name, message.origin) != neighbour:
            return
        if message.number <= self._heard.get(message.origin, -1):
            return
        self._heard[message.origin] = message.number
        held = self._predicates.setdefault(neighbour, {})
        covered = all(self._covered(neighbour, held, message.origin, item) for item in message.items)
        if covered and message.items and not self._has(held, message):
            self.dropped += 1
            return
        for item in message.items:
            self._hold(neighbour, held, message.origin, item)
        self._broadcast(message)

    def _has(self, held: dict[tuple[str, Item], float], message: Receivers) -> bool:
        """Whether this origin has entries here, which its advertisement renews."""
        return any((message.origin, item) in held for item in message.items)

    def _covered(self, neighbour: str, held: dict[tuple[str, Item], float], origin: str, item: Item) -> bool:
        context = self.context
        overlay, young = context.states.overlay, context.now - context.settings.lease / 4
        wanted = context.catalogue.want(item).filter
        reach = overlay.reach(origin, context.name)
        for (other, theirs), said in held.items():
            if said < young or other in (origin, _REPLIED) or theirs.category != item.category:
                continue
            if (neighbour, other, theirs) not in self._current:
                continue
            self._tests += 1
            if context.catalogue.want(theirs).filter.covers(wanted) and reach <= overlay.reach(other, context.name):
                return True
        return False

    def _hold(self, neighbour: str, held: dict[tuple[str, Item], float], origin: str, item: Item) -> None:
        if (origin, item) not in held:
            self.context.forwarding(item.category).add(("router", neighbour), self.context.catalogue.want(item).filter)
        held[origin, item] = self.context.now
        self._current.add((neighbour, origin, item))

    def _drop(self, neighbour: str, key: tuple[str, Item]) -> None:
        del self._predicates[neighbour][key]
        self._current.discard((neighbour, *key))
        item = key[1]
        self.context.forwarding(item.category).remove(("router", neighbour), self.context.catalogue.want(item).filter)

    # -- sender requests ------------------------------------------------------------------

    def ask(self) -> None:
        """Ask what is really wanted behind each neighbour."""
        self._number += 1
        name = self.context.name
        self._pass_on(SenderAsks(name, self._number, self.context.settings.lease / 4, self.context.graph), None)

    def _pass_on(self, message: SenderAsks, by: str | None) -> None:
        context = self.context
        key = (message.issuer, message.number)
        if key in self._asked or message.graph != context.graph:
            return
        children = context.states.overlay.children(message.issuer, context.name)
        asked = self._asked[key] = _Asked(by, context.now, context.now + message.timeout, set(children))
        asked.items.update(dict.fromkeys(self._mine))
        for child in children:
            # Each hop waits a little less, so that answers of the far come before the near give up.
            context.send(child, SenderAsks(message.issuer, message.number, message.timeout * 0.9, message.graph))
        self._maybe_reply(key)

    def _reply(self, neighbour: str, message: UpdateReply) -> None:
        asked = self._asked.get((message.issuer, message.number))
        if asked is None or neighbour not in asked.waiting:
            return
        asked.waiting.discard(neighbour)
        asked.complete &= message.complete
        asked.items.update(dict.fromkeys(message.items))
        if message.complete:
            asked.answers[neighbour] = message.items
            # What is not wanted any more behind there is about to be forgotten by the issuer: from now on it covers
            # nothing here, or what it covers would be kept from the issuer.
            wanted = set(message.items)
            for (origin, item), said in self._predicates.get(neighbour, {}).items():
                if item not in wanted and said < asked.since:
                    self._current.discard((neighbour, origin, item))
        self._maybe_reply((message.issuer, message.number))

    def _maybe_reply(self, key: tuple[str, int]) -> None:
        asked = self._asked[key]
        if asked.waiting and asked.until > self.context.now:
            return
        del self._asked[key]
        if asked.by is not None:
            items = tuple(asked.items)
            complete = asked.complete and not asked.waiting
            self.context.send(asked.by, UpdateReply(*key, complete, items, self._schemas(items)))
            return
        for neighbour, items in asked.answers.items():
            held = self._predicates.setdefault(neighbour, {})
            wanted = set(items)
            for item in items:
                self._hold(neighbour, held, _REPLIED, item)
            # What was said since the question may have overtaken the answer: it stays.
            for other in [k for k, said in held.items() if k[1] not in wanted and said < asked.since]:
                self._drop(neighbour, other)

    # -- the rest of a routing ------------------------------------------------------------

    def receive(self, neighbour: str, message: Any) -> None:
        """A message of this protocol."""
        match message:
            case Receivers() | UpdateReply():
                self.context.catalogue.learn(message.schemas)
                for item in message.items:
                    self.context.catalogue.want(item)
                if isinstance(message, Receivers):
                    self._receivers(neighbour, message)
                else:
                    self._reply(neighbour, message)
            case SenderAsks():
                self._pass_on(message, neighbour)

    def topology_changed(self) -> None:
        """Trees are others: what was said travelled on the old ones. It is said again (`announce`); lost ones lapse."""
        self._heard.clear()
        self._current.clear()
        self._asked.clear()
        near = self.context.states.overlay.links.get(self.context.name, ())
        for neighbour in [n for n in self._predicates if n not in near]:
            self.lost(neighbour)
        early, self._early = self._early, []
        for neighbour, message in early:
            if neighbour in near:
                self._receivers(neighbour, message)

    def in_step(self, neighbour: str) -> bool:
        """There is no channel to be out of step."""
        return True

    def lost(self, neighbour: str) -> None:
        """Forget what was wanted behind a neighbour."""
        for key in list(self._predicates.get(neighbour, ())):
            self._drop(neighbour, key)
        self._predicates.pop(neighbour, None)
        for asked in list(self._asked):
            self._asked[asked].waiting.discard(neighbour)
            self._asked[asked].complete = False
            self._maybe_reply(asked)

    def greet(self, neighbour: str) -> tuple[int, int, int]:
        """There is no channel."""
        return 0, 0, 0

    def greeted(self, neighbour: str, epoch: int, number: int, digest: int) -> None:
        """There is no channel."""

    def tick(self) -> None:
        """Renew, ask, and forget what was not renewed."""
        context, now = self.context, self.context.now
        settings = context.settings
        if now >= self._renewed + settings.beat:
            self._renewed = now
            if self._mine:
                self._advertise(tuple(self._mine), complete=True)
        if settings.ask_every and now >= self._asks + settings.ask_every:
            self._asks = now
            self.ask()
        for key in list(self._asked):
            self._maybe_reply(key)
        old = now - settings.lease
        for neighbour, held in self._predicates.items():
            for entry in [k for k, said in held.items() if said <= old]:
                self._drop(neighbour, entry)

    def onward(self, shipment: Shipment, by: Interface, wanted: dict[Hashable, Rows]) -> list[tuple[str, Shipment]]:
        """To the wanting children on the tree of the source."""
        children = self.context.states.overlay.children(shipment.source, self.context.name)
        return [
            (child, shipment.take(rows).onward())
            for child in children
            if (rows := wanted.get(("router", child))) is not None and by != ("router", child)
        ]

    def elsewhere(self, category: int) -> list[Filter]:
        """The matcher knows all."""
        return []

    def settle_to(self, issuer: str, by: str | None) -> list[str]:
        """Down the tree of the issuer, as its advertisements."""
        return self.context.states.overlay.children(issuer, self.context.name)

    def size(self) -> int:
        """Entries of the routing table."""
        return len(self._mine) + sum(map(len, self._predicates.values()))

    def tests(self) -> int:
        """Covering tests so far."""
        return self._tests

    def explain(self, category: int, wanted: Filter) -> dict[str, Any]:
        """By which neighbours' predicates a filter is covered, and since when."""
        catalogue = self.context.catalogue
        near: dict[str, str] = {}
        for neighbour, held in self._predicates.items():
            origins = sorted(
                {
                    o or "an update reply"
                    for o, i in held
                    if i.category == category and catalogue.want(i).filter.covers(wanted)
                }
            )
            near[neighbour] = f"wanted behind it by {', '.join(origins)}" if origins else "not wanted behind it"
        mine = any(i.category == category and catalogue.want(i).filter == wanted for i in self._mine)
        return {"scheme": "cbcb", "present": mine, "neighbours": near}
