"""A content router without I/O: a stimulus and the time in, messages and deliveries out.

    clients ──subscribe, publish──▶ ┌─────────────────────────────┐ ──▶ Deliver(client, events)
                                    │ local table (forest)        │
    neighbours ──messages─────────▶ │ routing (a scheme)          │ ──▶ Send(neighbour, message)
                                    │ forwarding (exact matcher)  │
    the clock ──tick──────────────▶ │ link states → tree, paths   │
                                    └─────────────────────────────┘

Every stimulus is a method that returns what to do; nothing here knows a socket or a clock, and time is an argument. How
filters enter the tables is a plug-in (`intake`). What holds:

* an event goes to each client that wants it once, whatever the graph does meanwhile (`Seen`), and never in circles;
* while messages arrive it goes to *every* client whose subscription had settled and to whom there is a path, also while
  the graph changes (`readiness`);
* after any loss (messages, neighbours, routers) the tables are correct again within a lease: neighbours greet each
  other, compare what was told with what is held, and forget the silent.

`settle` is an echo wave along the tree (`settlement`): it follows earlier messages on every link, so when it is back,
whatever this router has told before it is in place everywhere. That is what lets ``await subscribe(...)`` mean
something here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sievenet.content.codec import encode_filter
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Rejected, SievenetError
from sievenet.routers.carriage import Carriage
from sievenet.routers.intake import Intake
from sievenet.routers.linkstate import Announcer
from sievenet.routers.local import Kind, LocalTable, Registration
from sievenet.routers.messages import (
    ADVERTISEMENT,
    SUBSCRIPTION,
    Carried,
    FromRouter,
    Greeting,
    LinkStated,
    Ready,
    Received,
    Settle,
    Settled,
    check_number,
)
from sievenet.routers.outputs import Counts, Deliver, Output, Send, Tell, WaveDone
from sievenet.routers.overlay import LinkStates
from sievenet.routers.readiness import Readiness
from sievenet.routers.routing import FORESTS, Catalogue, Context, Routing, Settings
from sievenet.routers.settlement import Settling
from sievenet.routers.shipment import Shipment
from sievenet.routers.strategies import make_routing
from sievenet.session.message import Message

__all__ = ["Router"]


#: What a client has registered.
_Client = dict[tuple[Kind, int], Registration]


class Router:
    """One router. ``incarnation`` must be larger than in any earlier life of the same name."""

    def __init__(
        self,
        name: str,
        settings: Settings | None = None,
        now: float = 0.0,
        incarnation: int = 1,
        *,
        intake: Callable[[Context], Intake] = Intake,
    ) -> None:
        self.name = name
        self.settings = settings or Settings()
        self.states = LinkStates(name, self.settings.lease)
        self.catalogue = Catalogue()
        self._context = Context(name, self.settings, self.states, self.catalogue, incarnation, now=now)
        self.intake = intake(self._context)
        self.routing: Routing = make_routing(self._context, self.intake)
        self._local: dict[tuple[int, int], LocalTable] = {}
        self._clients: dict[str, _Client] = {}
        self._quiet: set[str] = set()
        #: Neighbours and when they were heard last.
        self.heard: dict[str, float] = {}
        self._announcer = Announcer(self._context, self.heard)
        #: Number of the last wave.
        self._number = incarnation << 16
        self._beaten = self._began = now
        self._outputs: list[Output] = []
        self._readiness = Readiness(self._context, self.routing, self.intake, self.heard)
        self._settling = Settling(
            self._context, self.routing, self.intake, self._readiness, self._flush_routing, self._wave_done
        )
        self.counts = Counts()
        self._carriage = Carriage(
            self._context, self.routing, self._readiness, self.counts, self.heard, self._quiet, self._deliver
        )
        self._announcer.state()

    # -- clients --------------------------------------------------------------------------

    def attach(self, client: str, *, echo: bool = True) -> None:
        """A client is there; without ``echo`` it does not get what it published itself."""
        if client in self._clients:
            raise Rejected(f"The name {client} is taken")
        self._clients[client] = {}
        if not echo:
            self._quiet.add(client)

    def detach(self, client: str, now: float) -> list[Output]:
        """A client is gone, with all it had registered."""
        self._context.now = now
        known = self._clients.pop(client, {})
        self._quiet.discard(client)
        self.intake.leave(client)
        for kind, number in list(known):
            self._withdraw(client, known, kind, number)
        return self._flush()

    def register(self, schema: Schema | None) -> int:
        """Make a schema known; its category."""
        return self.catalogue.add(schema)

    def hear(self, client: str, message: Message, now: float) -> list[Output]:
        """A client says something about placing filters."""
        self._context.now = now
        self.intake.hear(client, message)
        return self._flush()

    def subscribe(self, client: str, number: int, category: int, wanted: Subscription, now: float) -> list[Output]:
        """A client wants something; the same again is no change."""
        return self._enter("subscription", client, number, category, wanted, now)

    def advertise(self, client: str, number: int, category: int, wanted: Subscription, now: float) -> list[Output]:
        """A client will publish something."""
        return self._enter("advertisement", client, number, category, wanted, now)

    def _enter(
        self, kind: Kind, client: str, number: int, category: int, wanted: Subscription, now: float
    ) -> list[Output]:
        self._context.now = now
        known = self._clients[client]
        found = known.get((kind, number))
        entry = Registration(kind, category, wanted)
        if found is not None:
            if found != entry:
                raise Rejected(f"The {kind} {number} of {client} has other content already")
            return []
        known[kind, number] = entry
        self._table(kind, category).add(wanted, f"{self.name}/{client}/{number}")
        if kind == "subscription" and wanted.filters:
            self._context.forwarding(category).add(("client", client), wanted)
        return self._flush()

    def registrations(self, client: str) -> list[tuple[int, Registration]]:
        """What a client has registered, with its numbers."""
        return [(number, entry) for (_, number), entry in self._clients[client].items()]

    def revise(self, kind: Kind, client: str, number: int, wanted: Subscription, now: float) -> list[Output]:
        """A registration says something else from now on; what it said before too is never taken back in between."""
        self._context.now = now
        before = self._clients[client][kind, number]
        self._clients[client][kind, number] = Registration(kind, before.category, wanted)
        self._table(kind, before.category).replace(before.wanted, wanted, f"{self.name}/{client}/{number}")
        if kind == "subscription":
            forwarding = self._context.forwarding(before.category)
            forwarding.add(("client", client), wanted)
            forwarding.remove(("client", client), before.wanted)
        return self._flush()

    def unsubscribe(self, client: str, number: int, now: float) -> list[Output]:
        """A client no longer wants something; an unknown number is no change."""
        return self._leave("subscription", client, number, now)

    def unadvertise(self, client: str, number: int, now: float) -> list[Output]:
        """A client will no longer publish something."""
        return self._leave("advertisement", client, number, now)

    def _leave(self, kind: Kind, client: str, number: int, now: float) -> list[Output]:
        self._context.now = now
        if (kind, number) in (known := self._clients[client]):
            self._withdraw(client, known, kind, number)
        return self._flush()

    def _withdraw(self, client: str, known: _Client, kind: Kind, number: int) -> None:
        entry = known.pop((kind, number))
        self._table(kind, entry.category).remove(entry.wanted, f"{self.name}/{client}/{number}")
        if kind == "subscription" and entry.wanted.filters:
            self._context.forwarding(entry.category).remove(("client", client), entry.wanted)

    def _table(self, kind: Kind, category: int) -> LocalTable:
        key = (SUBSCRIPTION if kind == "subscription" else ADVERTISEMENT, category)
        found = self._local.get(key)
        if found is None:
            routing = self.routing
            balanced, eliminate = FORESTS[self.settings.forest]
            found = self._local[key] = LocalTable(
                covering=routing.covering, tagged=routing.tagged, balanced=balanced, eliminate=eliminate
            )
        return found

    def wanted_elsewhere(self, client: str, category: int) -> list[Filter]:
        """What neighbours and other clients want: what a client would have to publish to be of use."""
        near = self._context.forwarding(category).wants(("client", client))
        return list(dict.fromkeys([*near, *self.routing.elsewhere(category)]))

    # -- events ---------------------------------------------------------------------------

    def publish(self, client: str, shipment: Shipment, now: float) -> list[Output]:
        """A client publishes events."""
        self._context.now = now
        self._carriage.publish(shipment, client)
        return self._emit()

    def _deliver(self, client: str, shipment: Shipment) -> None:
        self._outputs.append(Deliver(client, shipment))

    # -- neighbours -----------------------------------------------------------------------

    def connected(self, neighbour: str, now: float) -> list[Output]:
        """There is a link to a neighbour, in place of any before: greet it, and tell it of the graph."""
        self._context.now = now
        self._forget(neighbour)
        self._hear(neighbour)
        return self._flush()

    def lost(self, neighbour: str, now: float) -> list[Output]:
        """The link to a neighbour is gone."""
        self._context.now = now
        self._forget(neighbour)
        return self._flush()

    def receive(self, neighbour: str, message: FromRouter, now: float) -> list[Output]:
        """A message from a neighbour. What is malformed is counted and changes nothing."""
        self._context.now = now
        self._hear(neighbour)
        try:
            check_number(message, self._context.incarnation, now - self._began)
            self._take(neighbour, message)
        except SievenetError:
            self.counts.malformed += 1
        return self._emit() if isinstance(message, Carried) and self._readiness.current else self._flush()

    def _take(self, neighbour: str, message: FromRouter) -> None:
        match message:
            case Carried():
                self._carriage.receive(neighbour, message)
            case Received():
                self._carriage.confirmed(neighbour, message.number)
            case LinkStated():
                self._announcer.stated(neighbour, message)
            case Greeting():
                if message.graph != self._context.graph:
                    self._announcer.tell(neighbour)
                self._readiness.hear(neighbour, message.graph, message.level)
                self.routing.greeted(neighbour, message.epoch, message.number, message.digest)
            case Ready():
                self._readiness.hear(neighbour, message.graph, message.level)
            case Settle():
                self._settling.enter(message, neighbour)
            case Settled():
                self._settling.answered(message, neighbour)
            case _:
                self.routing.receive(neighbour, message)

    def _hear(self, neighbour: str) -> None:
        new = neighbour not in self.heard
        self.heard[neighbour] = self._context.now
        if new:
            self._announcer.state()
            self._announcer.tell(neighbour)
            self._greet(neighbour)
            self._carriage.linked(neighbour)

    def _forget(self, neighbour: str) -> None:
        if self.heard.pop(neighbour, None) is None:
            return
        self.routing.lost(neighbour)
        self._readiness.lost(neighbour)
        self._carriage.lost(neighbour)
        self._announcer.state()

    def _greet(self, neighbour: str) -> None:
        self._carriage.confirm(neighbour)
        place, level = self.routing.greet(neighbour), self._readiness.level(neighbour)
        self._context.send(neighbour, Greeting(self._context.graph, *place, level))

    # -- settling -------------------------------------------------------------------------

    def settle(self, now: float) -> tuple[int, list[Output]]:
        """Start a wave; `WaveDone` with its number comes when it is back (or after a lease)."""
        self._context.now = now
        self._number += 1
        number = self._number
        self._settling.begin(number)
        return number, self._flush()

    def _wave_done(self, number: int, done: bool) -> None:
        self._outputs.append(WaveDone(number, done))

    # -- time -----------------------------------------------------------------------------

    def tick(self, now: float) -> list[Output]:
        """Time has passed: renew, greet, forget the silent. To be called a few times per beat (`Settings.beat`)."""
        self._context.now = now
        for neighbour in [n for n, heard in self.heard.items() if heard <= now - self.settings.lease]:
            self._forget(neighbour)
        self._announcer.renew()
        self.states.expire(now)
        self._follow_graph()
        self.routing.tick()
        self.intake.tick()
        self._settling.tick()
        self._carriage.tick()
        beat = now >= self._beaten + self.settings.beat
        if beat:
            self._beaten = now
        return self._flush(greet=beat)

    def due(self) -> float | None:
        """When `tick` has something to do that cannot wait for the next beat."""
        return self.intake.due()

    def _follow_graph(self) -> None:
        if not self._readiness.current and self._readiness.follow():
            self.states.follow(self._context.now)
            self.routing.topology_changed()
            self._settling.moved()

    def _flush_routing(self) -> None:
        for (kind, category), table in self._local.items():
            added, removed = table.changes()
            if added or removed:
                self.routing.local(kind, category, added, removed)
        self.routing.flush()

    def _flush(self, *, greet: bool = False) -> list[Output]:
        """What a stimulus leads to; the order is that of `readiness`."""
        self._follow_graph()
        self._readiness.lower()
        self._flush_routing()
        self._readiness.rise()
        self._settling.go_on()
        self._flush_routing()
        for neighbour in self.heard if greet else ():
            self._greet(neighbour)
        return self._emit()

    def _emit(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        outbox, self._context.outbox = self._context.outbox, []
        tells, self._context.tells = self._context.tells, []
        sends = (Send(neighbour, message) for neighbour, message in outbox)
        return [*outputs, *sends, *(Tell(client, message) for client, message in tells)]

    # -- telling --------------------------------------------------------------------------

    def explain(self, category: int, wanted: Filter) -> dict[str, Any]:
        """Where a filter sits in the tables, and why it was or was not forwarded."""
        clients = sorted(
            name
            for name, client in self._clients.items()
            if any(
                r.kind == "subscription" and r.category == category and any(f == wanted for f in r.wanted)
                for r in client.values()
            )
        )
        return {
            "filter": str(wanted),
            "bytes": len(encode_filter(wanted)),
            "clients": clients,
            **self.routing.explain(category, wanted),
        }

    def statistics(self) -> dict[str, Any]:
        """Sizes and counts, as plain data."""
        tests = self.routing.tests() + sum(table.tests for table in self._local.values())
        sizes = {"clients": len(self._clients), "local": sum(map(len, self._local.values())), "covering_tests": tests}
        overlay = self.states.overlay
        return {
            "router": self.name,
            "scheme": self.settings.scheme,
            "neighbours": sorted(self.heard),
            "routers": sorted(overlay.links),
            "missing": self.states.missing(self._context.now),
            "tree": list(overlay.tree_neighbours(self.name)),
            "ready": self._readiness.ready,
            "table": self.routing.size(),
            **sizes,
            **asdict(self.counts),
            "repeated": self._carriage.repeated,
            "messages": dict(sorted(self._context.counts.items())),
            **self.intake.statistics(),
        }
