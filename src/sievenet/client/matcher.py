"""A matcher in the network: takes what switches divert to it, and sends each event on to those who want it.

    packets ─▶ queue ─▶ duplicates ─▶ decode ─▶ match exactly ─▶ whose, and on which side ─▶ directed delivery
                │                                  │
              bounded: then nothing is read     nobody's: dropped, which is what it is all for

It holds the exact subscriptions that the daemon says its subspaces serve (`Serve`), each with the number of its
recipient, and answers when it matches them: only then are flows diverted to it. An event that came from one side of its
switch was delivered on that side by the switches there, and need not go back; of publishers that it has not been told
of, it sends to all sides.

Everything goes through one queue, in order: packets, and the beginnings and ends of handovers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.access.login import Login
from sievenet.client.component import ComponentNode, DirectedSender
from sievenet.client.ports.burst import Arrivals
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_event, decode_subscription
from sievenet.content.event import Event
from sievenet.content.filter import Filter
from sievenet.content.layout import layout_of
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet
from sievenet.errors import CodecError, SievenetError
from sievenet.index import Dz
from sievenet.matcher import Matcher
from sievenet.session.lifetime import ended
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["MatcherNode", "load"]

log = logging.getLogger("sievenet.client")

#: Packets that may wait; then nothing is read until half of them are done.
QUEUE: Final = 1 << 16
#: Seconds between signs of life.
BEAT: Final = 0.2
#: Subscriptions decoded before others get their turn.
_TURN: Final = 100
#: Filters that make a matcher use all of its code.
_LOAD: Final = 1000
#: Packets matched together that came singly, and in matrices.
_TOGETHER: Final = 512
_MANY: Final = 4096

_Work = list[Packet] | Arrivals | p.Release | p.Finish


class _Served:
    """The subscriptions of one category."""

    def __init__(self, schema: Schema, sender: DirectedSender) -> None:
        self.schema, self.sender = schema, sender
        self.layout = layout_of(schema)
        self.matcher = Matcher(schema)
        self.window = DuplicateWindow(span=1 << 17)  # as wide as what is sent again when another one fails
        #: By the key of a subscription: its recipient and its side.
        self.recipients = np.zeros(1024, np.uint32)
        self.sides = np.zeros(1024, np.int32)
        self.publishers: dict[int, int] = {}

    def enter(self, interests: list[p.Interest]) -> None:
        """Match these from now on."""
        top = max(each.key for each in interests)
        while top >= len(self.recipients):
            self.recipients = np.concatenate([self.recipients, np.zeros_like(self.recipients)])
            self.sides = np.concatenate([self.sides, np.zeros_like(self.sides)])
        for each in interests:
            self.recipients[each.key], self.sides[each.key] = each.recipient, each.side
        wanted = [decode_subscription(self.schema, each.content) for each in interests]
        self.matcher.add_many([each.key for each in interests], wanted)

    def everybody(self) -> list[int]:
        """All recipients."""
        keys = np.fromiter(self.matcher, np.int64, len(self.matcher))
        return sorted(set(self.recipients[keys].tolist()))

    def targets(
        self, batch: EventBatch, publishers: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], int]:
        """Rows of events and whom to send them to, in order, each pair once; and how many events nobody wants."""
        found = self.matcher.match_batch(batch)
        counts = np.diff(found.offsets)
        wanted = int(np.count_nonzero(counts))
        unwanted = len(batch) - wanted
        if not wanted:
            return np.zeros(0, np.int64), np.zeros(0, np.uint32), unwanted
        single = len(found.keys) == wanted
        rows = np.flatnonzero(counts) if single else np.repeat(np.arange(len(batch)), counts)
        keys = found.keys
        to = self.recipients[keys]
        sides = self.sides[keys]
        if sides.any() and self.publishers:
            away = (sides == 0) | (sides != self._origins(publishers, rows))
            if not away.all():
                rows, to = rows[away], to[away]
        if single:
            return rows, to, unwanted
        pairs = np.unique(rows.astype(np.uint64) << np.uint64(32) | to.astype(np.uint64))
        return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32), unwanted

    def _origins(self, publishers: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | int:
        """The sides that the events of rows came from; usually they are of one publisher."""
        if (publishers == publishers[0]).all():
            return self.publishers.get(int(publishers[0]), 0)
        known, which = np.unique(publishers, return_inverse=True)
        return np.array([self.publishers.get(each, 0) for each in known.tolist()], np.int32)[which][rows]


class MatcherNode:
    """One matcher: a component at a host, with its queue and its subscriptions."""

    def __init__(
        self, url: str | None, *, name: str | None = None, host: str | None = None, login: Login | None = None
    ) -> None:
        self.node = ComponentNode(url, self._take, name=name, host=host, login=login, instructed=self._told)
        self._served: dict[int, _Served] = {}
        self._queue: deque[_Work] = deque()
        self._waiting = 0
        self._paused = False
        #: Until when nothing is sent.
        self._until = 0.0
        self._ways: dict[int, tuple[DirectedSender, int, int]] = {}
        self._something = asyncio.Event()
        self._orders: asyncio.Queue[p.Serve | p.Await] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._seconds = 0.0
        #: Why the last order could not be carried out that could not.
        self._trouble = ""
        self.received = self.sent = self.unwanted = self.malformed = self.strangers = 0

    async def start(self) -> MatcherNode:
        """Connect, and begin to serve."""
        await asyncio.to_thread(load)
        await self.node.start()
        await self.node.call(p.Match)
        self._tasks = [asyncio.create_task(each) for each in (self._work(), self._obey(), self._beat())]
        return self

    async def close(self) -> None:
        """Stop; what is queued is not sent any more."""
        await ended(*self._tasks)
        await self.node.close()

    def done(self) -> int:
        """Packets that it has passed on or dropped."""
        return self.received - self._waiting

    # -- what the daemon says -------------------------------------------------------------

    def _told(self, message: p.Serve | p.Await | p.Release | p.Finish) -> None:
        match message:
            case p.Serve() | p.Await():
                self._orders.put_nowait(message)
            case p.Release():
                self._enqueue(message)
            case p.Finish(seconds=seconds):
                # What is still under way to here comes first.
                asyncio.get_running_loop().call_later(seconds, self._enqueue, message)

    async def _obey(self) -> None:
        while True:
            order = await self._orders.get()
            try:
                if isinstance(order, p.Await):
                    self._until = asyncio.get_running_loop().time() + order.seconds
                else:
                    await self._serve(order)
            except SievenetError as error:
                if str(error) != self._trouble:  # it may be tried again and again
                    log.error("matcher %s: %s", self.node.name, error)
                self._trouble = str(error)
                self.node.tell(p.Did(order.serial, self._trouble[:256]))
            else:
                self.node.tell(p.Did(order.serial))

    async def _serve(self, order: p.Serve) -> None:
        number = order.category.number
        served = self._served.get(number)
        if served is None or order.whole or served.schema != order.category.schema:
            schema = order.category.schema
            served = _Served(schema, await self.node.directed(schema.name))
        for key in order.removed:
            if key in served.matcher:
                served.matcher.remove(key)
        for start in range(0, len(order.added), _TURN):
            served.enter(list(order.added[start : start + _TURN]))
            await asyncio.sleep(0)
        served.publishers.update(order.publishers)
        if order.added:
            served.matcher.match_batch(_sample(served.schema))  # builds what is to be built now, not at the first event
        self._served[number] = served

    # -- packets --------------------------------------------------------------------------

    def _take(self, packets: list[Packet] | Arrivals) -> None:
        self.received += len(packets)
        self._waiting += len(packets)
        self._enqueue(packets)
        if self._waiting > QUEUE and not self._paused:
            self._paused = True
            self.node.pause()

    def _enqueue(self, what: _Work) -> None:
        self._queue.append(what)
        self._something.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                self._something.clear()
                await self._something.wait()
            if self._until > loop.time():
                await asyncio.sleep(self._until - loop.time())
            what = self._next()
            begin = loop.time()
            try:
                match what:
                    case p.Release():
                        await self._release(what)
                    case p.Finish():
                        await self._finish(what)
                    case _:
                        await self._pass(what)
            except SievenetError as error:
                log.error("matcher %s: %s", self.node.name, error)
            if not isinstance(what, p.Release | p.Finish):
                self._waiting -= len(what)
                self._seconds = loop.time() - begin
                if self._paused and self._waiting < QUEUE // 2:
                    self._paused = False
                    self.node.resume()

    def _next(self) -> _Work:
        """The next thing to do; packets that wait behind each other are taken together."""
        what = self._queue.popleft()
        if isinstance(what, Arrivals):
            return self._joined(what)
        if isinstance(what, list):
            what = list(what)
            while self._queue and isinstance(after := self._queue[0], list) and len(what) + len(after) <= _TOGETHER:
                what += after
                self._queue.popleft()
        return what

    def _joined(self, first: Arrivals) -> Arrivals:
        """Together with what waits behind it and is of the same kind: most of the work is per call, not per packet."""
        several, count = [first.matrix], len(first)
        while (
            self._queue
            and isinstance(after := self._queue[0], Arrivals)
            and after.matrix.shape[1] == first.matrix.shape[1]
            and after.category == first.category
            and count + len(after) <= _MANY
        ):
            several.append(after.matrix)
            count += len(after)
            self._queue.popleft()
        return first if len(several) == 1 else Arrivals(np.concatenate(several))

    async def _pass(self, packets: list[Packet] | Arrivals) -> None:
        if isinstance(packets, Arrivals):
            served = self._served.get(packets.category)
            if served is not None and served.layout is not None and served.layout.size == packets.bodies.shape[1]:
                await self._pass_many(served, packets)
                return
        by_category: dict[int, list[Packet]] = {}
        for packet in packets:
            by_category.setdefault(packet.category, []).append(packet)
        for number, some in by_category.items():
            served = self._served.get(number)
            if served is None:
                self.strangers += len(some)
            else:
                await self._pass_some(served, some)

    async def _pass_many(self, served: _Served, arrivals: Arrivals) -> None:
        heads = arrivals.heads
        arrivals = arrivals.only(served.window.fresh_many(heads["publisher"], heads["incarnation"], heads["sequence"]))
        assert served.layout is not None
        batch, good = served.layout.decode(arrivals.bodies)
        self.malformed += len(good) - len(batch)
        arrivals = arrivals.only(good)
        rows, to, unwanted = served.targets(batch, arrivals.heads["publisher"].astype(np.uint64))
        self._count(rows, unwanted)
        await served.sender.send_many(arrivals, rows, to)

    async def _pass_some(self, served: _Served, packets: list[Packet]) -> None:
        fresh, events = [], []
        for packet in packets:
            if served.window.fresh(packet.publisher, packet.incarnation, packet.sequence):
                event = _decoded(served.schema, packet.body)
                if event is None:
                    self.malformed += 1
                else:
                    fresh.append(packet)
                    events.append(event)
        if not fresh:
            return
        publishers = np.array([packet.publisher for packet in fresh], np.uint64)
        rows, to, unwanted = served.targets(EventBatch.from_events(served.schema, events), publishers)
        self._count(rows, unwanted)
        await served.sender.send((one, fresh[row]) for row, one in zip(rows.tolist(), to.tolist(), strict=True))

    def _count(self, rows: npt.NDArray[np.int64], unwanted: int) -> None:
        self.sent += len(rows)
        self.unwanted += unwanted

    # -- handovers ------------------------------------------------------------------------

    async def _release(self, order: p.Release) -> None:
        served = self._served.get(order.category)
        if served is not None:
            dz = Dz.parse(order.dz)
            way = await served.sender.begin(served.everybody(), order.category, dz.masked[0], dz.length, order.patience)
            self._ways[order.serial] = served.sender, way, order.category
        self.node.tell(p.Did(order.serial))

    async def _finish(self, order: p.Finish) -> None:
        sender, way, category = self._ways.pop(order.release, (None, 0, 0))
        if sender is not None:
            await sender.end(way, category)
        self.node.tell(p.Did(order.serial))

    # -- signs of life --------------------------------------------------------------------

    async def _beat(self) -> None:
        before, losses = (0, 0, 0), 0
        while True:
            await asyncio.sleep(BEAT)
            if any(task.done() for task in self._tasks):
                # A mistake of ours: silence is what makes the daemon forward by the network again.
                log.critical("matcher %s has stopped: %s", self.node.name, [t for t in self._tasks if t.done()])
                return
            if not self.node.connected:
                continue
            try:
                if self.node.losses != losses:
                    losses = self.node.losses
                    await self.node.call(p.Match)
                now = self.received, self.sent, self.unwanted
                received, sent, unwanted = (new - old for new, old in zip(now, before, strict=True))
                before = now
                self.node.tell(p.Matched(received, sent, unwanted, self._waiting, self._seconds))
            except SievenetError as error:
                log.debug("matcher %s: %s", self.node.name, error)


def load() -> None:
    """Load compiled code now: in the middle of things it would keep everybody waiting."""
    schema = Schema("load", (Attribute("x", "int", lo=0, hi=9),))
    matcher = Matcher(schema)
    matcher.add_many(range(_LOAD), [Filter(schema, {"x": ValueSet.of(i % 10)}) for i in range(_LOAD)])
    matcher.match_batch(EventBatch.of(schema, {"x": [i % 10 for i in range(10)]}))


def _decoded(schema: Schema, body: bytes) -> Event | None:
    try:
        return decode_event(schema, body)
    except CodecError:
        return None


def _sample(schema: Schema) -> EventBatch:
    """An event of a schema, whichever."""
    kinds: dict[str, Any] = {"bool": False, "str": ""}
    first: dict[str, Any] = {a.name: (a.values or (kinds.get(a.type, a.lo),))[0] for a in schema.attributes}
    return EventBatch.from_events(schema, [schema.event(**first)])
