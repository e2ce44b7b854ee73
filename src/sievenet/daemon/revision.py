"""Revision: when rules change, registrations follow, and whoever keeps a right loses nothing meanwhile.

    rules of now ──▶ stands                     nothing happens
                 ├─▶ cut to what is allowed     the narrower one is registered beside, then the wider one goes
                 └─▶ ends                       its client is told which rule it is, and keeps all others
    of a subscription with a cache ─▶ no cache serves it: its client registers it again, and gets what is allowed

Make before break: the narrower registration has a spare id (the same with the highest bit flipped) until the wider one
is gone, so at no moment less is registered than stays allowed. If a crash comes in between, the client and the daemon
compare their ledgers when it comes back, and the spare one goes. Packets are held to the new rules before all this
(`Clearance.renewed`), where packets are ours to look at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sievenet.access.identity import Identity
from sievenet.access.permissions import Revision
from sievenet.content.codec import encode_subscription
from sievenet.content.filter import Subscription
from sievenet.control import protocol as p
from sievenet.control.plane import ControlPlane
from sievenet.daemon.caches import Caches
from sievenet.daemon.clearance import Clearance
from sievenet.errors import Rejected, SievenetError
from sievenet.session.connection import Connection

__all__ = ["Reviser"]

log = logging.getLogger("sievenet.daemon")

#: What tells a spare id from the one that it stands for.
_SPARE: Final = 1 << 31
_LOGIN: Final = "the login no longer counts, or has another role now"
#: Seconds that a session has to come back with another login; then it ends, and its key with it.
_GRACE: Final = 5.0
#: Registrations after which others get their turn.
_TURN: Final = 50


class Reviser:
    """Holds registrations to the rules of now; ``tell`` sends a client a message, False if it is not connected."""

    def __init__(
        self, control: ControlPlane, clearance: Clearance, caches: Caches, tell: Callable[[str, p.Revised], bool]
    ) -> None:
        self._control, self._clearance, self._caches, self._tell = control, clearance, caches, tell
        #: Clients whose login no longer counts, and when they have to be back with another.
        self._leaving: dict[str, float] = {}
        #: What clients are to be told when they come back.
        self._untold: dict[str, list[p.Revised]] = {}

    async def look(
        self,
        entered: Sequence[tuple[Connection, Identity, str | None]],
        cut_off: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """Members, rules or keys may be others now: who is no member goes, and registrations follow the rules."""
        keeper, now = self._clearance.keeper, asyncio.get_running_loop().time()
        for connection, identity, client in entered:
            if not keeper.stands(identity):
                connection.goodbye(_LOGIN)
                if client is not None:
                    self._leaving.setdefault(client, now + _GRACE)
                continue
            if client is not None:
                self._leaving.pop(client, None)
            if connection.callee.identity is not None:
                connection.callee.identity = keeper.renewed(connection.callee.identity)
        for client in [each for each, until in self._leaving.items() if until <= now]:
            del self._leaving[client]
            await cut_off(client, _LOGIN)
        for client, reason in self._clearance.strangers():
            await cut_off(client, reason)
        await self.review()

    async def review(self) -> None:
        """Look through the registrations of everybody whose rules are others than before."""
        for client in self._clearance.renewed():
            # What caches keep for a client was chosen by the rules before.
            for id, subscription in self._caches.held(client):
                if self._clearance.revise(client, "subscription", subscription) is not None:
                    log.warning("the rules of %s have changed: its cache no longer serves subscription %d", client, id)
                    self._caches.revoke(client, id)
            advertisements, subscriptions = self._control.registrations_of(client)
            held = [("advertisement", *each) for each in advertisements.items()]
            held += [("subscription", *each) for each in subscriptions.items()]
            for at, (kind, id, wanted) in enumerate(held, 1):
                revision = self._clearance.revise(client, kind, wanted)
                if revision is not None:
                    await self._carry_out(client, kind, id, revision)
                elif at % _TURN == 0:
                    await asyncio.sleep(0)

    async def _carry_out(self, client: str, kind: str, id: int, revision: Revision) -> None:
        advertised = kind == "advertisement"
        allowed, reason = revision
        try:
            if allowed is not None:
                await self._narrow(client, advertised, id, allowed)
            else:
                await self._end(client, advertised, id)
        except Rejected as error:
            reason = str(error)  # the client has gone, or there is no room for what is left
        except SievenetError as error:
            log.error("the new rules could not be applied yet to the %s %d of %s: %s", kind, id, client, error)
            self._clearance.again(client)
            return
        told = p.Revised(
            "advertisement" if advertised else "subscription",
            id,
            b"" if allowed is None or reason else encode_subscription(allowed),
            reason[:4096],
        )
        log.warning("the rules of %s have changed: %s %d %s", client, kind, id, reason or f"is cut to `{allowed}`")
        if self._control.member(client) is not None and not self._tell(client, told):
            self._untold.setdefault(client, []).append(told)

    async def _narrow(self, client: str, advertised: bool, id: int, allowed: Subscription) -> None:
        make = self._control.advertise if advertised else self._control.subscribe
        spare = id ^ _SPARE
        try:
            await make(client, spare, allowed)
        except Rejected as error:
            log.warning("no room for both at once, so %s may miss events for a moment: %s", client, error)
        await self._end(client, advertised, id)
        await make(client, id, allowed)
        await self._end(client, advertised, spare)

    async def _end(self, client: str, advertised: bool, id: int) -> None:
        await (self._control.unadvertise if advertised else self._control.unsubscribe)(client, id)

    def untold(self, client: str) -> list[p.Revised]:
        """What a client that has come back was not told yet."""
        return self._untold.pop(client, [])

    def gone(self, client: str) -> None:
        """A client has left."""
        self._untold.pop(client, None)
        self._leaving.pop(client, None)
