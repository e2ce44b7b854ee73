"""Packets inside packets: what directed delivery looks like on the wire (`control.directed` has the idea).

The body of a twin's packet is an event of the twin's schema whose payload is the whole packet of the category:

    00        02          06       07 … 09    …
    opening │ recipient │ length │ packet: head │ encoded event

Nothing in it differs in length from packet to packet if the packets inside are equally long, so that many of them are
a matrix of bytes here too: wrapping puts columns in front, unwrapping takes them off.

Inside may be several packets, one behind the other, if all of them are events, or all of a cache's stream
(`Mark.CACHED`): what goes to one recipient at one time shares the cost of a packet.

A packet inside whose `flags` are not 0 is no event but a *marker* of a handover (`client.handover`): its publisher and
sequence number name the way, its category and code the subspace, and its body says the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.client.arrival import Arrival
from sievenet.content.binary import varint
from sievenet.content.codec import encode_event
from sievenet.content.layout import Bytes
from sievenet.control.directed import BITS, twin_schema
from sievenet.dataplane.packet import PACKET_HEADER, Packet, encode_packet, packet_alone, packets_within
from sievenet.errors import CodecError, InvalidInput
from sievenet.transport.duplicates import Source

__all__ = [
    "TOGETHER",
    "Begin",
    "Cached",
    "End",
    "Mark",
    "Marker",
    "alone",
    "begin",
    "end",
    "frame",
    "marker_of",
    "several",
    "unwrapped",
    "unwrapped_many",
    "wrapped",
]

_SCHEMA: Final = twin_schema("any")
#: What every event of a twin begins with; recipient and length follow.
_OPENING: Final = encode_event(_SCHEMA.event(recipient=0))[:-5]
_NUMBER: Final = struct.Struct("<I")
_AT: Final = len(_OPENING) + _NUMBER.size
_BEGIN: Final = struct.Struct(">BI")
_MARK: Final = struct.Struct(">QQQ")
#: Bytes of packets that share one; IPv6 links carry 1,280, and heads take some of them.
TOGETHER: Final = 1100
#: Sources that a marker speaks of at most.
MARKS: Final = 1024
#: Milliseconds for which a marker may have packets held at most.
LONGEST: Final = 60_000


class Mark(IntEnum):
    """What a packet inside is, by its flags."""

    EVENT = 0
    BEGIN = 1
    END = 2
    #: An event in a cache's stream, and the end of that stream for one subscription (`client.caching`).
    CACHED = 3
    LEAVE = 4


class Begin(msgspec.Struct, frozen=True):
    """The way `way` is about to end: hold what comes by content in this subspace until it has."""

    way: tuple[int, int]
    category: int
    #: The subspace: codes whose first bits are those of `code`.
    code: int
    length: int
    #: Seconds after which holding ends in any case.
    patience: float


class End(msgspec.Struct, frozen=True):
    """The way has ended; it delivered events of these sources up to these numbers since it began to end."""

    way: tuple[int, int]
    marks: Mapping[Source, int]


class Cached(msgspec.Struct, frozen=True):
    """A packet of a cache's stream: its code is the stream and the number in it."""

    packet: Packet


Marker = Begin | End | Cached


# -- one packet ------------------------------------------------------------------------------


def wrapped(recipient: int, packet: bytes) -> bytes:
    """The body of a twin's packet around an encoded packet."""
    if not 0 <= recipient < 1 << BITS:
        raise InvalidInput(expected=f"a number of {BITS} bits", got=recipient, where="recipient")
    return b"".join((_OPENING, _NUMBER.pack(recipient), varint(len(packet)), packet))


def unwrapped(body: bytes) -> Packet:
    """The packet inside the body of a twin's packet; `CodecError` if there is none."""
    if not body.startswith(_OPENING):
        raise CodecError("Expected an event of a twin", where="body")
    length, at = _length(body)
    found = packet_alone(body[at:], b"") if length == len(body) - at else None
    if found is None:
        raise CodecError("Expected a packet in the event of a twin", where="body")
    return found


def several(body: bytes) -> list[Packet]:
    """The packets inside the body of a twin's packet, of one category: events, or all of a cache's stream.

    `CodecError` if they are something else.
    """
    if not body.startswith(_OPENING):
        raise CodecError("Expected an event of a twin", where="body")
    length, at = _length(body)
    found = packets_within(body, at) if length == len(body) - at else []
    kinds = {(each.flags, each.category) for each in found}
    if len(kinds) != 1 or found[0].flags not in (Mark.EVENT, Mark.CACHED):
        raise CodecError("Expected events, or packets of a cache's stream, in the event of a twin", where="body")
    return found


