"""A resident: the node of one person who came by HTTP, shared by all connections of that person.

HTTP clients are ordinary nodes of the network: what a person publishes and subscribes to passes the same gate, rules
and quotas as with the client library. One node for each person is enough, however many connections there are:

    alice ─┬─ GET /subscribe ─┐
           ├─ GET /subscribe ─┼─▶ resident of alice ─▶ node alice.web-… ─▶ network
           └─ POST /publish ──┘
    bob ───── GET /subscribe ───▶ resident of bob ───▶ node bob.web-…

Where nobody has to be known, all are one person. What is not used any more is taken back after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sievenet.access.identity import Role
from sievenet.access.permissions import Permissions
from sievenet.client import Advertisement, Node
from sievenet.client.fabric_node import FabricNode
from sievenet.client.interest import understood
from sievenet.config import WebConfig
from sievenet.content import Event, Schema, Subscription, encode_event, encode_subscription
from sievenet.content.filter import Filter
from sievenet.daemon.lobby import Lobby, Visitor
from sievenet.errors import Dropped, Rejected, SievenetError, Unavailable
from sievenet.session.lifetime import Tasks
from sievenet.web.channel import Channel
from sievenet.web.errors import OverQuota

__all__ = ["Resident", "Residents"]

_Key = tuple[Schema | None, bytes]

#: Longest that a request to the network takes, in seconds.
_TIMEOUT: Final = 30.0


class Resident:
    """One person's node, its channels and its advertisements."""

    def __init__(self, visitor: Visitor, url: str, lobby: Lobby, config: WebConfig) -> None:
        self.visitor, self._config, self._keeper = visitor, config, lobby.keeper
        member = visitor.name
        self._node: Node = FabricNode(
            url,
            name=f"{f'{member}.' if member else ''}web-{secrets.token_hex(3)}",
            host=None,
            timeout=_TIMEOUT,
            reconnect=True,
            role=Role.CLIENT,
            login=self._keeper.login_for(visitor.identity),
        )
        self._start: asyncio.Task[Node] | None = None
        #: By category and content.
        self.channels: dict[_Key, Channel] = {}
        #: What it advertises by the name of the schema, what the rules allowed then, and when it was used last.
        self._offers: dict[str, tuple[Advertisement, Subscription, float]] = {}
        self._offering = asyncio.Lock()
        self._opening = Tasks()
        self.used = asyncio.get_running_loop().time()
        #: Requests that will go on with it.
        self._holders = 0
        #: The rules that channels were told of.
        self._rules = self._permissions()

    async def node(self) -> Node:
        """The node, connected; however many ask, it is started once."""
        self.used = asyncio.get_running_loop().time()
        if self._start is None:
            self._start = asyncio.create_task(self._begin())
        try:
            return await asyncio.shield(self._start)
        except SievenetError:
            self._start = None
            raise

    async def _begin(self) -> Node:
        return await self._node.start()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile it is not given up, however long nothing is said."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self.used = asyncio.get_running_loop().time()

    # -- subscribing ----------------------------------------------------------------------

    async def channel(self, text: str, room: Callable[[], int]) -> Channel:
        """The channel of a filter, new or not; when this returns, delivery is guaranteed from then on."""
        node = await self.node()
        schema, wanted = await understood(text, node.schema, schemaless=False)
        self._renew()
        key = schema, encode_subscription(wanted)  # the bytes alone do not say of which category
        found = self.channels.get(key)
        if found is None or found.over:
            found = self.channels[key] = Channel(wanted, room())
            # A task of its own: whoever asked first may go while others wait.
            self._opening.begin(self._open(key, found, node))
        await asyncio.shield(found.ready)
        return found

    async def _open(self, key: _Key, channel: Channel, node: Node) -> None:
        with contextlib.suppress(Rejected):  # then the network says so too
            channel.allowed = self._permissions().decide("subscribe", channel.wanted).allowed
        if not await channel.open(node) and self.channels.get(key) is channel:
            del self.channels[key]

    def _renew(self) -> None:
        """Hold every channel to the rules of now, what it keeps included; those that may have nothing end."""
        rules = self._permissions()
        if rules == self._rules:
            return
        self._rules = rules
        for channel in self.channels.values():
            channel.hold_to(rules)
            revision = rules.revise("subscribe", channel.allowed)
            if revision is None:
                continue
            if revision.allowed is not None:
                channel.narrow(revision.allowed)
            else:
                channel.forbid(revision.reason)

    # -- publishing -----------------------------------------------------------------------

    async def offer(self, category: str) -> Schema:
        """Advertise a category, as far as this person may publish in it; its schema."""
        node = await self.node()
        async with self._offering:
            schema = await node.schema(category)
            allowed, now = self._allowed(schema), asyncio.get_running_loop().time()
            advertisement, asked, _ = self._offers.get(category, (None, None, 0.0))
            if advertisement is None or asked != allowed or not advertisement.standing:
                old, advertisement = advertisement, await node.advertise(allowed)
                if old is not None and asked is not None and asked.schema == schema:
                    with contextlib.suppress(SievenetError):
                        await old.close()
            self._offers[category] = advertisement, allowed, now
        return schema

    async def publish(self, events: Sequence[Event]) -> None:
        """Publish events that `allowed` and `room` have let pass, at most `CHUNK` of them."""
        node = await self.node()
        try:
            await node.publish_many(events)
        except Dropped:
            raise
        except Rejected:
            # The node tells its next `publish`, whatever it is, when rules end an advertisement; none was sent.
            await node.publish_many(events)

    def _permissions(self) -> Permissions:
        """What the rules of now let this person do."""
        member = self._keeper.member(self.visitor.name)
        return self.visitor.identity.permissions if member is None else member.permissions

    def _within(self, schema: Schema) -> Subscription | None:
        """What this person may publish of a schema; None for everything."""
        return self._permissions().within("publish", schema)

    def allowed(self, events: Sequence[Event], *, whole: bool = True) -> int:
        """How many of these events, from the first on, the rules let this person publish.

        With ``whole``, `Rejected` unless that is all.
        """
        within = self._within(events[0].schema) if events else None
        if within is not None:
            for number, event in enumerate(events):
                if not within.matches(event):
                    if whole:
                        raise Rejected(f"No rule lets {self.visitor.name} publish `{event}`")
                    return number
        return len(events)

    def room(self, events: Sequence[Event], *, whole: bool) -> int:
        """How many of these events, from the first on, the quotas have room for; they count as published.

        With ``whole``, `OverQuota` unless they have room for all.
        """
        now, sizes = asyncio.get_running_loop().time(), [0] * len(events)
        usages = (self._keeper.usage(self.visitor.identity), self._keeper.total)
        if any(usage.bytes.rate for usage in usages):
            sizes = [len(encode_event(event)) for event in events]
        found = min(usage.room(sizes, now) for usage in usages)
        if whole and found < len(events):
            raise self.over(events, whole=True)
        for usage in usages:
            usage.charge(sizes[:found], now)
        return found

    def over(self, events: Sequence[Event], *, whole: bool = False) -> OverQuota:
        """What is said of events that a quota has no room for."""
        now = asyncio.get_running_loop().time()
        usages = (self._keeper.usage(self.visitor.identity), self._keeper.total)
        sizes = [len(encode_event(event)) for event in events]
        first = sizes if whole else sizes[:1]
        wait = max(usage.publishing(len(first), sum(first), now) for usage in usages)
        quota = next(usage.quota for usage in usages if usage.quota.events or usage.quota.bytes)
        bounds = " and ".join(f"{value:g} {what}" for what in ("events", "bytes") if (value := getattr(quota, what)))
        text = f"Expected at most {bounds} per second (quota), got more"
        if whole:
            text = f"{text} at once ({len(events)} events), so none was published: fewer at once, or JSON lines"
        return OverQuota(f"{text}; wait {wait:.1g} s", wait)

    def _allowed(self, schema: Schema) -> Subscription:
        within = self._within(schema)
        if within is None:
            return Subscription([Filter(schema)])
        if not within.filters:
            raise Rejected(f"No rule lets {self.visitor.name} publish in {schema.name}")
        return within

    # -- ending ---------------------------------------------------------------------------

    async def tidy(self, now: float) -> bool:
        """Take back what was not used for a while, tell of rules that have changed; whether nothing is left."""
        self._renew()
        linger = self._config.linger
        for key, channel in list(self.channels.items()):
            if channel.over or (channel.left is not None and now - channel.left > linger):
                del self.channels[key]
                with contextlib.suppress(SievenetError):
                    await channel.close()
        for category, (advertisement, _, used) in list(self._offers.items()):
            if now - used > linger:
                del self._offers[category]
                with contextlib.suppress(SievenetError):
                    await advertisement.close()
        return not self._holders and not self.channels and not self._offers and now - self.used > linger

    async def close(self, reason: str = "the server is closing") -> None:
        """End everything."""
        for channel in self.channels.values():
            channel.end(reason)
        if self._start is not None:
            with contextlib.suppress(SievenetError):
                await self._start
                await self._node.close()


