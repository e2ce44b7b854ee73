"""Records on their way to subscribers: as packets of their category, inside packets of its twin.

    packet inside    length │ category │ flags 3 │ 0 │ stream u64, number u64 │ record
                     └──────────────── this module ─────────────────────────┘  └ as it came

An end of the stream for one subscriber has flags 4, and the subscriber's number where the publisher would be.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.cache.record import Run, packed
from sievenet.client.directed import Mark
from sievenet.client.ports.burst import Arrivals
from sievenet.dataplane.packet import Packet

__all__ = ["START", "inside", "records_of", "rows_of"]

_HEAD: Final = struct.Struct(">HHBBQQ")
#: Where the record begins in a packet.
START: Final = _HEAD.size
_EVENT_HEAD: Final = 32
_ROW: Final = np.dtype([("length", ">u2"), ("category", ">u2"), ("flags", "u1"), ("zero", "u1"), ("hi", ">u8"), ("lo", ">u8")])  # fmt: skip  # noqa: E501


def records_of(packets: Arrivals) -> list[bytes]:
    """The records in packets that came together."""
    matrix = np.ascontiguousarray(packets.matrix[:, START:])
    data, size = matrix.tobytes(), matrix.shape[1]
    return [data[at : at + size] for at in range(0, len(data), size)]


def record_of(packet: Packet) -> bytes:
    """The record in a packet."""
    return packed(packet.publisher, packet.incarnation, packet.sequence, packet.departure, packet.body)


def inside(run: Run, category: int) -> list[bytes]:
    """The packets of a run."""
    if run.leaver is not None:
        end = packed(run.leaver, 0, 0, 0, b"")
        return [_HEAD.pack(0, category, Mark.LEAVE, 0, run.stream, run.first) + end]
    pack = _HEAD.pack
    return [
        pack(len(each) - _EVENT_HEAD, category, Mark.CACHED, 0, run.stream, number) + each
        for number, each in enumerate(run.records, run.first)
    ]


def rows_of(run: Run, category: int) -> npt.NDArray[np.uint8] | None:
    """The same as rows of a matrix; None if the records are not equally long."""
    count = len(run.records)
    size = len(run.records[0]) if count else 0
    data = b"".join(run.records)
    if count < 8 or len(data) != count * size or any(len(each) != size for each in run.records):
        return None
    heads: npt.NDArray[Any] = np.zeros(count, _ROW)
    heads["length"], heads["category"], heads["flags"] = size - _EVENT_HEAD, category, Mark.CACHED
    heads["hi"] = run.stream
    heads["lo"] = np.arange(run.first, run.first + count, dtype=np.uint64)
    rows = np.empty((count, START + size), np.uint8)
    rows[:, :START] = heads.view(np.uint8).reshape(count, START)
    rows[:, START:] = np.frombuffer(data, np.uint8).reshape(count, size)
    return rows
