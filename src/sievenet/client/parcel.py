"""Packets for recipients, made many at a time by one kernel: rows of bytes around rows of bytes.

    head of the twin's packet │ opening │ recipient │ length │ packet, as it lies
    └ number, recipient's code ┘          └ put into each row ┘

The same bytes as `directed.wrapped_many` and `Burst` make together, which copy each packet three times.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array

from sievenet.client.directed import frame
from sievenet.client.ports.burst import HEAD
from sievenet.content.layout import Bytes
from sievenet.dataplane.packet import PACKET_HEADER
from sievenet.jit import compiled, inlined, intrinsic
from sievenet.matcher.records import Array

__all__ = ["INCARNATION", "PUBLISHER", "SEQUENCE", "load_big", "parcels"]

_array_of: Any = make_array

assert HEAD.fields is not None
PUBLISHER, INCARNATION, SEQUENCE, CODE = (
    int(HEAD.fields[each][1]) for each in ("publisher", "incarnation", "sequence", "hi")
)
_HEAD: Final = struct.Struct(">HHBBQQQQQQ")
assert _HEAD.size == PACKET_HEADER


@intrinsic
def copy_bytes(context: Any, target: Any, i: Any, at: Any, source: Any, j: Any, start: Any, count: Any) -> Any:
    """target[i, at:at + count] = source[j, start:start + count], for rows of bytes that lie one after the other.

    By the system's own copying: the compiler does not know that the two are apart, and goes byte by byte.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = []
        for array, row, column in ((0, 1, 2), (3, 4, 5)):
            made = _array_of(signature.args[array])(context, builder, args[array])
            strides = builder.extract_value(made.strides, 0)
            ahead = builder.add(builder.mul(args[row], strides), args[column])
            places.append(builder.gep(made.data, [ahead], source_etype=ir.IntType(8)))
        copy = builder.module.declare_intrinsic("llvm.memcpy", [each.type for each in (*places, args[6])])
        builder.call(copy, [*places, args[6], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    wide = types.int64
    return types.void(target, wide, wide, source, wide, wide, wide), generate


@inlined
def load_big(rows: Array, i: int, at: int) -> Any:
    """The unsigned number in eight bytes, highest first."""
    found = np.uint64(0)
    for k in range(8):
        found = found << np.uint64(8) | np.uint64(rows[i, at + k])
    return found


@compiled
def pack(packets: Array, rows: Array, recipients: Array, front: Array, at: int, number: int, out: Array) -> None:
    """Rows of packets, each behind ``front``, with the recipient in the code and at a byte, and numbers from one on."""
    width, ahead = packets.shape[1], front.shape[1]
    for j in range(len(rows)):
        i, to, sequence = rows[j], recipients[j], np.uint64(number + j)
        copy_bytes(out, j, 0, front, 0, 0, ahead)
        for b in range(8):
            out[j, SEQUENCE + b] = np.uint8(sequence >> np.uint64(56 - 8 * b) & np.uint64(0xFF))
        for b in range(4):
            out[j, CODE + b] = np.uint8(to >> np.uint32(24 - 8 * b) & np.uint32(0xFF))
            out[j, at + b] = np.uint8(to >> np.uint32(8 * b) & np.uint32(0xFF))
        copy_bytes(out, j, ahead, packets, i, 0, width)


def parcels(
    twin: int,
    publisher: int,
    incarnation: int,
    number: int,
    departure: int,
    packets: Bytes,
    rows: npt.NDArray[np.int64],
    recipients: npt.NDArray[np.uint32],
) -> Bytes:
    """Packets of a twin, numbered from ``number`` on: rows of equally long packets to recipients, in order."""
    width = packets.shape[1]
    opening, at = frame(width)
    head = _HEAD.pack(len(opening) + width, twin, 0, 0, 0, 0, publisher, incarnation, 0, departure)
    front = np.frombuffer(head + opening, np.uint8).reshape(1, -1)
    out = np.empty((len(rows), front.shape[1] + width), np.uint8)
    pack(packets, rows, recipients, front, PACKET_HEADER + at, number, out)
    return out
