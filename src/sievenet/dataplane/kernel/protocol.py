"""What the control plane and the agents of switches on other machines say to each other.

    agent of a switch                               control plane
      │  Hello(switch, interfaces, mtu)                │
      │ ─────────────────────────────────────────────▶ │   is there such a switch, with as many ports?
      │  Welcome(ports, capacity, lease)               │   or Failure, and the connection is closed
      │ ◀───────────────────────────────────────────── │
      │  Ready                                         │   the switch forwards; what it held before it holds still
      │ ─────────────────────────────────────────────▶ │
      │  Clients(order=1, all of them)                 │   who may send from where, as of now
      │ ◀───────────────────────────────────────────── │
      │  Carried(order=1)                              │   from here on the switch counts as up
      │ ─────────────────────────────────────────────▶ │
      │  Apply(order=2, changes), Read(…), …           │   orders are carried out one after the other, and answered
      │ ◀───────────────────────────────────────────── │   by Carried or Refused when they are in effect
      │  Carrier(port, up, carries), Cabled(…)         │   said unasked whenever a port fails or comes back, and
      │ ─────────────────────────────────────────────▶ │   when a switch is heard at the other end of its cable
      │  Leaving                                       │   the switch will be gone soon: it counts as lost from here on,
      │ ─────────────────────────────────────────────▶ │   and forwards for a while what is still under way

Frames, errors and roles are those of `sievenet.session`; whoever says hello here is a component.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.dataplane.plane import Count, PortCount, SwitchCounters
from sievenet.errors import CodecError
from sievenet.index import CODE_BITS, Cell, Dz
from sievenet.network.flow import Add, Delete, Flow, FlowChange, Match, Modify
from sievenet.session import message
from sievenet.session.message import Alive, Failure, Goodbye, Message, Number, Text
from sievenet.session.protocol import Protocol

__all__ = [
    "AGENTS",
    "PROTOCOL",
    "Apply",
    "Cabled",
    "Carried",
    "Carrier",
    "Client",
    "Clients",
    "Counted",
    "Hello",
    "Leave",
    "Leaving",
    "Permit",
    "Port",
    "Read",
    "Ready",
    "Refused",
    "Welcome",
    "changes_of",
    "counted",
    "counters_of",
    "packed",
    "unpacked",
    "wire_changes",
]

#: Version of everything in this module; both sides must have the same.
PROTOCOL: Final = 4
#: Bytes of the largest frame either way: a full table.
_LARGEST: Final = 1 << 27

_PortNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
#: Packets and bytes that came and went, and packets dropped.
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_WirePort = tuple[_Count, _Count, _Count, _Count, _Count]


class WireFlow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A flow; codes are wider than MessagePack's numbers."""

    category: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    value: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    mask: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    #: Bits of a cell's code; 0 for a dz.
    width: Annotated[int, msgspec.Meta(ge=0, le=CODE_BITS)]
    priority: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    #: 0 for any.
    in_port: _PortNumber
    #: 0, or that of its only port.
    table: _PortNumber
    ports: tuple[_PortNumber, ...]


