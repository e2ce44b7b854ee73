"""The first message of a connection: who is at the other end, and whether that is true and welcome."""

from __future__ import annotations

import logging
import secrets
import ssl
import time
from collections.abc import Callable
from hashlib import blake2b

from sievenet.access.doorkeeper import Doorkeeper
from sievenet.access.identity import Credentials, Role
from sievenet.errors import Rejected
from sievenet.routers import protocol as p
from sievenet.routers.core import Router
from sievenet.routers.dispatch import Dispatch
from sievenet.routers.peer import Peer
from sievenet.routers.registry import ALREADY, Registry
from sievenet.routers.session import Sessions

__all__ = ["Handshake"]

log = logging.getLogger("sievenet.routers")

Address = tuple[str, int]


class Handshake:
    """``gone`` is told of connections that lose their name to a newer one."""

    def __init__(
        self,
        router: Router,
        registry: Registry,
        dispatch: Dispatch,
        gone: Callable[[Peer], None],
        sessions: Sessions,
        tls: ssl.SSLContext | None,
        dial_tls: ssl.SSLContext | None,
        keeper: Doorkeeper | None = None,
    ) -> None:
        self._keeper = keeper
        self._router, self._registry, self._dispatch, self._gone = router, registry, dispatch, gone
        self._sessions = sessions
        self._tls, self._dial_tls = tls, dial_tls
        #: Names of neighbours by the address they were dialled at, and the tickets that they gave.
        self._names: dict[Address, str] = {}
        self._tickets: dict[Address, bytes] = {}
        #: Why there is no link to a neighbour that answers, as it was logged last.
        self._reasons: dict[Address, str] = {}

    def linked(self, address: Address) -> bool:
        """Whether there is a connection to the neighbour at an address."""
        return self._names.get(address, "") in self._registry.routers

    def call(self, peer: Peer, address: Address) -> None:
        """Say hello on a connection that was dialled."""
        peer.at = address
        peer.send(p.Hello(p.PROTOCOL, Role.COMPONENT, self._router.name, self._tickets.get(address, b"")))

    def failed(self, address: Address, reason: str) -> None:
        """A neighbour answers, but there is no link: said once, for it is tried again and again."""
        if self._reasons.get(address) != reason and ALREADY not in reason:
            self._reasons[address] = reason
            log.warning("%s: no link to the neighbour at %s:%d: %s", self._router.name, *address, reason)

    def greeted(self, peer: Peer, message: p.Hello | p.Welcome, member: str | None = None) -> p.Welcome | None:
        """The other side says who it is; how to welcome it. Raises if it is not welcome."""
        match message:
            case p.Hello(role=Role.COMPONENT, name=str(name), ticket=ticket):
                self._check_name(peer, name, self._tls)
                self._replace(self._registry.called(peer, name, ticket))
                return self._welcome(peer, self._router.name)
            case p.Hello(role=Role.COMPONENT):
                raise Rejected("Expected the name of a router")
            case p.Hello(name=name, ticket=ticket, taken=taken):
                prefix = "client-" if member is None else f"{member}."
                return self._client(peer, name or f"{prefix}{secrets.token_hex(4)}", ticket, taken)
            case p.Welcome(router=name, ticket=ticket):
                assert peer.at is not None
                self._check_name(peer, name, self._dial_tls)
                if self._keeper is not None and self._keeper.known:
                    shown = Credentials(Role.COMPONENT, name, "", peer.certificate, peer.address, encrypted=True)
                    peer.answers = self._keeper.admit(shown)
                self._names[peer.at], self._tickets[peer.at] = name, ticket
                self._replace(self._registry.welcomed(peer, name))
        return None

    def welcomed(self, peer: Peer) -> None:
        """Go on: with what a client has not confirmed, or as neighbours."""
        if peer.role == "router":
            peer.untold += self._registry.owed(peer, b"")
            self._dispatch.do(self._router.connected(peer.name, time.monotonic()))
        again, peer.again = peer.again, []
        for data in again:
            peer.write(data)

    def _client(self, peer: Peer, name: str, ticket: bytes, taken: int) -> p.Welcome:
        if name in self._dispatch.ports:
            raise Rejected(f"The name {name} is taken")
        before = self._registry.client(peer, name, ticket)
        unique = f"{self._router.name}/{name}/{secrets.token_hex(8)}".encode()
        peer.publisher = int.from_bytes(blake2b(unique, digest_size=8).digest(), "big") >> 1
        if before is not None and peer.follows(before, ticket):
            missed = peer.resume(before, taken, ticket)
            self._retire(before)
            return self._welcome(peer, name, missed, resumed=True)
        self._replace(before)
        # Its own events reach a client's feeds without us (`client.loopback`).
        self._router.attach(name, echo=False)
        peer.session = self._sessions.begin()
        return self._welcome(peer, name, self._registry.owed(peer, ticket, taken))

    def _check_name(self, peer: Peer, name: str, tls: ssl.SSLContext | None) -> None:
        if tls is not None and name not in peer.certified:
            named = ", ".join(sorted(peer.certified)) or "none that was verified"
            raise Rejected(f"Expected a certificate of the router {name} (--tls-ca), got {named}")

    def _replace(self, before: Peer | None) -> None:
        """A newer connection has the name of this one."""
        if before is not None:
            self._gone(before)
            self._retire(before)

    def _retire(self, before: Peer) -> None:
        log.info("%s: a newer connection of %s replaces the earlier one", self._router.name, before.name)
        before.role = "replaced"
        before.abort()

    def _welcome(self, peer: Peer, name: str, missed: int = 0, *, resumed: bool = False) -> p.Welcome:
        mine, lease = self._router.name, self._router.settings.lease
        return p.Welcome(p.PROTOCOL, name, peer.ticket, lease, mine, peer.publisher, missed, resumed)
