"""Axes: a monotone map from the values of an attribute to the integers of a grid.

Every attribute first becomes a *line*: numbers are themselves, an enumeration's strings
their ordinals, false and true 0 and 1, free strings a stable 64-bit hash.  An axis maps
the stretch ``[lo, hi]`` of a line to the ``2**bits`` coordinates of a grid:

    line    lo ────────┬──────┬─┬────────────── hi        split points: workload decides
    bucket      0      │  1   │2│      3                   2**s of them
    grid    |. . . . .|. . . .|.|. . . . . . . .|          the other bits: linear inside

Without split points there is one bucket and the axis is linear.  Two properties matter,
and nothing else does for correctness:

* the map is monotone, so an interval of values becomes an interval of coordinates;
* events and the ends of filters go through the *same* map, so rounding, of floats too,
  moves both alike: what is inside stays inside.

Whole numbers are mapped by exact arithmetic, ``floor(x · 2**r / n)`` for the x-th of the
n values of a bucket, as a multiplication by ``ceil(2**64 / n)``, or by 128 bits of 1/n
where 64 would not be exact; a domain that is a power of two is halved exactly at every
size up to 2**64 (others up to ``n² · 2**r < 2**128``, beyond that a boundary may be off by
one value, which costs nothing but that value).  Floats are scaled: difference, product
and cut-off are each monotone in IEEE arithmetic.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, ValueSet
from sievenet.content.line import Line
from sievenet.content.number import float_at, float_key
from sievenet.content.valueset import STRING
from sievenet.errors import PlanError

__all__ = ["MAX_AXIS_BITS", "MAX_SPLIT_BITS", "Axis", "Number", "Scale", "hashed", "line_range", "useful_bits"]

Number = int | float

MAX_AXIS_BITS: Final = 62
#: At most ``2**MAX_SPLIT_BITS - 1`` split points per axis.
MAX_SPLIT_BITS: Final = 12
#: A float of 53 significant bits gains nothing from more.
_FLOAT_BITS: Final = 52
_WORD: Final = 1 << 64
#: Longest run of strings ``x, x\0, x\0\0, …`` that is taken one by one.
_MAX_RUN: Final = 16


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An attribute's part in a region: how many bits, and split points if it is adaptive."""

    attribute: str
    bits: int
    #: Ascending points of the line (repeats allowed), ``2**s - 1`` of them, s at most ``bits``.
    splits: tuple[int | float, ...] = ()

    @property
    def split_bits(self) -> int:
        """How many of the bits the split points decide."""
        return (len(self.splits) + 1).bit_length() - 1

    def narrowed(self, bits: int) -> Axis:
        """The same axis with fewer bits: split points of the finest levels are left out."""
        spare = max(0, self.split_bits - bits)
        return Axis(self.attribute, bits, self.splits[(1 << spare) - 1 :: 1 << spare])


def line_range(attribute: Attribute) -> tuple[Number, Number]:
    """The ends of an attribute's line."""
    if attribute.type == "bool":
        return 0, 1
    if attribute.type == "str":
        return (0, len(attribute.values) - 1) if attribute.values is not None else (0, _WORD - 1)
    assert attribute.lo is not None
    assert attribute.hi is not None
    return attribute.lo, attribute.hi


def useful_bits(attribute: Attribute, lo: Number, hi: Number) -> int:
    """Bits beyond which a stretch of an attribute's line cannot be told apart any better."""
    if attribute.type == "float":
        return _FLOAT_BITS if lo < hi else 0
    return min(MAX_AXIS_BITS, int(hi - lo).bit_length())


