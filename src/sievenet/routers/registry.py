"""Who is connected under which name, and when a newer connection may take a name over.

A name belongs to a connection until that ends, or its other side was silent for a lease. A newer connection replaces
it earlier only with proof that it is the same one: the *ticket* that the earlier one was given, or for a router a
certificate with its name. So a stranger cannot cut a connection by using its name, and a client or neighbour whose
connection died without a word need not wait. A client that shows its ticket goes on with its session (`session`). If
the connection of a client is lost, others may have its name, without the session.

Two routers may dial each other at the same moment. Each then has accepted one connection when it is welcomed on the one
that it dialled; the one that the smaller name dialled stays. Only the side that dialled decides so, at an address that
it was configured with: again nobody can bring it about from outside.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from typing import Final

from sievenet.errors import Rejected
from sievenet.routers.peer import Peer

__all__ = ["ALREADY", "Registry"]

#: Two routers that dial each other hear this of one of the connections: nothing is wrong.
ALREADY: Final = "There is a connection already"
#: Names whose unsent events are remembered after their connection.
_REMEMBERED: Final = 4096


class Registry:
    """The connections of a router by name."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.routers: dict[str, Peer] = {}
        self.clients: dict[str, Peer] = {}
        #: What connections that are gone were owed: (role, name) → ticket, events.
        self._owed: OrderedDict[tuple[str, str], tuple[bytes, int]] = OrderedDict()

    def of(self, role: str) -> dict[str, Peer]:
        """The connections of one role."""
        return self.routers if role == "router" else self.clients

    def holds(self, peer: Peer) -> bool:
        """Whether a connection has its name (still)."""
        return bool(peer.role) and self.of(peer.role).get(peer.name) is peer

    def client(self, peer: Peer, name: str, ticket: bytes) -> Peer | None:
        """A client says hello; the connection that it replaces. `Rejected` if the name is another's."""
        before = self.clients.get(name)
        if before is not None and peer.follows(before, ticket):
            # Nothing is lost with the earlier connection: this one goes on with its session.
            del self.clients[name]
            self._enter(peer, "client", name, None)
            return before
        if before is not None and not before.absent:
            raise Rejected(f"The name {name} is taken (until its holder leaves, or is silent for a lease)")
        return self._enter(peer, "client", name, before)

    def called(self, peer: Peer, name: str, ticket: bytes) -> Peer | None:
        """A router says hello on a connection that it dialled; the connection that this one replaces."""
        self._not_me(name)
        before = self.routers.get(name)
        if before is not None:
            # It dials again, so it has lost the one that it dialled before. If we dialled, both may have.
            proven = before.shows(ticket) or name in peer.certified
            if before.dialled or not proven:
                raise Rejected(f"{ALREADY} between {name} and {self._me}")
        return self._enter(peer, "router", name, before)

    def welcomed(self, peer: Peer, name: str) -> Peer | None:
        """A router that we dialled welcomes us; the connection that this one replaces."""
        self._not_me(name)
        before = self.routers.get(name)
        if before is not None and (before.dialled or self._me > name):
            raise Rejected(f"{ALREADY} between {name} and {self._me}")
        return self._enter(peer, "router", name, before)

    def _not_me(self, name: str) -> None:
        if name == self._me:
            raise Rejected(f"A router named {name} cannot be its own neighbour")

    def _enter(self, peer: Peer, role: str, name: str, before: Peer | None) -> Peer | None:
        if before is not None:
            self.leave(before)
        peer.role, peer.name, peer.ticket = role, name, secrets.token_bytes(16)
        self.of(role)[name] = peer
        return before

    def leave(self, peer: Peer) -> None:
        """A connection that has its name is gone; what it was owed is remembered."""
        del self.of(peer.role)[peer.name]
        if events := peer.unsent():
            before = self._owed.pop((peer.role, peer.name), (b"", 0))[1]
            # A client says how many it has taken of all that it was given; neighbours are owed what they were not sent.
            events += before if peer.session is None else peer.session.given - peer.session.unconfirmed
            self._owed[peer.role, peer.name] = (peer.ticket, events)
            if len(self._owed) > _REMEMBERED:
                self._owed.popitem(last=False)

    def owed(self, peer: Peer, ticket: bytes, taken: int = 0) -> int:
        """Events for an earlier connection of this name that were never sent; told to whom they were for."""
        key = (peer.role, peer.name)
        found = self._owed.get(key)
        if found is None or (peer.role == "client" and not hmac.compare_digest(ticket, found[0])):
            return 0
        del self._owed[key]
        return max(0, found[1] - taken)