class Residents:
    """All of them, by the name of the person."""

    def __init__(self, url: Callable[[], str], lobby: Lobby, config: WebConfig) -> None:
        self._url, self._lobby, self._config = url, lobby, config
        self._all: dict[str, Resident] = {}
        self._closed = False

    def of(self, visitor: Visitor) -> Resident:
        """A person's resident."""
        if self._closed:
            raise Unavailable("The server is closing")
        found = self._all.get(visitor.name)
        if found is None:
            found = self._all[visitor.name] = Resident(visitor, self._url(), self._lobby, self._config)
        return found

    @property
    def channels(self) -> list[Channel]:
        """Every channel."""
        return [channel for resident in self._all.values() for channel in resident.channels.values()]

    @property
    def streams(self) -> int:
        """Streams of events, in all."""
        return sum(len(channel.streams) for channel in self.channels)

    def streams_of(self, visitor: Visitor) -> int:
        """Streams of events of one person."""
        found = self._all.get(visitor.name)
        return 0 if found is None else sum(len(channel.streams) for channel in found.channels.values())

    def room(self) -> int:
        """Bytes of the window of one more channel, and of the others if there are many; `Rejected` if too many."""
        channels = self.channels
        if len(channels) >= self._config.max_filters:
            raise Rejected(f"Expected at most {self._config.max_filters} different filters, this is one more")
        size = min(self._config.window, self._config.max_windows // (len(channels) + 1))
        if sum(channel.window.held for channel in channels) + size > self._config.max_windows:
            for channel in channels:
                channel.window.resize(size)
        return size

    async def tidy(self, now: float) -> None:
        """Take back what nobody uses; end what belongs to people who would not be admitted any more."""
        for name, resident in list(self._all.items()):
            stands = self._lobby.stands(resident.visitor)
            if not stands or await resident.tidy(now):
                self._all.pop(name, None)
                await resident.close("the login no longer counts, or has another role now")

    async def close(self) -> None:
        """End all."""
        self._closed = True
        residents, self._all = list(self._all.values()), {}
        await asyncio.gather(*(resident.close() for resident in residents))
