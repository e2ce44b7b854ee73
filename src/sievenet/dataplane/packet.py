"""Packets and datagrams: what travels between clients and switches.

A packet is one event on its way: its category and code (what the switches match), who
sent it, its number and time of departure, and the encoded event.  On the loopback
network several packets share a datagram:

    datagram   magic "SV" | version | kind | packets u16 | window KiB u16 | sequence u32 | acknowledged u32 | token u64
    packet     body length u16 | category u16 | flags u8 | 0 u8 | code u128 | publisher u64 | incarnation u64 |
               sequence u64 | departure ns u64 | body

All numbers are big-endian.  `token` is the secret a client was given when it attached (where members are known it only
names the session, and the datagram is sealed: `access.seal`);
the datagram's `sequence` counts datagrams one way (0: carries no packets), `acknowledged`
is the highest that came the other way, and `window` says how many bytes may be under way to
the sender: flow control for socket buffers, see `hostlink`.

An event is named by (publisher, incarnation, sequence).  The publisher number says who sent it and
can be checked, so that a client cannot use up the sequence numbers of another: it follows from
the client's token where there are tokens (`publisher_of`), and otherwise from the address and
UDP port that the network lets nobody else send from (`publisher_at`).  The incarnation is drawn at
random when a client starts to publish: a name that comes back counts from 0 again, and nobody takes
its events for those of an earlier life, whatever happened to clocks, journals and processes.

Bytes from outside are checked before anything is believed: total length, magic, version,
kind, the number of packets, and that the packets fill the datagram exactly.  A packet whose numbers
are absurd costs itself, not those that share its datagram.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from sievenet.access.seal import CLEAR, SEAL
from sievenet.errors import CodecError, InvalidInput
from sievenet.network.flow import MAX_CATEGORY

__all__ = [
    "DATAGRAM_HEADER",
    "FRONT",
    "KIND",
    "MAX_BODY",
    "MAX_DATAGRAM",
    "MAX_NUMBER",
    "PACKET_HEADER",
    "VERSION",
    "Datagram",
    "Kind",
    "Packet",
    "category_of",
    "datagram_alone",
    "decode",
    "encode",
    "encode_datagram",
    "encode_header",
    "encode_packet",
    "packet_alone",
    "packets_of",
    "packets_within",
    "publisher_at",
    "publisher_of",
    "split",
]

VERSION: Final = 2
_MAGIC: Final = 0x5356

_DATAGRAM: Final = struct.Struct(">HBBHHIIQ")
_PACKET: Final = struct.Struct(">HHBBQQQQQQ")
#: Its beginning, which packets of one schema share: length, category and flags.
KIND: Final = struct.Struct(">HHBB")
#: A datagram of one packet before the packet's body.
_ALONE: Final = struct.Struct(f">{_DATAGRAM.size}sHHBBQQQQQQ")

#: Bytes before the first packet.
DATAGRAM_HEADER: Final = _DATAGRAM.size
#: Bytes of a packet before its body.
PACKET_HEADER: Final = _PACKET.size
assert DATAGRAM_HEADER == CLEAR, "a seal leaves the header readable, and nothing else"
#: The most that UDP over IPv4 carries.
MAX_DATAGRAM: Final = 65_507
#: The longest encoded event.
MAX_BODY: Final = MAX_DATAGRAM - DATAGRAM_HEADER - PACKET_HEADER - SEAL
#: The largest sequence number and time of departure: others are absurd.
MAX_NUMBER: Final = (1 << 63) - 1

#: Several packets share a datagram up to this size: enough to make system calls cheap, little enough for a buffer
#: to hold many.
FULL_DATAGRAM: Final = 16_384

_LOW: Final = (1 << 64) - 1


class Kind(IntEnum):
    """What a datagram is for."""

    #: Carries packets; without any it only acknowledges.
    DATA = 0
    #: "Here I am": the plane notes the sender's address and answers with the same kind.
    HELLO = 1


_LAST_KIND: Final = int(max(Kind))


class Packet(msgspec.Struct, frozen=True, gc=False):
    """One event on its way."""

    category: int
    #: What switches match: the event's dz, left-aligned in 128 bits.
    code: int
    publisher: int
    sequence: int
    #: When it left, in nanoseconds of the publisher's clock.
    departure: int
    flags: int = 0
    #: The encoded event.
    body: bytes = b""
    #: Which life of the publisher counts with `sequence`.
    incarnation: int = 0

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return PACKET_HEADER + len(self.body)


class Datagram(msgspec.Struct, frozen=True):
    """A decoded datagram."""

    token: int
    kind: Kind
    sequence: int
    acknowledged: int
    #: Bytes that may be under way to whoever sent this, in KiB.
    window: int
    packets: list[Packet]


def publisher_of(token: int) -> int:
    """The publisher number of the client that holds a token; says nothing about the token."""
    return int.from_bytes(blake2b(token.to_bytes(8, "big"), digest_size=8, person=b"sievenet").digest(), "big")


@lru_cache(maxsize=4096)
def publisher_at(address: bytes, port: int) -> int:
    """The publisher number of a client that sends from this IPv6 address (16 bytes) and UDP port."""
    place = address + port.to_bytes(2, "big")
    return int.from_bytes(blake2b(place, digest_size=8, person=b"sievenet-place").digest(), "big")


def encode_packet(packet: Packet) -> bytes:
    """The bytes of one packet."""
    body = packet.body
    if len(body) > MAX_BODY:
        raise InvalidInput(expected=f"at most {MAX_BODY} bytes", got=len(body), where="packet.body")
    if not 0 <= packet.category <= MAX_CATEGORY:
        raise InvalidInput(expected=f"0..{MAX_CATEGORY}", got=packet.category, where="packet.category")
    code = packet.code
    try:
        head = _PACKET.pack(
            len(body),
            packet.category,
            packet.flags,
            0,
            code >> 64,
            code & _LOW,
            packet.publisher,
            packet.incarnation,
            packet.sequence,
            packet.departure,
        )
    except struct.error as error:
        raise InvalidInput(str(error), where="packet") from None
    return head + body


def encode_datagram(
    token: int,
    encoded: Iterable[bytes | memoryview],
    *,
    count: int | None = None,
    kind: Kind = Kind.DATA,
    sequence: int = 0,
    acknowledged: int = 0,
    window: int = 64,
) -> bytes:
    """One datagram around packets that are bytes already: one in each part, or so many in all of them (``count``)."""
    parts = list(encoded)
    packets, size = len(parts) if count is None else count, sum(map(len, parts))
    head = encode_header(token, packets, size, kind=kind, sequence=sequence, acknowledged=acknowledged, window=window)
    return b"".join((head, *parts))


def encode_header(
    token: int,
    count: int,
    size: int,
    *,
    kind: Kind = Kind.DATA,
    sequence: int = 0,
    acknowledged: int = 0,
    window: int = 64,
) -> bytes:
    """The header of a datagram with so many packets of so many bytes together; `InvalidInput` if these are too many."""
    if size > MAX_DATAGRAM - DATAGRAM_HEADER:
        raise InvalidInput(expected=f"at most {MAX_DATAGRAM} bytes", got=DATAGRAM_HEADER + size, where="datagram")
    numbers = sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF
    return _DATAGRAM.pack(_MAGIC, VERSION, kind, count, window, *numbers, token)


#: What is in front of a single packet in its datagram where datagrams have no numbers: the same in all.
FRONT: Final = encode_header(0, 1, 0)


def batches(encoded: Iterable[bytes], full: int = FULL_DATAGRAM) -> Iterator[list[bytes]]:
    """Packets in groups that fit a datagram each; one that is longer than `full` travels alone."""
    group: list[bytes] = []
    size = DATAGRAM_HEADER
    for part in encoded:
        if group and size + len(part) > full:
            yield group
            group, size = [], DATAGRAM_HEADER
        group.append(part)
        size += len(part)
    if group:
        yield group


def encode(token: int, packets: Iterable[Packet]) -> list[bytes]:
    """Packets as datagrams; none becomes a greeting."""
    datagrams = [encode_datagram(token, group) for group in batches(map(encode_packet, packets))]
    return datagrams or [encode_datagram(token, (), kind=Kind.HELLO)]


def header(data: bytes | memoryview) -> tuple[int, int, int, int, int, int]:
    """``(token, kind, sequence, acknowledged, window, packets)`` of a datagram, or `CodecError`."""
    if not DATAGRAM_HEADER <= len(data) <= MAX_DATAGRAM:
        raise CodecError(expected=f"{DATAGRAM_HEADER}..{MAX_DATAGRAM} bytes", got=len(data), where="datagram")
    magic, version, kind, count, window, sequence, acknowledged, token = _DATAGRAM.unpack_from(data)
    if magic != _MAGIC:
        raise CodecError(expected=f"magic {_MAGIC:#x}", got=f"{magic:#x}", where="datagram")
    if version != VERSION:
        raise CodecError(expected=f"version {VERSION}", got=version, where="datagram")
    if kind > _LAST_KIND:
        raise CodecError(expected="a known kind", got=kind, where="datagram")
    if count * PACKET_HEADER > len(data) - DATAGRAM_HEADER:
        raise CodecError(expected=f"room for {count} packets", got=f"{len(data)} bytes", where="datagram")
    return token, kind, sequence, acknowledged, window, count


def split(data: bytes | memoryview, count: int, at: int = DATAGRAM_HEADER) -> list[tuple[int, int, int, int, int]]:
    """Where the packets of a datagram are: ``(start, end, category, code, publisher)`` each, or `CodecError`.

    The first is behind the header, unless that was cut off. Packets with absurd numbers are left out.
    """
    found = []
    unpack = _PACKET.unpack_from
    end = len(data)
    last = end - PACKET_HEADER
    for _ in range(count):
        if at > last:
            raise CodecError(expected="a packet header", got=f"{end - at} bytes", where=f"datagram byte {at}")
        length, category, _flags, zero, hi, lo, publisher, _incarnation, sequence, departure = unpack(data, at)
        after = at + PACKET_HEADER + length
        if after > end or zero:
            raise CodecError(expected=f"a body of {length} bytes", got=end - at, where=f"datagram byte {at}")
        if (sequence | departure) <= MAX_NUMBER:
            found.append((at, after, category, (hi << 64) | lo, publisher))
        at = after
    if at != end:
        raise CodecError(expected="nothing after the last packet", got=f"{end - at} bytes", where="datagram")
    return found


def category_of(packet: bytes) -> int:
    """The category of an encoded packet."""
    return packet[2] << 8 | packet[3]


def decode(data: bytes | memoryview) -> Datagram:
    """The datagram that some bytes are, or `CodecError`."""
    token, kind, sequence, acknowledged, window, count = header(data)
    return Datagram(token, Kind(kind), sequence, acknowledged, window, packets_of(data, count))


def packets_of(data: bytes | memoryview, count: int, at: int = DATAGRAM_HEADER) -> list[Packet]:
    """The packets of a datagram whose header says that it has so many, or `CodecError`.

    The first is behind the header, unless that was cut off. Packets with absurd numbers are left out.
    """
    found = []
    for start, end, category, code, publisher in split(data, count, at):
        _, _, flags, _, _, _, _, incarnation, number, departure = _PACKET.unpack_from(data, start)
        body = bytes(data[start + PACKET_HEADER : end])
        found.append(Packet(category, code, publisher, number, departure, flags, body, incarnation))
    return found


def packets_within(data: bytes, at: int) -> list[Packet]:
    """The packets that some bytes are from a place on, or `CodecError`."""
    found = []
    last = len(data) - PACKET_HEADER
    while at <= last:
        length, category, flags, zero, hi, lo, publisher, incarnation, number, departure = _PACKET.unpack_from(data, at)
        start = at + PACKET_HEADER
        at = start + length
        if zero or at > len(data) or (number | departure) > MAX_NUMBER:
            raise CodecError("Expected a sound packet", where=f"byte {start - PACKET_HEADER}")
        body = data[start:at]
        found.append(Packet(category, hi << 64 | lo, publisher, number, departure, flags, body, incarnation))
    if at != len(data):
        raise CodecError(expected="a packet header", got=f"{len(data) - at} bytes", where=f"byte {at}")
    return found


def datagram_alone(packet: Packet) -> bytes:
    """The datagram of one packet, as `encode_datagram` and `encode_packet` make it; `struct.error` if it cannot be."""
    body, code = packet.body, packet.code
    return (
        _ALONE.pack(
            FRONT, len(body), packet.category, packet.flags, 0, code >> 64, code & _LOW,
            packet.publisher, packet.incarnation, packet.sequence, packet.departure,
        ) + body
    )  # fmt: skip


def packet_alone(data: bytes, head: bytes) -> Packet | None:
    """The packet of a datagram that begins with this head and has no other; None if it is not exactly that, and sound.

    The same as `packets_of`, in few steps: single events come here.
    """
    at = len(head) + PACKET_HEADER
    if len(data) < at or not data.startswith(head):
        return None
    length, category, flags, zero, hi, lo, publisher, incarnation, number, departure = _PACKET.unpack_from(
        data, len(head)
    )
    if zero or length != len(data) - at or (number | departure) > MAX_NUMBER:
        return None
    return Packet(category, hi << 64 | lo, publisher, number, departure, flags, data[at:], incarnation)
