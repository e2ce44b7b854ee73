"""Regions: one indexed part of the event space each, made, numbered and checked.

A plan is a tuple of regions (see `plan` for the idea).  Here is what concerns one region at a
time: its bounds as numbers of the attributes' lines, its axes, the order of their bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import msgspec
import numpy as np

from sievenet.content import Filter, Schema, Value, ValueSet
from sievenet.errors import PlanError
from sievenet.index.axis import Axis, Number, check_axis, line_range, useful_bits
from sievenet.index.code import MAX_BITS

__all__ = ["Bound", "Range", "Region", "bounds_of", "check_region", "prefixed", "region_of", "tiled"]

#: All bits of a double but its sign.
_BELOW_SIGN: Final = (1 << 63) - 1
#: The range of an attribute, or names of an enumeration's first and last value.
Range = tuple[Value, Value]


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of an attribute's line (ordinals for enumerations, 0 and 1 for bools)."""

    attribute: str
    lo: int | float
    hi: int | float


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One indexed part of the event space."""

    #: Zeros and ones.
    prefix: str
    axes: tuple[Axis, ...]
    #: The axis (by number) of each bit behind the prefix.
    order: tuple[int, ...]
    #: None: the whole event space.
    bounds: tuple[Bound, ...] = ()
    #: Takes the events that no other region holds.
    rest: bool = False

    @property
    def length(self) -> int:
        """The bits of a code in this region."""
        return len(self.prefix) + len(self.order)

    def range(self, schema: Schema, name: str) -> tuple[Number, Number]:
        """The stretch of an attribute's line inside this region."""
        for bound in self.bounds:
            if bound.attribute == name:
                return bound.lo, bound.hi
        return line_range(schema[name])

    def filter(self, schema: Schema) -> Filter:
        """The region as a filter."""
        return Filter(schema, {b.attribute: _value_set(schema, b) for b in self.bounds})

    def share(self, schema: Schema) -> float:
        """The region's part of the event space, by volume."""
        product = 1.0
        for bound in self.bounds:
            lo, hi = line_range(schema[bound.attribute])
            step = 0 if schema[bound.attribute].type == "float" else 1
            if hi - lo + step > 0:
                product *= max(float(bound.hi - bound.lo + step) / float(hi - lo + step), 1e-12)
        return product


def region_of(
    schema: Schema,
    bits: int,
    names: Sequence[str],
    bounds: tuple[Bound, ...],
    splits: Mapping[str, Sequence[Number]],
    rest: bool = False,
) -> Region:
    """A region without a prefix: bits dealt out in turn to the axes that can still use one."""
    if not 0 <= bits <= MAX_BITS:
        raise PlanError(expected=f"0 to {MAX_BITS} bits", got=bits, where="index plan")
    for name in (*names, *splits):
        if name not in schema:
            raise PlanError(expected=f"an attribute of {schema.name}", got=name, where="dimensions")
    shell = Region("", (), (), bounds, rest)
    ranges = [shell.range(schema, n) for n in names]
    room = [useful_bits(schema[n], *r) for n, r in zip(names, ranges, strict=True)]
    order: list[int] = []
    while len(order) < bits and any(room):
        for i in range(len(names)):
            if room[i] and len(order) < bits:
                room[i] -= 1
                order.append(i)
    axes = []
    for i, (name, (lo, hi)) in enumerate(zip(names, ranges, strict=True)):
        inside = tuple(min(max(p, lo), hi) for p in splits.get(name, ()))
        axes.append(Axis(name, MAX_BITS, inside).narrowed(order.count(i)))
    return Region("", tuple(axes), tuple(order), bounds, rest)


def bounds_of(schema: Schema, area: Mapping[str, Range]) -> tuple[Bound, ...]:
    """Ranges of values as bounds, cut to the domains; whole domains are left out."""
    found = []
    for name, (first, last) in area.items():
        attribute = schema[name]
        domain = line_range(attribute)
        if attribute.type == "str" and attribute.values is None:
            raise PlanError("A free string is hashed: a region cannot bound it", where=name)
        lo, hi = (attribute.ordinals.get(v, -1) if isinstance(v, str) else v for v in (first, last))
        if attribute.type == "float":
            lo, hi = float(lo), float(hi)
        else:
            lo, hi = math.floor(lo), math.ceil(hi)
        lo, hi = max(lo, domain[0]), min(hi, domain[1])
        if not lo <= hi:
            raise PlanError(expected=f"a range that meets [{domain[0]}, {domain[1]}]", got=(first, last), where=name)
        if (lo, hi) != domain:
            found.append(Bound(name, lo, hi))
    return tuple(found)


