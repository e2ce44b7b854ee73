"""Numbers as a line of separate points: what comes right behind a number, and its place in the order.

Computers have no reals.  The numbers that a value can be are all floats and all whole numbers, and among those
every number has a next one:

    below 2**53 in size     the next float:  0 → 5e-324,  420 → 420.00000000000006,  499.99999999999994 → 500
    from there on           the next whole number, since floats are whole there and further apart:  2**53 → 2**53 + 1

So "greater than 420" is "from 420.00000000000006 on", sets of numbers have closed ends only, and a set between two
neighbours is seen to be empty.  The two zeros are one number.

A float alone has a *key*: a 64-bit integer such that keys are in the order of floats and neighbours' keys differ by
one.  It is the float's bit pattern, with that of negative ones turned round:

    -inf … -1.0   -5e-324  0.0  5e-324  …  1.0  …  inf
               …     -1     0      1    …
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["EXACT", "float_at", "float_key", "float_keys", "floats_at", "next_float", "next_number", "previous_number"]

#: Up to here floats are at most one apart, so no whole number lies between two of them.
EXACT: Final = 1 << 53

_MAX: Final = (1 << 63) - 1
_DOUBLE: Final = struct.Struct("=d")
_LONG: Final = struct.Struct("=q")
_nextafter = math.nextafter
_INF: Final = math.inf


def next_number(value: float) -> float:
    """The number right behind a finite one, among floats and whole numbers."""
    if -EXACT <= value < EXACT:
        return _nextafter(value, _INF)
    return int(value) + 1


def previous_number(value: float) -> float:
    """The number right before a finite one, among floats and whole numbers."""
    if -EXACT < value <= EXACT:
        return _nextafter(value, -_INF)
    return int(value) - 1


def next_float(value: float) -> float:
    """The least float that is not below a number; infinity behind the last."""
    try:
        near = float(value)
    except OverflowError:
        return _INF if value > 0 else -_LARGEST
    return near if near >= value else _nextafter(near, _INF)


_LARGEST: Final = _nextafter(_INF, 0.0)


def float_key(value: float) -> int:
    """The key of a float."""
    bits: int = _LONG.unpack(_DOUBLE.pack(value))[0]
    return bits if bits >= 0 else -(bits & _MAX)  # both zeros become 0


def float_at(key: int) -> float:
    """The float that has a key."""
    value: float = _DOUBLE.unpack(_LONG.pack(abs(key)))[0]
    return value if key >= 0 else -value


def float_keys(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The keys of floats."""
    bits: npt.NDArray[Any] = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits >= 0, bits, -(bits & _MAX))


def floats_at(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The floats that have keys."""
    return np.copysign(np.abs(keys).view(np.float64), keys) + 0.0
