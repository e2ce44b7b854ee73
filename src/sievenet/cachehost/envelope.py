"""Records on their way to subscribers: as packets of their category, inside packets of its twin.

    packet inside    length │ category │ flags 3 │ 0 │ stream u64, number u64 │ record
                     └──────────────── this module ─────────────────────────┘  └ as it came

Several of them, one behind the other, share a packet of the twin (`joined`, `gathered`) up to a size that every link
carries: a system call, a flow and a look at the tables cost more than the few bytes of an event.

An end of the stream for one subscriber has flags 4, and the subscriber's number where the publisher would be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.cache.record import Run, packed
from sievenet.client.directed import TOGETHER, Mark
from sievenet.client.ports.burst import Arrivals
from sievenet.dataplane.packet import Packet

__all__ = ["START", "gathered", "inside", "joined", "records_of", "rows_of"]

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


def joined(packets: Iterable[bytes]) -> list[bytes]:
    """Packets, several together where they are short.

    >>> [len(each) for each in joined([bytes(500)] * 3 + [bytes(2000)] + [bytes(500)])]
    [1000, 500, 2000, 500]
    """
    found: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for packet in packets:
        if parts and size + len(packet) > TOGETHER:
            found.append(b"".join(parts))
            parts, size = [], 0
        parts.append(packet)
        size += len(packet)
    return [*found, b"".join(parts)] if parts else found


def gathered(rows: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint8]]:
    """The same for packets that are rows: about as many in each, so that one or two matrices have them all.

    >>> [each.shape for each in gathered(np.zeros((64, 64), np.uint8))]
    [(4, 1024)]
    >>> [each.shape for each in gathered(np.zeros((20, 100), np.uint8))]
    [(2, 1000)]
    >>> [each.shape for each in gathered(np.zeros((21, 100), np.uint8))]
    [(1, 1100), (1, 1000)]
    """
    count, width = rows.shape
    most = max(1, TOGETHER // width)
    each = -(-count // -(-count // most))
    whole = count // each
    found = [rows[: whole * each].reshape(whole, each * width)]
    return found if whole * each == count else [*found, rows[whole * each :].reshape(1, -1)]
