"""A subscription that a cache may serve: the shell around `cache.subscriber`, with clock, session and feed.

    packets ─▶ client.receiver ─▶ accept ─────▶ Subscriber ─▶ Deliver ──────▶ transport or feed
    cache ───▶ twin packets ────▶ directed ──▶     │    ├───▶ Pause, Resume ▶ the plain registration
    daemon ──▶ CacheSays ───────▶ hear ──────▶     ╯    └───▶ Say ──────────▶ ToCache

The plain registration is struck out of the ledger while the cache serves, so that it is not said again by itself after
a lost connection. Ten times a second the core looks at the time, and reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from sievenet.cache import messages
from sievenet.cache.messages import Position
from sievenet.cache.overload import Pace
from sievenet.cache.states import State
from sievenet.cache.subscriber import Deliver, Instruction, Lost, Over, Pause, Resume, Say, Subscriber
from sievenet.client.cacheoptions import CacheOptions, CacheStatistics
from sievenet.client.delivery import Delivery
from sievenet.client.directed import Mark
from sievenet.client.transport.shim import MARK, unstamped
from sievenet.content.codec import decode_event
from sievenet.content.layout import layout_of
from sievenet.control import caching as c
from sievenet.dataplane.packet import Packet
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.transport.actions import OPEN, Gap

if TYPE_CHECKING:
    from sievenet.client.catalog import Catalog
    from sievenet.client.feed import Feed
    from sievenet.client.membership import Membership
    from sievenet.client.receiver import Receiver, Sink
    from sievenet.client.registrations import Registration, Registrations

__all__ = ["CacheOptions", "CacheSink", "CacheStatistics", "Caching"]

log = logging.getLogger("sievenet.client")

#: Seconds between looks at the time, and until a cache is asked for again where there was none.
_TICK: Final = 0.1
_AGAIN: Final = 1.0
_LOW: Final = (1 << 64) - 1
#: Events that are held here at least, and that wait for room in a small queue at most.
_HOLD: Final = 1000
#: Seconds in which something may have been dropped that the port has not told yet.
_RECENT: Final = 1.0


class CacheSink:
    """Stands between the node's receiver and the transport or feed of one subscription."""

    def __init__(self, node: Caching, feed: Feed, sink: Sink, options: CacheOptions) -> None:
        self._node, self.feed, self._sink, self._options = node, feed, sink, options
        self.entry: Registration = feed.registration
        #: Dropped events of which the log has heard.
        self._logged = 0
        assert self.entry.wanted.schema is not None
        self._schema = self.entry.wanted.schema
        self._layout = layout_of(self._schema)
        self._loop = asyncio.get_running_loop()
        hold = max(_HOLD, feed.queue)
        self.core = Subscriber(options.limit, options.on_full, now=self._now(), hold=hold, waiting=self._waiting)
        if options.since is not None:
            self.core.awaits_past()
        self._pace = Pace(feed.queue) if options.limit is None else None
        #: What the feed had no room for.
        self._kept: deque[Delivery] = deque()
        self.cache: str | None = None
        self.number = -1
        self._path: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def _now(self) -> float:
        return self._loop.time()

    def _waiting(self) -> int:
        return self.feed.waiting + len(self._kept)

    # -- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Have a cache responsible, before the subscription is said: its ring then has all that comes."""
        try:
            await self._ask()
        except Unavailable as error:
            if self._options.since is not None:
                raise
            log.warning("%s: %s; it continues without a cache and may lose events under overload", self.feed, error)
            self._assigned(None)

    async def _ask(self) -> None:
        content, past = self.entry.content, self._options.since is not None
        known, schema, id = self._node.catalog.known, self._schema, self.entry.id
        limit, back = self._options.limit or 0.0, self._options.back
        answer = await self._node.session().call(
            lambda n: c.Cache(n, id, known(schema).number, content, past, limit, back)
        )
        self.cache, self.number = str(answer["cache"]), int(answer["number"])

    def stands(self) -> None:
        """The subscription stands."""
        self.core.began(self._now())
        self._timer = self._loop.call_later(_TICK, self._tick)
        since = self._options.since
        if since is not None:
            after = since if isinstance(since, Position) else None
            self._do(self.core.replay(self._now(), self._options.back, after))

    def renewed(self) -> None:
        """There is another connection, perhaps to another daemon: it may not know that a cache is wanted."""
        self._assigned(None)

    def _assigned(self, cache: str | None) -> None:
        self.cache = cache
        if cache is None and not self._closed and (self._asking is None or self._asking.done()):
            self._asking = self._loop.create_task(self._ask_again())

    async def _ask_again(self) -> None:
        while self.cache is None and not self._closed:
            try:
                await self._ask()
            except SievenetError as error:
                log.debug("%s: %s", self.feed, error)
                await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """The subscription has ended."""
        self._closed = True
        self._tell_dropped(True)
        self._tell(self.core.doubts())
        if self._timer is not None:
            self._timer.cancel()
        if self._path is not None and not self._path.done():
            # Whether the daemon still has it is not clear: it is taken back in any case.
            self._path.cancel()
            self._node.ledger.restore(self.entry)
        if self._asking is not None:
            self._asking.cancel()
        self._node.session().tell(c.Uncache(self.entry.id))

    # -- what comes -----------------------------------------------------------------------

    @property
    def false_positives(self) -> int:
        """Events that the network sent in vain."""
        return self._sink.false_positives

    @false_positives.setter
    def false_positives(self, value: int) -> None:
        self._sink.false_positives = value

    def accept(self, delivery: Delivery) -> bool:
        """An event has come by the plain path."""
        if delivery.event.schema is not self._schema and delivery.event.schema != self._schema:
            return self._sink.accept(delivery)  # of another version, which caches do not have
        key, now = (delivery.publisher, delivery.incarnation, delivery.sequence), self._now()
        if self._pace is not None and 2 * self._waiting() > self.feed.queue:
            self._do(self.core.overloaded(now))
        self._do(self.core.plain(key, delivery, now))
        return True

    def directed(self, packet: Packet, own: bool, now: int) -> None:
        """A packet of the cache's stream has come."""
        stream, number = packet.code >> 64, packet.code & _LOW
        if packet.flags == Mark.LEAVE:
            self._do(self.core.marked(stream, number, packet.publisher == self.number, self._now()))
            return
        try:
            delivery = None if own else self._decoded(packet, now)
        except CodecError:
            delivery = None
            log.warning("%s: a cache sent an event that is malformed", self.feed)
        key = (packet.publisher, packet.incarnation, packet.sequence)
        self._do(self.core.directed(stream, number, key, delivery, self._now()))

    def _decoded(self, packet: Packet, now: int) -> Delivery | None:
        event = None if self._layout is None else self._layout.decode_one(packet.body)
        if event is None:
            event = decode_event(self._schema, packet.body)
        if not self.entry.wanted.matches(event):
            return None
        stamp = None
        if event.payload.startswith(MARK):
            event, stamp = unstamped(event)
        life = packet.incarnation
        return Delivery(event, packet.publisher, packet.sequence, packet.departure, now, stamp, incarnation=life)

    def hear(self, word: bytes) -> None:
        """The cache says something."""
        try:
            said = messages.decoded(word)
        except CodecError as error:
            log.warning("%s: %s", self.feed, error)
            return
        if isinstance(said, messages.Taken) and said.reaches is not None and self._options.since is not None:
            log.warning("%s: the cache has only the last %.1f s", self.feed, said.reaches)
        if isinstance(said, messages.Dropped):
            self.core.drops.add(said)
        else:
            self._do(self.core.hear(said, self._now()))

    def overran(self, back: float) -> None:
        """The switch has counted more than this subscription takes, or dropped something in the last seconds."""
        self._do(self.core.overran(self._now(), back))

    def lost(self, patience: float) -> None:
        """The cache is gone, and may come back within some seconds."""
        self._assigned(None)
        self._do(self.core.lost(self._now(), patience))

    def _tick(self) -> None:
        if self._closed:
            return
        self._timer = self._loop.call_later(_TICK, self._tick)
        self.drain()
        now, feed = self._now(), self.feed
        self._do(self.core.tick(now))
        self._tell_dropped(self.idle)
        if self._pace is not None and self._pace.looked(feed.taken, self._waiting(), now):
            self._do(self.core.overloaded(now))

    # -- what is done about it ------------------------------------------------------------

    def _do(self, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            match each:
                case Deliver(item):
                    if item is not None:
                        self._hand_over(item)
                case Say(word):
                    self._say(word)
                case Pause() | Resume():
                    if self._path is None or self._path.done():
                        self._path = self._loop.create_task(self._follow())
                case Lost(missing):
                    self._tell(missing)
                case Over(reason):
                    error = Unavailable(f"The subscription {self.feed} was ended by its cache: {reason}")
                    self._loop.call_soon(self._node.refused, self.entry, error)

    def _say(self, word: messages.Word) -> None:
        if self.cache is None and isinstance(word, messages.Take):
            self._loop.call_soon(lambda: self._do(self.core.refused(self._now())))
        else:
            self._node.session().tell(c.ToCache(self.entry.id, messages.encoded(word)))

    async def _follow(self) -> None:
        """Bring the plain path to where the core wants it."""
        there = self.entry in self._node.ledger
        while there != self.core.wants_plain and not self._closed:
            try:
                if self.core.wants_plain:
                    self._node.ledger.restore(self.entry)
                    session = self._node.session()
                    self._node.answered(self.entry, await session.call(session.request(self.entry)))
                else:
                    self._node.ledger.remove(self.entry)
                    await self._node.session().withdraw(self.entry)
            except Rejected as error:
                self._loop.call_soon(self._node.refused, self.entry, error)  # by the rules of now
                return
            except SievenetError as error:
                log.debug("%s: %s", self.feed, error)
                await asyncio.sleep(_TICK)
                continue
            there = self.entry in self._node.ledger
        if there and not self._closed:
            self._do(self.core.resumed(self._now()))

    @property
    def _room(self) -> bool:
        """Whether the feed takes one more; one without a cache drops by its own policy."""
        return self.cache is None or self.feed.waiting < self.feed.queue or len(self._kept) > _HOLD

    def _hand_over(self, item: Delivery) -> None:
        if self._kept or not self._room or not self._sink.accept(item):
            self._kept.append(item)

    def drain(self) -> None:
        """Give the feed what it has room for now."""
        while self._kept and self._room and self._sink.accept(self._kept[0]):
            self._kept.popleft()

    def _tell(self, missing: Iterable[messages.Missing]) -> None:
        for each in missing:
            gap = Gap(each.publisher, each.incarnation, each.first, OPEN if each.last < 0 else each.last)
            if self._options.on_gap is None:
                log.warning("%s may be missing in %s: no cache has that", gap, self.feed)
                continue
            try:
                self._options.on_gap(gap)
            except Exception:
                log.exception("on_gap of %s failed", self.feed)

    def _tell_dropped(self, everything: bool) -> None:
        """What a full cache dropped; the log has a line each time that it has doubled."""
        lost, count = self.core.drops.settled(everything), self.core.drops.count
        if self._options.on_gap is not None:
            self._tell(lost)
            count = self.core.drops.unnamed
        if count > 2 * self._logged:
            self._logged = count
            log.warning("the cache of %s was full: %d events are lost so far", self.feed, count)

    def statistics(self) -> CacheStatistics:
        """What caches did for this subscription."""
        core = self.core
        return CacheStatistics(str(core.state), core.activations, core.cached, core.drops.count, self.cache)

    @property
    def idle(self) -> bool:
        """Whether events come by content."""
        return self.core.state is State.IDLE


class Caching:
    """The subscriptions of one node that caches may serve, and what they need of the node."""

    def __init__(
        self,
        session: Callable[[], Membership],
        ledger: Registrations,
        catalog: Catalog,
        receiver: Receiver,
        answered: Callable[[Registration, Any], None],
        refused: Callable[[Registration, SievenetError], None],
    ) -> None:
        self.session, self.ledger, self.catalog = session, ledger, catalog
        self.answered, self.refused = answered, refused
        self._receiver = receiver
        #: Subscriptions that caches may serve; none as a rule.
        self.sinks: dict[int, CacheSink] = {}
        #: Datagrams that the port has dropped, when it was asked last.
        self._drops = 0
        receiver.cached = self._directed

    async def sink(self, feed: Feed, sink: Sink, options: CacheOptions) -> CacheSink:
        """One more; a cache is responsible for it then, if there is one."""
        found = self.sinks[feed.registration.id] = CacheSink(self, feed, sink, options)
        feed.caches, feed.refill = found.statistics, found.drain
        await found.open()
        return found

    def stop(self, feed: Feed) -> None:
        """One less."""
        found = self.sinks.pop(feed.registration.id, None)
        if found is not None:
            found.close()

    def look(self) -> None:
        """Look whether the port has dropped something, before what comes now is delivered."""
        port = self.session().port if self.sinks else None
        if port is None:
            return
        drops = port.drops
        if drops > self._drops:
            for sink in self.sinks.values():
                sink.overran(_RECENT)
        self._drops = drops

    def renewed(self) -> None:
        """There is another connection."""
        for sink in self.sinks.values():
            sink.renewed()

    def _directed(self, packet: Packet, now: int) -> bool:
        """A packet of a cache's stream has come; whose stream it is, the subscriptions know."""
        stream, own = packet.code >> 64, packet.publisher == self._receiver.own
        for sink in self.sinks.values():
            if sink.core.stream == stream:
                sink.directed(packet, own, now)
        return True

    def told(self, message: Any) -> None:
        """The daemon says something."""
        sink = self.sinks.get(getattr(message, "id", -1))
        match message:
            case c.CacheSays(_, word) if sink is not None:
                sink.hear(word)
            case c.PortOverran(_, back) if sink is not None:
                sink.overran(back)
            case c.CacheLost(_, patience) if sink is not None:
                sink.lost(patience)
