"""What receivers (and caches) say: requests, repairs, gone, feedback, echoes. As bytes, bounded and checked.

REQUEST      ver|kind, 0, publisher u64, epoch u32, sequence u64, requester u64, attempt u8, distance f32,
wait f32, width u8, bits                        "who has this message? its bits are these"
REPAIR       ver|kind, 0, responder u64, requester u64 (0: for all), the message as it was sent
INQUIRY      ver|kind, 0, publisher u64, epoch u32, first u64, last u64, requester u64      "what were these?"
GONE         ver|kind, 0, publisher u64, epoch u32, first u64, last u64       "nobody can have these any more"
[ the event without its payload ]                  of one message: "it said this"
FEEDBACK     ver|kind, 0, subscriber u64, publisher u64, sent f64, count u8, (quota f32, width u8, bits) × count
ECHO         ver|kind, 0, subscriber u64, publisher u64, sent f64
ECHO_REPLY   the same with the other kind; `sent` is what the echo carried

Behind each is the CRC-32 of all its bytes, u32.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from sievenet.errors import CodecError, InvalidInput
from sievenet.transport.bloom import MAX_WIDTH, Bits
from sievenet.transport.codec import (
    MAX_SEQUENCE,
    MAX_TIME,
    VERSION,
    Kind,
    check,
    checked,
    checked_rate,
    decode_header,
    kind_of,
)

__all__ = [
    "MAX_FLOWS",
    "MAX_MESSAGE",
    "Echo",
    "Feedback",
    "FlowRequest",
    "Gone",
    "Inquiry",
    "Message",
    "Repair",
    "Request",
    "decode",
    "encode",
]

#: Most flows in one feedback message.
MAX_FLOWS: Final = 64
#: Longest message of any kind.
MAX_MESSAGE: Final = 65_507
#: A distance or wait beyond this is absurd, in seconds.
_MAX_WAIT: Final = 3600.0
_MAX_DISTANCE: Final = 10.0

_REQUEST: Final = struct.Struct(">BBQIQQBffB")
_REPAIR: Final = struct.Struct(">BBQQ")
_GONE: Final = struct.Struct(">BBQIQQ")
_INQUIRY: Final = struct.Struct(">BBQIQQQ")
_FEEDBACK: Final = struct.Struct(">BBQQdB")
_FLOW: Final = struct.Struct(">fB")
_ECHO: Final = struct.Struct(">BBQQd")


class Request(msgspec.Struct, frozen=True):
    """A message is missing."""

    publisher: int
    epoch: int
    sequence: int
    requester: int
    #: How often it was asked for before.
    attempt: int
    #: The requester's distance from the publisher, in seconds.
    distance: float
    #: Seconds since the message was published, as far as the requester knows: caches size themselves by it.
    wait: float
    #: The missing message's bits, and their width in bytes.
    bits: Bits
    width: int


class Repair(msgspec.Struct, frozen=True):
    """A missing message, again."""

    responder: int
    #: Whom it is for; 0 if for everybody.
    requester: int
    #: The message as it was sent first: header and body.
    message: bytes


class Gone(msgspec.Struct, frozen=True):
    """The publisher no longer has these messages."""

    publisher: int
    epoch: int
    first: int
    last: int
    #: For a single message: its attributes, if the publisher remembers them. If they do not match, nothing was lost.
    content: bytes = b""


class Inquiry(msgspec.Struct, frozen=True):
    """A receiver cannot account for these messages: what were they?"""

    publisher: int
    epoch: int
    first: int
    last: int
    requester: int


class FlowRequest(msgspec.Struct, frozen=True):
    """At most this many messages per second of this flow."""

    bits: Bits
    width: int
    quota: float


class Feedback(msgspec.Struct, frozen=True):
    """A receiver's wishes."""

    subscriber: int
    publisher: int
    #: When it left, by the subscriber's clock.
    sent: float
    flows: tuple[FlowRequest, ...]


class Echo(msgspec.Struct, frozen=True):
    """A question or answer about the round trip."""

    subscriber: int
    publisher: int
    sent: float
    reply: bool = False


Message = Request | Repair | Gone | Inquiry | Feedback | Echo


def encode(message: Message) -> bytes:
    """A control message as bytes."""
    return checked(_encoded(message))


def _encoded(message: Message) -> bytes:
    try:
        match message:
            case Request():
                m = message
                return _REQUEST.pack(
                    _first(Kind.REQUEST), 0, m.publisher, m.epoch, m.sequence, m.requester,
                    min(m.attempt, 255), m.distance, m.wait, m.width,
                ) + m.bits.to_bytes(m.width, "big")  # fmt: skip
            case Repair():
                return _REPAIR.pack(_first(Kind.REPAIR), 0, message.responder, message.requester) + message.message
            case Gone():
                m2 = message
                return _GONE.pack(_first(Kind.GONE), 0, m2.publisher, m2.epoch, m2.first, m2.last) + m2.content
            case Inquiry():
                i = message
                return _INQUIRY.pack(_first(Kind.INQUIRY), 0, i.publisher, i.epoch, i.first, i.last, i.requester)
            case Feedback():
                f = message
                head = _FEEDBACK.pack(_first(Kind.FEEDBACK), 0, f.subscriber, f.publisher, f.sent, len(f.flows))
                flows = (_FLOW.pack(w.quota, w.width) + w.bits.to_bytes(w.width, "big") for w in f.flows)
                return head + b"".join(flows)
            case Echo():
                kind = Kind.ECHO_REPLY if message.reply else Kind.ECHO
                return _ECHO.pack(_first(kind), 0, message.subscriber, message.publisher, message.sent)
    except (struct.error, OverflowError) as error:
        raise InvalidInput(f"A transport message cannot be encoded: {error}", where=type(message).__name__) from None


