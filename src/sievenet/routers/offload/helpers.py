"""The clients of a router that compute for it, and the tables that they help with.

A router has one poset per category, and `Helpers` decides how filters enter each:

    RTO    submit ──▶ Offloader: batch ──▶ Compute to clients ──▶ Computed ──▶ vote ──▶ the poset ──▶ neighbours
    FF     Subscribe with claims ──▶ FixedSet: only what claims leave open is searched; Assign ──▶ clients

If the router chooses (``auto``), the forest of its clients' filters stays in front of the poset, since no message is as
quick as that: what others cover ends there. Where clients are to place everything (``always``, FF), all goes on.

With RTO a filter is on its way for a while: events are forwarded by it at once (the matcher does not wait), but
neighbours hear of it when it is in the poset. `marks` and `reached` tell when all that came before is, so waves of
`Settle` pass only then, and ``await subscribe(...)`` means what it means without offloading.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any

from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.routers.batches import Items
from sievenet.routers.intake import Intake
from sievenet.routers.offload import messages
from sievenet.routers.offload.fixed import FixedSet
from sievenet.routers.offload.jobs import Ask, FixedSettings, Offloading, RtoSettings
from sievenet.routers.offload.messages import Claim, Compute, Computed
from sievenet.routers.offload.rto import Offloader
from sievenet.routers.offload.tables import PosetTable
from sievenet.routers.poset import Poset
from sievenet.routers.routing import Context
from sievenet.routers.schemes import Covering
from sievenet.session.message import Message

__all__ = ["Helpers"]

#: Claims that may wait for their filter; a filter that is there already never asks for its claim.
_CLAIMS = 4096


class _Fixed:
    """Filters enter with what their clients claim."""

    def __init__(self, helpers: Helpers, category: int, covering: Covering, settings: FixedSettings) -> None:
        self._helpers = helpers
        self._covering = covering
        schema = helpers.context.catalogue.encoded.get(category, b"")
        self.fixed = FixedSet(
            covering.poset, category, settings.size, schema, audit=settings.audit, rebuilt=covering.rebuilt
        )
        #: What was claimed of filters that are about to come, and by whom.
        self.claims: dict[Filter, tuple[Claim, str]] = {}

    def submit(self, items: Items) -> None:
        """Interfaces want something."""
        for wanted, interface in items:
            self.fixed.subscribe(wanted, interface, *self.claims.pop(wanted, (None, "")))
            entry = self._covering.poset.get(wanted)
            assert entry is not None
            self._covering.entered(entry, interface)
        if self.fixed.stale():
            message = self.fixed.assign()
            for client in self._helpers.clients:
                self._helpers.context.tell(client, message)

    def withdraw(self, wanted: Filter, interface: Hashable) -> bool:
        """Nothing waits here."""
        return False


class _Offloaded:
    """Filters enter by the votes of clients."""

    def __init__(self, helpers: Helpers, category: int, covering: Covering, settings: RtoSettings) -> None:
        self._helpers = helpers
        self._covering = covering
        table = PosetTable(covering.poset, entered=covering.entered, rebuilt=covering.rebuilt)
        schema = helpers.context.catalogue.encoded.get(category, b"")
        self.offloader = Offloader(table, category, settings, cpu=helpers.cpu, schema=schema, numbers=helpers.numbers)
        for client in helpers.clients:
            self.offloader.join(client)

    def submit(self, items: Items) -> None:
        """Interfaces want something."""
        self._helpers.ask(self.offloader.submit(items, self._helpers.context.now))
        if self.offloader.rest.on:
            self.follow()

    def follow(self) -> None:
        """While offloading rests filters enter the table as they would without it."""
        self._covering.placing = None if self.offloader.rest.on else self

    def withdraw(self, wanted: Filter, interface: Hashable) -> bool:
        """An interface no longer wants what is still on its way."""
        return self.offloader.withdraw(wanted, interface)


class Helpers(Intake):
    """Willing clients, in the order in which they came. ``cpu`` reads the router's processor time."""

    def __init__(self, context: Context, settings: Offloading, cpu: Callable[[], float] = float) -> None:
        scheme = context.settings.scheme
        if scheme not in ("covering", "merging"):
            raise InvalidInput(expected="a scheme with a poset (covering, merging)", got=scheme, where="offloading")
        super().__init__(context)
        self.settings = settings
        self.place_all = not (isinstance(settings, RtoSettings) and settings.mode != "always")
        self.cpu = cpu
        self.clients: dict[str, None] = {}
        #: Jobs and vectors of all categories, since clients do not tell them apart.
        self.numbers = count(1)
        self._offloaded: dict[int, _Offloaded] = {}
        self._fixed: dict[int, _Fixed] = {}

    def covering(self, category: int) -> Covering:
        """A table that filters enter as the settings say."""
        # Claims say what an index would: with both, the tests of claims would come on top.
        made = Covering(Poset(index=not isinstance(self.settings, FixedSettings)))
        match self.settings:
            case RtoSettings():
                made.placing = self._offloaded[category] = _Offloaded(self, category, made, self.settings)
            case FixedSettings():
                made.placing = self._fixed[category] = _Fixed(self, category, made, self.settings)
        return made

    # -- clients --------------------------------------------------------------------------

    def hear(self, client: str, message: Message) -> None:
        """A client is willing or no longer, or answers."""
        match message:
            case messages.Volunteer(willing=willing):
                (self.join if willing else self.leave)(client)
            case Computed():
                self.computed(client, message)

    def join(self, client: str) -> None:
        """A client is willing."""
        if client in self.clients:
            return
        self.clients[client] = None
        for each in self._offloaded.values():
            each.offloader.join(client)
            each.follow()
        for fixed in self._fixed.values():
            message = fixed.fixed.current()
            if message is not None:
                self.context.tell(client, message)

    def leave(self, client: str) -> None:
        """A client is gone, or no longer willing."""
        for fixed in self._fixed.values():
            fixed.fixed.standing.leave(client)
        if self.clients.pop(client, 0) is None:
            for each in self._offloaded.values():
                self.ask(each.offloader.leave(client, self.context.now))

    def ask(self, asks: list[Ask]) -> None:
        """Send questions."""
        for client, request in ((each.client, each.request) for each in asks):
            self.context.tell(client, request)

    def computed(self, client: str, message: Computed) -> None:
        """A client's answer."""
        for each in self._offloaded.values():
            if each.offloader.asks(message.job):
                self.ask(each.offloader.answered(client, message, self.context.now))
                return
        if client in self.clients and self._offloaded:
            next(iter(self._offloaded.values())).offloader.counts.late += 1

    def claim(self, client: str, category: int, wanted: Sequence[Filter], claims: Sequence[Claim]) -> None:
        """What a client says of filters that it is about to subscribe with."""
        fixed = self._fixed.get(category)
        if fixed is None:
            return
        for each, claim in zip(wanted, claims, strict=False):
            if len(fixed.claims) >= _CLAIMS:
                fixed.claims.clear()
            fixed.claims[each] = claim, client

    def charge(self, message: Message, seconds: float) -> None:
        """Processor time that went into a question or an answer."""
        if isinstance(message, Compute | Computed):
            for each in self._offloaded.values():
                each.offloader.charge(message.job, seconds)

    # -- time -----------------------------------------------------------------------------

    def due(self) -> float | None:
        """When `tick` has something to do."""
        return min((due for o in self._offloaded.values() if (due := o.offloader.due()) is not None), default=None)

    def tick(self) -> None:
        """Time has passed."""
        now = self.context.now
        for each in self._offloaded.values():
            due = each.offloader.due()
            if due is not None and due <= now:
                self.ask(each.offloader.tick(now))
                each.follow()

    def marks(self) -> dict[int, int]:
        """Names what was submitted so far, for `reached`."""
        return {category: o.offloader.mark() for category, o in self._offloaded.items() if o.offloader.waiting}

    def reached(self, marks: dict[int, int]) -> bool:
        """Whether all that was submitted before is in the tables."""
        return all(self._offloaded[category].offloader.reached(mark) for category, mark in marks.items())

    def statistics(self) -> dict[str, Any]:
        """What became of filters, by category."""
        found: dict[str, Any] = {"clients": len(self.clients)}
        for category, each in self._offloaded.items():
            found[self._name(category)] = each.offloader.statistics()
        for category, fixed in self._fixed.items():
            found[self._name(category)] = fixed.fixed.statistics()
        return {"offloading": found}

    def _name(self, category: int) -> str:
        schema = self.context.catalogue.schemas[category]
        return "schemaless" if schema is None else schema.name