def prefixed(regions: Sequence[Region], bits: int) -> tuple[Region, ...]:
    """The regions numbered by prefixes of one length, their bits cut to what is left."""
    width = (len(regions) - 1).bit_length()
    if width > bits:
        raise PlanError(f"Expected at least {width} bits for {len(regions)} regions, got {bits}")
    found = []
    for number, region in enumerate(regions):
        order = region.order[: bits - width]
        axes = tuple(a if order.count(i) == a.bits else a.narrowed(order.count(i)) for i, a in enumerate(region.axes))
        prefix = f"{number:0{width}b}" if width else ""
        found.append(Region(prefix, axes, order, region.bounds, region.rest))
    return tuple(found)


def _value_set(schema: Schema, bound: Bound) -> ValueSet:
    attribute = schema[bound.attribute]
    if attribute.values is not None:
        return ValueSet.interval(attribute.values[int(bound.lo)], attribute.values[int(bound.hi)])
    if attribute.type == "bool":
        return ValueSet.of(*(v for v in (False, True) if bound.lo <= v <= bound.hi))
    return ValueSet.interval(bound.lo, bound.hi)


def check_region(schema: Schema, bits: int, region: Region, where: str) -> None:
    """Refuse a region that contradicts itself, its schema or the bits there are."""
    if region.prefix.strip("01") or region.length > bits:
        raise PlanError(
            expected=f"a prefix of zeros and ones, and at most {bits} bits in all",
            got=f"`prefix {region.prefix[:40]!r}, {region.length} bits`",
            where=where,
        )
    names = [b.attribute for b in region.bounds]
    axes = [a.attribute for a in region.axes]
    for listed in (names, axes):
        if len(set(listed)) != len(listed) or any(n not in schema for n in listed):
            raise PlanError(expected=f"distinct attributes of {schema.name}", got=listed, where=where)
    for bound in region.bounds:
        attribute = schema[bound.attribute]
        lo, hi = line_range(attribute)
        ordered: Any = attribute.type != "str" or attribute.values is not None
        whole = attribute.type == "float" or (type(bound.lo) is int and type(bound.hi) is int)
        if not ordered or not whole or not lo <= bound.lo <= bound.hi <= hi:
            kind = "" if attribute.type == "float" else "whole "
            raise PlanError(
                expected=f"{kind}bounds in [{lo}, {hi}]", got=(bound.lo, bound.hi), where=f"{where}.{bound.attribute}"
            )
    counts = [0] * len(axes)
    for i in region.order:
        if not 0 <= i < len(axes):
            raise PlanError(expected=f"an axis from 0 to {len(axes) - 1}", got=i, where=f"{where}.order")
        counts[i] += 1
    for axis, count in zip(region.axes, counts, strict=True):
        place = f"{where}.{axis.attribute}"
        if axis.bits != count:
            raise PlanError(f"Expected {axis.bits} bits of the axis in the order, got {count}", where=place)
        check_axis(axis, schema[axis.attribute], *region.range(schema, axis.attribute), place)


def tiled(schema: Schema, regions: Sequence[Region]) -> bool:
    """Whether regions that do not overlap fill the event space: none left out, none twice."""
    names = sorted({b.attribute for r in regions for b in r.bounds})
    spans = [[_ordinals(schema, name, *region.range(schema, name)) for name in names] for region in regions]
    whole = prod(hi - lo + 1 for lo, hi in (_ordinals(schema, n, *line_range(schema[n])) for n in names))
    if sum(prod(hi - lo + 1 for lo, hi in each) for each in spans) != whole:
        return False
    ends = np.array(spans, np.int64).reshape(len(regions), len(names), 2)
    for number in range(1, len(regions)):
        meets = (ends[:number, :, 0] <= ends[number, :, 1]) & (ends[:number, :, 1] >= ends[number, :, 0])
        if meets.all(axis=1).any():
            return False
    return True


def _ordinals(schema: Schema, name: str, lo: Number, hi: Number) -> tuple[int, int]:
    """The ends of a stretch as whole numbers: floats by their order among all floats."""
    if schema[name].type != "float":
        return int(lo), int(hi)
    first, last = (int(np.float64(end + 0.0).view(np.int64)) for end in (lo, hi))
    return tuple(bits if bits >= 0 else -(bits & _BELOW_SIGN) for bits in (first, last))  # type: ignore[return-value]
