"""The transport's messages as bytes: versioned, bounded, checked before anything is believed.

Every message starts with one byte of version and kind and one of flags; all numbers are big-endian. What publishers
send (`Header`, in front of every event; also alone, as a digest):

    0          1       2                10         14              22              30             34        35      37
    +----------+-------+----------------+----------+---------------+---------------+--------------+---------+-------+
    | ver|kind | flags | publisher u64  | epoch 32 | sequence u64  | departure f64 | previous u32 | width 8 | count |
    +----------+-------+----------------+----------+---------------+---------------+--------------+---------+-------+
    [ CLR u64 | publish rate f32 | CLR's rate f32 | δ_feedback f64 | number u32 ]   if flag CONTROLLED
    [ interval u32 | bits ] × count                                     the publication record, newest first
    CRC-32 of all that u32
    body …

Times are seconds of the sender's clock. Entry i of the record is message ``sequence - 1 - i`` (of a digest, which
counts itself as the message after the last one, likewise). `previous` is the time since the message before in
microseconds, and an entry's interval the same of its message, saturating: so an entry's bytes are made once and sent
``count`` times, and ages add up along the record.

The checksum is there for what a flipped bit would do: a wrong number, epoch or time in an event that looks good in all
else, where a plane has no checksum or a weak one. It is no proof of origin.

What others send is in `control`. Nothing here keeps state. A record is not parsed until somebody asks for an entry,
since most messages arrive in order and nobody does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from math import isfinite
from typing import Final
from zlib import crc32

import msgspec

from sievenet.errors import CodecError, InvalidInput
from sievenet.transport.bloom import MAX_WIDTH, Bits

__all__ = [
    "HEADER",
    "MAX_DIGEST",
    "MAX_RECORD",
    "MAX_SEQUENCE",
    "MAX_TIME",
    "NO_RECORD",
    "VERSION",
    "Control",
    "Header",
    "Kind",
    "Record",
    "check",
    "checked",
    "decode_header",
    "encode_header",
    "kind_of",
    "record_entry",
]

VERSION: Final = 2
#: Most entries of the record on an event, and of a digest.
MAX_RECORD: Final = 64
MAX_DIGEST: Final = 1024
#: Times beyond this (some 34,000 years) are absurd.
MAX_TIME: Final = float(1 << 40)
#: No rate is higher, in messages per second.
MAX_RATE: Final = 1e12
#: Sequence numbers are below this.
MAX_SEQUENCE: Final = 1 << 63
_MAX_AGE: Final = (1 << 32) - 1

_FIXED: Final = struct.Struct(">BBQIQdIBH")
_CONTROL: Final = struct.Struct(">QffdI")
_AGE: Final = struct.Struct(">I")
_CHECKSUM: Final = struct.Struct(">I")
#: Bytes of a header with congestion control and without a record.
HEADER: Final = _FIXED.size + _CONTROL.size + _CHECKSUM.size

_CONTROLLED: Final = 1
#: Of digests: the stream has ended; it does not reach up to the newest message.
_ENDED: Final = 2
_PART: Final = 4
#: Of messages: the publisher tells regularly how far it is.
_REPORTS: Final = 8


class Kind(IntEnum):
    """What a message is."""

    DATA = 1
    DIGEST = 2
    REQUEST = 3
    REPAIR = 4
    GONE = 5
    FEEDBACK = 6
    ECHO = 7
    ECHO_REPLY = 8
    INQUIRY = 9


class Control(msgspec.Struct, frozen=True):
    """Congestion control's part of a header."""

    #: The current limiting receiver of the tightest flow that the message belongs to, 0 if it belongs to none.
    clr: int
    #: Messages per second that the publisher sends in all.
    rate: float
    #: Messages per second allowed to that flow.
    quota: float
    #: Travel time of the CLR's last feedback, between two clocks.
    feedback_delay: float
    #: Which message it is of those that name this CLR, modulo 2**32: a gap is a loss of the CLR's.
    number: int = 0


class Record(msgspec.Struct, frozen=True):
    """What was published before, as it came: ``count`` entries of 4 bytes of interval and ``width`` bytes of bits."""

    width: int
    count: int
    data: bytes

    @staticmethod
    def of(entries: list[tuple[int, Bits]], width: int) -> Record:
        """A record of (microseconds to the message before, bits), newest first; ``width`` in bytes."""
        return Record(width, len(entries), b"".join(record_entry(apart, bits, width) for apart, bits in entries))

    def __len__(self) -> int:
        return self.count

    def walk(self, previous: int, count: int) -> Iterator[tuple[float, Bits]]:
        """Age in seconds and bits of the last ``count`` messages; ``previous`` is the age of the first in µs."""
        form = _entry_form(self.width)
        age = previous
        for apart, bits in form.iter_unpack(self.data[: count * form.size]):
            yield age * 1e-6, int.from_bytes(bits, "big")
            age += apart

    @property
    def span(self) -> int:
        """Microseconds from the message before the oldest entry to the newest."""
        size = 4 + self.width
        return sum(_AGE.unpack_from(self.data, i * size)[0] for i in range(self.count))


def record_entry(apart: int, bits: Bits, width: int) -> bytes:
    """One entry: never changes again once its message is sent, so publishers keep it as it is."""
    return _AGE.pack(min(apart, _MAX_AGE)) + bits.to_bytes(width, "big")