@lru_cache(maxsize=1 << 16)
def hashed(text: str) -> int:
    """The place of a free string on its line: 64 bits, the same everywhere and forever."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """An axis ready for use on a stretch of its line: the monotone map itself."""

    attribute: Attribute
    kind: Literal["int", "float", "hash"]
    bits: int
    lo: Number
    hi: Number
    #: Bits inside a bucket.
    rest: int
    #: Where each bucket starts; their number is a power of two.
    starts: tuple[Number, ...]
    #: Whole numbers: the 128-bit reciprocal of each bucket's size, as two words.
    factors: tuple[tuple[int, int], ...] = ()
    #: Floats: coordinates per unit in each bucket.
    scales: tuple[float, ...] = ()
    arrays: tuple[npt.NDArray[Any], ...] = field(default=())

    @staticmethod
    def of(axis: Axis, attribute: Attribute, lo: Number, hi: Number) -> Scale:
        """The map of an axis over the stretch ``[lo, hi]``."""
        if attribute.type == "str" and attribute.values is None:
            return Scale(attribute, "hash", axis.bits, lo, hi, axis.bits, (0,))
        rest = axis.bits - axis.split_bits
        starts = (lo, *axis.splits)
        ends = (*axis.splits, hi + 1 if attribute.type != "float" else hi)
        if attribute.type == "float":
            scales = tuple(_scale(a, b, rest) for a, b in zip(starts, ends, strict=True))
            floats = tuple(float(s) for s in starts)
            both = (np.array(floats), np.array(scales))
            return Scale(attribute, "float", axis.bits, lo, hi, rest, floats, scales=scales, arrays=both)
        factors = tuple(_reciprocal(int(b) - int(a), rest) for a, b in zip(starts, ends, strict=True))
        words = np.array(factors, np.uint64).reshape(len(factors), 2)
        arrays = (np.array(starts, np.int64), words[:, 0].copy(), words[:, 1].copy())
        return Scale(attribute, "int", axis.bits, lo, hi, rest, starts, factors=factors, arrays=arrays)

    # -- one value --------------------------------------------------------------------------

    def place(self, value: Any) -> Number:
        """A value's place on its line."""
        if self.kind == "hash":
            return hashed(value)
        return float(value) if self.kind == "float" else self._line.key(value)

    @property
    def _line(self) -> Line:
        assert self.attribute.line is not None
        return self.attribute.line

    def coordinate(self, place: Number) -> int:
        """The grid coordinate of a place in ``[lo, hi]``."""
        if self.kind == "hash":
            return int(place) >> (64 - self.bits)
        bucket = self._bucket(place)
        if not self.rest:
            return bucket
        if self.kind == "float":
            inner = min(int((place - self.starts[bucket]) * self.scales[bucket]), (1 << self.rest) - 1)
            return bucket << self.rest | inner
        x = int(place) - int(self.starts[bucket])
        high, low = self.factors[bucket]
        fraction = (x * high + (x * low >> 64)) % _WORD
        return bucket << self.rest | fraction >> (64 - self.rest)

    def _bucket(self, place: Number) -> int:
        at, step = 0, len(self.starts) >> 1
        while step:
            if self.starts[at + step] <= place:
                at += step
            step >>= 1
        return at

    def place_of(self, coordinate: int) -> Number:
        """The smallest place whose coordinate is at least this one (``hi`` + 1 step if there is none)."""
        lo, hi = self.lo, self.hi
        if self.kind == "float":
            return self._float_place(coordinate)
        if self.kind == "hash":
            return coordinate << (64 - self.bits)
        low, high = int(lo), int(hi) + 1
        while low < high:
            middle = (low + high) >> 1
            if self.coordinate(middle) >= coordinate:
                high = middle
            else:
                low = middle + 1
        return low

    def _float_place(self, coordinate: int) -> float:
        low, high = float(self.lo), float(self.hi)
        if self.coordinate(low) >= coordinate:
            return low
        if self.coordinate(high) < coordinate:
            return math.nextafter(high, math.inf)
        first, last = float_key(low), float_key(high)
        while last - first > 1:  # 64 steps at most: keys are whole numbers
            middle = (first + last) // 2
            if self.coordinate(float_at(middle)) >= coordinate:
                last = middle
            else:
                first = middle
        return float_at(last)

    # -- sets of values -----------------------------------------------------------------------

    def spans(self, values: ValueSet) -> list[tuple[int, int]]:
        """The coordinates of a set of values inside ``[lo, hi]``: disjoint ascending inclusive spans."""
        if self.kind == "hash":
            found = _hash_points(values)
            pairs = (
                [(0, (1 << self.bits) - 1)]
                if found is None
                else sorted((self.coordinate(p), self.coordinate(p)) for p in found)
            )
        else:
            pairs = [self._span(first, last) for first, last in self.places(values)]
        merged: list[tuple[int, int]] = []
        for lo, hi in pairs:
            if merged and lo <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
            else:
                merged.append((lo, hi))
        return merged

    def hull(self, values: ValueSet) -> tuple[Number, Number]:
        """The first and the last place of a set of values that is not empty."""
        if self.kind == "hash":
            found = _hash_points(values)
            return (self.lo, self.hi) if found is None else (min(found), max(found))
        places = self.places(values)
        return places[0][0], places[-1][1]

    def _span(self, first: Number, last: Number) -> tuple[int, int]:
        low = 0 if first <= self.lo else self.coordinate(first)
        if last >= self.hi:
            return low, (1 << self.bits) - 1
        if self.kind == "int":
            # Up to where the next value begins: coordinates between two values belong to nobody else.
            return low, max(self.coordinate(last), self.coordinate(last + 1) - 1)
        return low, self.coordinate(last)

    def places(self, values: ValueSet) -> list[tuple[Number, Number]]:
        """The first and last place of every stretch of a set in the attribute's canonical form."""
        ends: list[Any] = self._line.pairs(values)
        if self.kind == "float":
            ends = [float_at(key) for key in ends]
        return list(zip(ends[::2], ends[1::2], strict=True))