class Port(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A port of a switch: whether a host is behind it, and the bits per second of its link (0: as many as it takes)."""

    number: _PortNumber
    host: bool
    bandwidth: float = 0.0


class Client(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who may send: a UDP port, behind which port of a switch, from which address, in which categories (None: any)."""

    number: _PortNumber
    port: _PortNumber
    address: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    categories: tuple[int, ...] | None = None


class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a switch has counted: flows with packets and bytes; ports with both of either way and what was dropped."""

    flows: tuple[tuple[WireFlow, _Count, _Count], ...]
    ports: dict[_PortNumber, _WirePort]
    #: Clients' ports that are gone, all together.
    departed: _WirePort
    reasons: Annotated[dict[Text, _Count], msgspec.Meta(max_length=256)]
    capacity: _Count | None = None


# -- what an agent says ----------------------------------------------------------------------------


class Hello(message.Hello, frozen=True):
    """An agent's first message; its name is that of its switch."""

    #: How many ports it has, numbered from 1, and the largest packet that fits all of them.
    interfaces: Number = 0
    mtu: Number = 0


class Ready(Message, frozen=True):
    """The switch is there."""


class Leaving(Message, frozen=True):
    """The switch will be gone soon."""


class Carrier(Message, frozen=True):
    """A port is up or not, and carries packets or not."""

    port: _PortNumber
    up: bool
    carries: bool


class Cabled(Message, frozen=True):
    """A port leads to a port of another switch, as that one says."""

    port: _PortNumber
    switch: Text
    other: _PortNumber


class Carried(Message, frozen=True):
    """An order is carried out and in effect; what was asked for."""

    order: Number
    answer: Any = None


class Refused(Message, frozen=True):
    """An order is not carried out."""

    order: Number
    reason: Failure


# -- what it is told -------------------------------------------------------------------------------


class Welcome(message.Welcome, frozen=True):
    """The switch is one of ours; what it has to be."""

    ports: tuple[Port, ...] = ()
    capacity: int | None = None


class Clients(Message, frozen=True):
    """All clients of this switch: who is not among them has left."""

    order: Number
    clients: tuple[Client, ...]


class Permit(Message, frozen=True):
    """One client more, or what it may do has changed."""

    order: Number
    client: Client


class Leave(Message, frozen=True):
    """A client has left."""

    order: Number
    number: _PortNumber


class Apply(Message, frozen=True):
    """Changes of the table: a letter (a, m, d) and a flow each; all or none."""

    order: Number
    changes: tuple[tuple[str, WireFlow], ...]


class Read(Message, frozen=True):
    """What the switch holds, or what it has counted."""

    order: Number
    counters: bool = False


AGENTS: Final = Protocol(
    name="switch agents",
    listener="control plane",
    version=PROTOCOL,
    scheme="sievenet-agent",
    hello=Hello,
    welcome=Welcome,
    taken=dict.fromkeys((Ready, Leaving, Carrier, Cabled, Carried, Refused, Goodbye, Alive), Role.COMPONENT),
    given=(Welcome, Clients, Permit, Leave, Apply, Read, Failure, Goodbye, Alive),
    largest=dict.fromkeys(Role, _LARGEST),
    max_given=_LARGEST,
)


# -- flows and bytes -------------------------------------------------------------------------------

_LETTERS: Final[Mapping[type[FlowChange], str]] = {Add: "a", Modify: "m", Delete: "d"}
_KINDS: Final = {letter: kind for kind, letter in _LETTERS.items()}


def packed(flow: Flow) -> WireFlow:
    """A flow as it travels."""
    value, mask = flow.match.bits
    cell = flow.match.cell
    return WireFlow(
        flow.match.category,
        value.to_bytes(16, "big"),
        mask.to_bytes(16, "big"),
        cell.width if isinstance(cell, Cell) else 0,
        flow.priority,
        flow.in_port or 0,
        flow.table,
        tuple(sorted(flow.ports)),
    )


def unpacked(wire: WireFlow) -> Flow:
    """The flow that travelled; `CodecError` if it is none."""
    value, mask = int.from_bytes(wire.value, "big"), int.from_bytes(wire.mask, "big")
    length = wire.width or mask.bit_count()
    shift = CODE_BITS - length
    whole = ((1 << length) - 1) << shift
    if value & ~mask or mask & ~whole or (not wire.width and mask != whole):
        raise CodecError(expected="a value under a mask", got=f"{value:x}/{mask:x}", where="flow")
    cell = Cell(value >> shift, mask >> shift, length) if wire.width else Dz(value >> shift, length)
    match = Match(wire.category, cell)
    return Flow(match, frozenset(wire.ports), wire.priority, wire.in_port or None, wire.table)


def wire_changes(changes: Iterable[FlowChange]) -> tuple[tuple[str, WireFlow], ...]:
    """Changes as they travel."""
    return tuple((_LETTERS[type(change)], packed(change.flow)) for change in changes)


def changes_of(wire: Iterable[tuple[str, WireFlow]]) -> list[FlowChange]:
    """The changes that travelled; `CodecError` if one is none."""
    found: list[FlowChange] = []
    for letter, flow in wire:
        kind = _KINDS.get(letter)
        if kind is None:
            raise CodecError(expected="a, m or d", got=letter, where="change")
        found.append(kind(unpacked(flow)))
    return found


def counted(counters: SwitchCounters, reasons: Mapping[str, int]) -> Counted:
    """Counters as they travel."""
    flows = []
    for key, count in counters.flows.items():
        flow = Flow(key.match, frozenset(), key.priority, key.in_port, key.table)
        flows.append((packed(flow), count.packets, count.bytes))
    ports = {number: _wire_port(port) for number, port in counters.ports.items()}
    return Counted(tuple(flows), ports, _wire_port(counters.departed), dict(reasons), counters.capacity)


def counters_of(wire: Counted) -> SwitchCounters:
    """The counters that travelled."""
    flows = {unpacked(flow).key: Count(packets, size) for flow, packets, size in wire.flows}
    ports = {number: _port_of(port) for number, port in wire.ports.items()}
    return SwitchCounters(flows, ports, wire.reasons.get("unmatched", 0), wire.capacity, _port_of(wire.departed))


def _wire_port(port: PortCount) -> _WirePort:
    return port.received.packets, port.received.bytes, port.sent.packets, port.sent.bytes, port.dropped


def _port_of(wire: _WirePort) -> PortCount:
    rp, rb, sp, sb, dropped = wire
    return PortCount(Count(rp, rb), Count(sp, sb), dropped)
