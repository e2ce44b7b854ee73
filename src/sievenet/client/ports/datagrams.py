"""Datagrams of content: a burst on its way out (`outlets_of`), and what comes in as packets again (`arrivals_of`).

    header │ packet                          to  fd0e:<category>:<code>             UDP 0x8000
    header │ packet │ packet │ … │ packet    to  fd0e:<category>:<code of the first>  UDP 1

Where switches can (`DataEndpoint.room`), up to `TOGETHER` equally long packets of one category share a datagram. Each
switch looks for the code of every packet in it, and lets the datagram leave by all ports that one of them wants, once.
So each packet reaches whom it would reach alone, in its turn, at a fraction of the system's cost. Clients may get some
that they did not ask for, *companions*, and drop them as they drop false positives.

    The ports of a datagram are the union of its packets' ports, in every state of a switch's table.
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.client.ports import mmsg
from sievenet.client.ports.burst import Arrivals, Burst, uniform
from sievenet.content.layout import Bytes
from sievenet.dataplane.packet import DATAGRAM_HEADER, encode_datagram, publisher_at
from sievenet.index.address import CONTENT_PORT, CONTENT_PREFIX, SEVERAL_PORT, TOGETHER, Head

__all__ = ["Target", "arrivals_of", "count_in", "outlets_of", "owner_at", "owners_of", "sender_of", "target_of"]

#: Where a socket sends to, as the system writes it.
Target = tuple[str, int, int, int]


@lru_cache(maxsize=4096)
def owner_at(host: str, port: int) -> int:
    """The publisher that sends from there; `host` as the system writes it."""
    return publisher_at(socket.inet_pton(socket.AF_INET6, host.partition("%")[0]), port)


@lru_cache(maxsize=65536)
def target_of(category: int, code: int) -> tuple[Target, int]:
    """Where a packet of such a code goes, and the rest of the code that travels in its traffic class."""
    address, port, dscp = Head.of(category, code)
    return (socket.inet_ntop(socket.AF_INET6, address.to_bytes(16, "big")), port, 0, 0), dscp


def outlets_of(burst: Burst, together: int) -> list[mmsg.Outlet] | None:
    """A burst as datagrams with their addresses, so many packets in each; None if its codes are too long for that."""
    _, lo = burst.codes
    if (lo & 0xFFFFFFFF).any():
        return None
    whole = len(burst) // together * together
    if not 0 < whole < len(burst):
        return [_outlet(burst, 0, len(burst), together if whole else len(burst))]
    return [_outlet(burst, 0, whole, together), _outlet(burst, whole, len(burst), len(burst) - whole)]


def _outlet(burst: Burst, start: int, end: int, together: int) -> mmsg.Outlet:
    """Datagrams of ``together`` packets each; switches that are told so look for the codes inside (`TOGETHER`)."""
    packets, count = burst.matrix[start:end], (end - start) // together
    matrix = np.empty((count, DATAGRAM_HEADER + together * packets.shape[1]), np.uint8)
    matrix[:, :DATAGRAM_HEADER] = np.frombuffer(_heads(together), np.uint8)
    matrix[:, DATAGRAM_HEADER:] = packets.reshape(count, -1)
    names = np.zeros(count, mmsg.NAME)
    names["family"], names["port"] = socket.AF_INET6, CONTENT_PORT if together == 1 else SEVERAL_PORT
    address = names["address"]
    address[:, :4] = np.frombuffer(struct.pack(">HH", CONTENT_PREFIX, burst.category), np.uint8)
    hi, lo = (half[start:end:together] for half in burst.codes)
    address[:, 4:12] = hi.astype(">u8").view(np.uint8).reshape(count, 8)
    address[:, 12:] = lo.astype(">u8").view(np.uint8).reshape(count, 8)[:, :4]
    return mmsg.Outlet(matrix, names, together)


@lru_cache(maxsize=64)
def _heads(count: int) -> bytes:
    """What is in front of so many packets in their datagram."""
    return encode_datagram(0, (), count=count)


def owners_of(names: npt.NDArray[Any], packets: int) -> int | npt.NDArray[np.uint64]:
    """Whose packets these may be that came from there, equally many from each."""
    if (names == names[0]).all():
        return sender_of(names[0])  # usually one publisher sends many
    return np.fromiter(map(sender_of, names), np.uint64, len(names)).repeat(packets // len(names))


def count_in(datagram: Bytes) -> int:
    """How many packets a datagram says it has; 0 if it is none, or has more than may share one."""
    if len(datagram) < DATAGRAM_HEADER:
        return 0
    said = int(datagram[4]) << 8 | int(datagram[5])
    return said if said <= TOGETHER else 0


def sender_of(name: Any) -> int:
    """The publisher that sends from an address as `mmsg` has it."""
    return publisher_at(name["address"].tobytes(), int(name["port"]))


def arrivals_of(matrix: Bytes) -> Arrivals | None:
    """Datagrams of equally many packets each, as packets; None if they are not, or not sound."""
    count = count_in(matrix[0])
    if not count or not (matrix[:, :DATAGRAM_HEADER] == np.frombuffer(_heads(count), np.uint8)).all():
        return None
    width, rest = divmod(matrix.shape[1] - DATAGRAM_HEADER, count)
    if rest:
        return None
    # Copied: what is read next goes to the same place.
    arrivals = uniform(matrix[:, DATAGRAM_HEADER:].copy().reshape(len(matrix) * count, width))
    if arrivals is not None:
        arrivals.mixed = count > 1
    return arrivals
