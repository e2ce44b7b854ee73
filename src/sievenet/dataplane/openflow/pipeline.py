"""What our flows are in a real switch: which tables, fields, groups and priorities.

                 table 0: admission                         table 1: content
    packet ──▶ from a link, or from an attached ──▶ fd0e:<category>:<code>/<mask> ──▶ output: a link's port
               client's address and UDP port?        longest dz first                 group: a client's port
                 │ no: dropped                         │ none: dropped, counted

Content is the destination address (`index.address`), so that one flow of ours is one entry of the switch, and one
entry is one cached megaflow in Open vSwitch: nothing of the address is ever rewritten.

    IPv6 destination   fd0e | category 16 | code bits 0..95
    UDP destination    1 | code bits 96..110        codes are rarely so long, so that this is 0x8000
    DSCP               code bit 111

Clients of a host share its port of the switch.  Each has a *port number* of its own from 1000 up, which is three things
at once: the UDP port that its packets come from, the one that they are sent to at the last hop, and the number of the
group that does so (one bucket: set the UDP port, send to the host).  A client that has left leaves a group without
buckets, into which packets vanish.  Packets between two clients of one host go back out of the port that they came in
by, which OpenFlow forbids; the bucket makes the switch forget the in-port, which Open vSwitch allows.

A flow's priority is one higher in the switch, since 0 is the entry that counts what nobody wanted.  The cookie tells
our entries from others and holds the width of a cell, which its mask does not tell.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.numbers import ANY, CONTROLLER, NO_BUFFER, Command, Oxm, Type
from sievenet.errors import InvalidInput
from sievenet.index import Cell, Dz
from sievenet.index.address import IPV6
from sievenet.network.flow import CODE_BITS, Add, Delete, Flow, FlowChange, Match
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["ADMISSION", "CONTENT", "CONTENT_PORT", "CONTENT_PREFIX", "CONTROL_ADDRESS", "Entry", "Translator"]
__all__ += ["MAX_CODE", "address_of", "admit_client", "admit_link", "delete_all", "group_mod", "punt", "unwanted"]

ADMISSION: Final = 0
CONTENT: Final = 1
#: Content addresses: unique local unicast, so that hosts need neither multicast groups nor rewriting.
CONTENT_PREFIX: Final = int(IPV6.base.network_address) >> 112
#: Where a host reaches the control plane through its switch.
CONTROL_ADDRESS: Final = 0xFD0F << 112 | 1
#: The UDP port of packets with codes of up to 96 bits.
CONTENT_PORT: Final = 0x8000
#: Bits of code that fit into a packet's head.
MAX_CODE: Final = 112

_COOKIE: Final = 0x53560001 << 32
_OWN: Final = 0x53560000 << 32
_OWN_MASK: Final = 0xFFFF0000 << 32
_IPV6: Final = 0x86DD
_UDP: Final = 17
_LLDP: Final = 0x88CC
_LOW96: Final = (1 << 96) - 1
_TOP32: Final = 0xFFFFFFFF << 96

_MOD: Final = struct.Struct(">BBHIQQBBHHHIIIHH")
#: The common case in one go: type of frame and destination under a mask.
_PLAIN: Final = struct.Struct(">HHHBBHHBB16s16s2x")
_RESET_COUNTS: Final = 4


class Entry(NamedTuple):
    """A flow of ours as the switch holds it."""

    flow: Flow
    packets: int
    bytes: int


def address_of(category: int, code: int) -> tuple[int, int, int]:
    """``(IPv6 destination, UDP port, DSCP)`` of a packet with this (left-aligned) code."""
    if code & 0xFFFF:
        raise InvalidInput(expected=f"a code of at most {MAX_CODE} bits", got=hex(code), where="address")
    tail = code >> 16 & 0xFFFF
    return CONTENT_PREFIX << 112 | category << 96 | code >> 32, CONTENT_PORT | tail >> 1, tail & 1


def _flow_mod(
    version: int, xid: int, command: int, table: int, priority: int, match: bytes, rest: bytes, cookie: int, flags: int
) -> bytes:
    length = 48 + len(match) + len(rest)
    head = _MOD.pack(
        version, Type.FLOW_MOD, length, xid, cookie, 0, table, command, 0, 0, priority, NO_BUFFER, ANY, ANY, flags, 0
    )
    return head + match + rest


@lru_cache(maxsize=4096)
def _instructions(ports: frozenset[int]) -> bytes:
    """Links first: a group works on a copy, so that the order does not matter, but let it be the same always."""
    actions = [oxm.output(port) if port < CLIENT_PORTS else oxm.group(port) for port in sorted(ports)]
    return oxm.apply_actions(actions)


class Translator:
    """Flows to entries of one switch and back.

    It knows behind which port of the switch each client's port number is, also for clients that have left: their flows
    may outlive them and have to be named to be deleted.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.home: dict[int, int] = {}

    def encode(self, change: FlowChange, xid: int) -> bytes:
        """The message that carries out a change."""
        flow = change.flow
        value, mask = flow.match.bits
        if flow.priority > 0xFFFE or flow.table or mask & 0xFFFF:
            raise InvalidInput(
                expected=f"priority up to 65534, table 0, at most {MAX_CODE} bits", got=str(flow), where="flow"
            )
        address = (CONTENT_PREFIX << 112 | flow.match.category << 96 | value >> 32).to_bytes(16, "big")
        covered = (_TOP32 | mask >> 32).to_bytes(16, "big")
        if flow.in_port is None and not mask & 0xFFFFFFFF:
            match = _PLAIN.pack(1, 46, 0x8000, Oxm.ETH_TYPE << 1, 2, _IPV6, 0x8000, 0x37, 32, address, covered)
        else:
            match = oxm.match(self._fields(flow, value, mask))
        cell = flow.match.cell
        cookie = _COOKIE | (cell.width if isinstance(cell, Cell) else 0)
        if isinstance(change, Delete):
            return _flow_mod(self.version, xid, Command.DELETE_STRICT, CONTENT, flow.priority + 1, match, b"", 0, 0)
        # Replacing without resetting is what a modification is, and it also works if somebody removed the flow.
        flags = _RESET_COUNTS if isinstance(change, Add) else 0
        rest = _instructions(flow.ports)
        return _flow_mod(self.version, xid, Command.ADD, CONTENT, flow.priority + 1, match, rest, cookie, flags)

    def _fields(self, flow: Flow, value: int, mask: int) -> oxm.Fields:
        fields: dict[int, tuple[int, int | None]] = {}
        client = flow.in_port is not None and flow.in_port >= CLIENT_PORTS
        if flow.in_port is not None:
            # A client that nobody knows cannot send: port 0 is nobody's.
            fields[Oxm.IN_PORT] = (self.home.get(flow.in_port, 0) if client else flow.in_port, None)
        fields[Oxm.ETH_TYPE] = (_IPV6, None)
        tail, tail_mask = value >> 16 & 0xFFFF, mask >> 16 & 0xFFFF
        if tail_mask & 1:
            fields[Oxm.IP_DSCP] = (tail & 1, None)
        if client or tail_mask >> 1:
            fields[Oxm.IP_PROTO] = (_UDP, None)
        address = CONTENT_PREFIX << 112 | flow.match.category << 96 | value >> 32
        fields[Oxm.IPV6_DST] = (address, _TOP32 | mask >> 32)
        if client:
            assert flow.in_port is not None
            fields[Oxm.UDP_SRC] = (flow.in_port, None)
        if tail_mask >> 1:
            fields[Oxm.UDP_DST] = (tail >> 1, tail_mask >> 1)
        return fields

    def decode(
        self, priority: int, cookie: int, fields: oxm.Fields, ports: list[int], groups: list[int]
    ) -> Flow | None:
        """The flow that an entry of the content table is, or None if it is none of ours."""
        known = {Oxm.IN_PORT, Oxm.ETH_TYPE, Oxm.IP_DSCP, Oxm.IP_PROTO, Oxm.IPV6_DST, Oxm.UDP_SRC, Oxm.UDP_DST}
        address, covered = fields.get(Oxm.IPV6_DST, (0, 0))
        if covered is None:
            covered = (1 << 128) - 1
        if priority == 0 or covered >> 96 != 0xFFFFFFFF or address >> 112 != CONTENT_PREFIX or not known >= set(fields):
            return None
        value, mask = (address & _LOW96) << 32, (covered & _LOW96) << 32
        tail, tail_mask = fields.get(Oxm.UDP_DST, (0, 0))
        tail_mask = 0x7FFF if tail_mask is None else tail_mask & 0x7FFF
        value |= (tail & tail_mask) << 17
        mask |= tail_mask << 17
        if Oxm.IP_DSCP in fields:
            value |= (fields[Oxm.IP_DSCP][0] & 1) << 16
            mask |= 1 << 16
        in_port = fields[Oxm.IN_PORT][0] if Oxm.IN_PORT in fields else None
        if Oxm.UDP_SRC in fields:
            home, in_port = in_port, fields[Oxm.UDP_SRC][0]
            self.home.setdefault(in_port, home or 0)
        width = cookie & 0xFF if cookie & ~0xFF == _COOKIE else 0
        # What a switch says is not trusted to be what we would have said.
        cell = _cell(value & mask, mask, width if width <= MAX_CODE else 0)
        return Flow(Match(address >> 96 & 0xFFFF, cell), frozenset((*ports, *groups)), priority - 1, in_port)


