"""What routers say to each other, as values; `protocol` has what clients say.

    Greeting      I am here; I know this graph; this is where our channel stands       heartbeat, starts repairs
    Ready         how complete my tables are on the tree of this graph                 see `readiness`
    LinkStated    whom a router hears                                                  flooded
    Delta         these entries are new, those are gone                                numbered on each channel
    Whole         these are all my entries                                             the answer to AskWhole
    Receivers     what the clients of a router want (CBCB's receiver advertisement)    along the tree of that router
    SenderAsks, UpdateReply   what is really wanted behind each neighbour              CBCB's SR/UR
    Settle, Settled           is everything before this installed on the whole tree?   an echo wave
    Carried       events of one publisher and category                                 forwarded
    Missed        so many events may be missing: a connection could not take them      along the tree, to clients
    Received      how many messages with events came                                   see `retransmission`

A message is a map whose ``type`` names its class. Filters and events are in the codec's bytes; a *category* is the
64-bit digest of a schema (0: schemaless), and the schema itself travels with the first entry that needs it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

import msgspec

from sievenet.content.codec import encode_schema
from sievenet.content.schema import Schema
from sievenet.errors import CodecError
from sievenet.session.message import Message, Name

__all__ = [
    "ADVERTISEMENT",
    "INTEREST",
    "SUBSCRIPTION",
    "AskWhole",
    "Carried",
    "Delta",
    "FromRouter",
    "Greeting",
    "Item",
    "LinkStated",
    "Missed",
    "Ready",
    "Received",
    "Receivers",
    "SenderAsks",
    "Settle",
    "Settled",
    "UpdateReply",
    "Whole",
    "category_of",
    "check_number",
]

#: Compared, never counted with: any 64 bits (`msgspec` takes no more).
Digest = Annotated[int, msgspec.Meta(ge=0)]
#: Counted with: two of them add up without leaving 64 signed bits.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]
#: Names a publisher: 63 bits, so that it fits the columns of a batch.
Publisher = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Blob = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
Schemas = Annotated[tuple[Blob, ...], msgspec.Meta(max_length=1 << 12)]

#: How complete tables are (`readiness`).
Level = Annotated[int, msgspec.Meta(ge=0, le=2)]

#: Kinds of entries on a channel.
SUBSCRIPTION: Final = 0
ADVERTISEMENT: Final = 1
INTEREST: Final = 2


class Item(NamedTuple):
    """One entry of a channel: of a category, a filter in the codec's bytes, or the bits of a Bloom filter."""

    kind: Annotated[int, msgspec.Meta(ge=0, le=2)]
    category: Digest
    data: Annotated[bytes, msgspec.Meta(max_length=1 << 16)]
    #: Tells equal entries apart where the scheme wants that: a subscription's number, or the router it is from.
    tag: Annotated[str, msgspec.Meta(max_length=160)] = ""


Items = Annotated[tuple[Item, ...], msgspec.Meta(max_length=1 << 21)]


class Greeting(Message, frozen=True):
    """A heartbeat: what graph the sender knows, and number and digest of what it has told on this channel."""

    graph: Digest
    epoch: Count
    number: Count
    digest: Digest
    #: As of `Ready`.
    level: Level = 0


class Ready(Message, frozen=True):
    """How complete the sender's tables are on the tree of a graph, besides what the receiver tells it."""

    graph: Digest
    level: Level


class LinkStated(Message, frozen=True):
    """Whom a router hears."""

    origin: Name
    number: Count
    neighbours: Annotated[tuple[Name, ...], msgspec.Meta(max_length=4096)]


class Delta(Message, frozen=True):
    """A change of what the sender tells on this channel."""

    epoch: Count
    number: Count
    added: Items = ()
    removed: Items = ()
    schemas: Schemas = ()


class Whole(Message, frozen=True):
    """All that the sender tells on this channel."""

    epoch: Count
    number: Count
    items: Items = ()
    schemas: Schemas = ()


