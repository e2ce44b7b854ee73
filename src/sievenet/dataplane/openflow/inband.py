"""In-band control: a host reaches the control plane through its own switch, and needs no other network.

                      ┌─ access switch ─┐   packet in    ┌──────────────── controller ────────────────┐
    host ── to fd0f::1 ─▶ one entry ────┼──────────────▶ │ Ferry ──▶ tunnel ──▶ TCP of the system ──▶ server
    host ◀──────────────── its port ◀───┼──────────────  │ Ferry ◀── tunnel ◀── of this machine           │
                      └─────────────────┘   packet out   └────────────────────────────────────────────┘

Frames to the reserved address are given to the controller by the switch where they come in.  The controller hands the
packets inside to its own system by a tunnel device, behind which the daemon listens at that address; what the system
answers goes back by the port where the host was last heard.  So the conversation is TCP from end to end: order, loss,
windows and half-dead peers are what the systems at both ends have always dealt with, and a client is the ordinary one
with another URL (``sievenet://[fd0f::1]:7400``).

Nothing of this may be believed.  A frame counts only if it comes from a port where a host is, is whole, short, TCP or
an echo request, and from an address of the hosts' own prefix; an address that was heard at one port within `STAY`
seconds is not believed at another, so that no host speaks for its neighbour; and per port there is a rate, so that
no host keeps the controller busy.  What is not carried is counted by reason.

`Ferry` is pure; `InBand` is the shell around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, NamedTuple

from sievenet.dataplane.hosts import CONTROL, MAC, OWN
from sievenet.dataplane.openflow.messages import PacketIn
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane

__all__ = ["LONGEST", "STAY", "Ferry", "InBand", "Place"]

#: Bytes of the longest packet that is carried; the tunnel tells both ends to send none that are longer.
LONGEST: Final = 1400
#: Seconds since it was last heard for which an address belongs to one port.
STAY: Final = 30.0
#: Packets per second and at once that one port may send us.
RATE: Final = 2_000.0
BURST: Final = 1_000.0
#: Addresses that are remembered; of more, the one unheard for longest is forgotten.
KNOWN: Final = 65_536
#: Packets of the system that are carried before others get their turn.
_TURN: Final = 64

_ETHERNET: Final = struct.Struct(">6s6sH")
_IPV6: Final = struct.Struct(">IHBB16s16s")
_TYPE: Final = 0x86DD
_TCP, _ICMP, _ECHO = 6, 58, 128
_CONTROL: Final = CONTROL.packed
_OWN: Final = OWN.network_address.packed[:2]
_MAC: Final = bytes.fromhex(MAC.replace(":", ""))


class Place(NamedTuple):
    """A port of a switch."""

    switch: str
    port: int


@dataclass(slots=True)
class _Known:
    place: Place
    mac: bytes
    heard: float


class Ferry:
    """Frames of hosts in, packets for the control plane out, and back."""

    def __init__(self, known: int = KNOWN) -> None:
        self._limit = known
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        #: Per port what it may still send, and as of when.
        self._allowed: dict[Place, tuple[float, float]] = {}
        #: Packets carried to us and to hosts.
        self.inward_packets = self.outward_packets = 0
        #: Frames and packets that were not carried, by reason.
        self.refused: Counter[str] = Counter()

    def inward(self, place: Place, frame: bytes, now: float) -> bytes | None:
        """The packet that a host sends to the control plane by a frame that came in there, or None."""
        reason, packet = self._opened(frame)
        if not reason and not self._may(place, now):
            reason = "too fast"
        if not reason:
            source, known = packet[8:24], self._known.get(packet[8:24])
            if known is not None and known.place != place and now - known.heard < STAY:
                reason = "somebody else's address"
        if reason:
            self.refused[reason] += 1
            return None
        self._known[source] = _Known(place, frame[6:12], now)
        self._known.move_to_end(source)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        self.inward_packets += 1
        return packet

    @staticmethod
    def _opened(frame: bytes) -> tuple[str, bytes]:
        """Why not, or the packet in a frame without what pads it."""
        head = _ETHERNET.size + _IPV6.size
        if len(frame) <= head:
            return "short", b""
        _, mac, kind = _ETHERNET.unpack_from(frame)
        first, length, protocol, _, source, target = _IPV6.unpack_from(frame, _ETHERNET.size)
        if kind != _TYPE or first >> 28 != 6 or target != _CONTROL:
            return "not for us", b""
        packet = frame[_ETHERNET.size : head + length]
        if len(packet) != _IPV6.size + length or not 0 < length <= LONGEST - _IPV6.size:
            return "length", b""
        if protocol != _TCP and (protocol != _ICMP or packet[_IPV6.size] != _ECHO):
            return "protocol", b""
        if source[:2] != _OWN or source == _CONTROL or mac[0] & 1:
            return "source", b""
        return "", packet

    def _may(self, place: Place, now: float) -> bool:
        left, since = self._allowed.get(place, (BURST, now))
        left = min(BURST, left + (now - since) * RATE)
        self._allowed[place] = (left - 1 if left >= 1 else left, now)
        return left >= 1

    def outward(self, packet: bytes) -> tuple[Place, bytes] | None:
        """Where to send a packet of the control plane, and as which frame; None if nobody knows."""
        if not _IPV6.size < len(packet) <= LONGEST or packet[0] >> 4 != 6 or packet[8:24] != _CONTROL:
            self.refused["not from us"] += 1
            return None
        known = self._known.get(packet[24:40])
        if known is None:
            self.refused["unknown host"] += 1
            return None
        self.outward_packets += 1
        return known.place, _ETHERNET.pack(known.mac, _MAC, _TYPE) + packet

    def place_of(self, address: str) -> Place | None:
        """Where an address was last heard."""
        known = self._known.get(IPv6Address(address).packed)
        return None if known is None else known.place


class InBand:
    """Carries packets between the switches of a plane and a tunnel device, given as its descriptor."""

    def __init__(self, plane: OpenFlowDataPlane, tunnel: int, clock: Callable[[], float] | None = None) -> None:
        self.ferry: Final = Ferry()
        self._plane = plane
        self._tunnel = tunnel
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        plane.on_packet = self._came
        self._loop.add_reader(tunnel, self._readable)

    def _came(self, switch: str, packet: PacketIn) -> None:
        if self._host_at(Place(switch, packet.in_port)) is None:
            return
        inner = self.ferry.inward(Place(switch, packet.in_port), packet.data, self._clock())
        if inner is not None:
            # A full device drops a packet, as any link may.
            with contextlib.suppress(OSError):
                os.write(self._tunnel, inner)

    def _readable(self) -> None:
        for _ in range(_TURN):
            if not self._carry():
                return

    def _carry(self) -> bool:
        """Carry one packet of the system, if there is one."""
        try:
            packet = os.read(self._tunnel, 1 << 16)
        except OSError:
            return False
        found = self.ferry.outward(packet)
        if found is not None:
            (switch, port), frame = found
            self._plane.send_packet(switch, port, frame)
        return True

    def _host_at(self, place: Place) -> str | None:
        peer = self._plane.topology.ports(place.switch).get(place.port)
        return peer if peer is not None and not self._plane.topology.is_switch(peer) else None

    def host_of(self, address: str) -> str | None:
        """The host that an address belongs to, if it was heard."""
        place = self.ferry.place_of(address)
        return None if place is None else self._host_at(place)

    def close(self) -> None:
        """Carry what is there and no more; the tunnel goes with its descriptor."""
        while self._carry():
            pass
        self._loop.remove_reader(self._tunnel)
        self._plane.on_packet = None
        os.close(self._tunnel)