def _cell(value: int, mask: int, width: int) -> Dz | Cell:
    length = mask.bit_count()
    if mask == (1 << CODE_BITS) - (1 << (CODE_BITS - length)) and not width:
        return Dz(value >> (CODE_BITS - length), length)
    least = CODE_BITS - ((mask & -mask).bit_length() - 1) if mask else 0
    width = max(width, least)
    return Cell(value >> (CODE_BITS - width), mask >> (CODE_BITS - width), width)


# -- the entries around content --------------------------------------------------------------------


def _entry(version: int, xid: int, table: int, priority: int, fields: oxm.Fields, rest: bytes, command: int) -> bytes:
    return _flow_mod(version, xid, command, table, priority, oxm.match(fields), rest, _OWN, 0)


_CONTENT_FIELD: Final = (CONTENT_PREFIX << 112, 0xFFFF << 112)


def admit_link(version: int, xid: int, port: int, *, leave: bool = False) -> bytes:
    """Let content in from another switch, or no more."""
    fields: oxm.Fields = {Oxm.IN_PORT: (port, None), Oxm.ETH_TYPE: (_IPV6, None), Oxm.IPV6_DST: _CONTENT_FIELD}
    if leave:
        return _entry(version, xid, ADMISSION, 10, fields, b"", Command.DELETE_STRICT)
    return _entry(version, xid, ADMISSION, 10, fields, oxm.goto(CONTENT), Command.ADD)


