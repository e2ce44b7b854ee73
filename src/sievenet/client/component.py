"""A component in the network: a matcher or a cache, which takes packets as they come and sends them to recipients.

    async with await ComponentNode.connect("sievenet://127.0.0.1:7400", take, name="m1", host="h1") as node:
        sender = await node.directed("stock")             # the twin exists, and this node advertises it
        number, absent = await sender.recipient(["alice", "bob"])
        await sender.send([(number, packet), ...])        # packets as `take` got them

A component has a place in the network as a client has, but its packets are not events of applications: what comes goes
to ``take`` undecoded, and what it sends are packets of others in twins of their categories (`control.directed`). It may
subscribe to anything, and advertises nothing else. Instructions of the daemon that only components understand go to
``instructed``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.access.identity import Role
from sievenet.access.login import Login
from sievenet.client.advertisement import Advertisement
from sievenet.client.catalog import Category
from sievenet.client.directed import Begin, End, begin, end, several, wrapped
from sievenet.client.fabric_node import FabricNode
from sievenet.client.parcel import Targets, parcels
from sievenet.client.ports.burst import Arrivals, Burst
from sievenet.client.registrations import Registration
from sievenet.content.codec import encode_subscription
from sievenet.content.filter import Subscription
from sievenet.content.layout import Bytes
from sievenet.control import caching
from sievenet.control import protocol as p
from sievenet.control.directed import everybody
from sievenet.dataplane.packet import Packet, encode_packet
from sievenet.errors import CodecError, InvalidInput
from sievenet.session.caller import Request
from sievenet.session.message import Message
from sievenet.transport.duplicates import Source

__all__ = ["ComponentNode", "DirectedSender"]

#: Bits below a recipient's number in a code.
_SHIFT: Final = 96
#: Packets made at a time, so that others get their turn: one by one, and by rows.
_CHUNK: Final = 2048
_ROWS: Final = 8192
#: Packets that may wait at the port while more are given to it from outside of tasks.
_FEW: Final = 1024

#: Takes packets that came.
Take = Callable[[list[Packet] | Arrivals], None]


class ComponentNode(FabricNode):
    """A node that takes and sends packets."""

    def __init__(
        self,
        url: str | None,
        take: Take,
        *,
        name: str | None = None,
        host: str | None = None,
        timeout: float = 30.0,
        reconnect: bool = True,
        login: Login | None = None,
        instructed: Callable[[Any], None] = lambda message: None,
    ) -> None:
        super().__init__(
            url, name=name, host=host, timeout=timeout, reconnect=reconnect, role=Role.COMPONENT, login=login
        )
        self._take = take
        self._listener = instructed
        self._senders: dict[str, DirectedSender] = {}

    @property
    def number(self) -> int:
        """Its number as a publisher."""
        return self._outbox.publisher

    def _deliver(self, packets: list[Packet] | Arrivals) -> None:
        self._take(self._opened(packets) if self._receiver.directs else packets)

    def _opened(self, packets: list[Packet] | Arrivals) -> list[Packet] | Arrivals:
        """What another component sent to this one, a matcher to a cache: the packets inside, as if by content."""
        if isinstance(packets, Arrivals) and packets.category not in self._receiver.directs:
            return packets
        found = []
        for packet in packets:
            if packet.category not in self._receiver.directs:
                found.append(packet)
                continue
            with suppress(CodecError):
                found += [inside for inside in several(packet.body) if not inside.flags]
        return found

    def _instructed(self, message: Any) -> None:
        self._listener(message)

    def pause(self) -> None:
        """Read no packets until `resume`."""
        if self._session.port is not None:
            self._session.port.pause()

    def resume(self) -> None:
        """Read packets again."""
        if self._session.port is not None:
            self._session.port.resume()

    async def call(self, request: Request) -> Any:
        """A request of a component."""
        return await self._session.call(request)

    def tell(self, message: Message) -> None:
        """Say something that is not answered; nothing happens without a connection."""
        self._session.tell(message)

    @property
    def losses(self) -> int:
        """Times that the connection was lost."""
        return self._session.losses

    @property
    def drops(self) -> int:
        """Datagrams that are known to be lost on their way in."""
        return 0 if self._session.port is None else self._session.port.drops

    async def caught_up(self) -> None:
        """Wait until packets that are on their way to this component have come; `drops` then counts what is lost."""
        number = await self.call(caching.AskPort)
        if self._session.port is not None:
            await self._session.port.caught_up(number)

    async def category(self, name: str) -> Category:
        """A category as the daemon has it."""
        await self.schema(name)
        return self._catalog[name]

    async def want(self, wanted: Subscription) -> Registration:
        """Subscribe: packets of these come from now on, and perhaps others."""
        assert wanted.schema is not None
        await self.schema(wanted.schema.name)
        self._catalog.known(wanted.schema)
        entry = self._ledger.add("subscription", wanted.schema.name, wanted, encode_subscription(wanted))
        try:
            await self._register(entry)
        except BaseException as error:
            self._given_up(entry, error)
            raise
        return entry

    async def unwant(self, entry: Registration) -> None:
        """Take a subscription back."""
        if self._ledger.remove(entry):
            await self._session.withdraw(entry)

    async def directed(self, category: str) -> DirectedSender:
        """Send packets of a category to recipients."""
        sender = self._senders.get(category)
        if sender is None:
            reply = await self._session.call(lambda number: p.Twin(number, category))
            twin = self._catalog.update(reply.category)
            self._session.twins[twin.schema.name] = category
            standing = await self.advertise(everybody(twin.schema))
            self._session.schemas.discard(twin.schema)  # the daemon's to register
            sender = self._senders[category] = DirectedSender(self, category, standing)
        return sender

    async def send_packets(self, twin: str, bodies: list[tuple[int, bytes]]) -> None:
        """Send bodies to recipients in a twin."""
        category, now, first = self._catalog[twin], time.time_ns(), self._outbox.reserve(len(bodies))
        outbox = self._outbox
        await self._send(
            [
                Packet(category.number, to << _SHIFT, outbox.publisher, first + i, now, 0, body, outbox.incarnation)
                for i, (to, body) in enumerate(bodies)
            ]
        )

    async def send_burst(self, twin: str, recipients: npt.NDArray[np.uint32], bodies: npt.NDArray[np.uint8]) -> None:
        """Send equally long bodies to recipients in a twin."""
        count = len(recipients)
        codes = recipients.astype(np.uint64) << np.uint64(_SHIFT - 64)
        burst = Burst(self._catalog[twin].number, codes, np.zeros(count, np.uint64), bodies)
        numbers = np.arange(count, dtype=np.uint64) + np.uint64(self._outbox.reserve(count))
        burst.stamp(self._outbox.publisher, self._outbox.incarnation, numbers, time.time_ns())
        await self._send(burst)

    def rows_for(self, twin: str, packets: Bytes, targets: Targets) -> list[Burst]:
        """Rows of equally long packets, to recipients in a twin, ready to be sent one after the other."""
        outbox = self._outbox
        place = (self._catalog[twin].number, outbox.publisher, outbox.incarnation, outbox.reserve, time.time_ns())
        return [Burst.of(each) for each in parcels(*place, packets, targets)]

    async def send_rows(self, twin: str, packets: Bytes, targets: Targets) -> None:
        """Send rows of equally long packets to recipients in a twin, in order."""
        for burst in self.rows_for(twin, packets, targets):
            await self._send(burst)

    @property
    def free(self) -> bool:
        """Whether few packets wait to leave."""
        port = self._session.port
        return port is not None and port.waiting <= _FEW

    async def flushed(self) -> None:
        """Wait until everything that was given away has left."""
        await self._port().flushed(0)

    def give(self, burst: Burst) -> None:
        """Send packets while it is `free`, outside of tasks: without waiting."""
        self._publisher.send(self._port(), burst)


class DirectedSender:
    """One component's end of directed delivery in one category."""

    def __init__(self, node: ComponentNode, category: str, standing: Advertisement) -> None:
        self._node, self.category, self._standing = node, category, standing
        self._twin = standing.registration.category
        #: Ways that are about to end: their subspaces, and what of them was sent to each recipient since, by source.
        self._ending: dict[int, tuple[Begin, dict[int, dict[Source, int]]]] = {}
        self._way = 0
        self.sent = 0

    async def recipient(self, clients: Iterable[str]) -> tuple[int, list[str]]:
        """A number that reaches these clients, and those of them that it does not reach (now)."""
        names = tuple(clients)
        if not 0 < len(names) <= p.MAX_GROUP:
            raise InvalidInput(expected=f"1..{p.MAX_GROUP} clients", got=len(names), where="recipient")
        answer = await self._node.call(lambda number: p.Direct(number, self.category, names))
        return int(answer["recipient"]), list(answer["absent"])

    async def release(self, recipient: int) -> None:
        """A number is needed no more."""
        await self._node.call(lambda number: p.Undirect(number, self.category, recipient))

    # -- packets --------------------------------------------------------------------------

    async def send(self, packets: Iterable[tuple[int, Packet]]) -> None:
        """Send packets to recipients, in order."""
        several = list(packets)
        for start in range(0, len(several), _CHUNK):
            chunk = several[start : start + _CHUNK]
            for recipient, packet in chunk if self._ending else ():
                self._note(recipient, (packet.publisher, packet.incarnation), packet.sequence, packet.code)
            await self._node.send_packets(self._twin, [(to, wrapped(to, encode_packet(each))) for to, each in chunk])
            self.sent += len(chunk)
            await asyncio.sleep(0)

    async def send_many(self, arrivals: Arrivals, targets: Targets) -> None:
        """Send rows of packets that came together to recipients, in order."""
        for start in range(0, len(targets), _ROWS):
            part = targets.part(start, start + _ROWS)
            if self._ending:
                heads = arrivals.heads[part.rows]
                sources = zip(heads["publisher"].tolist(), heads["incarnation"].tolist(), strict=True)
                codes = zip(heads["hi"].tolist(), heads["lo"].tolist(), strict=True)
                packets = zip(part.recipients.tolist(), sources, heads["sequence"].tolist(), codes, strict=True)
                for one, source, number, (hi, lo) in packets:
                    self._note(one, source, number, hi << 64 | lo)
            await self._node.send_rows(self._twin, arrivals.matrix, part)
            self.sent += len(part)
            await asyncio.sleep(0)

    def at_once(self, packets: Bytes, targets: Targets) -> bool:
        """Whether rows of packets could be sent without waiting for anything; else `send_many` has to send them."""
        if self._ending or len(targets) > _ROWS or not self._node.free:
            return False
        for burst in self._node.rows_for(self._twin, packets, targets) if len(targets) else ():
            self._node.give(burst)
        self.sent += len(targets)
        return True

    def _note(self, recipient: int, source: Source, number: int, code: int) -> None:
        for began, sent in self._ending.values():
            shift = 128 - began.length
            if recipient in sent and code >> shift == began.code >> shift:
                sent[recipient][source] = number

    # -- handovers ------------------------------------------------------------------------

    async def begin(
        self, recipients: Iterable[int], category: int, code: int = 0, length: int = 0, patience: float = 2.0
    ) -> int:
        """What these recipients get in a subspace is about to come by content again; the number of the way that ends.

        Say so before the network changes. Recipients hold what comes by content until `end`, for ``patience`` seconds
        at most.
        """
        self._way += 1
        way, to = self._way, list(recipients)
        began = Begin((self._node.number, way), category, code, length, patience)
        packet = begin(began)
        await self._node.send_packets(self._twin, [(one, wrapped(one, packet)) for one in to])
        self._ending[way] = began, {one: {} for one in to}
        return way

    async def end(self, way: int, category: int) -> None:
        """Everything that was to be sent this way has been."""
        bodies = []
        for recipient, marks in self._ending.pop(way)[1].items():
            packet = end(End((self._node.number, way), marks), category)
            bodies.append((recipient, wrapped(recipient, packet)))
        await self._node.send_packets(self._twin, bodies)

    async def close(self) -> None:
        """Advertise the twin no more."""
        await self._standing.close()
