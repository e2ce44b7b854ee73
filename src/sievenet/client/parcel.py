"""Packets for recipients, made many at a time by two kernels: rows of bytes around rows of bytes.

    head of the twin's packet │ opening │ recipient │ length │ packet, as it lies │ packet, as it lies │ …
    └ number, recipient's code ┘          └ put into each row ┘

What goes to one recipient at one time shares a *parcel*, as far as every link carries it (`directed.TOGETHER`): a head
is as long as an event, and each packet costs switches and subscribers a look. Rows of a matrix are equally long, so
there are parcels of three sizes, as full as they get, a quarter of that, and of one event each, which go in that order:

    recipient 1: a b c d e f g h i         [a b c d e f g h]  [i]          a matrix for each size
    recipient 2: x y                                          [x] [y]

So each recipient gets its events in order. Nothing is copied twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array

from sievenet.client.directed import TOGETHER, frame
from sievenet.client.ports.burst import HEAD
from sievenet.content.layout import Bytes
from sievenet.dataplane.packet import PACKET_HEADER
from sievenet.jit import compiled, intrinsic
from sievenet.matcher.records import Array

__all__ = ["INCARNATION", "PUBLISHER", "SEQUENCE", "Targets", "parcels"]

_array_of: Any = make_array

assert HEAD.fields is not None
PUBLISHER, INCARNATION, SEQUENCE, CODE = (
    int(HEAD.fields[each][1]) for each in ("publisher", "incarnation", "sequence", "hi")
)
#: Sizes of parcels.
_SIZES: Final = 3
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


@compiled
def share(places: Array, sizes: Array, todo: Array) -> Array:
    """How many parcels of each size there are; ``todo`` gets how many are for each place of a recipient."""
    total = np.zeros(len(sizes), np.int64)
    todo[:] = 0
    for j in range(len(places)):
        todo[0, places[j]] += 1
    for place in range(todo.shape[1]):
        left = todo[0, place]
        for t in range(len(sizes)):
            count = left // sizes[t]
            todo[t, place] = count
            total[t] += count
            left -= count * sizes[t]
    return total


@compiled
def pack(
    packets: Array,
    rows: Array,
    places: Array,
    numbers: Array,
    sizes: Array,
    todo: Array,
    fronts: Any,
    at: int,
    number: int,
    outs: Any,
) -> None:
    """Put rows of packets into parcels, each behind its front, with its recipient and numbered from one on."""
    width, recipients = packets.shape[1], todo.shape[1]
    # By place: the parcel that is being filled, its size, the packets and the byte that are next in it.
    parcel, tier = np.zeros(recipients, np.int64), np.zeros(recipients, np.int64)
    left, byte = np.zeros(recipients, np.int64), np.zeros(recipients, np.int64)
    # Of each size: the next parcel of each place, and how many parcels are before those of that size.
    first = np.zeros((len(sizes), recipients), np.int64)
    before = np.zeros(len(sizes) + 1, np.int64)
    for t in range(len(sizes)):
        count = 0
        for place in range(recipients):
            first[t, place] = count
            count += todo[t, place]
        before[t + 1] = before[t] + count
    for j in range(len(rows)):
        place = places[j]
        t = tier[place]
        if left[place] == 0:
            while todo[t, place] == 0:
                t += 1
            tier[place] = t
            todo[t, place] -= 1
            k = parcel[place] = first[t, place]
            first[t, place] += 1
            front, to, sequence = fronts[t], numbers[place], np.uint64(number + before[t] + k)
            copy_bytes(outs[t], k, 0, front, 0, 0, front.shape[1])
            for b in range(8):
                outs[t][k, SEQUENCE + b] = np.uint8(sequence >> np.uint64(56 - 8 * b) & np.uint64(0xFF))
            for b in range(4):
                outs[t][k, CODE + b] = np.uint8(to >> np.uint32(24 - 8 * b) & np.uint32(0xFF))
                outs[t][k, at + b] = np.uint8(to >> np.uint32(8 * b) & np.uint32(0xFF))
            left[place], byte[place] = sizes[t], front.shape[1]
        copy_bytes(outs[t], parcel[place], byte[place], packets, rows[j], 0, width)
        byte[place] += width
        left[place] -= 1


class Targets:
    """Where packets go: rows of them and the place of each one's recipient, in order; what became of the others."""

    __slots__ = ("malformed", "numbers", "places", "rows", "unwanted")

    def __init__(
        self,
        rows: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.uint32],
        unwanted: int = 0,
        malformed: int = 0,
    ) -> None:
        self.rows, self.places, self.unwanted, self.malformed = rows, places, unwanted, malformed
        #: The recipients, by place.
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, end: int) -> Targets:
        """Some of them."""
        return Targets(self.rows[start:end], self.places[start:end], self.numbers)

    def copy(self) -> Targets:
        """The same, for as long as it is needed."""
        return Targets(self.rows.copy(), self.places.copy(), self.numbers, self.unwanted, self.malformed)

    @property
    def recipients(self) -> npt.NDArray[np.uint32]:
        """The recipient of each row."""
        return self.numbers[self.places]


def parcels(
    twin: int,
    publisher: int,
    incarnation: int,
    reserve: Callable[[int], int],
    departure: int,
    packets: Bytes,
    targets: Targets,
) -> list[Bytes]:
    """Packets of a twin around rows of equally long packets, to be sent in the order of the matrices.

    ``reserve`` gives the first of so many numbers.
    """
    rows, places, numbers = targets.rows, targets.places, targets.numbers
    width = packets.shape[1]
    most = max(1, TOGETHER // width)
    sizes = np.array((most, max(1, most // 4), 1), np.int64)
    todo = np.empty((_SIZES, len(numbers)), np.int64)
    counts = share(places, sizes, todo).tolist()
    fronts, outs, at = [], [], 0
    for count, size in zip(counts, sizes.tolist(), strict=True):
        opening, at = frame(size * width)
        head = _HEAD.pack(len(opening) + size * width, twin, 0, 0, 0, 0, publisher, incarnation, 0, departure)
        fronts.append(np.frombuffer(head + opening, np.uint8).reshape(1, -1))
        outs.append(np.empty((count, fronts[-1].shape[1] + size * width), np.uint8))
    number = reserve(sum(counts))
    pack(packets, rows, places, numbers, sizes, todo, tuple(fronts), PACKET_HEADER + at, number, tuple(outs))
    return [each for each in outs if len(each)]
