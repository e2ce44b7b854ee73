"""What our flows are in a real switch: fields, groups and cookies (tables and priorities: `tables`).

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

The cookie tells our entries from others and holds the width of a cell, which its mask does not tell.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.numbers import ANY, NO_BUFFER, Command, Oxm, Type
from sievenet.dataplane.openflow.ports import PortTables
from sievenet.dataplane.openflow.statistics import FlowEntry
from sievenet.dataplane.openflow.tables import MARK, RULES, Rule, Table
from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, MAX_BITS, Cell, Dz
from sievenet.index.address import CONTENT_PREFIX, IPV6
from sievenet.network.flow import Add, Delete, Flow, FlowChange, Match
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["CONTROL_ADDRESS", "CountedFlow", "Translator", "admit_client", "admit_link", "admitted_client"]
__all__ += ["admitted_link", "delete_entry", "from_client", "group_mod", "masked", "past", "punt"]
__all__ += ["unwanted", "unwanted_rest"]

#: Where a host reaches the control plane through its switch.
CONTROL_ADDRESS: Final = 0xFD0F << 112 | 1

_COOKIE: Final = 0x53560001 << 32
_OWN: Final = 0x53560000 << 32
_OWN_MASK: Final = 0xFFFF0000 << 32
_IPV6: Final = 0x86DD
_UDP: Final = 17
_LLDP: Final = 0x88CC
_CODE: Final = (1 << IPV6.bits) - 1
_FIXED: Final = (1 << IPV6.width) - 1 ^ _CODE
_BELOW: Final = CODE_BITS - IPV6.bits
_CONTENT: Final = RULES["content"]
_CELL: Final = RULES["cell"]
#: The highest priority of a flow: one above it is for cells, two above for cells of an unusual priority.
_HIGHEST: Final = 0xFFFD

_MOD: Final = struct.Struct(">BBHIQQBBHHHIIIHH")
#: The common case in one go: type of frame and destination under a mask.
_PLAIN: Final = struct.Struct(">HHHBBHHBB16s16s2x")
_RESET_COUNTS: Final = 4


class CountedFlow(NamedTuple):
    """A flow of ours as the switch holds it."""

    flow: Flow
    packets: int
    bytes: int


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


@lru_cache(maxsize=4096)
def _passing(port: int, table: int) -> bytes:
    """Send by a port, and go on in the next table all the same."""
    return _instructions(frozenset((port,))) + oxm.mark(MARK) + oxm.goto(table + 1)


class Translator:
    """Flows to entries of one switch and back.

    It knows behind which port of the switch each client's port number is, also for clients that have left: their flows
    may outlive them and have to be named to be deleted.  And it knows which table each out port has (`tables`).
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.home: dict[int, int] = {}
        self.tables = PortTables()

    def encode(self, change: FlowChange, xid: int) -> bytes:
        """The message that carries out a change."""
        flow = change.flow
        value, mask = flow.match.bits
        if flow.priority > _HIGHEST or mask & 0xFFFF or (flow.table and flow.ports != {flow.table}):
            raise InvalidInput(
                expected=f"priority up to {_HIGHEST}, at most {MAX_BITS} bits, table 0 or that of its only port",
                got=str(flow),
                where="flow",
            )
        table, priority = int(_CONTENT.table), flow.priority + 1
        if flow.table:
            # A port without a table has nothing to delete, wherever that is looked for.
            of = self.tables.of
            table = of.get(flow.table, int(Table.REST)) if isinstance(change, Delete) else of[flow.table]
            priority = 1 if flow.priority == mask.bit_count() else flow.priority + 2
        if flow.in_port is None and not mask & 0xFFFFFFFF:
            address = (IPV6.head(flow.match.category) | value >> _BELOW).to_bytes(16, "big")
            covered = (_FIXED | mask >> _BELOW).to_bytes(16, "big")
            match = _PLAIN.pack(1, 46, 0x8000, Oxm.ETH_TYPE << 1, 2, _IPV6, 0x8000, 0x37, 32, address, covered)
        else:
            rule = _CELL if flow.table else _CONTENT
            match = oxm.match(rule.checked(priority, self._fields(flow, value, mask)))
        cell = flow.match.cell
        cookie = _COOKIE | (cell.width if isinstance(cell, Cell) else 0)
        if isinstance(change, Delete):
            return _flow_mod(self.version, xid, Command.DELETE_STRICT, table, priority, match, b"", 0, 0)
        # Replacing without resetting is what a modification is, and it also works if somebody removed the flow.
        flags = _RESET_COUNTS if isinstance(change, Add) else 0
        rest = _passing(flow.table, table) if flow.table else _instructions(flow.ports)
        return _flow_mod(self.version, xid, Command.ADD, table, priority, match, rest, cookie, flags)

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
        fields[Oxm.IPV6_DST] = (IPV6.head(flow.match.category) | value >> _BELOW, _FIXED | mask >> _BELOW)
        if client:
            assert flow.in_port is not None
            fields[Oxm.UDP_SRC] = (flow.in_port, None)
        if tail_mask >> 1:
            fields[Oxm.UDP_DST] = (tail >> 1, tail_mask >> 1)
        return fields

    def decode(self, entry: FlowEntry) -> Flow | None:
        """The flow that an entry is, or None if it is none of ours, or of a port whose table is another."""
        fields, ports = entry.fields, frozenset((*entry.ports, *entry.groups))
        known = _CONTENT.fields | _CONTENT.optional
        address, covered = fields.get(Oxm.IPV6_DST, (0, 0))
        if covered is None:
            covered = _FIXED | _CODE
        if entry.priority == 0 or covered & _FIXED != _FIXED or address >> 112 != CONTENT_PREFIX:
            return None
        if not known >= set(fields):
            return None
        value, mask = (address & _CODE) << _BELOW, (covered & _CODE) << _BELOW
        tail, tail_mask = fields.get(Oxm.UDP_DST, (0, 0))
        tail_mask = 0x7FFF if tail_mask is None else tail_mask & 0x7FFF
        value |= (tail & tail_mask) << 17
        mask |= tail_mask << 17
        if Oxm.IP_DSCP in fields:
            value |= (fields[Oxm.IP_DSCP][0] & 1) << 16
            mask |= 1 << 16
        table, priority = 0, entry.priority - 1
        if entry.table != Table.CONTENT:
            table = min(ports, default=0)
            if len(ports) != 1 or self.tables.of.get(table) != entry.table:
                return None
            priority = entry.priority - 2 if entry.priority > 1 else mask.bit_count()
        in_port = fields[Oxm.IN_PORT][0] if Oxm.IN_PORT in fields else None
        if Oxm.UDP_SRC in fields:
            home, in_port = in_port, fields[Oxm.UDP_SRC][0]
            self.home.setdefault(in_port, home or 0)
        width = entry.cookie & 0xFF if entry.cookie & ~0xFF == _COOKIE else 0
        # What a switch says is not trusted to be what we would have said.
        cell = _cell(value & mask, mask, width if width <= MAX_BITS else 0)
        return Flow(Match(address >> 96 & 0xFFFF, cell), ports, priority, in_port, table)


