"""A node as a recipient of directed delivery: it subscribes to the numbers that the daemon says are its own.

The registrations are ordinary ones of the ledger, so that they are said again after every loss of the connection. If
the next daemon has no such twin they are struck out: components that still need this node have it told again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sievenet.client.catalog import Catalog
from sievenet.client.membership import Membership
from sievenet.client.receiver import Receiver
from sievenet.client.registrations import Registration, Registrations
from sievenet.content.codec import encode_subscription
from sievenet.control import protocol as p
from sievenet.control.directed import recipients
from sievenet.errors import SievenetError
from sievenet.session.lifetime import ended

__all__ = ["Recipient"]

log = logging.getLogger("sievenet.client")

#: Seconds between looks at what is held, while something is.
_LOOK: Final = 0.05


class Recipient:
    """The numbers of one node."""

    def __init__(
        self, catalog: Catalog, ledger: Registrations, receiver: Receiver, session: Callable[[], Membership]
    ) -> None:
        self._catalog, self._ledger, self._receiver, self._session = catalog, ledger, receiver, session
        #: By the twin's name and the number.
        self._entries: dict[tuple[str, int], Registration] = {}
        #: What is being said of each twin; the next word about it comes after.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    # -- numbers --------------------------------------------------------------------------

    def told(self, message: p.Directed) -> None:
        """These are our numbers in a twin, and no others."""
        name = message.category.schema.name
        before = self._tasks.get(name)
        self._tasks[name] = asyncio.create_task(self._adopt(message, before))

    async def _adopt(self, message: p.Directed, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        twin, session = self._catalog.update(message.category), self._session()
        session.twins.setdefault(twin.schema.name, "")
        self._receiver.direct(twin.number, twin.schema.name)
        held = {number for name, number in self._entries if name == twin.schema.name}
        for number in sorted(set(message.numbers) - held):
            wanted = recipients(twin.schema, (number,))
            entry = self._ledger.add("subscription", twin.schema.name, wanted, encode_subscription(wanted))
            self._entries[twin.schema.name, number] = entry
            try:
                await session.call(session.request(entry))
            except SievenetError as error:
                log.debug("recipient %d of %s: %s", number, twin.schema.name, error)
                self._ledger.remove(entry)
                del self._entries[twin.schema.name, number]
        for number in sorted(held - set(message.numbers)):
            entry = self._entries.pop((twin.schema.name, number))
            if self._ledger.remove(entry):
                with suppress(SievenetError):  # then the next comparison of ledgers does
                    await session.withdraw(entry)

    def renewed(self) -> None:
        """There is another catalog: what it has no twin for is over."""
        for key, entry in list(self._entries.items()):
            twin = self._catalog.get(key[0])
            if twin is None or entry not in self._ledger:
                self._ledger.remove(entry)
                del self._entries[key]
            else:
                self._receiver.direct(twin.number, key[0])
        twins, mine = self._session().twins, {name for name, _ in self._entries}
        for name in [name for name, needed in twins.items() if not needed and name not in mine]:
            del twins[name]

    # -- what is held ---------------------------------------------------------------------

    def watch(self) -> None:
        """Something may be held: look at the clock now and then."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        self._receiver.expire(time.time_ns())
        port = self._session().port
        if self._receiver.blocked and port is not None:
            port.pause()
        if self._receiver.handovers.open:
            self.watch()

    async def close(self) -> None:
        """Nothing more is said or held."""
        if self._timer is not None:
            self._timer.cancel()
        await ended(*self._tasks.values())
