"""A network of routers in virtual time: links with delay and loss, routers that crash and come back; seeded.

The routers are the real ones (`core`); what is simulated is the wire between them and the clock. Links keep their
order, as TCP does, and may lose messages, which TCP does only when a connection breaks: soft state has to bear it.

    link, cut       a connection begins, or breaks with all that is on its way; each end notices in its own time
    start, crash    a router appears or vanishes without a word, as one that hangs: only leases tell
    kill            a router's process ends: its connections break
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from math import inf
from typing import Any

import numpy as np

from sievenet.content.batch import EventBatch
from sievenet.content.event import Record
from sievenet.content.filter import Subscription
from sievenet.errors import Unavailable
from sievenet.routers.core import Router
from sievenet.routers.intake import Intake
from sievenet.routers.messages import Delta, FromRouter, Receivers, UpdateReply, Whole
from sievenet.routers.offload import messages
from sievenet.routers.offload.helpers import Helpers
from sievenet.routers.offload.jobs import Offloading
from sievenet.routers.offload.messages import Assign, Compute, Computed
from sievenet.routers.offload.volunteer import Volunteer
from sievenet.routers.outputs import Deliver, Output, Send, Tell, WaveDone
from sievenet.routers.routing import Context, Settings
from sievenet.routers.shipment import Shipment
from sievenet.simulation import Pipe, VirtualClock

__all__ = ["Answering", "Network"]

#: What a client makes of a request: seconds that it takes and the answer, or nothing at all.
Answering = Callable[[Volunteer, Compute], tuple[float, Computed] | None]


class Network:
    """Routers and links; clients are names at a router."""

    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        settings: Settings | None = None,
        *,
        seed: int = 0,
        delay: tuple[float, float] = (0.001, 0.01),
        offloading: Offloading | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.links = {frozenset(link) for link in links}
        self.clock = VirtualClock()
        #: Probability that a message between routers is lost.
        self.loss = 0.0
        #: Directions in which nothing arrives: (from, to).
        self.mute: set[tuple[str, str]] = set()
        self._delay = delay
        self._random = random.Random(seed)
        #: One per direction of a link, made when it is first used.
        self._pipes: dict[tuple[str, str], Pipe] = {}
        #: How often each link was cut: what was sent before does not arrive after.
        self._cuts: dict[frozenset[str], int] = {}
        #: Ends that know of their connection: router, neighbour, and how often the link was cut before.
        self._known: set[tuple[str, str, int]] = set()
        self._lives = count(1)
        self._intake: Callable[[Context], Intake] = (
            Intake if offloading is None else partial(Helpers, settings=offloading)
        )
        #: Clients that compute for their router: what each makes of a request (and after how long), or nothing.
        self._volunteers: dict[str, Volunteer] = {}
        self._answers: dict[str, Answering] = {}
        #: When routers are to be woken besides their beat.
        self._alarms: dict[str, float] = {}
        self.routers: dict[str, Router] = {}
        self._homes: dict[str, str] = {}
        self._sequences: dict[str, int] = {}
        self._publishers: dict[str, int] = {}
        self._done: set[tuple[str, int]] = set()
        #: What each client got: (publisher, sequence), in order of arrival.
        self.delivered: dict[str, list[tuple[int, int]]] = {}
        #: Messages between routers, those of them that carry entries of tables, and the entries in them.
        self.messages = self.telling = self.entries = 0
        names = sorted({name for link in self.links for name in link})
        for name in names:
            self.start(name)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.clock.now

    def neighbours(self, name: str) -> list[str]:
        """The other ends of a router's links."""
        return sorted(next(iter(link - {name})) for link in self.links if name in link)

    # -- life -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A router starts, with nothing but its name."""
        router = Router(name, self.settings, self.now, next(self._lives), intake=self._intake)
        self.routers[name] = router
        for neighbour in self.neighbours(name):
            if neighbour in self.routers:
                self._known.add((name, neighbour, self._cuts.get(frozenset((name, neighbour)), 0)))
                self._do(name, router.connected(neighbour, self.now))

    def crash(self, name: str) -> None:
        """A router is gone without a word, and its clients with it."""
        del self.routers[name]
        for client in [c for c, home in self._homes.items() if home == name]:
            del self._homes[client]

    def link(self, one: str, other: str) -> None:
        """A connection between two routers begins; each starts if it is not there."""
        link = frozenset((one, other))
        self.links.add(link)
        for name in sorted(link - self.routers.keys()):
            self.start(name)
        life = self._cuts.get(link, 0)
        for here, there in ((one, other), (other, one)):
            self.clock.call_at(self._soon(), self._connected, here, there, life)

    def cut(self, one: str, other: str) -> None:
        """A connection breaks, with all that is on its way."""
        link = frozenset((one, other))
        self.links.discard(link)
        self._cuts[link] = self._cuts.get(link, 0) + 1
        for here, there in ((one, other), (other, one)):
            self.clock.call_at(self._soon(), self._lost, here, there, self._cuts[link])

    def kill(self, name: str) -> None:
        """A router's process ends, and its clients and connections with it; its links stay away."""
        self.crash(name)
        for neighbour in self.neighbours(name):
            self.cut(name, neighbour)

    def _soon(self) -> float:
        return self.now + self._random.uniform(*self._delay)

    def _connected(self, here: str, there: str, life: int) -> None:
        link = frozenset((here, there))
        new = link in self.links and self._cuts.get(link, 0) == life and (here, there, life) not in self._known
        if new and here in self.routers:
            self._known.add((here, there, life))
            self._do(here, self.routers[here].connected(there, self.now))

    def _lost(self, here: str, there: str, life: int) -> None:
        # A new connection may have replaced the broken one before this end noticed.
        if here in self.routers and (here, there, life) not in self._known:
            self._do(here, self.routers[here].lost(there, self.now))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        step = self.settings.beat / 2
        while self.now < end:
            until = min(end, self.now + step)
            self.clock.run(until)
            for name in sorted(self.routers):
                self._do(name, self.routers[name].tick(self.now))

    def _arrive(self, to: str, by: str, message: FromRouter, life: int) -> None:
        router = self.routers.get(to)
        if router is not None and self._cuts.get(frozenset((to, by)), 0) == life:
            # A connection is there before its first message is.
            self._connected(to, by, life)
            self._do(to, router.receive(by, message, self.now))

    def _wake(self, name: str, due: float) -> None:
        if self._alarms.get(name) == due:
            del self._alarms[name]
        if name in self.routers:
            self._do(name, self.routers[name].tick(self.now))

    def _do(self, name: str, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(neighbour, message):
                    self._send(name, neighbour, message)
                case Deliver(client, shipment):
                    got = self.delivered.setdefault(client, [])
                    got += [(shipment.publisher, sequence) for sequence in shipment.sequences.tolist()]
                case WaveDone(number):
                    self._done.add((name, number))
                case Tell(client, message):
                    self.clock.call_at(self._soon(), self._told, client, message)
        due = self.routers[name].due() if name in self.routers else None
        if due is not None and due < self._alarms.get(name, inf):
            self._alarms[name] = due
            self.clock.call_at(max(due, self.now), self._wake, name, due)

    def _send(self, name: str, neighbour: str, message: FromRouter) -> None:
        link = frozenset((name, neighbour))
        if link not in self.links:
            return
        self.messages += 1
        match message:
            case Delta(added=added, removed=removed):
                self.telling += 1
                self.entries += len(added) + len(removed)
            case Whole(items=items) | Receivers(items=items) | UpdateReply(items=items):
                self.telling += 1
                self.entries += len(items)
        if (name, neighbour) in self.mute:
            return
        pipe = self._pipe(name, neighbour)
        pipe.loss = self.loss
        pipe.send(1, self._arrive, neighbour, name, message, self._cuts.get(link, 0))

    def _pipe(self, name: str, neighbour: str) -> Pipe:
        found = self._pipes.get((name, neighbour))
        if found is None:
            low, high = self._delay
            found = self._pipes[name, neighbour] = Pipe(self.clock, self._random, delay=low, jitter=high - low)
        return found

    # -- clients --------------------------------------------------------------------------

    def attach(self, client: str, router: str) -> None:
        """A client comes to a router."""
        self.routers[router].attach(client)
        self._homes[client] = router
        self._sequences.setdefault(client, 0)
        self._publishers.setdefault(client, len(self._publishers) + 1)

    def detach(self, client: str) -> None:
        """A client goes."""
        home = self._homes.pop(client)
        self._do(home, self.routers[home].detach(client, self.now))

    # -- clients that compute -------------------------------------------------------------

    def volunteer(self, client: str, answering: Answering | None = None) -> None:
        """A client computes for its router: as it should, or as ``answering`` says."""
        home, router = self._home(client)
        self._volunteers[client] = Volunteer()
        if answering is not None:
            self._answers[client] = answering
        self._do(home, router.hear(client, messages.Volunteer(0), self.now))

    def _told(self, client: str, message: Compute | Assign) -> None:
        volunteer = self._volunteers.get(client)
        if client not in self._homes or volunteer is None:
            return
        if isinstance(message, Assign):
            volunteer.assign(message)
            return
        answering = self._answers.get(client)
        found = (0.0, volunteer.compute(message)) if answering is None else answering(volunteer, message)
        if found is not None:
            later = self.now + found[0] + self._random.uniform(*self._delay)
            self.clock.call_at(later, self._computed, client, found[1])

    def _computed(self, client: str, message: Computed) -> None:
        if client in self._homes:
            home, router = self._home(client)
            self._do(home, router.hear(client, message, self.now))

    def _home(self, client: str) -> tuple[str, Router]:
        home = self._homes.get(client)
        if home is None:
            raise Unavailable(f"{client} has no router")
        return home, self.routers[home]

    def subscribe(self, client: str, number: int, wanted: Subscription) -> None:
        """A client subscribes; `settle` makes sure that it counts everywhere."""
        home, router = self._home(client)
        category = router.register(wanted.schema)
        claims = self._volunteers[client].claims(category, wanted.filters) if client in self._volunteers else ()
        router.intake.claim(client, category, wanted.filters, claims)
        self._do(home, router.subscribe(client, number, category, wanted, self.now))

    def unsubscribe(self, client: str, number: int) -> None:
        """A client takes a subscription back."""
        home, router = self._home(client)
        self._do(home, router.unsubscribe(client, number, self.now))

    def advertise(self, client: str, number: int, wanted: Subscription) -> None:
        """A client says what it will publish."""
        home, router = self._home(client)
        self._do(home, router.advertise(client, number, router.register(wanted.schema), wanted, self.now))

    def settle(self, client: str, limit: float | None = None) -> bool:
        """Let time pass until all that the client's router told is in place; False if the limit came first."""
        home, router = self._home(client)
        number, outputs = router.settle(self.now)
        self._do(home, outputs)
        end = self.now + (self.settings.lease if limit is None else limit)
        while (home, number) not in self._done:
            due = self.clock.due
            if due is None or due > end:
                return False
            self.clock.run(due)
        return True

    def publish(self, client: str, events: EventBatch | list[Record]) -> list[tuple[int, int]]:
        """A client publishes; returns the names of the events."""
        home, router = self._home(client)
        schema = events.schema if isinstance(events, EventBatch) else None
        publisher, first = self._publishers[client], self._sequences[client]
        self._sequences[client] += len(events)
        shipment = Shipment.publish(home, publisher, router.register(schema), first, int(self.now * 1e9), events)
        self._do(home, router.publish(client, shipment, self.now))
        return [(publisher, int(n)) for n in np.arange(first, first + len(events))]

    def drain(self) -> None:
        """Let everything under way arrive."""
        self.clock.run()

    def totals(self) -> Mapping[str, Any]:
        """Sums over all routers of what they count."""
        sums: dict[str, int] = {}
        for router in self.routers.values():
            found = router.statistics()
            for name in ("table", "covering_tests", "events", "delivered", "forwarded", "false_positives", "repeated"):
                sums[name] = sums.get(name, 0) + found[name]
            for kind, number in found["messages"].items():
                sums[kind] = sums.get(kind, 0) + number
        return sums