@lru_cache(maxsize=MAX_WIDTH // 8)
def _entry_form(width: int) -> struct.Struct:
    return struct.Struct(f">I{width}s")


NO_RECORD: Final = Record(0, 0, b"")


class Header(msgspec.Struct, frozen=True):
    """What a publisher says in front of a message."""

    publisher: int
    #: Which life of the publisher: another one when it restarts and counts from 0 again.
    epoch: int
    sequence: int
    #: Seconds of the publisher's clock.
    departure: float
    #: Microseconds since the previous message.
    previous: int
    record: Record = NO_RECORD
    control: Control | None = None
    digest: bool = False
    #: Of a digest: nothing more will be published; it describes older messages, and says nothing of the newest.
    ended: bool = False
    part: bool = False
    #: Of a message: digests follow, for as long as the publisher lives.
    reports: bool = False


def encode_header(header: Header) -> bytes:
    """The header as bytes; the body goes behind it."""
    record, control = header.record, header.control
    kind = Kind.DIGEST if header.digest else Kind.DATA
    try:
        fixed = _FIXED.pack(
            VERSION << 4 | kind,
            (control is not None) * _CONTROLLED
            | header.ended * _ENDED
            | header.part * _PART
            | header.reports * _REPORTS,
            header.publisher,
            header.epoch,
            header.sequence,
            header.departure,
            min(header.previous, _MAX_AGE),
            record.width,
            record.count,
        )
        if control is None:
            return checked(fixed + record.data)
        middle = _CONTROL.pack(control.clr, control.rate, control.quota, control.feedback_delay, control.number)
    except (struct.error, OverflowError) as error:
        raise InvalidInput(f"A transport header cannot be encoded: {error}", where="header") from None
    return checked(fixed + middle + record.data)


def checked(data: bytes) -> bytes:
    """A message with its checksum behind it."""
    return data + _CHECKSUM.pack(crc32(data))


def check(data: bytes, end: int) -> int:
    """Where the checksum of the bytes up to ``end`` ends, which follows them; `CodecError` if it is wrong."""
    if len(data) < end + _CHECKSUM.size or _CHECKSUM.unpack_from(data, end)[0] != crc32(data[:end]):
        raise CodecError(
            expected=f"the checksum {crc32(data[:end]):08x}", got=data[end : end + 4].hex(), where="message"
        )
    return end + _CHECKSUM.size


def kind_of(data: bytes) -> Kind:
    """What a message claims to be, or `CodecError`."""
    if len(data) < 2:
        raise CodecError(expected="a transport message", got=f"`{len(data)} bytes`")
    first = data[0]
    if first >> 4 != VERSION or not 1 <= first & 15 <= 9:
        raise CodecError(expected=f"version {VERSION} and a known kind", got=f"`{first:#04x}`", where="byte 0")
    return Kind(first & 15)


def decode_header(data: bytes) -> tuple[Header, int]:
    """The header in front of a message and where the body starts, or `CodecError`."""
    if len(data) < _FIXED.size:
        raise CodecError(expected=f"{_FIXED.size} bytes of header", got=len(data), where="transport header")
    first, flags, publisher, epoch, sequence, departure, previous, width, count = _FIXED.unpack_from(data)
    if first != _DATA and first != _DIGEST:
        raise CodecError(expected="a header of this version", got=f"`{first:#04x}`", where="byte 0")
    if flags & ~_KNOWN.get(first, 0):
        raise CodecError(expected="known flags", got=flags, where="byte 1")
    if not 0.0 <= departure < MAX_TIME:
        raise CodecError(expected=f"a time in [0, {MAX_TIME:g})", got=departure, where="departure")
    if sequence >= MAX_SEQUENCE:
        raise CodecError(expected="a sequence number below 2**63", got=sequence, where="sequence")
    at = _FIXED.size
    control = None
    if flags & _CONTROLLED:
        if len(data) < at + _CONTROL.size:
            raise CodecError(expected=f"{_CONTROL.size} bytes of control", got=len(data) - at, where=f"byte {at}")
        clr, rate, quota, delay, number = _CONTROL.unpack_from(data, at)
        if not (0.0 <= rate <= MAX_RATE and 0.0 <= quota <= MAX_RATE and abs(delay) < MAX_TIME):
            raise CodecError(expected="finite rates and delay", got=(rate, quota, delay), where=f"byte {at}")
        control = Control(clr, rate, quota, delay, number)
        at += _CONTROL.size
    record = NO_RECORD
    if count or width:
        limit = MAX_RECORD if first == _DATA else MAX_DIGEST
        if count > limit or not 1 <= width <= MAX_WIDTH // 8:
            raise CodecError(
                expected=f"at most {limit} entries of 1..{MAX_WIDTH // 8} bytes", got=(count, width), where="record"
            )
        end = at + count * (4 + width)
        if len(data) < end:
            raise CodecError(expected=f"{end - at} bytes of record", got=len(data) - at, where=f"byte {at}")
        record = Record(width, count, bytes(data[at:end]))
        at = end
    at = check(data, at)
    digest = first == _DIGEST
    if digest and at != len(data):
        raise CodecError(expected="nothing behind a digest", got=f"`{len(data) - at} bytes`", where=f"byte {at}")
    more = (bool(flags & _ENDED), bool(flags & _PART), bool(flags & _REPORTS)) if flags > _CONTROLLED else _NOTHING
    return Header(publisher, epoch, sequence, departure, previous, record, control, digest, *more), at


def checked_rate(value: float, where: str) -> float:
    """A rate that may be believed: finite, from 0 to `MAX_RATE`."""
    if not (isfinite(value) and 0.0 <= value <= MAX_RATE):
        raise CodecError(expected=f"a rate in [0, {MAX_RATE:g}]", got=value, where=where)
    return value


_DATA: Final = VERSION << 4 | Kind.DATA
_DIGEST: Final = VERSION << 4 | Kind.DIGEST
_KNOWN: Final = {_DATA: _CONTROLLED | _REPORTS, _DIGEST: _CONTROLLED | _ENDED | _PART}
_NOTHING: Final = (False, False, False)