def _cell(value: int, mask: int, width: int) -> Dz | Cell:
    length = mask.bit_count()
    if mask == (1 << CODE_BITS) - (1 << (CODE_BITS - length)) and not width:
        return Dz(value >> (CODE_BITS - length), length)
    least = CODE_BITS - ((mask & -mask).bit_length() - 1) if mask else 0
    width = max(width, least)
    return Cell(value >> (CODE_BITS - width), mask >> (CODE_BITS - width), width)


# -- the entries around content --------------------------------------------------------------------


def _entry(version: int, xid: int, rule: Rule, fields: oxm.Fields, leave: bool = False) -> bytes:
    """The message that adds an entry of this kind, or takes it away."""
    match = oxm.match(rule.checked(rule.priority, fields))
    command, rest = (Command.DELETE_STRICT, b"") if leave else (Command.ADD, rule.rest)
    return _flow_mod(version, xid, command, rule.table, rule.priority, match, rest, _OWN, 0)


_ANY_CONTENT: Final = (CONTENT_PREFIX << 112, 0xFFFF << 112)


def admit_link(version: int, xid: int, port: int, *, leave: bool = False) -> bytes:
    """Let content in from another switch, or no more."""
    fields: oxm.Fields = {Oxm.IN_PORT: (port, None), Oxm.ETH_TYPE: (_IPV6, None), Oxm.IPV6_DST: _ANY_CONTENT}
    return _entry(version, xid, RULES["link"], fields, leave)


