"""What routers say to each other, as values; `protocol` has what clients say.

    Greeting      I am here; I know this graph; this is where our channel stands       heartbeat, starts repairs
    LinkStated    whom a router hears                                                  flooded
    Delta         these entries are new, those are gone                                numbered on each channel
    Whole         these are all my entries                                             the answer to AskWhole
    Receivers     what the clients of a router want (CBCB's receiver advertisement)    along the tree of that router
    SenderAsks, UpdateReply   what is really wanted behind each neighbour              CBCB's SR/UR
    Settle, Settled           is everything before this installed on the whole tree?   an echo wave
    Carried       events of one publisher and category                                 forwarded

A message is a map whose ``type`` names its class. Filters and events are in the codec's bytes; a *category* is the
64-bit digest of a schema (0: schemaless), and the schema itself travels with the first entry that needs it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

import msgspec

from sievenet.content.codec import encode_schema
from sievenet.content.schema import Schema

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
    "Receivers",
    "SenderAsks",
    "Settle",
    "Settled",
    "UpdateReply",
    "Whole",
    "category_of",
]

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$")]
Word = Annotated[int, msgspec.Meta(ge=0)]
Blob = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]

#: Kinds of entries on a channel.
SUBSCRIPTION: Final = 0
ADVERTISEMENT: Final = 1
INTEREST: Final = 2


class Item(NamedTuple):
    """One entry of a channel: of a category, a filter in the codec's bytes, or the bits of a Bloom filter."""

    kind: Annotated[int, msgspec.Meta(ge=0, le=2)]
    category: Word
    data: Annotated[bytes, msgspec.Meta(max_length=1 << 16)]
    #: Tells equal entries apart where the scheme wants that: a subscription's number, or the router it is from.
    tag: Annotated[str, msgspec.Meta(max_length=160)] = ""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag=True):
    """Base of all messages."""


class Greeting(_Message, frozen=True):
    """A heartbeat: what graph the sender knows, and number and digest of what it has told on this channel."""

    graph: Word
    epoch: Word
    number: Word
    digest: Word


class LinkStated(_Message, frozen=True):
    """Whom a router hears."""

    origin: Name
    number: Word
    neighbours: Annotated[tuple[Name, ...], msgspec.Meta(max_length=4096)]


class Delta(_Message, frozen=True):
    """A change of what the sender tells on this channel."""

    epoch: Word
    number: Word
    added: tuple[Item, ...] = ()
    removed: tuple[Item, ...] = ()
    schemas: tuple[Blob, ...] = ()


class Whole(_Message, frozen=True):
    """All that the sender tells on this channel."""

    epoch: Word
    number: Word
    items: tuple[Item, ...] = ()
    schemas: tuple[Blob, ...] = ()


class AskWhole(_Message, frozen=True):
    """Something was lost: tell all."""


class Receivers(_Message, frozen=True):
    """What is wanted at a router: all of it, or (``complete`` false) what is new."""

    origin: Name
    number: Word
    complete: bool
    items: tuple[Item, ...] = ()
    schemas: tuple[Blob, ...] = ()


class SenderAsks(_Message, frozen=True):
    """What is wanted behind you, on the tree of the issuer?"""

    issuer: Name
    number: Word
    #: Seconds that the sender waits.
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)]


class UpdateReply(_Message, frozen=True):
    """All that is wanted at and behind the sender; not ``complete`` if somebody did not answer in time."""

    issuer: Name
    number: Word
    complete: bool
    items: tuple[Item, ...] = ()
    schemas: tuple[Blob, ...] = ()


class Settle(_Message, frozen=True):
    """Has everything that came before this arrived, here and behind you?"""

    issuer: Name
    number: Word


class Settled(_Message, frozen=True):
    """It has."""

    issuer: Name
    number: Word


class Carried(_Message, frozen=True):
    """Events on their way: of one publisher, in one category."""

    source: Name
    publisher: Word
    category: Word
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


FromRouter = (
    Greeting | LinkStated | Delta | Whole | AskWhole | Receivers | SenderAsks | UpdateReply | Settle | Settled | Carried
)


def category_of(schema: Schema | None) -> int:
    """The number of a schema's category: the same everywhere, without asking anybody."""
    if schema is None:
        return 0
    return int.from_bytes(blake2b(encode_schema(schema), digest_size=8).digest(), "big") or 1
