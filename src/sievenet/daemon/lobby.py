"""The lobby: requests of those who do not come by the control protocol, through the same gate and the same table.

A person at a web page or a program that speaks HTTP is no connection of the control protocol. Here it becomes a
*visitor*: admitted by the doorkeeper like everybody else, held to the roles of the protocol's one table, to its rules
and quotas, and written down in the audit log. Whoever serves visitors says what was refused of them (`refused`): it
knows what they asked for, and from where.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from sievenet.access.clearance import Clearance
from sievenet.access.identity import Credentials, Identity, Role
from sievenet.control.protocol import CONTROL
from sievenet.daemon.service import Peer, Service
from sievenet.errors import Rejected, SievenetError
from sievenet.session.framing import LARGE, frame
from sievenet.session.message import Done, Message

__all__ = ["Lobby", "Visitor"]


class Visitor(Peer):
    """Somebody who asks without a connection of the control protocol."""

    def __init__(self, identity: Identity, address: str) -> None:
        # No connection: what a service asks of a visitor is who it is and where it comes from.
        self._identity = identity
        self.address = address

    @property
    def identity(self) -> Identity:
        """Who it is."""
        return self._identity

    @property
    def name(self) -> str:
        """Its name, empty where nobody has to be known."""
        return self._identity.name or ""


class Lobby:
    """Admits visitors and carries out what they ask for."""

    def __init__(self, service: Service, clearance: Clearance) -> None:
        self._service, self._clearance = service, clearance
        self.keeper = clearance.keeper

    def admit(self, token: str, certificate: dict[str, Any] | None, address: str, encrypted: bool) -> Visitor:
        """Whoever shows this; `Rejected` says what is missing."""
        # Without members, a client on this machine is an operator; with members, their file says what they are.
        least = Role.OBSERVER if self.keeper.known else Role.CLIENT
        return Visitor(self.keeper.admit(Credentials(least, None, token, certificate, address, encrypted)), address)

    def stands(self, visitor: Visitor) -> bool:
        """Whether a visitor would still be admitted, as it is."""
        return self.keeper.stands(visitor.identity)

    def check(self, visitor: Visitor, role: Role) -> None:
        """`Rejected` if a visitor's role is not enough."""
        if not visitor.identity.role.includes(role):
            reason = (
                f"Expected {'an' if role.value[0] in 'aeiou' else 'a'} {role.value}, got {visitor.identity.role.value}"
            )
            raise Rejected(reason)

    def refused(self, visitor: Visitor | None, address: str, what: str, about: str, error: SievenetError) -> None:
        """Put in the audit log what was refused of a visitor, or of somebody unknown; other errors are no refusals."""
        if isinstance(error, Rejected):
            who, role = ("", "") if visitor is None else (visitor.name, visitor.identity.role.value)
            self.keeper.note(who, role, address, what, about, str(error))

    def count(self, visitor: Visitor, size: int = 0) -> None:
        """A request of so many bytes that is no message of the protocol; `TooFast` if they come too fast."""
        self._clearance.request(visitor.identity, asyncio.get_running_loop().time(), size)

    def answered(self, visitor: Visitor, size: int) -> None:
        """It was answered with so many bytes."""
        self._clearance.answered(visitor.identity, size, asyncio.get_running_loop().time())

    async def carry_out(self, visitor: Visitor, message: Message) -> Any:
        """Answer a request of the control protocol; `Rejected` if this visitor may not send it."""
        CONTROL.check(visitor.identity.role, message)
        size = len(frame(message))
        if size > LARGE:
            self._service.weigh(visitor, size)
        self._service.check(visitor, message, size)
        reply = await self._service.handle(visitor, message)
        if isinstance(reply, Done) and isinstance(reply.answer, msgspec.Raw):  # as it travels to others
            return msgspec.structs.replace(reply, answer=msgspec.msgpack.decode(reply.answer))
        return reply
