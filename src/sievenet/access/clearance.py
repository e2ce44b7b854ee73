"""Clearance: what the member behind a connection may do, asked by the part that it is connected to.

The conversation has checked the role already. Here is what daemon and routers have in common of the rest: connections
and requests within quotas, who may make schemas known, which questions are for operators. Each adds what concerns its
own registrations and events. Where nobody has to be known, everything is granted at no cost.
"""

from __future__ import annotations

from typing import Final

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Identity, Role
from sievenet.access.rule import Action
from sievenet.errors import Rejected

__all__ = ["Clearance"]

#: Questions whose answers show what others want; the table of a switch does, in words, up to its last hop, and so does
#: what of it differs from what it should be, while somebody subscribes.
_CONFIDENTIAL: Final = frozenset(("interests", "trace", "explain", "registrations", "flows", "check"))


class Clearance:
    """Of one part that listens."""

    #: Whoever may do this in a category may make its schema known. A name stands for one schema in a whole fabric, so
    #: that is for publishers.
    registering: tuple[Action, ...] = ("publish",)

    def __init__(self, keeper: Doorkeeper) -> None:
        self.keeper = keeper

    def enter(self, identity: Identity) -> None:
        """A connection more; `Rejected` if there are too many."""
        if identity.proof is not None:
            self.keeper.total.connect()
            try:
                self.keeper.usage(identity).connect()
            except Rejected:
                self.keeper.total.disconnect()
                raise

    def leave(self, identity: Identity) -> None:
        """A connection less."""
        if identity.proof is not None:
            self.keeper.total.disconnect()
            self.keeper.usage(identity).disconnect()

    def request(self, identity: Identity, now: float, size: int = 0) -> None:
        """`TooFast` if requests, this one of so many bytes, come too fast."""
        if identity.proof is not None:
            self.keeper.usage(identity).request(now, size)
            self.keeper.total.request(now, size)

    def answered(self, identity: Identity, size: int, now: float) -> None:
        """A request was answered with so many bytes, which count too."""
        if identity.proof is not None:
            self.keeper.usage(identity).answered(size, now)

    def question(self, identity: Identity, about: str) -> None:
        """`Rejected` if a question is not for this member."""
        if identity.proof is not None and about in _CONFIDENTIAL and not identity.role.includes(Role.OPERATOR):
            raise Rejected(f"Expected an operator to ask for {about}, which shows what others want")

    def schema(self, identity: Identity, category: str, known: int, in_all: int) -> None:
        """`Rejected` if a member may not make a schema known, beside so many of its own and of all members."""
        if identity.proof is None:
            return
        rules = identity.permissions.rules
        operator = identity.role.includes(Role.OPERATOR)
        allowed = operator or rules is None
        if not allowed and not any(rule.concerns(each, category) for rule in rules or () for each in self.registering):
            what = f"{' or '.join(self.registering)} in {category}"
            raise Rejected(f"No rule lets {identity.name} {what}, so it may not register its schema")
        self.keeper.usage(identity).schema(known)
        self.keeper.total.schema(in_all)

    def refused(self, identity: Identity | None, client: str, origin: str, reason: str) -> None:
        """Put in the audit log that a message was refused for its sender's role."""
        if identity is not None:
            self.keeper.note(identity.name or client, identity.role.value, origin, "Message", client, reason)

    def repeated(self, identity: Identity | None, client: str, refusals: int) -> None:
        """Count in the audit log so many refusals more, like one that is there."""
        if identity is not None and refusals:
            self.keeper.repeated(identity.name or client, refusals)

    def most_cost(self, identity: Identity, usual: int) -> int:
        """Steps that a filter may cost."""
        return min(usual, identity.quota.filter_cost) if identity.quota.filter_cost else usual
