"""How transports talk to each other when all they have is publish and subscribe: events of a reserved category.

Every category with a transport has a second one, `sievenet.transport.<name>`, whose events carry the transport's
control messages as payload and are routed by content like any other:

    to         2⁶² + id    for one node: feedback, echoes, unicast repairs, and requests to the publisher
               below 2⁶²   for all who recover: requests, repairs, digests, "gone"
    b00 … b15  sixteen of the bits of the message it is about; all set in what is for one node, and in digests

A receiver subscribes to its own number, and to everything below 2⁶² whose bits cover those of its filter: the network
itself leaves out requests that it could not answer (if bits cover others, so does any part of them). Only bits of the
usual width are routed by; about messages of a publisher with another width all sixteen are set, and receivers decide
by themselves.

In the default plan the first bit tells the two kinds of address apart, so an address is one prefix of 32 bits.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from sievenet.content.event import MAX_PAYLOAD, Event
from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet
from sievenet.transport.actions import Channel, Send
from sievenet.transport.bloom import Bits, Tagger
from sievenet.transport.codec import VERSION, Kind

__all__ = ["PREFIX", "control_schema", "events_of", "peers", "spoken_for", "to_node"]

PREFIX: Final = "sievenet.transport."
#: Bits that requests are routed by, and the width of Bloom filters, in bits, that they are taken from.
ROUTED: Final = 16
WIDTH: Final = 128
_NAMES: Final = tuple(f"b{i:02}" for i in range(ROUTED))
_PLACES: Final = tuple(i * WIDTH // ROUTED + 3 for i in range(ROUTED))
_ALL: Final = (True,) * ROUTED
_HALF: Final = 1 << 62
#: Pieces of a filter, at most, that are routed apart.
_PIECES: Final = 8
_DIGEST, _GONE, _REPLY = (VERSION << 4 | kind for kind in (Kind.DIGEST, Kind.GONE, Kind.ECHO_REPLY))


def control_schema(category: str) -> Schema:
    """The schema of the messages about a category."""
    name = PREFIX + category
    if len(name) > 64:
        name = PREFIX + blake2b(category.encode(), digest_size=16).hexdigest()
    attributes = (Attribute("to", "int", lo=0, hi=2 * _HALF - 1), *(Attribute(each, "bool") for each in _NAMES))
    return Schema(name, attributes)


def _address(number: int) -> int:
    return _HALF | number & (_HALF - 1)


def to_node(schema: Schema, number: int) -> Filter:
    """What is sent to this node alone."""
    every = {name: ValueSet.of(True) for name in _NAMES}
    return Filter(schema, {"to": ValueSet.of(_address(number)), **every})


def peers(schema: Schema, wanted: Subscription) -> list[Filter]:
    """What is said to all who want some of the same."""
    tagger = Tagger(wanted.schema, WIDTH)
    chosen = {_routed(bits) for bits in tagger.subscription(wanted, _PIECES)}
    least = [each for each in chosen if not any(_within(other, each) for other in chosen if other != each)]
    everyone = ValueSet.interval(0, _HALF - 1)
    return [
        Filter(schema, {"to": everyone, **{n: ValueSet.of(True) for n, on in zip(_NAMES, each, strict=True) if on}})
        for each in sorted(least)
    ]


def _routed(bits: Bits) -> tuple[bool, ...]:
    return tuple(bool(bits >> place & 1) for place in _PLACES)


def _within(some: tuple[bool, ...], others: tuple[bool, ...]) -> bool:
    return all(other or not one for one, other in zip(some, others, strict=True))


def events_of(schema: Schema, send: Send, me: int) -> list[Event]:
    """The events that say it: one, or two if both peers and a publisher are to hear of it."""
    data = send.data
    if len(data) > MAX_PAYLOAD:
        return []
    one = Event.trusted(schema, (_address(send.target), *_ALL), data)
    match send.channel:
        case Channel.NODE | Channel.PUBLISHER:
            return [one]
        case Channel.DIGEST:
            return [Event.trusted(schema, (send.target & (_HALF - 1), *_ALL), data)]
        case Channel.PEERS:
            bits = _routed(send.bits) if send.width * 8 == WIDTH else _ALL
            every = Event.trusted(schema, (send.target & (_HALF - 1), *bits), data)
            return [every] if send.target == me else [every, one]


def spoken_for(data: bytes) -> int | None:
    """The publisher for whom only its own voice may say this; None if anybody may, -1 if nobody."""
    first = data[0] if data else 0
    if first in (_DIGEST, _GONE):
        return int.from_bytes(data[2:10], "big")
    if first == _REPLY:
        return int.from_bytes(data[10:18], "big")
    # What was published comes as an event of its own category, never here.
    return -1 if first & 15 == Kind.DATA else None