class AskWhole(Message, frozen=True):
    """Something was lost: tell all."""


class Receivers(Message, frozen=True):
    """What is wanted at a router: all of it, or (``complete`` false) what is new."""

    origin: Name
    number: Count
    complete: bool
    items: Items = ()
    schemas: Schemas = ()
    #: The graph on whose trees it travels.
    graph: Digest = 0


class SenderAsks(Message, frozen=True):
    """What is wanted behind you, on the tree of the issuer?"""

    issuer: Name
    number: Count
    #: Seconds that the sender waits.
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    graph: Digest = 0


class UpdateReply(Message, frozen=True):
    """All that is wanted at and behind the sender; not ``complete`` if somebody did not answer in time."""

    issuer: Name
    number: Count
    complete: bool
    items: Items = ()
    schemas: Schemas = ()


class Settle(Message, frozen=True):
    """Has everything that came before this arrived, here and behind you, on the tree of this graph?"""

    issuer: Name
    number: Count
    graph: Digest


class Settled(Message, frozen=True):
    """It has, or (``done`` false) somebody knows another graph."""

    issuer: Name
    number: Count
    done: bool = True


class Carried(Message, frozen=True):
    """Events on their way: of one publisher, in one category."""

    source: Name
    publisher: Publisher
    category: Digest
    #: 64-bit little-endian numbers, one per event.
    sequences: Annotated[bytes, msgspec.Meta(max_length=1 << 17)]
    departures: Annotated[bytes, msgspec.Meta(max_length=1 << 17)]
    #: The codec's batch, or for schemaless records one each.
    batch: Annotated[bytes, msgspec.Meta(max_length=1 << 25)] = b""
    records: Annotated[tuple[Blob, ...], msgspec.Meta(max_length=1 << 14)] = ()
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    #: The routers to go to, if the first router decided that (B-DRP).
    destinations: Annotated[tuple[Name, ...], msgspec.Meta(max_length=4096)] | None = None
    #: As many bits for each event, if the first router made them (edge routing).
    bits: Annotated[bytes, msgspec.Meta(max_length=1 << 25)] = b""
    #: The graph whose tree or paths they follow; 0: they go to everybody.
    graph: Digest = 0


class Received(Message, frozen=True):
    """How many messages with events came on this connection; from a client, how many events it has taken."""

    number: Count


class Missed(Message, frozen=True):
    """Events were dropped on the way here: at most so many that were wanted may be missing."""

    events: Count
    hops: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0


FromRouter = (
    Greeting
    | Ready
    | LinkStated
    | Delta
    | Whole
    | AskWhole
    | Receivers
    | SenderAsks
    | UpdateReply
    | Settle
    | Settled
    | Carried
    | Received
)

#: Milliseconds that the clocks of two routers may differ by.
_SKEW: Final = 86_400_000


def check_number(message: FromRouter, incarnation: int, lived: float) -> None:
    """Refuse a statement of a router about itself whose number it cannot have given yet.

    Such numbers begin with the milliseconds of the router's start. A larger one is a lie or a clock that is wrong by
    more than a day, and taking it would make the true router's statements look old from then on. ``incarnation`` and
    ``lived`` are when this router began, and the seconds since then.
    """
    if not isinstance(message, LinkStated | Receivers):
        return
    limit = (incarnation + int(lived * 1000) + _SKEW) << 16
    if message.number > limit:
        raise CodecError(
            expected=f"a number up to {limit} (is the clock of {message.origin} wrong?)",
            got=message.number,
            where=f"{type(message).__name__} of {message.origin}",
        )


def category_of(schema: Schema | None) -> int:
    """The number of a schema's category: the same everywhere, without asking anybody."""
    if schema is None:
        return 0
    return int.from_bytes(blake2b(encode_schema(schema), digest_size=8).digest(), "big") or 1
