"""What the daemon does for its clients: each request of the protocol, carried out on the control plane.

The service knows who is connected; the control plane knows who is registered. The two differ on purpose: a client whose
connection breaks keeps its registrations until its lease ends, and finds them again when it comes back with its ticket.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import msgspec

from sievenet.access.identity import Identity, Role
from sievenet.access.permissions import Decision
from sievenet.config import HybridConfig, ListenConfig
from sievenet.content.codec import decode_subscription
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.control import caching, warmup
from sievenet.control import protocol as p
from sievenet.control.directed import OVERHEAD, is_twin
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.daemon.adoption import Adoption
from sievenet.daemon.announcer import Announcer
from sievenet.daemon.answers import Answers
from sievenet.daemon.caches import Caches
from sievenet.daemon.clearance import Clearance
from sievenet.daemon.components import Components
from sievenet.daemon.observers import make_room, welcome
from sievenet.daemon.places import Places, endpoint_of
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.questions import Questions
from sievenet.daemon.recipients import info_of
from sievenet.daemon.reports import Reports
from sievenet.daemon.revision import Reviser
from sievenet.daemon.room import Room
from sievenet.daemon.ticket import Tickets
from sievenet.daemon.tuner import Tuner
from sievenet.errors import PlanError, Rejected, SchemaError, SievenetError
from sievenet.index.plan import Plan
from sievenet.session.connection import Connection
from sievenet.session.message import Message
from sievenet.session.requests import RequestService

__all__ = ["Service"]

log = logging.getLogger("sievenet.daemon")

#: Bytes of a subscription that is decoded at once; what is longer may take long, and has a thread of its own.
_SHORT: Final = 1024


class Peer(Connection):
    """A client's connection, or that of somebody who only looks."""

    patient = True
    #: The client's name once it is welcome; those who only look have none.
    client: str | None = None

    def __str__(self) -> str:
        return self.client or self.address


