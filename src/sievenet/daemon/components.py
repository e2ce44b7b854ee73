"""Components at a daemon: what matchers and caches ask for, and what clients do because of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sievenet.config import HybridConfig
from sievenet.content.filter import Subscription
from sievenet.control import protocol as p
from sievenet.control.directed import is_twin
from sievenet.control.plane import ControlPlane
from sievenet.daemon.hybrid import Hybrid
from sievenet.daemon.orders import Orders
from sievenet.daemon.planes import AnyPlane
from sievenet.daemon.recipients import Recipients
from sievenet.daemon.selector import Selector
from sievenet.errors import Rejected, SievenetError
from sievenet.session.message import Message

__all__ = ["Components"]

log = logging.getLogger("sievenet.daemon")


class Components:
    """``say`` tells a client something, and whether it is there."""

    #: What only components say, and what answers orders.
    MESSAGES = (p.Twin, p.Direct, p.Undirect, p.Match, p.Matched, p.Did)

    def __init__(
        self,
        control: ControlPlane,
        plane: AnyPlane,
        say: Callable[[str, Message], bool],
        config: HybridConfig | None = None,
    ) -> None:
        self._control = control
        self.recipients = Recipients(control, say)
        self.orders = Orders(say)
        self.hybrid = Hybrid(control, plane, self.recipients, self.orders)
        self.selector = Selector(control, plane, self.hybrid, config or HybridConfig())
        #: Subscriptions that wait until what a matcher lost has been sent again.
        self._waiting: dict[tuple[str, int], asyncio.Task[Any]] = {}

    async def handle(self, client: str, message: Message) -> Message | None:
        """Carry out what a component asks for, or note what it says."""
        match message:
            case p.Twin() | p.Direct() | p.Undirect():
                return await self.recipients.handle(client, message)
            case p.Match(request):
                await self.hybrid.volunteer(client)
                return p.Done(request)
            case p.Matched():
                self.hybrid.beat(client, message)
            case p.Did():
                self.orders.done(client, message)
        return None

    def heard(self, client: str, report: p.Report, answer: dict[str, int] | None) -> dict[str, Any] | None:
        """A client's report has come; what it is answered."""
        self.selector.report(client, report)
        found: dict[str, Any] = dict(answer or {})
        if self.selector.wanted:
            found["observe"] = True
        if switch := self._control.cut_off(client):
            found["cut_off"] = switch
        return found or None

    def check(self, name: str) -> None:
        """`Rejected` if a category's plan and life are the daemon's own business; `SchemaError` if there is none."""
        self._control.category(name)
        if is_twin(name):
            raise Rejected(f"Expected another category than {name}: twins of categories are the daemon's own")

    def is_twin(self, number: int) -> bool:
        """Whether a category is a twin."""
        try:
            return is_twin(self._control.numbered(number).name)
        except SievenetError:
            return False

    def urgent(self, message: Message) -> bool:
        """Whether other requests may be waiting for just this one."""
        return isinstance(message, p.Subscribe) and self.is_twin(message.category)

    async def subscribe(self, client: str, id: int, number: int, wanted: Subscription) -> None:
        """A client subscribes to one of its numbers in a twin."""
        await self.recipients.subscribe(client, id, number, wanted)

    async def unsubscribed(self, client: str, id: int) -> None:
        """A subscription is about to be taken back."""
        self.recipients.ended(client, id)
        await self.hybrid.unsubscribed(client, id)

    async def before(self, client: str, message: Message) -> dict[str, str] | None:
        """What has to be done before a request; returns what the client is told in the end.

        Who publishes no more waits until matchers have passed on what it sent. Who subscribes waits while events are
        sent again that a matcher lost: they are older than the subscription. Who takes it back meanwhile waits too.
        """
        if isinstance(message, p.Subscribe):
            await self._settled(client, message)
        if isinstance(message, p.Unsubscribe) and (first := self._waiting.get((client, message.id))) is not None:
            await asyncio.wait({first})
        if not isinstance(message, p.Unadvertise | p.Leave):
            return None
        if not (trouble := await self.hybrid.departure.passed(client)):
            return None
        log.warning("%s leaves, and events may be lost if a matcher fails now: %s", client, trouble)
        return {"unconfirmed": trouble}

    async def _settled(self, client: str, message: p.Subscribe) -> None:
        work, key = asyncio.current_task(), (client, message.id)
        assert work is not None
        self._waiting[key] = work
        waited = False
        try:
            waited = await self.hybrid.settled(message.category, work)
        finally:
            if waited:
                work.add_done_callback(lambda _: self._over(key, work))
            else:
                self._over(key, work)

    def _over(self, key: tuple[str, int], work: asyncio.Task[Any]) -> None:
        if self._waiting.get(key) is work:
            del self._waiting[key]

    def lost(self, client: str) -> None:
        """A connection has ended."""
        self.orders.gone(client)
        self.hybrid.lost(client)

    def left(self, client: str) -> None:
        """A client or component is gone."""
        self.lost(client)
        self.recipients.left(client)
        self.hybrid.left(client)