def admit_client(
    version: int, xid: int, home: int, port: int, *, source: int | None = None, leave: bool = False
) -> bytes:
    """Let content in from a client's own UDP port (and its host's address, where that is known), or no more."""
    fields: oxm.Fields = {
        Oxm.IN_PORT: (home, None),
        Oxm.ETH_TYPE: (_IPV6, None),
        Oxm.IP_PROTO: (_UDP, None),
        Oxm.IPV6_DST: _CONTENT_FIELD,
        Oxm.UDP_SRC: (port, None),
    }
    if source is not None:
        fields = {**fields, Oxm.IPV6_SRC: (source, None)}
    if leave:
        return _entry(version, xid, ADMISSION, 20, fields, b"", Command.DELETE_STRICT)
    return _entry(version, xid, ADMISSION, 20, fields, oxm.goto(CONTENT), Command.ADD)


def admitted_client(priority: int, fields: oxm.Fields) -> int | None:
    """The client's port number that an entry of the admission table lets in, if it is such an entry."""
    return fields[Oxm.UDP_SRC][0] if priority == 20 and Oxm.UDP_SRC in fields else None


def punt(version: int, xid: int, number: int) -> bytes:
    """Send link discovery (number 0) and in-band control (number 1) to the controller."""
    fields: oxm.Fields
    if number == 0:
        fields = {Oxm.ETH_TYPE: (_LLDP, None)}
    else:
        fields = {Oxm.ETH_TYPE: (_IPV6, None), Oxm.IPV6_DST: (CONTROL_ADDRESS, None)}
    rest = oxm.apply_actions([oxm.output(CONTROLLER)])
    # Below those that admit content: a switch that has found one of them looks no further, and its cache need not tell
    # content from what goes to the controller bit by bit.
    return _entry(version, xid, ADMISSION, 1 + number, fields, rest, Command.ADD)


def unwanted(version: int, xid: int) -> bytes:
    """The entry that counts what no flow wanted."""
    return _entry(version, xid, CONTENT, 0, {}, b"", Command.ADD)


def delete_all(version: int, xid: int, table: int) -> bytes:
    """Empty a table."""
    return _flow_mod(version, xid, Command.DELETE, table, 0, oxm.match({}), b"", 0, 0)


def group_mod(version: int, xid: int, number: int, home: int | None, *, known: bool) -> bytes:
    """The group of a client's port number: to its host, or with no home nowhere."""
    bucket = b""
    if home is not None:
        actions = oxm.forget_in_port() + oxm.set_field(Oxm.UDP_DST, number) + oxm.output(home)
        bucket = struct.pack(">HHII4x", 16 + len(actions), 0, ANY, ANY) + actions
    body = struct.pack(">HBxI", 1 if known else 0, 0, number) + bucket
    return struct.pack(">BBHI", version, Type.GROUP_MOD, 8 + len(body), xid) + body
