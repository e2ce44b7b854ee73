"""Beacons: what tells a switch which switch is at the other end of each of its cables.

Every second a switch says its name and the port's number out of each port, in a frame of LLDP, which bridges do not
pass on:

    01:80:c2:00:00:0e | … | 88cc | chassis: network/switch | port: number | 120 s | end

What comes in by a port is therefore of whoever its cable leads to.  Frames are read and made here; nothing is trusted
but what they say, and that is only compared with the topology.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["Beacons", "Neighbour", "beacon", "read_beacon"]

_LLDP: Final = 0x88CC
_TO: Final = bytes.fromhex("0180c200000e")
_FROM: Final = bytes.fromhex("025356000002")
_MARK: Final = b"\x07sievenet/"
_EVERY: Final = 1.0


class Neighbour(NamedTuple):
    """Who is at the other end of a cable: a switch and its port."""

    switch: str
    port: int


def beacon(switch: str, port: int) -> bytes:
    """The frame that a switch sends out of a port."""
    parts = ((1, _MARK + switch.encode()), (2, b"\x07" + str(port).encode()), (3, struct.pack(">H", 120)), (0, b""))
    return _TO + _FROM + struct.pack(">H", _LLDP) + b"".join(_part(kind, value) for kind, value in parts)


def _part(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def read_beacon(frame: bytes) -> Neighbour | None:
    """Whose beacon this is; None if it is none of ours."""
    if len(frame) < 16 or frame[12:14] != struct.pack(">H", _LLDP):
        return None
    values: dict[int, bytes] = {}
    at = 14
    while at + 2 <= len(frame):
        (head,) = struct.unpack_from(">H", frame, at)
        kind, length = head >> 9, head & 0x1FF
        if not kind or at + 2 + length > len(frame):
            break
        values.setdefault(kind, frame[at + 2 : at + 2 + length])
        at += 2 + length
    name, port = values.get(1, b""), values.get(2, b"")[1:]
    if not name.startswith(_MARK) or not port.isdigit() or len(port) > 5:
        return None
    try:
        return Neighbour(name[len(_MARK) :].decode("ascii"), int(port))
    except UnicodeDecodeError:
        return None


class Beacons:
    """Sends a switch's beacons and tells of others': ``found(port, neighbour)`` for each that comes."""

    def __init__(self, switch: str, ports: Mapping[int, str], found: Callable[[int, Neighbour], None]) -> None:
        """To be made in the network namespace of the switch."""
        self._switch = switch
        self._ports = {device: port for port, device in ports.items()}
        self._found = found
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.htons(_LLDP)
        )
        self._loop.add_reader(self._socket, self._readable)
        self._timer = self._loop.call_soon(self._send)

    def _send(self) -> None:
        for device, port in self._ports.items():
            with contextlib.suppress(OSError):  # it is down, or gone for now
                self._socket.sendto(beacon(self._switch, port), (device, _LLDP))
        self._timer = self._loop.call_later(_EVERY, self._send)

    def _readable(self) -> None:
        for _ in range(64):
            try:
                frame, (device, _, kind, *_rest) = self._socket.recvfrom(1514)
            except OSError:
                return
            port = self._ports.get(device)
            if port is None or kind == socket.PACKET_OUTGOING:
                continue
            neighbour = read_beacon(frame)
            if neighbour is not None:
                self._found(port, neighbour)

    def close(self) -> None:
        """Stop."""
        self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
