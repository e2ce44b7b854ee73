"""The unit cube behind every generator, and its map onto a schema's domains.

Generators draw positions in [0, 1) per attribute and know nothing of types.  This module
maps a position, or a range of positions, onto an attribute:

    float         the number at that part of the domain
    int           whole numbers are equally wide slots of the unit interval
    str, bool     the *ordinal* of a value: its place in the sorted enumeration, false 0, true 1

Free text has no such line; the generator that uses it (`mixed`) brings its own vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sievenet.content import Attribute, Column, EventBatch, Schema, StringColumn
from sievenet.content.number import EXACT
from sievenet.errors import SchemaError
from sievenet.workload.draws import Floats

__all__ = ["batch_at", "column_at", "grid", "ranges_at", "slots", "whole"]

#: The largest position: still below 1.
_TOP: Final = float(np.nextafter(1.0, 0.0))


def grid(dimensions: int = 5, hi: int = 1023, name: str = "grid") -> Schema:
    """A schema of whole numbers ``x0 … x<dimensions - 1>`` in [0, hi]: the usual synthetic event space."""
    return Schema(name, tuple(Attribute(f"x{i}", "int", lo=0, hi=hi) for i in range(dimensions)))


def slots(attribute: Attribute) -> int:
    """How many values a discrete attribute has; 0 for floats."""
    line = attribute.line
    if line is None:
        raise SchemaError("Expected an enumeration, got free text", where=attribute.name)
    if line.real:
        return 0
    if max(abs(line.first), abs(line.last)) > EXACT:
        ends = (line.first, line.last)
        raise SchemaError(expected="whole numbers up to 2**53 in a generated workload", got=ends, where=attribute.name)
    return line.last - line.first + 1


def whole(attribute: Attribute) -> tuple[float, float]:
    """The first and the last number of the domain; ordinals for strings and bools."""
    if attribute.lo is None or attribute.hi is None:
        return 0.0, float(slots(attribute) - 1)
    return attribute.lo, attribute.hi


def column_at(attribute: Attribute, position: Floats) -> Column:
    """The values at positions in [0, 1]."""
    count = slots(attribute)
    lo, hi = whole(attribute)
    if not count:
        return np.minimum(lo + position * (hi - lo), hi)
    ordinals = np.minimum((position * count).astype(np.int64), count - 1)
    match attribute.type:
        case "bool":
            return ordinals.astype(np.bool_)
        case "str":
            return StringColumn(ordinals.astype(np.int32), attribute.values or ())
        case _:
            return ordinals + int(lo)


def ranges_at(attribute: Attribute, start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    """The closed bounds of the values between positions; at least one value each."""
    count = slots(attribute)
    lo, hi = whole(attribute)
    if not count:
        return np.minimum(lo + start * (hi - lo), hi), np.minimum(lo + stop * (hi - lo), hi)
    # Rounded to slots, not outwards: the mean width stays what was asked for.
    first = np.minimum(np.round(start * count), count - 1)
    last = np.clip(np.round(stop * count) - 1, first, count - 1)
    return first + lo, last + lo


def batch_at(schema: Schema, positions: Floats | Sequence[Floats]) -> EventBatch:
    """Events at positions: one row per event, one column per attribute."""
    cube = np.clip(np.asarray(positions, np.float64), 0.0, _TOP)
    columns = {a.name: column_at(a, cube[:, i]) for i, a in enumerate(schema.attributes)}
    return EventBatch.of(schema, columns)
