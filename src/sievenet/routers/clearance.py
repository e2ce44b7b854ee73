"""Clearance at a router: what of a wish is allowed, and which events of a client may enter.

A router sees every event and every filter exactly, so what it delivers to a client is what its (allowed) subscriptions
match, and what a client publishes is checked event by event, many at a time. Between routers there is no check of
content: a neighbour is a component that the authority has named, and is trusted to have checked its own clients.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sievenet.access import clearance
from sievenet.access.identity import Identity
from sievenet.access.permissions import Decision, Revision
from sievenet.access.quota import Later
from sievenet.access.rule import Action
from sievenet.content.batch import EventBatch
from sievenet.content.columns import matching
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.errors import Rejected
from sievenet.routers import protocol as p
from sievenet.routers.local import Kind
from sievenet.routers.peer import Peer
from sievenet.routers.shipment import Shipment
from sievenet.session.message import Message

__all__ = ["Clearance"]

#: Seconds that events over a quota wait; what would take longer is refused.
_PATIENCE: Final = 2.0
#: What changes something, and goes into the audit log.
_CHANGES = (p.Register, p.Advertise, p.Unadvertise, p.Subscribe, p.Unsubscribe)


class Clearance(clearance.Clearance):
    """Of one router."""

    #: Each router learns schemas from its own clients, and two of one name do not get in each other's way.
    registering = ("publish", "subscribe")

    def decide(self, peer: Peer, action: Action, number: int, wanted: Subscription) -> Decision:
        """What of a wish is allowed; `Rejected` if nothing, or if there are too many registrations."""
        identity = peer.identity
        if identity is None or identity.proof is None:
            return Decision(wanted)
        kind = "advertisement" if action == "publish" else "subscription"
        if (kind, number) not in peer.entries:
            self.keeper.usage(identity).subscription(len(peer.entries))
        if wanted.schema is None:
            self._records(identity, action)
            return Decision(wanted)
        return identity.permissions.decide(action, wanted)

    def permitted(self, peer: Peer, schema: Schema | None, shipment: Shipment, size: int, now: float) -> Shipment:
        """Events that a client may publish; `Rejected` if it may publish none of them, or has used up its quota.

        `Later` if its quota lets them pass soon: then the connection is not read until they may, and nothing is lost.
        """
        identity = peer.identity
        if identity is None or identity.proof is None:
            return shipment
        count = len(shipment)
        usages = (self.keeper.usage(identity), self.keeper.total)
        wait = max(each.publishing(count, size, now) for each in usages)
        if 0 < wait <= _PATIENCE:
            raise Later(wait)
        if not all(each.publish(count, size, now) for each in usages):
            raise Rejected(f"{count} events were dropped: they were more than the quota of events or bytes per second")
        if schema is None:
            self._records(identity, "publish")
            return shipment
        if schema not in peer.within:
            peer.within[schema] = identity.permissions.within("publish", schema)
        within = peer.within[schema]
        if within is None:
            return shipment
        assert isinstance(shipment.events, EventBatch)
        return shipment.take(np.flatnonzero(matching(within, shipment.events)))

    def renewed(self, peer: Peer, identity: Identity) -> Identity | None:
        """A client as its member is now, which it is from here on; None if nothing has changed."""
        now = self.keeper.renewed(identity)
        if now is identity:
            return None
        peer.entered = now
        if peer.callee.identity is not None:
            peer.callee.identity = now
        peer.within.clear()
        return now

    def revise(self, identity: Identity, kind: Kind, held: Subscription) -> Revision | None:
        """What becomes of a registration by the rules of now; None if it stands."""
        action: Action = "publish" if kind == "advertisement" else "subscribe"
        if held.schema is not None:
            return identity.permissions.revise(action, held)
        try:
            self._records(identity, action)
        except Rejected as error:
            return Revision(None, str(error))
        return None

    def _records(self, identity: Identity, action: Action) -> None:
        """Records have no category that a rule could name."""
        rules = identity.permissions.rules
        if rules is not None and not any(rule.action == action and rule.category == "*" for rule in rules):
            raise Rejected(f"No rule lets {identity.name} {action} records, as `{action} *: any` would")

    def note(self, peer: Peer, message: Message, error: str = "") -> None:
        """Put a request that changes something, or was refused, in the audit log."""
        identity = peer.identity
        if identity is None or not (error or isinstance(message, _CHANGES)):
            return
        about = peer.name
        if isinstance(message, p.Advertise | p.Subscribe):
            about = f"{peer.name}: {message.id} in {message.category:x}, {len(message.content)} bytes"
        who = identity.name or peer.name
        self.keeper.note(who, identity.role.value, peer.address, type(message).__name__, about, error or "done")
