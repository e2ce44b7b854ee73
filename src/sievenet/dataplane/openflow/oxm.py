"""Matches and actions of OpenFlow, as bytes.

    match    type 1 u16 | length u16 | fields … | zeros up to a multiple of 8
    field    class 0x8000 u16 | number u7, has mask u1 | length u8 | value | mask

Fields are read into ``{number: (value, mask)}``, the mask None for "all of it".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from sievenet.dataplane.openflow.numbers import Oxm
from sievenet.errors import CodecError

__all__ = [
    "SIZES",
    "Fields",
    "apply_actions",
    "forget_in_port",
    "goto",
    "group",
    "match",
    "output",
    "read_actions",
    "read_fields",
]
__all__ += ["mark", "read_instructions", "read_match", "set_field"]

Fields: TypeAlias = Mapping[int, tuple[int, int | None]]

#: Bytes of each field that we use.
SIZES: Final[dict[int, int]] = {
    Oxm.IN_PORT: 4,
    Oxm.METADATA: 8,
    Oxm.ETH_DST: 6,
    Oxm.ETH_TYPE: 2,
    Oxm.IP_DSCP: 1,
    Oxm.IP_PROTO: 1,
    Oxm.UDP_SRC: 2,
    Oxm.UDP_DST: 2,
    Oxm.IPV6_SRC: 16,
    Oxm.IPV6_DST: 16,
}
_BASIC: Final = 0x8000


def _field(number: int, value: int, mask: int | None) -> bytes:
    size = SIZES[number]
    if mask is None:
        return struct.pack(">HBB", _BASIC, number << 1, size) + value.to_bytes(size, "big")
    head = struct.pack(">HBB", _BASIC, number << 1 | 1, size * 2)
    return head + value.to_bytes(size, "big") + mask.to_bytes(size, "big")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def match(fields: Fields) -> bytes:
    """A match on these fields; the order given must put a field after those it needs."""
    body = b"".join(_field(number, value, mask) for number, (value, mask) in fields.items())
    return _padded(struct.pack(">HH", 1, 4 + len(body)) + body)


def read_fields(data: bytes) -> dict[int, tuple[int, int | None]]:
    """The fields in some bytes; those of other classes are given numbers beyond the basic ones."""
    found: dict[int, tuple[int, int | None]] = {}
    at, end = 0, len(data)
    while at < end:
        if end - at < 4:
            raise CodecError(expected="a field", got=f"`{end - at} bytes`", where="match")
        kind, number, size = struct.unpack_from(">HBB", data, at)
        at += 4
        masked = number & 1
        if size > end - at or (masked and size % 2):
            raise CodecError(expected=f"{size} bytes of a field", got=end - at, where="match")
        key = number >> 1 if kind == _BASIC else kind << 8 | number >> 1
        if kind == _BASIC and key in SIZES and size != SIZES[key] << masked:
            raise CodecError(expected=f"{SIZES[key] << masked} bytes", got=size, where=f"field {key}")
        half = size // 2 if masked else size
        value = int.from_bytes(data[at : at + half], "big")
        mask = int.from_bytes(data[at + half : at + size], "big") if masked else None
        found[key] = (value, mask)
        at += size
    return found


def read_match(data: bytes, at: int) -> tuple[dict[int, tuple[int, int | None]], int]:
    """The match at an offset, and the offset behind it."""
    if len(data) - at < 4:
        raise CodecError(expected="a match", got=f"`{len(data) - at} bytes`", where="match")
    kind, length = struct.unpack_from(">HH", data, at)
    after = at + (length + 7) // 8 * 8
    if kind != 1 or length < 4 or after > len(data):
        raise CodecError(expected="a match of fields", got=f"`type {kind}, length {length}`", where="match")
    return read_fields(data[at + 4 : at + length]), after


# -- actions -------------------------------------------------------------------------------------


def output(port: int) -> bytes:
    """Send by a port; whole if it is the controller's."""
    return struct.pack(">HHIH6x", 0, 16, port, 0xFFFF)


def group(number: int) -> bytes:
    """Do what a group says."""
    return struct.pack(">HHI", 22, 8, number)


def set_field(number: int, value: int) -> bytes:
    """Change a field of the packet."""
    field = _field(number, value, None)
    length = (4 + len(field) + 7) // 8 * 8
    return (struct.pack(">HH", 25, length) + field).ljust(length, b"\0")


def forget_in_port() -> bytes:
    """Open vSwitch's own: the packet came in nowhere, so that it may leave by any port."""
    # Load 0 into the 16 bits of its field NXM_OF_IN_PORT; the standard's way to set fields refuses this one.
    return struct.pack(">HHIHHIQ", 0xFFFF, 24, 0x2320, 7, 15, 0x00000002, 0)


def apply_actions(actions: Iterable[bytes]) -> bytes:
    """The instruction to act at once; none for no actions."""
    body = b"".join(actions)
    return struct.pack(">HH4x", 4, 8 + len(body)) + body if body else b""


def goto(table: int) -> bytes:
    """The instruction to go on in a later table."""
    return struct.pack(">HHB3x", 1, 8, table)


def mark(bits: int) -> bytes:
    """The instruction to set these bits of a packet's metadata, which later tables see."""
    return struct.pack(">HH4xQQ", 2, 24, bits, bits)


def _items(data: bytes, what: str) -> Iterable[tuple[int, bytes]]:
    """Things that begin with a type and a length that is a multiple of eight."""
    at, end = 0, len(data)
    while at < end:
        if end - at < 8:
            raise CodecError(expected=f"an {what}", got=f"`{end - at} bytes`", where=what)
        kind, length = struct.unpack_from(">HH", data, at)
        if length < 8 or length % 8 or length > end - at:
            raise CodecError(expected="a length in eights that fits", got=length, where=what)
        yield kind, data[at + 4 : at + length]
        at += length


def read_actions(data: bytes) -> tuple[list[int], list[int], bool]:
    """``(ports, groups, whether that was all)`` of some actions."""
    ports, groups, only = [], [], True
    for kind, body in _items(data, "action"):
        if kind == 0 and len(body) >= 4:
            ports.append(struct.unpack_from(">I", body)[0])
        elif kind == 22:
            groups.append(struct.unpack_from(">I", body)[0])
        else:
            only = False
    return ports, groups, only


def read_instructions(data: bytes) -> tuple[list[int], list[int], int | None, bool]:
    """``(ports, groups, next table, whether that was all)`` of some instructions."""
    ports: list[int] = []
    groups: list[int] = []
    table, only = None, True
    for kind, body in _items(data, "instruction"):
        if kind == 4:
            more_ports, more_groups, all_known = read_actions(body[4:])
            ports += more_ports
            groups += more_groups
            only = only and all_known
        elif kind == 1:
            table = body[0]
        elif kind != 2:
            only = False
    return ports, groups, table, only
