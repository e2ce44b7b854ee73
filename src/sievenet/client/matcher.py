"""A matcher in the network: takes what switches divert to it, and sends each event on to those who want it.

    packets ─▶ queue ─▶ duplicates ─▶ decode ─▶ match exactly ─▶ whose, and on which side ─▶ directed delivery
                │                                  │
              bounded: then nothing is read     nobody's: dropped, which is what it is all for

It holds the exact subscriptions that the daemon says its subspaces serve (`Serve`), each with the number of its
recipient, and answers when it matches them: only then are flows diverted to it. An event that came from one side of its
switch was delivered on that side by the switches there, and need not go back; of publishers that it has not been told
of, it sends to all sides.

Everything goes through one queue, in order: packets, and the beginnings and ends of handovers. Packets that come in
bulk while nothing waits are passed on at once, without the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any, Final

import msgspec
import numpy as np

from sievenet.access.login import Login
from sievenet.client.component import ComponentNode, DirectedSender
from sievenet.client.parcel import Targets
from sievenet.client.ports.burst import Arrivals
from sievenet.client.served import Served, load
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_event
from sievenet.content.event import Event
from sievenet.content.layout import Bytes
from sievenet.content.schema import Schema
from sievenet.control import protocol as p
from sievenet.dataplane.packet import Packet, encode_packet
from sievenet.errors import CodecError, SievenetError
from sievenet.index import Dz
from sievenet.session.lifetime import ended

__all__ = ["MatcherNode", "load"]

log = logging.getLogger("sievenet.client")

#: Packets that may wait; then nothing is read until half of them are done.
QUEUE: Final = 1 << 16
#: Seconds between signs of life.
BEAT: Final = 0.2
#: Subscriptions decoded before others get their turn.
_TURN: Final = 100
#: Turns of the event loop in which everything is read that a socket's buffer holds.
_TURNS: Final = 4
#: Packets matched together that came singly, and in matrices.
_TOGETHER: Final = 512
_MANY: Final = 4096


class _Rest(msgspec.Struct, frozen=True):
    """Packets that are matched, and are still to be sent."""

    sender: DirectedSender
    arrivals: Arrivals
    targets: Targets

    def __len__(self) -> int:
        return len(self.arrivals)


_Work = list[Packet] | Arrivals | _Rest | p.Release | p.Finish


class MatcherNode:
    """One matcher: a component at a host, with its queue and its subscriptions."""

    def __init__(
        self, url: str | None, *, name: str | None = None, host: str | None = None, login: Login | None = None
    ) -> None:
        self.node = ComponentNode(url, self._take, name=name, host=host, login=login, instructed=self._told)
        self._served: dict[int, Served] = {}
        self._queue: deque[_Work] = deque()
        self._waiting = 0
        self._paused = False
        #: Whether something taken from the queue is being done.
        self._busy = False
        #: Whether a task of this has ended.
        self._ended = False
        #: Until when nothing is sent; 0 if that is over.
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
        for each in self._tasks:
            each.add_done_callback(self._end)
        return self

    def _end(self, _task: asyncio.Task[None]) -> None:
        self._ended = True

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
                asyncio.get_running_loop().call_later(seconds, self._enqueue_behind, message, _TURNS)

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
            served = Served(schema, await self.node.directed(schema.name))
        for key in order.removed:
            served.drop(key)
        for start in range(0, len(order.added), _TURN):
            served.enter(list(order.added[start : start + _TURN]))
            await asyncio.sleep(0)
        served.publishers.update(order.publishers)
        if order.added:
            served.matcher.match_batch(_sample(served.schema))  # builds what is to be built now, not at the first event
        self._served[number] = served

    # -- packets --------------------------------------------------------------------------

    def _take(self, packets: list[Packet] | Arrivals) -> None:
        count = len(packets)
        self.received += count
        if self._idle() and (rows := self._rows(packets)) is not None and self._passed_at_once(rows):
            return
        self._waiting += count
        self._enqueue(packets)
        if self._waiting > QUEUE and not self._paused:
            self._paused = True
            self.node.pause()

    def _idle(self) -> bool:
        """Whether nothing waits, nothing is being done that has to wait, and all parts of this are alive."""
        if self._queue or self._busy or self._ended:
            return False
        if self._until:
            if self._until > asyncio.get_running_loop().time():
                return False
            self._until = 0.0
        return True

    def _enqueue(self, what: _Work) -> None:
        self._queue.append(what)
        self._something.set()

    def _enqueue_behind(self, what: _Work, turns: int) -> None:
        """Enqueue something when the event loop has gone round some times, and read each time what had come."""
        if turns:
            asyncio.get_running_loop().call_soon(self._enqueue_behind, what, turns - 1)
        else:
            self._enqueue(what)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._busy = False
            if not self._queue:
                self._something.clear()
                await self._something.wait()
            self._busy = True
            while self._until > loop.time():
                await asyncio.sleep(self._until - loop.time())
            self._until = 0.0
            what = self._next()
            begin = loop.time()
            try:
                match what:
                    case p.Release():
                        await self._release(what)
                    case p.Finish():
                        await self._finish(what)
                    case _Rest(sender=sender, arrivals=arrivals, targets=targets):
                        await sender.send_many(arrivals, targets)
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
        if (rows := self._rows(packets)) is not None:
            served = self._served.get(rows.category)
            if served is not None and served.audience.takes(rows.matrix):
                await served.sender.send_many(rows, self._targets(served, rows.matrix))
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

    def _rows(self, packets: list[Packet] | Arrivals) -> Arrivals | None:
        """Packets of one category as rows of bytes, also if they came singly; None if they are not equally long."""
        if isinstance(packets, Arrivals):
            return packets
        category, size = packets[0].category, len(packets[0].body)
        served = self._served.get(category)
        if served is None or not served.audience.reads(size):
            return None
        if any(each.category != category or len(each.body) != size for each in packets):
            return None
        return Arrivals(np.frombuffer(b"".join(map(encode_packet, packets)), np.uint8).reshape(len(packets), -1))

    def _passed_at_once(self, arrivals: Arrivals) -> bool:
        """Whether packets are done with: nothing waits in front of them, and there is room for what they become."""
        served, rows = self._served.get(arrivals.category), arrivals.matrix
        if served is None or rows.shape[1] != served.audience.width:
            return False
        begin = time.perf_counter()
        targets = self._targets(served, rows)
        if not served.sender.at_once(rows, targets):
            self._waiting += len(arrivals)
            self._enqueue(_Rest(served.sender, arrivals, targets.copy()))
        self._seconds = time.perf_counter() - begin
        return True

    def _targets(self, served: Served, rows: Bytes) -> Targets:
        targets = served.audience.targets(rows, served.publishers, served.recipients)
        self.malformed += targets.malformed
        self.sent += len(targets.rows)
        self.unwanted += targets.unwanted
        return targets

    async def _pass_some(self, served: Served, packets: list[Packet]) -> None:
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
        self.sent += len(rows)
        self.unwanted += unwanted
        await served.sender.send((one, fresh[row]) for row, one in zip(rows.tolist(), to.tolist(), strict=True))

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
        await self.node.flushed()
        self.node.tell(p.Did(order.serial))

    # -- signs of life --------------------------------------------------------------------

    async def _beat(self) -> None:
        before, losses = (0, 0, 0), 0
        while True:
            await asyncio.sleep(BEAT)
            if self._ended:
                # A mistake of ours: silence is what makes the daemon forward by the network again.
                log.critical("matcher %s has stopped: %s", self.node.name, [t for t in self._tasks if t.done()])
                return
            for served in self._served.values():
                served.tidy()
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