class Service(RequestService[Peer]):
    """Carries out requests; see `sievenet.session` for the connections around them."""

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        tickets: Tickets,
        answers: Answers,
        reports: Reports,
        listen: ListenConfig,
        clearance: Clearance,
        tuner: Tuner | None = None,
        hybrid: HybridConfig | None = None,
    ) -> None:
        super().__init__(listen.max_open, listen.max_held, urgent=(p.Renew, p.PlanAdopted, p.Matched, p.Did))
        self._tuner = tuner
        self._clearance = clearance
        self._control = control
        self._plane = plane
        self._tickets = tickets
        self.components = Components(control, plane, self._say, hybrid)
        self.caches = Caches(self._say)
        self._questions, self._answers = Questions(answers), answers
        self._reports = reports
        self._heartbeat = listen.heartbeat
        self._max_observers = listen.max_observers
        self._max_cost = listen.max_cost
        self._room = Room(listen.max_schemas, listen.max_schema_bytes)
        self._peers: dict[str, Peer] = {}
        self._everyone: set[Peer] = set()
        #: Connections that count against a member's quota, welcome or not yet.
        self._entered: dict[Peer, Identity] = {}
        self._adoption = Adoption()
        self._announcer = Announcer(control, plane, self._adoption, self._peers, self._described, self._cut_off)
        self._reviser = Reviser(control, clearance, self.caches, self._say)
        self._places = Places(control, plane, tickets, self._peers.__contains__, self._cut_off)
        #: Versions of schemas of which clients are being told.
        self._announcing: dict[int, asyncio.Task[None]] = {}
        control.on_plan(self._announcer.plan_changed)
        control.on_expired(self._expired)

    @property
    def connected(self) -> frozenset[str]:
        """The names of the clients that are connected now."""
        return frozenset(self._peers)

    # -- connections ----------------------------------------------------------------------

    async def hello(self, peer: Peer, message: p.Hello, identity: Identity) -> p.Welcome:
        """Accept a client, new or returning."""
        self._clearance.enter(identity)
        self._entered[peer] = identity
        for client in self._clearance.surplus(identity, self._peers, self._places.names.since):
            await self._cut_off(client, "its member came again too often, and left this one behind", logging.DEBUG)
        if identity.quota.queue:
            peer.limits = replace(peer.limits, buffer=max(1, identity.quota.queue // 2))
        if message.role not in (Role.CLIENT, Role.COMPONENT):
            make_room(self._everyone, self._max_observers)
            self._everyone.add(peer)
            return welcome(message)
        session = await self._places.enter(message.name, message.ticket, message.host or peer.door, identity)
        name = session.client
        if (older := self._peers.get(name)) is not None:
            older.goodbye("the same client has connected again")
        peer.client = name
        self._peers[name] = peer
        self._places.names.here(name)
        self._everyone.add(peer)
        attached = session.attachment
        key = self._clearance.joined(identity, name)
        advertisements, subscriptions = self._control.ids(name)
        return p.Welcome(
            p.PROTOCOL,
            name,
            self._tickets.issue(name, self._control.life(name) or 0),
            session.lease,
            session.host,
            self._heartbeat,
            endpoint_of(attached, message.role, key),
            self._plane.max_body - OVERHEAD,
            tuple(advertisements),
            tuple(subscriptions),
            0 if self._tuner is None else self._tuner.wanted,
        )

    def welcomed(self, peer: Peer) -> None:
        """A client that came back while a change waits for it has perhaps not heard of it: tell it again."""
        if peer.client is not None:
            for number in self._adoption.awaited(peer.client):
                peer.send(p.PlanChanged(self._described(self._control.numbered(number))))
            for told in self.components.recipients.stale(peer.client):
                peer.send(told)
            self.components.hybrid.welcomed(peer.client)
            for revised in self._reviser.untold(peer.client):
                peer.send(revised)

    def _say(self, client: str, message: Message) -> bool:
        """Tell a client something; whether it is there."""
        return client in self._peers and self._peers[client].send(message)

    async def lost(self, peer: Peer) -> None:
        """A connection is gone; the client's lease goes on."""
        self._everyone.discard(peer)
        identity = self._entered.pop(peer, None)
        if identity is not None:
            self._clearance.leave(identity)
        if peer.client is not None and self._peers.get(peer.client) is peer:
            del self._peers[peer.client]
            self.components.lost(peer.client)
            self._places.names.lost(peer.client, asyncio.get_running_loop().time())
            self.caches.lost(peer.client)
        await super().lost(peer)

    def _expired(self, client: str) -> None:
        log.info("lease of %s has ended", client)
        self._left(client, "the lease has ended")

    def _left(self, client: str, reason: str | None = None) -> None:
        """A client is gone, by its own wish or for a reason that it is told; nothing waits for it any more."""
        peer = self._peers.pop(client, None)
        if peer is not None and reason is not None:
            peer.goodbye(reason)
        self._places.names.here(client)
        self._adoption.gone(client)
        self._reports.forget(client)
        self.components.left(client)
        self.caches.left(client)
        self._clearance.left(client)
        self._reviser.gone(client)

    def goodbye(self, reason: str) -> None:
        """Tell everybody that the daemon goes."""
        for peer in list(self._everyone):
            peer.goodbye(reason)

    def refused(self, peer: Peer, answer: Any) -> None:
        """Something was refused for its sender's role."""
        self._clearance.refused(peer.identity, peer.client or "", peer.address, answer.message)

    # -- requests -------------------------------------------------------------------------

    def check(self, peer: Peer, message: Message, size: int) -> None:
        """Refuse what comes too fast or is not for its sender, before anything is done for it."""
        with self._noted(peer, message) as identity:
            self._clearance.check(identity, message, size, asyncio.get_running_loop().time())

    def repeated(self, peer: Peer, refusals: int) -> None:
        """So many requests more came too fast, and were not looked at."""
        self._clearance.repeated(peer.identity, peer.client or "", refusals)

    def weigh(self, peer: Peer, size: int) -> None:
        """A large message counts before it is decoded: that is work too."""
        assert peer.identity is not None
        self._clearance.weigh(peer.identity, peer.client or "", peer.address, size, asyncio.get_running_loop().time())

    async def handle(self, peer: Peer, message: Message) -> Message | None:
        """Carry out one request."""
        with self._noted(peer, message) as identity:
            reply = await self._carry_out(peer, identity, message)
            self._clearance.done(identity, peer.client or "", peer.address, message, reply)
            return reply

    def _noted(self, peer: Peer, message: Message) -> AbstractContextManager[Identity]:
        assert peer.identity is not None
        return self._clearance.noted(peer.identity, peer.client or "", peer.address, message)

    async def _carry_out(self, peer: Peer, identity: Identity, message: Message) -> Message | None:
        control = self._control
        match message:
            case p.LookUp(request, name):
                return p.CategoryReply(request, self._described(control.category(name)))
            case p.Ask(request, about, of):
                ask = self._questions.answer
                return p.Done(request, self.caches.status() if about == "caches" else await ask(about, of, peer.party))
            case p.ApplyPlan(request, name, plan):
                return p.Done(request, await self._apply_plan(name, plan))
            case p.FitTables(request, traffic):
                return p.Done(request, await self._answers.fitter.answer(traffic))
            case p.Register(request, schema):
                return p.CategoryReply(request, self._described(await self._register(schema, identity)))
            case p.RemoveSchema(request, name, version, force):
                await self._remove(name, version, force)
                return p.Done(request)
        client = self._client(peer)
        if isinstance(message, caching.CARRIED):
            return await self.caches.carry_out(client, message)
        told, client = await self.components.before(client, message), self._client(peer)
        match message:
            case p.Advertise(request, id, number, content):
                await self._announced(number)
                wanted = await self._decoded(number, content, identity)
                decision = self._clearance.decide(
                    identity, client, id, "publish", wanted, self.components.is_twin(number)
                )
                await control.advertise(client, id, decision.allowed, decision.content(content))
                await self.components.hybrid.advertised(client, number)
                return self._decided(peer, identity, request, decision)
            case p.Unadvertise(request, id):
                await control.unadvertise(client, id)
            case p.Subscribe(request, id, number, content):
                wanted = await self._decoded(number, content, identity)
                if self.components.is_twin(number):
                    await self.components.subscribe(client, id, number, wanted)
                    return p.Done(request)
                decision = self._clearance.decide(identity, client, id, "subscribe", wanted)
                await control.subscribe(client, id, decision.allowed, decision.content(content))
                since = await self.components.hybrid.subscribed(client, id)
                return self._decided(peer, identity, request, decision, since)
            case p.Unsubscribe(request, id):
                await self.components.unsubscribed(client, id)
                await control.unsubscribe(client, id)
            case caching.Cache(request, id, number, content, past, limit, back):
                wanted = await self._decoded(number, content, identity)
                decision = self._clearance.decide(identity, client, id, "subscribe", wanted)
                held, most = (decision.allowed, decision.content(content)), identity.quota.subscriptions
                return p.Done(request, await self.caches.assign(client, id, *held, past, most, limit, back))
            case _ if isinstance(message, Components.MESSAGES):
                return await self.components.handle(client, message)
            case p.Renew(request, report):
                await control.renew(client)
                self._reports.add(client, report)
                return p.Done(request, self.components.heard(client, report, self._clearance.refusals(client)))
            case p.Leave(request):
                await control.leave(client)
                self._left(client)
            case p.PlanAdopted(number, epoch):
                if epoch <= control.epoch(number):
                    self._adoption.adopted(client, number, epoch)
                return None
            case p.Sample() if self._tuner is not None:
                self._tuner.take(client, message)
                return None
        return p.Done(request, told)

    def urgent(self, message: Message) -> bool:
        """Whether a request may be what others wait for."""
        return super().urgent(message) or self.components.urgent(message)

    def _decided(self, peer: Peer, identity: Identity, request: int, decision: Decision, since: Any = ()) -> p.Done:
        if peer.identity is not identity and peer.client is not None:
            self._clearance.again(peer.client)  # the rules have changed meanwhile
        return p.Done(request, {**(decision.told or {}), "since": since} if since else decision.told)

    def _client(self, peer: Peer) -> str:
        if peer.client is None:
            raise Rejected("Expected a client, got a registration from an observer")
        if self._peers.get(peer.client) is not peer:
            raise Rejected(f"{peer.client} has left, or has connected again elsewhere")
        return peer.client

    async def _decoded(self, number: int, content: bytes, identity: Identity) -> Subscription:
        schema, most = self._control.numbered(number).schema, self._clearance.most_cost(identity, self._max_cost)
        if len(content) <= _SHORT:
            return decode_subscription(schema, content, most)
        return await self._control.worker.run(decode_subscription, schema, content, most)

    # -- plans ----------------------------------------------------------------------------

    async def _apply_plan(self, name: str, data: bytes) -> Any:
        self.components.check(name)
        plan = Plan.from_json(data)
        if all(plan.schema != category.schema for category in self._control.versions(name)):
            raise PlanError(f"Expected a plan for {name} as registered, got one for another schema")
        if plan.kind == "cells":
            await warmup.MASKS.ready()
        return msgspec.to_builtins(await self._control.apply_plan(name, plan))

    def _described(self, category: Category) -> p.CategoryInfo:
        """A category with the other versions of its schema, which a subscriber wants as well."""
        others = (each for each in self._control.versions(category.name) if each.number != category.number)
        return msgspec.structs.replace(info_of(category), siblings=tuple(map(info_of, others)))

    # -- versions of schemas --------------------------------------------------------------

    async def _register(self, schema: Schema, identity: Identity) -> Category:
        if is_twin(schema.name):
            raise Rejected(f"Expected another name than {schema.name}: twins of categories are the daemon's own")
        known = [each for each in self._control.versions(schema.name) if each.schema == schema]
        if known:
            category = known[0]
        else:
            self._clearance.new_schema(identity, schema)
            self._room.check(schema, self._control.categories())
            category = await self._control.register_schema(schema)
            self._clearance.registered(identity, category.number)
        await self._announced(category.number)
        return category

    async def _announced(self, number: int) -> None:
        """Returns when everybody who subscribed to other versions of a schema subscribes to this one as well."""
        if number not in self._control.unannounced:
            return
        if number not in self._announcing:
            self._announcing[number] = asyncio.create_task(self._announce(number))
        await asyncio.shield(self._announcing[number])

    async def _announce(self, number: int) -> None:
        try:
            await self._announcer.version(self._control.numbered(number))
            await self._control.announced(number)
        finally:
            del self._announcing[number]

    async def _remove(self, name: str, version: int, force: bool) -> None:
        versions = [each for each in self._control.versions(name) if version in (0, each.schema.version)]
        if len(versions) != 1:
            known = ", ".join(str(each.schema.version) for each in self._control.versions(name)) or "none"
            raise SchemaError(expected=f"a version of {name} ({known})", got=version or "`no version`", where="remove")
        self.components.check(name)
        await self.components.hybrid.removed(versions[0].number, force)
        await self._control.remove(versions[0].number, force)
        self._clearance.forget()
        for peer in list(self._peers.values()):
            peer.send(p.CategoryRemoved(versions[0].number))

    async def access_changed(self) -> None:
        """Members, rules or keys may be others now."""
        entered = [(peer, identity, peer.client) for peer, identity in self._entered.items()]
        await self._reviser.look(entered, self._cut_off)
        await self.components.hybrid.refresh()

    async def _cut_off(self, client: str, reason: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s is cut off: %s", client, reason)
        try:
            await self._control.leave(client)
        except Rejected:
            pass  # gone already
        except SievenetError as error:
            log.error("%s cannot be cut off yet: %s", client, error)
            return
        self._left(client, reason)