def decode(data: bytes) -> Message:
    """The control message that some bytes are, or `CodecError`."""
    if len(data) > MAX_MESSAGE:
        raise CodecError(expected=f"at most {MAX_MESSAGE} bytes", got=len(data), where="transport message")
    kind = kind_of(data)
    end = max(0, len(data) - 4)
    check(data, end)
    data = data[:end]
    if data[1]:
        raise CodecError(expected="no flags", got=data[1], where="byte 1")
    match kind:
        case Kind.REQUEST:
            return _decode_request(data)
        case Kind.REPAIR:
            _, _, responder, requester = _unpack(_REPAIR, data)
            message = bytes(data[_REPAIR.size :])
            header, _ = decode_header(message)
            if header.digest:
                raise CodecError(expected="a repaired message", got="`a digest`", where="repair")
            return Repair(responder, requester, message)
        case Kind.GONE:
            _, _, publisher, epoch, first, last = _unpack(_GONE, data)
            if first != last:
                _ended(data, _GONE.size)
            return Gone(publisher, epoch, *_range(first, last, "gone"), bytes(data[_GONE.size :]))
        case Kind.INQUIRY:
            _, _, publisher, epoch, first, last, requester = _unpack(_INQUIRY, data, exact=True)
            return Inquiry(publisher, epoch, *_range(first, last, "inquiry"), requester)
        case Kind.FEEDBACK:
            return _decode_feedback(data)
        case Kind.ECHO | Kind.ECHO_REPLY:
            _, _, subscriber, publisher, sent = _unpack(_ECHO, data, exact=True)
            return Echo(subscriber, publisher, _time(sent, "echo"), kind is Kind.ECHO_REPLY)
        case _:
            raise CodecError(expected="a control message", got=kind.name, where="byte 0")


def _decode_request(data: bytes) -> Request:
    _, _, publisher, epoch, sequence, requester, attempt, distance, wait, width = _unpack(_REQUEST, data)
    for value, most in ((distance, _MAX_DISTANCE), (wait, _MAX_WAIT)):
        if not 0.0 <= value <= most:
            raise CodecError(expected=f"seconds in [0, {most:g}]", got=value, where="request")
    if sequence >= MAX_SEQUENCE:
        raise CodecError(expected="a sequence number below 2**63", got=sequence, where="request")
    bits, end = _bits(data, _REQUEST.size, width)
    _ended(data, end)
    return Request(publisher, epoch, sequence, requester, attempt, distance, wait, bits, width)


def _decode_feedback(data: bytes) -> Feedback:
    _, _, subscriber, publisher, sent, count = _unpack(_FEEDBACK, data)
    if count > MAX_FLOWS:
        raise CodecError(expected=f"at most {MAX_FLOWS} flows", got=count, where="feedback")
    at = _FEEDBACK.size
    flows = []
    for _ in range(count):
        if len(data) < at + _FLOW.size:
            raise CodecError(expected="a flow", got=f"`{len(data) - at} bytes`", where=f"byte {at} of feedback")
        quota, width = _FLOW.unpack_from(data, at)
        bits, at = _bits(data, at + _FLOW.size, width)
        flows.append(FlowRequest(bits, width, checked_rate(quota, "feedback")))
    _ended(data, at)
    return Feedback(subscriber, publisher, _time(sent, "feedback"), tuple(flows))


def _first(kind: Kind) -> int:
    return VERSION << 4 | kind


def _unpack(form: struct.Struct, data: bytes, *, exact: bool = False) -> tuple[int, ...]:
    if len(data) < form.size or (exact and len(data) != form.size):
        raise CodecError(expected=f"{form.size} bytes", got=len(data), where="transport message")
    return form.unpack_from(data)


def _bits(data: bytes, at: int, width: int) -> tuple[Bits, int]:
    if not 1 <= width <= MAX_WIDTH // 8 or len(data) < at + width:
        raise CodecError(expected=f"1..{MAX_WIDTH // 8} bytes of bits", got=width, where=f"byte {at}")
    return int.from_bytes(data[at : at + width], "big"), at + width


def _ended(data: bytes, at: int) -> None:
    if at != len(data):
        raise CodecError(expected="the end", got=f"`{len(data) - at} more bytes`", where=f"byte {at}")


def _range(first: int, last: int, where: str) -> tuple[int, int]:
    if not first <= last < MAX_SEQUENCE:
        raise CodecError(expected="first <= last < 2**63", got=(first, last), where=where)
    return first, last


def _time(value: float, where: str) -> float:
    if not 0.0 <= value < MAX_TIME:
        raise CodecError(expected=f"a time in [0, {MAX_TIME:g})", got=value, where=where)
    return value
