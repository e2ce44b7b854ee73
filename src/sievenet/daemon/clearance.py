"""Clearance: what the member behind a connection may do at this daemon, and how much of it.

Besides what all parts have in common (`access.clearance`): permissions (what of a wish is allowed), quotas of
registrations and schemas, the checks of the data plane (each packet of a member with rules is decoded and held to them,
where packets are ours to look at), and the audit log (who changed what).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from sievenet.access import clearance
from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.gate import member_of
from sievenet.access.identity import Identity, Role
from sievenet.access.permissions import EVERYTHING, Decision, Permissions, Revision
from sievenet.access.quota import Quota, Usage
from sievenet.access.rule import Action
from sievenet.access.seal import new_key
from sievenet.content.codec import decode_event
from sievenet.content.columns import matching
from sievenet.content.filter import Subscription
from sievenet.content.layout import Layout, layout_of
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.control.directed import is_twin
from sievenet.control.plane import ControlPlane
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.recipients import size_of
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.errors import Rejected, SievenetError
from sievenet.session.framing import LARGE
from sievenet.session.message import Message

__all__ = ["Clearance"]

#: Not counted against the requests per second: the daemon itself asks for them.
_FREE: Final = (p.Renew, p.PlanAdopted, p.Alive, p.Goodbye)
_ACTIONS: Final[dict[str, Action]] = {"advertisement": "publish", "subscription": "subscribe"}
#: Bytes of registrations of one member, or of one client if nobody is known.
_HELD: Final = 1 << 28
#: Events that are quicker checked together.
_MANY: Final = 6
#: What changes something, and goes into the audit log.
_CHANGES: Final = (
    p.Register,
    p.RemoveSchema,
    p.Advertise,
    p.Unadvertise,
    p.Subscribe,
    p.Unsubscribe,
    p.ApplyPlan,
    p.FitTables,
    p.Leave,
)


def _matches(schema: Schema, within: Subscription, body: bytes) -> bool:
    try:
        return within.matches(decode_event(schema, body))
    except SievenetError:
        return False


class Inspection:
    """The checks of one client's packets, for the data plane."""

    def __init__(
        self, permissions: Permissions, usages: tuple[Usage, ...], schema: Callable[[int], Schema | None]
    ) -> None:
        self._permissions = permissions
        self._usages = usages
        self._schema = schema
        #: What is allowed, by action and category; True for everything.
        self._allowed: dict[tuple[Action, int], tuple[Schema, Subscription, Layout | None] | bool] = {}
        #: Whether all categories, also those to come, may be had entirely.
        self.receives_all = permissions.everything("subscribe")
        self._sends_all = permissions.everything("publish")

    def passes(self, packets: int, size: int, now: float) -> bool:
        """Whether so many packets are within the quotas."""
        return all(usage.publish(packets, size, now) for usage in self._usages)

    def wait(self, packets: int, size: int, now: float) -> float:
        """Seconds until so many packets are within the quotas."""
        return max((usage.publishing(packets, size, now) for usage in self._usages), default=0.0)

    def sends_all(self, categories: Iterable[int]) -> bool:
        """Whether the client may publish every event of these categories."""
        return self._sends_all or all(self._rule("publish", each) is True for each in set(categories))

    def sends(self, category: int, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which of these events the client may publish."""
        return self._within("publish", category, bodies)

    def receives(self, category: int, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which of these events the client may get."""
        return self._within("subscribe", category, bodies)

    def _rule(self, action: Action, category: int) -> tuple[Schema, Subscription, Layout | None] | bool:
        allowed = self._allowed.get((action, category))
        if allowed is None:
            schema = self._schema(category)
            if schema is None:
                return False
            # What comes in a twin was matched with subscriptions that are within the rules.
            if action == "subscribe" and is_twin(schema.name):
                within = None
            else:
                within = self._permissions.within(action, schema)
            allowed = True if within is None else (schema, within, layout_of(schema))
            self._allowed[action, category] = allowed
        return allowed

    def _within(self, action: Action, category: int, bodies: Sequence[bytes]) -> Sequence[bool]:
        allowed = self._rule(action, category)
        if isinstance(allowed, bool):
            return [allowed] * len(bodies)
        schema, within, layout = allowed
        if len(bodies) < _MANY or layout is None or any(len(body) != layout.size for body in bodies):
            return [_matches(schema, within, body) for body in bodies]
        # Many at once, as columns; what cannot be read so is looked at one by one.
        batch, good = layout.decode(np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), layout.size))
        found = np.zeros(len(bodies), np.bool_)
        found[good] = matching(within, batch)
        for i in np.flatnonzero(~good).tolist():
            found[i] = _matches(schema, within, bodies[i])
        verdicts: list[bool] = found.tolist()
        return verdicts

    def forget(self) -> None:
        """Categories may have other schemas now."""
        self._allowed.clear()


