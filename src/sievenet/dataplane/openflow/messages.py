"""OpenFlow messages as bytes: building ours, reading the switch's.

    header   version u8 | type u8 | length u16 | xid u32

`Framer` cuts a stream into messages and trusts nothing: a length below the header's, or a version that was not agreed
on, ends the connection.  What a switch sends is read with `struct` at known offsets, each checked against the message's
length first; anything that does not fit is a `CodecError`.

Only the messages of the numbers in `numbers` exist here.  Versions 1.3 and 1.4 differ for us in four places: ports and
their statistics have properties in 1.4 (we skip them), a flow has an importance (we leave it 0), and bundles are a
message of their own instead of an extension.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from sievenet.dataplane.openflow.numbers import (
    ERRORS,
    NO_BUFFER,
    ONF,
    ONF_BUNDLE_ADD,
    ONF_BUNDLE_CONTROL,
    V13,
    V14,
    Bundle,
    Multipart,
    Type,
)
from sievenet.errors import CodecError

__all__ = [
    "HEADER",
    "MAX_MESSAGE",
    "BundleReply",
    "ErrorMessage",
    "Features",
    "Framer",
    "Message",
    "PacketIn",
    "Port",
    "PortStatus",
    "barrier",
    "bundle_add",
    "bundle_control",
    "echo_reply",
    "echo_request",
    "features_request",
    "hello",
    "multipart",
    "packet_out",
    "read_bundle",
    "read_error",
    "read_features",
    "read_hello",
    "read_packet_in",
    "read_port_status",
    "read_ports",
    "role_request",
    "set_config",
]

_HEADER: Final = struct.Struct(">BBHI")
#: Bytes of a header.
HEADER: Final = 8
#: The most that the header's length can say.
MAX_MESSAGE: Final = 0xFFFF

_HELLO_BITMAP: Final = struct.Struct(">HHI")
_FEATURES: Final = struct.Struct(">QIBBxxII")
_PACKET_IN: Final = struct.Struct(">IHBBQHH")
_PACKET_OUT: Final = struct.Struct(">BBHIIIH6x")
_PORT_13: Final = struct.Struct(">I4x6s2x16sII24x")
_PORT_14: Final = struct.Struct(">IH2x6s2x16sII")
_ROLE: Final = struct.Struct(">I4xQ")
_MASTER: Final = 2
_BUNDLE: Final = struct.Struct(">IHH")


class Message(NamedTuple):
    """One message, header read, body not."""

    version: int
    type: int
    xid: int
    #: Everything after the header.
    body: bytes


class ErrorMessage(NamedTuple):
    """What a switch has against one of our messages; its xid says which."""

    type: int
    code: int
    #: The beginning of the message that it objects to.
    data: bytes

    def __str__(self) -> str:
        return ERRORS.get((self.type, self.code), f"error type {self.type}, code {self.code}")


class Features(NamedTuple):
    """What a switch says of itself."""

    datapath: int
    tables: int
    capabilities: int


class Port(NamedTuple):
    """A port of a switch."""

    number: int
    mac: bytes
    name: str
    #: Neither switched off nor without a carrier.
    up: bool


class PortStatus(NamedTuple):
    """A port that was added (0), deleted (1) or changed (2)."""

    reason: int
    port: Port


class PacketIn(NamedTuple):
    """A packet that a switch sends us, and where it came in."""

    in_port: int
    table: int
    cookie: int
    data: bytes


class BundleReply(NamedTuple):
    """An answer about a bundle."""

    bundle: int
    #: The kind of the request plus one.
    kind: int


class Framer:
    """Cuts a stream into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with these bytes."""
        buffer = self._rest + data if self._rest else data
        at, end = 0, len(buffer)
        while end - at >= HEADER:
            version, kind, length, xid = _HEADER.unpack_from(buffer, at)
            if length < HEADER:
                raise CodecError(expected=f"a length of at least {HEADER}", got=length, where="OpenFlow header")
            if end - at < length:
                break
            yield Message(version, kind, xid, buffer[at + HEADER : at + length])
            at += length
        self._rest = buffer[at:]

    @property
    def waiting(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._rest)


def _need(body: bytes, size: int, what: str) -> None:
    if len(body) < size:
        raise CodecError(expected=f"at least {size} bytes", got=len(body), where=what)


# -- ours ----------------------------------------------------------------------------------------


def message(version: int, kind: int, xid: int, body: bytes = b"") -> bytes:
    """Any message."""
    length = HEADER + len(body)
    if length > MAX_MESSAGE:
        raise CodecError(expected=f"at most {MAX_MESSAGE} bytes", got=length, where="OpenFlow message")
    return _HEADER.pack(version, kind, length, xid) + body


def hello(xid: int, versions: tuple[int, ...] = (V13, V14)) -> bytes:
    """The first message: which versions we speak."""
    bitmap = sum(1 << version for version in versions)
    return message(max(versions), Type.HELLO, xid, _HELLO_BITMAP.pack(1, 8, bitmap))


def features_request(version: int, xid: int) -> bytes:
    """Who are you?"""
    return message(version, Type.FEATURES_REQUEST, xid)


def set_config(version: int, xid: int, miss_send_len: int = 0xFFFF) -> bytes:
    """Send packets to us whole."""
    return message(version, Type.SET_CONFIG, xid, struct.pack(">HH", 0, miss_send_len))


def echo_request(version: int, xid: int, data: bytes = b"") -> bytes:
    """Are you there?"""
    return message(version, Type.ECHO_REQUEST, xid, data)


def echo_reply(version: int, xid: int, data: bytes) -> bytes:
    """Yes."""
    return message(version, Type.ECHO_REPLY, xid, data)


def barrier(version: int, xid: int) -> bytes:
    """Finish everything before, then answer."""
    return message(version, Type.BARRIER_REQUEST, xid)


def role_request(version: int, xid: int, generation: int) -> bytes:
    """Be the master: all others may only read from now on; refused if a later generation was."""
    return message(version, Type.ROLE_REQUEST, xid, _ROLE.pack(_MASTER, generation))


def multipart(version: int, xid: int, kind: Multipart, body: bytes = b"") -> bytes:
    """A question whose answer may come in parts."""
    return message(version, Type.MULTIPART_REQUEST, xid, struct.pack(">HH4x", kind, 0) + body)


def packet_out(version: int, xid: int, in_port: int, actions: bytes, data: bytes) -> bytes:
    """Let a switch send a packet."""
    length = 24 + len(actions) + len(data)
    if length > MAX_MESSAGE:
        raise CodecError(expected=f"at most {MAX_MESSAGE} bytes", got=length, where="packet out")
    head = _PACKET_OUT.pack(version, Type.PACKET_OUT, length, xid, NO_BUFFER, in_port, len(actions))
    return head + actions + data


#: Atomic and ordered: all or nothing, in the order given.
_FLAGS: Final = 3


def bundle_control(version: int, xid: int, bundle: int, step: Bundle) -> bytes:
    """Open, close, commit or discard a bundle."""
    body = _BUNDLE.pack(bundle, step, _FLAGS)
    if version == V13:
        return message(version, Type.EXPERIMENTER, xid, struct.pack(">II", ONF, ONF_BUNDLE_CONTROL) + body)
    return message(version, Type.BUNDLE_CONTROL, xid, body)


def bundle_add(version: int, xid: int, bundle: int, inner: bytes) -> bytes:
    """A message that waits in a bundle; its xid must be this one."""
    body = _BUNDLE.pack(bundle, 0, _FLAGS) + inner
    if version == V13:
        return message(version, Type.EXPERIMENTER, xid, struct.pack(">II", ONF, ONF_BUNDLE_ADD) + body)
    return message(version, Type.BUNDLE_ADD, xid, body)


# -- the switch's --------------------------------------------------------------------------------


def read_hello(found: Message) -> frozenset[int]:
    """The versions that the other side speaks: its bitmap, or without one all up to the header's."""
    body, at = found.body, 0
    while len(body) - at >= 8:
        kind, length, bitmap = _HELLO_BITMAP.unpack_from(body, at)
        if length < 4:
            raise CodecError(expected="a length of at least 4", got=length, where="hello element")
        if kind == 1:
            return frozenset(v for v in range(32) if bitmap >> v & 1)
        at += (length + 7) // 8 * 8
    return frozenset(range(1, found.version + 1))


