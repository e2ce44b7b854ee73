"""What clients ask of a router, carried out: requests in, answers out. The connections are the server's business."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sievenet.access.identity import Identity
from sievenet.access.permissions import Decision
from sievenet.access.quota import Later
from sievenet.content.codec import decode_schema, decode_subscription, encode_schema, encode_subscription
from sievenet.content.filter import Subscription
from sievenet.errors import CodecError, Rejected, SievenetError
from sievenet.routers import protocol as p
from sievenet.routers.clearance import Clearance
from sievenet.routers.core import Router
from sievenet.routers.limits import Limits
from sievenet.routers.local import Kind
from sievenet.routers.messages import category_of
from sievenet.routers.outputs import Output
from sievenet.routers.peer import Peer
from sievenet.routers.requests import answer, schema_of, shipment_of
from sievenet.routers.shipment import Shipment
from sievenet.routers.waitlist import Waiting
from sievenet.session.message import Revised, failure

__all__ = ["Service"]


class Service:
    """``do`` carries out what the router wants, ``counts`` are the server's, for `status`."""

    def __init__(
        self,
        router: Router,
        limits: Limits,
        do: Callable[[Sequence[Output]], set[Peer]],
        counts: Callable[[], dict[str, Any]],
        clearance: Clearance,
    ) -> None:
        self._clearance = clearance
        self._router, self._limits = router, limits
        self._do, self._counts = do, counts
        #: Requests that wait for a wave, and what to do to begin one.
        self._waiting: Waiting[tuple[Peer, int, Any]] = Waiting(self._begin_wave, self._run_wave, self._settled)
        self._beginning: list[Output] = []

    def request(self, peer: Peer, message: Any) -> None:
        """Carry out a request of a client and answer it; raises if it cannot be granted."""
        identity = peer.identity
        assert identity is not None
        try:
            self._clearance.request(identity, time.monotonic())
            self._carry_out(peer, identity, message)
        except SievenetError as error:
            self._clearance.note(peer, message, str(error))
            raise
        self._clearance.note(peer, message)

    def _carry_out(self, peer: Peer, identity: Identity, message: Any) -> None:
        router, now = self._router, time.monotonic()
        match message:
            case p.Register(request, data):
                peer.send(p.CategoryIs(request, self._register(peer, data), data))
            case p.LookUp(request, name):
                category, schema = router.catalogue.named(name)
                peer.send(p.CategoryIs(request, category, encode_schema(schema)))
            case p.Subscribe(request, number, category, content, claims):
                self._room(peer, ("subscription", number))
                wanted = self._decoded(identity, category, content)
                decision = self._clearance.decide(peer, "subscribe", number, wanted)
                # Claims are about the filters that were asked for.
                claims = () if decision.narrowed else claims
                router.intake.claim(peer.name, category, decision.allowed.filters, claims)
                self._enter("subscription", peer, number, category, decision, now)
                peer.entries.add(("subscription", number))
                self._waiting.add((peer, request, decision.told))
            case p.Advertise(request, number, category, content):
                self._room(peer, ("advertisement", number))
                wanted = self._decoded(identity, category, content)
                decision = self._clearance.decide(peer, "publish", number, wanted)
                self._enter("advertisement", peer, number, category, decision, now)
                peer.entries.add(("advertisement", number))
                self._waiting.add((peer, request, decision.told))
            case p.Unsubscribe(request, number):
                self._do(router.unsubscribe(peer.name, number, now))
                peer.entries.discard(("subscription", number))
                peer.send(p.Done(request))
            case p.Unadvertise(request, number):
                self._do(router.unadvertise(peer.name, number, now))
                peer.entries.discard(("advertisement", number))
                peer.send(p.Done(request))
            case p.Volunteer(request, willing):
                peer.timed = willing
                self._do(router.hear(peer.name, message, now))
                peer.send(p.Done(request))
            case p.Ask(request, about, of):
                self._clearance.question(identity, about)
                if about == "reach":
                    self._waiting.add((peer, request, self._reach))
                else:
                    peer.send(p.Done(request, answer(router, about, of, self._counts())))
            case _:
                raise CodecError(expected="a request of a client", got=type(message).__name__, where="connection")

    def _enter(self, kind: Kind, peer: Peer, number: int, category: int, decision: Decision, now: float) -> None:
        if decision.narrowed and (kind, number) in peer.entries:
            # Said again after a loss of the connection; what is allowed may have changed since.
            self._do(self._router.revise(kind, peer.name, number, decision.allowed, now))
            return
        enter = self._router.subscribe if kind == "subscription" else self._router.advertise
        self._do(enter(peer.name, number, category, decision.allowed, now))

    def admit(self, peer: Peer, messages: list[p.Publish]) -> tuple[list[Shipment], float]:
        """Events that came together and may go on together; those that may not are answered.

        Also the seconds until the rest, which stays in the list, is within the publisher's quota.
        """
        shipments: list[Shipment] = []
        wait = 0.0
        done = len(messages)
        for at, message in enumerate(messages):
            try:
                shipment = shipment_of(self._router, peer.publisher, message)
            except SievenetError as error:
                peer.send(failure(message.request, error))
                continue
            try:
                shipments += self._allowed(peer, message, shipment)
            except Later as later:
                wait, done = later.wait, at
                break
            except Rejected as error:
                self._clearance.note(peer, message, str(error))
                peer.send(p.Refused(str(error)))
        del messages[:done]
        return Shipment.joined(shipments), wait

    def reach(self, category: int) -> int:
        """How many clients and neighbours an event of a category may go to."""
        return self._router.intake.context.forwarding(category).reach

    def publish(self, peer: Peer, shipment: Shipment) -> set[Peer]:
        """Events go on; the links that their publisher has to wait for."""
        return self._do(self._router.publish(peer.name, shipment, time.monotonic()))

    def _allowed(self, peer: Peer, message: p.Publish, shipment: Shipment) -> list[Shipment]:
        schema = self._router.catalogue.schemas[message.category]
        size = len(message.batch) + sum(map(len, message.records))
        allowed = self._clearance.permitted(peer, schema, shipment, size, time.monotonic())
        lost = len(shipment) - len(allowed)
        if lost:
            refused = f"{lost} events were dropped: the rules do not let this node publish them"
            self._clearance.note(peer, message, refused)
            peer.send(p.Refused(refused))
        return [allowed] if len(allowed) else []

    def _register(self, peer: Peer, data: bytes) -> int:
        schema = decode_schema(data)
        known = self._router.catalogue.schemas
        if category_of(schema) not in known:
            for number, limit, whose in (
                (peer.schemas, self._limits.schemas_per_client, "of one client"),
                (len(known), self._limits.schemas, "at a router"),
            ):
                if number >= limit:
                    raise Rejected(f"Expected at most {limit} schemas {whose}, {schema.name} is one more")
            if peer.identity is not None:
                self._clearance.schema(peer.identity, schema.name, peer.schemas, len(known))
            peer.schemas += 1
        return self._router.register(schema)

    def _room(self, peer: Peer, entry: tuple[str, int]) -> None:
        if len(peer.entries) >= self._limits.registrations and entry not in peer.entries:
            raise Rejected(f"Expected at most {self._limits.registrations} registrations of one client")

    def _decoded(self, identity: Identity, category: int, content: bytes) -> Subscription:
        most = self._clearance.most_cost(identity, self._limits.cost)
        return decode_subscription(schema_of(self._router, category), content, most)

    # -- rules that change ----------------------------------------------------------------

    def review(self, peer: Peer, identity: Identity) -> None:
        """Hold a client to the rules of now: each registration stands, is cut to what is allowed, or ends; told."""
        now = self._clearance.renewed(peer, identity)
        if now is None or peer.role != "client":
            return
        for number, entry in self._router.registrations(peer.name):
            revision = self._clearance.revise(now, entry.kind, entry.wanted)
            if revision is None:
                continue
            if entry.kind == "subscription" and peer.session is not None:
                peer.session.drop()
            if revision.allowed is None:
                end = self._router.unsubscribe if entry.kind == "subscription" else self._router.unadvertise
                self._do(end(peer.name, number, time.monotonic()))
                peer.entries.discard((entry.kind, number))
                peer.send(Revised(entry.kind, number, reason=revision.reason[:4096]))
            else:
                self._do(self._router.revise(entry.kind, peer.name, number, revision.allowed, time.monotonic()))
                peer.send(Revised(entry.kind, number, encode_subscription(revision.allowed)))

    # -- settling -------------------------------------------------------------------------

    def wave_done(self, number: int, done: bool) -> None:
        """A wave is back: those who waited for it are answered."""
        self._waiting.done(number, done)

    def _reach(self, done: bool) -> dict[str, Any]:
        """Whether all earlier messages have reached every router, and which routers are missing."""
        states = self._router.states
        return {"settled": done, "missing": states.missing(time.monotonic()), "graph": states.version}

    def _begin_wave(self) -> int:
        number, self._beginning = self._router.settle(time.monotonic())
        return number

    def _run_wave(self) -> None:
        outputs, self._beginning = self._beginning, []
        self._do(outputs)

    def _settled(self, request: tuple[Peer, int, Any], done: bool) -> None:
        peer, number, told = request
        peer.send(p.Done(number, told(done) if callable(told) else told))
