"""What switches answer when asked: their flows, ports, tables and groups.

Each function takes the joined bodies of a multipart answer (the parts' own heads removed) and yields what is in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.numbers import ANY, V14
from sievenet.errors import CodecError

__all__ = ["FlowEntry", "PortStatistics", "all_flows", "all_ports", "read_flows", "read_limits"]
__all__ += ["all_groups", "read_group_numbers", "read_groups", "read_port_statistics", "read_tables"]

_FLOW: Final = struct.Struct(">HBxIIHHHH4xQQQ")
_PORT_13: Final = struct.Struct(">I4xQQQQQQQQ")
_PORT_14: Final = struct.Struct(">H2xI8xQQQQQQQQ")
_TABLE: Final = struct.Struct(">B3xIQQ")
_GROUP: Final = struct.Struct(">H2xII4xQQ")
_LIMIT: Final = struct.Struct(">HB5x32sQQII")


class FlowEntry(NamedTuple):
    """An entry of a table, whoever put it there."""

    table: int
    priority: int
    cookie: int
    fields: dict[int, tuple[int, int | None]]
    ports: list[int]
    groups: list[int]
    packets: int
    bytes: int


class PortStatistics(NamedTuple):
    """What a port has counted."""

    number: int
    received: int
    sent: int
    received_bytes: int
    sent_bytes: int
    dropped: int


def all_flows(table: int, fields: oxm.Fields | None = None) -> bytes:
    """The question for the entries of a table, or for those that match nothing outside of these fields."""
    return struct.pack(">B3xII4xQQ", table, ANY, ANY, 0, 0) + oxm.match(fields or {})


def all_ports() -> bytes:
    """The question for every port."""
    return struct.pack(">I4x", ANY)


def all_groups(number: int = 0xFFFFFFFC) -> bytes:
    """The question for every group, or for one."""
    return struct.pack(">I4x", number)


def _chunks(body: bytes, least: int, what: str) -> Iterator[tuple[int, int]]:
    """Begin and end of things that start with their own length."""
    at, end = 0, len(body)
    while at < end:
        if end - at < least:
            raise CodecError(expected=f"{least} bytes", got=end - at, where=what)
        length = struct.unpack_from(">H", body, at)[0]
        if not least <= length <= end - at:
            raise CodecError(expected=f"a length of {least}..{end - at}", got=length, where=what)
        yield at, at + length
        at += length


def read_flows(body: bytes) -> Iterator[FlowEntry]:
    """The entries of an answer."""
    for at, end in _chunks(body, _FLOW.size + 8, "flow statistics"):
        _, table, _, _, priority, _, _, _, cookie, packets, size = _FLOW.unpack_from(body, at)
        rest = body[at + _FLOW.size : end]
        fields, after = oxm.read_match(rest, 0)
        ports, groups, _, _ = oxm.read_instructions(rest[after:])
        yield FlowEntry(table, priority, cookie, fields, ports, groups, packets, size)


def read_port_statistics(version: int, body: bytes) -> Iterator[PortStatistics]:
    """The ports of an answer."""
    if version >= V14:
        for at, _ in _chunks(body, _PORT_14.size, "port statistics"):
            _, *found = _PORT_14.unpack_from(body, at)
            yield _port(found)
        return
    if len(body) % 112:
        raise CodecError(expected="112 bytes for each port", got=len(body), where="port statistics")
    for at in range(0, len(body), 112):
        yield _port(list(_PORT_13.unpack_from(body, at)))


def _port(found: list[int]) -> PortStatistics:
    number, received, sent, received_bytes, sent_bytes, received_dropped, sent_dropped, _, _ = found
    none = (1 << 64) - 1  # "not supported"
    dropped = sum(count for count in (received_dropped, sent_dropped) if count != none)
    return PortStatistics(number, received, sent, received_bytes, sent_bytes, dropped)


def read_tables(body: bytes) -> dict[int, int]:
    """How many entries each table holds."""
    if len(body) % _TABLE.size:
        raise CodecError(expected=f"{_TABLE.size} bytes for each table", got=len(body), where="table statistics")
    return {table: active for table, active, _, _ in _TABLE.iter_unpack(body)}


def read_groups(body: bytes) -> dict[int, tuple[int, int]]:
    """Packets and bytes of each group."""
    found = {}
    for at, _ in _chunks(body, _GROUP.size, "group statistics"):
        _, number, _, packets, size = _GROUP.unpack_from(body, at)
        found[number] = (packets, size)
    return found


def read_limits(body: bytes) -> dict[int, int]:
    """How many entries fit into each table."""
    found = {}
    for at, _ in _chunks(body, _LIMIT.size, "table features"):
        _, table, _, _, _, _, most = _LIMIT.unpack_from(body, at)
        found[table] = most
    return found


def read_group_numbers(body: bytes) -> list[int]:
    """The groups of a description."""
    return [struct.unpack_from(">I", body, at + 4)[0] for at, _ in _chunks(body, 8, "group description")]