def read_error(body: bytes) -> ErrorMessage:
    """An error."""
    _need(body, 4, "error")
    kind, code = struct.unpack_from(">HH", body)
    return ErrorMessage(kind, code, body[4:])


def read_features(body: bytes) -> Features:
    """A features reply."""
    _need(body, _FEATURES.size, "features")
    datapath, _buffers, tables, _auxiliary, capabilities, _reserved = _FEATURES.unpack_from(body)
    return Features(datapath, tables, capabilities)


def _port_13(body: bytes, at: int) -> tuple[Port, int]:
    number, mac, name, config, state = _PORT_13.unpack_from(body, at)
    return Port(number, mac, _name(name), not (config | state) & 1), at + _PORT_13.size


def _port_14(body: bytes, at: int) -> tuple[Port, int]:
    number, length, mac, name, config, state = _PORT_14.unpack_from(body, at)
    if not _PORT_14.size <= length <= len(body) - at:
        raise CodecError(expected=f"a length of {_PORT_14.size}..{len(body) - at}", got=length, where="port")
    return Port(number, mac, _name(name), not (config | state) & 1), at + length


def _name(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace")


def read_ports(version: int, body: bytes) -> list[Port]:
    """The ports of a port description (a multipart reply's body, its own head removed)."""
    read, least = (_port_14, _PORT_14.size) if version >= V14 else (_port_13, _PORT_13.size)
    ports, at = [], 0
    while at < len(body):
        _need(body[at:], least, "port")
        port, at = read(body, at)
        ports.append(port)
    return ports


def read_port_status(version: int, body: bytes) -> PortStatus:
    """News of a port."""
    _need(body, 8, "port status")
    ports = read_ports(version, body[8:])
    if len(ports) != 1:
        raise CodecError(expected="one port", got=len(ports), where="port status")
    return PortStatus(body[0], ports[0])


def read_packet_in(body: bytes) -> PacketIn:
    """A packet from a switch."""
    _need(body, _PACKET_IN.size, "packet in")
    _buffer, _total, _reason, table, cookie, kind, length = _PACKET_IN.unpack_from(body)
    fields = 16 + (length + 7) // 8 * 8
    if kind != 1 or length < 4 or len(body) < fields + 2:
        raise CodecError(
            expected="a match and a packet", got=f"`match type {kind}, length {length}`", where="packet in"
        )
    from sievenet.dataplane.openflow.oxm import read_fields

    found = read_fields(body[20 : 16 + length])
    in_port = found.get(0, (0, None))[0]
    return PacketIn(in_port, table, cookie, body[fields + 2 :])


def read_bundle(version: int, found: Message) -> BundleReply | None:
    """An answer about a bundle, or None if the message is another's extension."""
    body = found.body
    if version == V13:
        _need(body, 8, "experimenter")
        if struct.unpack_from(">II", body) != (ONF, ONF_BUNDLE_CONTROL):
            return None
        body = body[8:]
    _need(body, _BUNDLE.size, "bundle control")
    bundle, kind, _flags = _BUNDLE.unpack_from(body)
    return BundleReply(bundle, kind)