def alone(outer: Arrival, packet: Packet) -> Packet:
    """A packet that came with others in one of a twin, as if it had come in one of its own."""
    body = wrapped(0, encode_packet(packet))
    return Packet(outer.category, 0, outer.publisher, outer.sequence, outer.departure, 0, body, outer.incarnation)


def _length(body: bytes) -> tuple[int, int]:
    """The length that a body says its payload has, and where that begins."""
    length = shift = 0
    for at in range(_AT, min(len(body), _AT + 4)):
        length |= (body[at] & 0x7F) << shift
        if body[at] < 0x80:
            return length, at + 1
        shift += 7
    raise CodecError("Expected the length of a packet", where="body")


# -- many ------------------------------------------------------------------------------------


def frame(width: int) -> tuple[bytes, int]:
    """What is in front of packets so many bytes long, and where in it the recipient's number is (here 0)."""
    return _OPENING + bytes(_NUMBER.size) + varint(width), len(_OPENING)


def wrapped_many(recipients: npt.NDArray[Any], packets: Bytes) -> Bytes:
    """The bodies around equally long packets, one in each row."""
    count, width = packets.shape
    front = np.frombuffer(frame(width)[0], np.uint8)
    bodies = np.empty((count, len(front) + width), np.uint8)
    bodies[:, : len(front)] = front
    bodies[:, len(_OPENING) : _AT] = recipients.astype("<u4").view(np.uint8).reshape(count, _NUMBER.size)
    bodies[:, len(front) :] = packets
    return bodies


def unwrapped_many(bodies: Bytes) -> Bytes | None:
    """The packets inside, one in each row, in order; None if they have to be looked at one by one."""
    if not len(bodies) or bodies.shape[1] <= _AT + 1:
        return None
    try:
        length, at = _length(bodies[0].tobytes())
    except CodecError:
        return None
    front = bodies[:, :at].copy()
    front[:, len(_OPENING) : _AT] = 0
    if length != bodies.shape[1] - at or front[0, : len(_OPENING)].tobytes() != _OPENING or not _alike(front):
        return None
    # Several in each body lie one behind the other; that they are equally long is seen when they are looked at.
    width = PACKET_HEADER + int(bodies[0, at]) * 256 + int(bodies[0, at + 1]) if length > 1 else 0
    return bodies[:, at:] if width in (0, length) or length % width else bodies[:, at:].reshape(-1, width)


def _alike(rows: Bytes) -> bool:
    return bool((rows == rows[0]).all())


# -- markers ---------------------------------------------------------------------------------


def begin(marker: Begin) -> bytes:
    """The encoded packet that says that a way is about to end."""
    publisher, number = marker.way
    body = _BEGIN.pack(marker.length, round(marker.patience * 1000))
    return encode_packet(Packet(marker.category, marker.code, publisher, number, 0, Mark.BEGIN, body))


def end(marker: End, category: int) -> bytes:
    """The encoded packet that says that a way has ended."""
    publisher, number = marker.way
    marks: Iterable[tuple[Source, int]] = list(marker.marks.items())[-MARKS:]
    body = b"".join(_MARK.pack(*source, last) for source, last in marks)
    return encode_packet(Packet(category, 0, publisher, number, 0, Mark.END, body))


def marker_of(packet: Packet) -> Marker:
    """What a packet inside says that is no event; `CodecError` if nothing that we know."""
    if packet.flags in (Mark.CACHED, Mark.LEAVE):
        return Cached(packet)
    way = (packet.publisher, packet.sequence)
    if packet.flags == Mark.BEGIN and len(packet.body) == _BEGIN.size:
        length, patience = _BEGIN.unpack(packet.body)
        if length <= 128 and patience <= LONGEST:
            return Begin(way, packet.category, packet.code, length, patience / 1000)
    if packet.flags == Mark.END and len(packet.body) <= MARKS * _MARK.size and not len(packet.body) % _MARK.size:
        return End(way, {(p, i): last for p, i, last in _MARK.iter_unpack(packet.body)})
    raise CodecError("Expected a marker that is known", where="packet")