def _hash_points(values: ValueSet) -> list[int] | None:
    """The places of a finite set of strings, ``None`` if the set is not finite (or not shown to be)."""
    places: list[int] = []
    for start, stop in values.stretches():
        text = start[1] if len(start) > 1 else ""
        end = stop[1] if stop[0] == STRING and len(stop) > 1 else None
        if end is None or not end.startswith(text) or end[len(text) :].strip("\0"):
            return None
        if len(end) - len(text) > _MAX_RUN:
            return None
        places += [hashed(text + "\0" * i) for i in range(len(end) - len(text))]
    return places


def _reciprocal(count: int, bits: int) -> tuple[int, int]:
    """1/count as a 128-bit fraction, rounded up; one word where that is exact enough."""
    if count <= 1:
        return 0, 0
    if count * count << bits <= _WORD:
        return -(-_WORD // count), 0
    whole = -(-_WORD * _WORD // count)
    return whole >> 64, whole % _WORD


def _scale(lo: Number, hi: Number, bits: int) -> float:
    span = float(hi) - float(lo)
    return 0.0 if span <= 0 else min(math.ldexp(1.0, bits) / span, 1.7e308)


def check_axis(axis: Axis, attribute: Attribute, lo: Number, hi: Number, where: str) -> None:
    """Refuse an axis that contradicts itself, its attribute or the stretch ``[lo, hi]``."""
    if not 0 <= axis.bits <= MAX_AXIS_BITS:
        raise PlanError(expected=f"0 to {MAX_AXIS_BITS} bits", got=axis.bits, where=where)
    count = len(axis.splits)
    if count & (count + 1) or axis.split_bits > min(axis.bits, MAX_SPLIT_BITS):
        limit = min(axis.bits, MAX_SPLIT_BITS)
        raise PlanError(f"Expected 2**s - 1 split points with s <= {limit}, got {count}", where=where)
    if not count:
        return
    if attribute.type == "str" and attribute.values is None:
        raise PlanError("A free string is hashed: its axis has no split points", where=where)
    whole = attribute.type != "float"
    for point in axis.splits:
        if not math.isfinite(point) or (whole and type(point) is not int) or not lo <= point <= hi:
            kind = "whole numbers" if whole else "numbers"
            raise PlanError(expected=f"split points that are {kind} in [{lo}, {hi}]", got=point, where=where)
    if any(a > b for a, b in zip(axis.splits, axis.splits[1:], strict=False)):
        raise PlanError(expected="ascending split points", got=axis.splits, where=where)