class Clearance(clearance.Clearance):
    """Asked for every request, before it is carried out."""

    def __init__(self, keeper: Doorkeeper, control: ControlPlane, plane: AnyPlane) -> None:
        super().__init__(keeper)
        self._control = control
        self._plane = plane
        #: Clients of each member.
        self._clients: dict[str, set[str]] = {}
        #: Who registered which schemas.
        self._schemas: dict[int, str] = {}
        self._inspections: dict[str, Inspection] = {}
        #: The rules and the quota that each client is held to.
        self._held_to: dict[str, tuple[Permissions, Quota]] = {}
        #: Clients whose events are counted before they are sent.
        self._counted: set[str] = set()

    # -- clients --------------------------------------------------------------------------

    def joined(self, identity: Identity, client: str) -> bytes:
        """A client has joined: hold its packets to what it may do; the key of its datagrams, if they are sealed."""
        if identity.proof is None or identity.name is None:
            return b""
        self._clients.setdefault(identity.name, set()).add(client)
        if not any(self._control.ids(client)):
            self._held_to[client] = (identity.permissions, identity.quota)
        if not isinstance(self._plane, EmbeddedDataPlane):
            return b""
        if identity.counted:
            self._counted.add(client)
        else:
            self._counted.discard(client)
        self._inspect(client, permitted(identity), self.keeper.usage(identity))
        key = new_key()
        self._plane.secure(client, key)
        return key

    def left(self, client: str) -> None:
        """A client is gone."""
        self._clients.get(member_of(client), set()).discard(client)
        self._inspections.pop(client, None)
        self._held_to.pop(client, None)
        self._counted.discard(client)

    def surplus(self, identity: Identity, connected: Container[str], since: Callable[[str], float]) -> list[str]:
        """Clients of a member to be ended before one more enters.

        Sessions outlive their connections. Whoever comes again and again, and leaves each time without a word, would
        hold more and more of them: beyond the quota of connections those that are away longest go.
        """
        if identity.proof is None or identity.name is None or not identity.quota.connections:
            return []
        mine = self._clients.get(identity.name, set())
        away = sorted((each for each in mine if each not in connected), key=since)
        return away[: max(0, len(mine) + 1 - identity.quota.connections)]

    def _inspect(self, client: str, permissions: Permissions, usage: Usage) -> None:
        if isinstance(self._plane, EmbeddedDataPlane) and client in self._plane.clients():
            usages = () if client in self._counted else (usage, self.keeper.total)
            checks = Inspection(permissions, usages, self._schema)
            self._inspections[client] = checks
            self._plane.check(client, checks, usage.quota.queue)

    def _schema(self, number: int) -> Schema | None:
        try:
            return self._control.numbered(number).schema
        except SievenetError:
            return None

    def refusals(self, client: str) -> dict[str, int] | None:
        """What the data plane dropped of a client since it was told; None if nothing."""
        if not isinstance(self._plane, EmbeddedDataPlane) or client not in self._inspections:
            return None
        unpermitted, over_quota = self._plane.endpoint_of(client).refused()
        for count, why in ((unpermitted, "outside the rules"), (over_quota, "over a quota")):
            if count:
                name = member_of(client)
                member = self.keeper.member(name)
                role = "" if member is None else member.role.value
                self.keeper.note(name, role, "", "Publish", client, f"{count} packets were dropped: {why}")
        return {"unpermitted": unpermitted, "over_quota": over_quota} if unpermitted or over_quota else None

    # -- requests -------------------------------------------------------------------------

    def check(self, identity: Identity, message: Message, size: int, now: float) -> None:
        """`Rejected` if requests, this one of so many bytes, come too fast, or the question is not for this member."""
        if not isinstance(message, _FREE):
            if size <= LARGE:  # what is large was weighed before
                self.request(identity, now, size)
        elif identity.proof is not None:
            self.keeper.usage(identity).heartbeat(now)
        if isinstance(message, p.Ask):
            self.question(identity, message.about)

    def weigh(self, identity: Identity, client: str, origin: str, size: int, now: float) -> None:
        """`TooFast`, and noted, if a member may not have a message of so many bytes decoded now."""
        try:
            self.request(identity, now, size)
        except Rejected as error:
            self.refused(identity, client, origin, str(error))
            raise

    def decide(
        self, identity: Identity, client: str, id: int, action: Action, wanted: Subscription, twin: bool = False
    ) -> Decision:
        """What of a wish is allowed; `Rejected` if nothing, or if the client has too many registrations.

        Components publish in twins of categories and nowhere else, others never there.
        """
        component = identity.role is Role.COMPONENT
        if action == "publish" and twin is not component:
            kind = "a twin of a category" if component else "a category that is no twin"
            raise Rejected(f"Expected {kind} to advertise in, got {wanted}")
        clients = self._clients.get(identity.name or "") if identity.proof is not None else None
        if sum(map(self._control.size, clients or {client})) > _HELD:
            raise Rejected(f"Expected registrations of at most {_HELD >> 20} MiB, {client} has as many: take some back")
        if identity.proof is None or component:
            return Decision(wanted)
        usage = self.keeper.usage(identity)
        for each in (usage, self.keeper.total):
            if each.quota.subscriptions and not self._holds(client, id, action):
                mine = self._clients[identity.name or ""] if each is usage else self._plane.clients()
                each.subscription(sum(self._registered(other) for other in mine))
        return identity.permissions.decide(action, wanted)

    def _registered(self, client: str) -> int:
        return sum(map(len, self._control.ids(client)))

    def _holds(self, client: str, id: int, action: Action) -> bool:
        advertisements, subscriptions = self._control.ids(client)
        return id in (advertisements if action == "publish" else subscriptions)

    def new_schema(self, identity: Identity, schema: Schema) -> None:
        """`Rejected` if a member may not make a schema known."""
        known = {category.number for category in self._control.categories()} if self._schemas else set()
        self._schemas = {number: owner for number, owner in self._schemas.items() if number in known}
        mine = sum(owner == identity.name for owner in self._schemas.values())
        self.schema(identity, schema.name, mine, len(self._schemas))

    def registered(self, identity: Identity, number: int) -> None:
        """A member has made a schema known."""
        if identity.proof is not None and identity.name is not None:
            self._schemas[number] = identity.name
        self.forget()

    def forget(self) -> None:
        """Categories have come or gone."""
        for inspection in self._inspections.values():
            inspection.forget()

    # -- changes of the rules -------------------------------------------------------------

    def strangers(self) -> list[tuple[str, str]]:
        """Clients that belong to no member that may be one now, and what to tell them."""
        if not self.keeper.known:
            return []
        return [
            (client, f"{client} belongs to no member that may be a client or component")
            for client in self._all()
            if not self._may(client)
        ]

    def renewed(self) -> list[str]:
        """Clients that were held to other rules or quotas than those of now; their packets are held to these."""
        found = []
        for client in self._all() if self.keeper.known else ():
            member = self.keeper.member(member_of(client))
            if member is None or self._held_to.get(client) == (member.permissions, member.quota):
                continue
            self._held_to[client] = (member.permissions, member.quota)
            self._clients.setdefault(member.name, set()).add(client)
            known = Identity(member.role, member.name, member.permissions, member.quota)
            self._inspect(client, permitted(known), self.keeper.usage(known))
            found.append(client)
        return found

    def revise(self, client: str, kind: str, held: Subscription) -> Revision | None:
        """What becomes of a client's registration by the rules of now; None if it stands."""
        member = self.keeper.member(member_of(client))
        if member is None or member.role is Role.COMPONENT or (kind == "subscription" and is_twin(_named(held))):
            return None  # these are granted by name and number
        return member.permissions.revise(_ACTIONS[kind], held)

    def again(self, client: str) -> None:
        """A client's registrations have to be looked through again: one was decided by the rules before."""
        self._held_to.pop(client, None)

    def _all(self) -> list[str]:
        """Everybody who is attached or registered."""
        return list({**self._plane.clients(), **dict.fromkeys(each.client for each in self._control.members())})

    def _may(self, client: str) -> bool:
        member = self.keeper.member(member_of(client))
        return member is not None and (member.role is Role.COMPONENT or member.role.includes(Role.CLIENT))

    # -- the audit log --------------------------------------------------------------------

    @contextmanager
    def noted(self, identity: Identity, client: str, origin: str, message: Message) -> Iterator[Identity]:
        """Put in the audit log what is refused, or fails."""
        try:
            yield identity
        except BaseException as error:
            why = str(error) if isinstance(error, SievenetError) else "failed"
            self.note(identity, client, origin, message, why)
            raise

    def done(self, identity: Identity, client: str, origin: str, message: Message, reply: Message | None) -> None:
        """A request was carried out: put it in the audit log if it changed something; a large answer counts too."""
        self.note(identity, client, origin, message)
        if isinstance(reply, p.CategoryReply):
            self.answered(identity, size_of(reply.category), asyncio.get_running_loop().time())

    def note(self, identity: Identity, client: str, origin: str, message: Message, error: str = "") -> None:
        """Put a request that changes something, or was refused, in the audit log."""
        if not isinstance(message, _CHANGES) and not error:
            return
        who = identity.name or client
        about = f"{client}: {self._about(message)}" if client and client != who else self._about(message)
        self.keeper.note(who, identity.role.value, origin, type(message).__name__, about, error or "done")

    def _about(self, message: Message) -> str:
        match message:
            case p.Register(schema=schema):
                return f"{schema.name} version {schema.version}"
            case p.RemoveSchema(name=name, version=version):
                return f"{name} version {version}"
            case p.ApplyPlan(category=category):
                return category
            case p.FitTables(traffic=traffic):
                return f"{len(traffic)} bytes of traffic"
            case (
                p.Advertise(id=id, category=number, content=content)
                | p.Subscribe(id=id, category=number, content=content)
            ):
                known = self._schema(number)
                return f"{id} in {number if known is None else known.name}, {len(content)} bytes"
            case p.Unadvertise(id=id) | p.Unsubscribe(id=id):
                return str(id)
            case p.Ask(about=about):
                return about
        return ""


def permitted(identity: Identity) -> Permissions:
    """What packets of a member are held to: components have no rules, and pass on what others may have."""
    return EVERYTHING if identity.role is Role.COMPONENT else identity.permissions


def _named(held: Subscription) -> str:
    return "" if held.schema is None else held.schema.name
