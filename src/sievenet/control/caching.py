"""What subscribers, daemon and caches say to each other about event caches.

    client ── Cache(id, filter) ──▶ daemon ── Assign(number, filter, client) ──▶ cache     be responsible for it
    client ◀─ Done ──────────────── daemon ◀─ Assumed(number) ────────────────── cache     what it wants comes here

    client ── ToCache(id, …) ─────▶ daemon ── FromSubscriber(number, …) ───────▶ cache     words of `cache.messages`,
    client ◀─ CacheSays(id, …) ──── daemon ◀─ ToSubscriber(number, …) ────────── cache     which the daemon only carries

The daemon says for whom and for what a cache is responsible, so that a cache sends nobody what it may not have. When a
cache is gone its subscribers are told (`CacheLost`), and others become responsible. Events themselves go by directed
delivery (`control.directed`).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sievenet.session.message import Message, Number, Text

__all__ = [
    "CARRIED",
    "AskPort",
    "Assign",
    "Assumed",
    "Cache",
    "CacheLoad",
    "CacheLost",
    "CacheSays",
    "FromSubscriber",
    "Hold",
    "PortDropped",
    "PortOverran",
    "ServeCache",
    "ToCache",
    "ToSubscriber",
    "Unassign",
    "Uncache",
]

#: Bytes of a word between subscriber and cache: the positions of a few thousand publishers.
_MOST: Final = 1 << 18
_Word = Annotated[bytes, msgspec.Meta(max_length=_MOST)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
#: Events per second, or seconds.
_Rate = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Cache(Message, frozen=True):
    """Have a cache responsible for a subscription; answered with its name, and a number, when it is."""

    request: Number
    id: Number
    category: Number
    #: The codec's bytes of the subscription.
    content: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    #: A cache that keeps the past is wanted, if there is one.
    past: bool = False
    #: Events per second that are enough; 0 if that is not known.
    limit: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    #: Seconds of the past that are wanted.
    back: _Rate = 0.0


class Uncache(Message, frozen=True):
    """No cache is needed for a subscription any more. Not answered."""

    id: Number


class ToCache(Message, frozen=True):
    """A word for the cache of a subscription. Not answered."""

    id: Number
    word: _Word


class ServeCache(Message, frozen=True):
    """A component is a cache; what it was responsible for before, it is no more."""

    request: Number
    #: Whether it keeps events on disk.
    durable: bool = False


class Assumed(Message, frozen=True):
    """A cache is responsible for a subscription, or says why it cannot be. Not answered."""

    number: Number
    error: Text = ""
    #: For how many seconds it has all that the subscription wants.
    whole: _Rate = 0.0


class AskPort(Message, frozen=True):
    """A cache wants all that waits for it at its switch now; answered when that was sent and what was dropped is told.

    The answer has the number of a datagram behind it, or 0 where datagrams have none.
    """

    request: Number


class ToSubscriber(Message, frozen=True):
    """A cache has a word for a subscriber. Not answered."""

    number: Number
    word: _Word


class CacheLoad(Message, frozen=True):
    """What a cache did and holds, about once a second. Not answered."""

    received: _Count = 0
    sent: _Count = 0
    dropped: _Count = 0
    waiting: _Count = 0
    memory: _Count = 0
    disk: _Count = 0
    #: Subscriptions that it serves now.
    active: Annotated[tuple[Number, ...], msgspec.Meta(max_length=1 << 16)] = ()
    #: Of some subscriptions: events per second that came for what they want, and that went to them.
    rates: Annotated[tuple[tuple[Number, _Rate, _Rate], ...], msgspec.Meta(max_length=4096)] = ()
    #: Why a durable cache does not write to disk what comes, and for how many seconds; empty while it does.
    trouble: Text = ""
    unwritten: _Rate = 0.0


# -- from the daemon -----------------------------------------------------------------------


class Assign(Message, frozen=True):
    """A cache is to be responsible for a subscription of a client."""

    number: Number
    client: Text
    category: Text
    content: bytes


class Unassign(Message, frozen=True):
    """A cache is not responsible for a subscription any more."""

    number: Number


class FromSubscriber(Message, frozen=True):
    """A word of a subscriber for its cache."""

    number: Number
    word: bytes


class Hold(Message, frozen=True):
    """A subscriber cannot ask now: its cache keeps what came since some seconds ago, until a while from now."""

    number: Number
    back: float
    seconds: float


class PortDropped(Message, frozen=True):
    """The switch dropped packets for a cache, some of them perhaps so many seconds ago."""

    back: float


class PortOverran(Message, frozen=True):
    """More comes to a subscriber than it takes, by what its switch has counted; or packets for it were dropped."""

    id: Number
    #: Seconds ago that the first of them may have been dropped; 0 if none were.
    back: float


class CacheSays(Message, frozen=True):
    """A word of a cache for its subscriber."""

    id: Number
    word: bytes


class CacheLost(Message, frozen=True):
    """The cache of a subscription is gone, or there was none; another takes over if there is one."""

    id: Number
    #: Seconds to wait for it before others are believed: it has what it had on disk, and may come back.
    patience: float = 0.0


#: What the daemon's `Caches` carries out.
CARRIED: Final = (Uncache, ToCache, ServeCache, Assumed, AskPort, ToSubscriber, CacheLoad)
