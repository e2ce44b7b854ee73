"""Many packets of one category at once, as a matrix of bytes: on their way out (`Burst`) and coming in (`Arrivals`).

    packet    length │ category │ flags │ 0 │ code │ publisher │ incarnation │ sequence │ departure │ event (`layout`)
    packet    length │ category │ flags │ 0 │ code │ publisher │ incarnation │ sequence │ departure │ event

Packets of equally long events are equally long, so that heads are columns as events are. Ports that know how send and
read such matrices with one system call for many packets; whoever does not care iterates `Arrivals` and gets packets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content.layout import Bytes
from sievenet.dataplane.packet import PACKET_HEADER, Packet

__all__ = ["HEAD", "Arrivals", "Burst", "uniform"]

#: The head of a packet, as `dataplane.packet` has it.
HEAD: Final = np.dtype(
    [
        ("length", ">u2"),
        ("category", ">u2"),
        ("flags", "u1"),
        ("zero", "u1"),
        ("hi", ">u8"),
        ("lo", ">u8"),
        ("publisher", ">u8"),
        ("incarnation", ">u8"),
        ("sequence", ">u8"),
        ("departure", ">u8"),
    ]
)
assert HEAD.itemsize == PACKET_HEADER

#: What a head begins with: length, category, flags, zero.
_KIND: Final = struct.Struct(">HHBB")
_ALIKE: Final = _KIND.size
assert HEAD.fields is not None
#: The first bytes of numbers that are absurd when their highest bit is set (`packet.MAX_NUMBER`).
_SEQUENCE, _DEPARTURE = (int(HEAD.fields[name][1]) for name in ("sequence", "departure"))


class Burst:
    """Packets to send."""

    def __init__(self, category: int, hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64], bodies: Bytes) -> None:
        count, length = bodies.shape
        self.category = category
        #: One packet for each row.
        self.matrix = np.empty((count, PACKET_HEADER + length), np.uint8)
        self._heads: npt.NDArray[Any] | None = np.zeros(count, HEAD)
        self._heads["length"], self._heads["category"] = length, category
        self._heads["hi"], self._heads["lo"] = hi, lo
        self.matrix[:, PACKET_HEADER:] = bodies
        #: Whether each packet has to travel in a datagram of its own.
        self.apart = False

    @classmethod
    def of(cls, matrix: Bytes) -> Burst:
        """Packets that are complete, one in each row, all of one category."""
        burst = cls.__new__(cls)
        burst.matrix = matrix
        burst.category = int(matrix[0, 2]) << 8 | int(matrix[0, 3])
        burst._heads = None
        burst.apart = False
        return burst

    def stamp(self, publisher: int, incarnation: int, sequences: npt.NDArray[np.uint64], now: int) -> None:
        """Say who sent them, in which life and with which numbers, and when."""
        heads = self.heads
        heads["publisher"], heads["incarnation"] = publisher, incarnation
        heads["sequence"], heads["departure"] = sequences, now
        self.matrix[:, :PACKET_HEADER] = heads.view(np.uint8).reshape(len(self), PACKET_HEADER)

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def codes(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Upper and lower halves of the codes, big-endian."""
        return self.heads["hi"], self.heads["lo"]

    @property
    def heads(self) -> npt.NDArray[Any]:
        """The heads, one for each packet."""
        if self._heads is None:
            self._heads = heads_of(self.matrix)
        return self._heads

    def packets(self) -> list[bytes]:
        """The bytes of each packet."""
        data, size = self.matrix.tobytes(), self.matrix.shape[1]
        return [data[at : at + size] for at in range(0, len(data), size)]


def heads_of(matrix: Bytes) -> npt.NDArray[Any]:
    """The heads of packets, one in each row."""
    return np.ascontiguousarray(matrix[:, :PACKET_HEADER]).view(HEAD).reshape(len(matrix))


class Arrivals:
    """Packets that came, all of one category and equally long."""

    def __init__(self, matrix: Bytes) -> None:
        self.matrix = matrix
        self._heads: npt.NDArray[Any] | None = None
        #: Whether some may be here only because they shared a datagram with others.
        self.mixed = False

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def heads(self) -> npt.NDArray[Any]:
        """The heads, one for each packet."""
        if self._heads is None:
            self._heads = heads_of(self.matrix)
        return self._heads

    @property
    def category(self) -> int:
        """The category of all."""
        return int(self.matrix[0, 2]) << 8 | int(self.matrix[0, 3])

    @property
    def bodies(self) -> Bytes:
        """The encoded events, one in each row."""
        return self.matrix[:, PACKET_HEADER:]

    def only(self, which: npt.NDArray[np.bool_]) -> Arrivals:
        """Some of them."""
        if which.all():
            return self
        some = Arrivals(self.matrix[which])
        some.mixed = self.mixed
        return some

    def __iter__(self) -> Iterator[Packet]:
        for head, body in zip(self.heads.tolist(), self.bodies, strict=True):
            _, category, flags, _, hi, lo, publisher, incarnation, sequence, departure = head
            yield Packet(category, hi << 64 | lo, publisher, sequence, departure, flags, body.tobytes(), incarnation)


def uniform(matrix: Bytes) -> Arrivals | None:
    """These rows as packets of one category; None if they are not, or not sound."""
    if not len(matrix) or matrix.shape[1] < PACKET_HEADER:
        return None
    # The same length, category and flags in all: what differs only in flags goes one by one. By comparing bytes, which
    # is quicker than by columns.
    kinds = matrix[:, :_ALIKE].tobytes()
    length, *_, zero = _KIND.unpack_from(kinds)
    if zero or length != matrix.shape[1] - PACKET_HEADER or kinds != kinds[:_ALIKE] * len(matrix):
        return None
    if (matrix[:, _SEQUENCE] | matrix[:, _DEPARTURE]).max() >= 0x80:
        return None
    return Arrivals(matrix)