def admit_client(
    version: int, xid: int, home: int, port: int, *, source: int | None = None, leave: bool = False
) -> bytes:
    """Let content in from a client's own UDP port (and its host's address, where that is known), or no more."""
    fields = from_client(home, port)
    if source is not None:
        fields = {**fields, Oxm.IPV6_SRC: (source, None)}
    return _entry(version, xid, RULES["client"], fields, leave)


def from_client(home: int, port: int) -> oxm.Fields:
    """What content from a client's own UDP port looks like."""
    return {
        Oxm.IN_PORT: (home, None),
        Oxm.ETH_TYPE: (_IPV6, None),
        Oxm.IP_PROTO: (_UDP, None),
        Oxm.IPV6_DST: _ANY_CONTENT,
        Oxm.UDP_SRC: (port, None),
    }


def admitted_client(priority: int, fields: oxm.Fields) -> int | None:
    """The client's port number that an entry of the admission table lets in, if it is such an entry."""
    return fields[Oxm.UDP_SRC][0] if priority == RULES["client"].priority and Oxm.UDP_SRC in fields else None


def admitted_link(priority: int, fields: oxm.Fields) -> int:
    """The port that an entry of the admission table lets content of another switch in by; 0 if it is no such entry."""
    return fields[Oxm.IN_PORT][0] if priority == RULES["link"].priority and Oxm.IN_PORT in fields else 0


def punt(version: int, xid: int, kind: str) -> bytes:
    """Send link discovery (``"discovery"``) or in-band control (``"control"``) to the controller."""
    fields: oxm.Fields = {Oxm.ETH_TYPE: (_LLDP, None)}
    if kind == "control":
        fields = {Oxm.ETH_TYPE: (_IPV6, None), Oxm.IPV6_DST: (CONTROL_ADDRESS, None)}
    return _entry(version, xid, RULES[kind], fields)


def unwanted(version: int, xid: int, *, masked: bool) -> bytes:
    """The entry that counts what no flow wanted, or leads it on to the tables of cells."""
    onward = oxm.goto(Table.MASKED) if masked else b""
    return _flow_mod(version, xid, Command.ADD, Table.CONTENT, 0, oxm.match({}), onward, _OWN, 0)


def unwanted_rest(version: int, xid: int, kind: str) -> bytes:
    """The entries that count what no cell wanted: of a category without (``"unmasked"``), or with (``"unmarked"``)."""
    fields: oxm.Fields = {Oxm.METADATA: (0, None)} if kind == "unmarked" else {}
    return _entry(version, xid, RULES[kind], fields)


def masked(version: int, xid: int, category: int) -> bytes:
    """Lead a category to the tables of the ports."""
    fields: oxm.Fields = {Oxm.ETH_TYPE: (_IPV6, None), Oxm.IPV6_DST: (IPV6.head(category), _FIXED)}
    return _entry(version, xid, RULES["masked"], fields)


def past(version: int, xid: int, table: int, onward: int) -> bytes:
    """Where a packet goes on that met nothing in a port's table."""
    return _flow_mod(version, xid, Command.ADD, table, 0, oxm.match({}), oxm.goto(onward), _OWN, 0)


def delete_entry(version: int, xid: int, entry: FlowEntry) -> bytes:
    """Remove an entry, whosesoever it is."""
    return _flow_mod(
        version, xid, Command.DELETE_STRICT, entry.table, entry.priority, oxm.match(entry.fields), b"", 0, 0
    )


def group_mod(version: int, xid: int, number: int, home: int | None, *, known: bool) -> bytes:
    """The group of a client's port number: to its host, or with no home nowhere."""
    bucket = b""
    if home is not None:
        actions = oxm.forget_in_port() + oxm.set_field(Oxm.UDP_DST, number) + oxm.output(home)
        bucket = struct.pack(">HHII4x", 16 + len(actions), 0, ANY, ANY) + actions
    body = struct.pack(">HBxI", 1 if known else 0, 0, number) + bucket
    return struct.pack(">BBHI", version, Type.GROUP_MOD, 8 + len(body), xid) + body
