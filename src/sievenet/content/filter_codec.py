"""The body of an encoded filter: constraints, cuts. See `codec` for the layout.

A constraint's cuts travel as steps where the domain is countable, as tagged values elsewhere:

    volume in [100, 500)      int, lo = 0          steps 100, 400
    symbol in {"AAPL", "IBM"} enumeration          ordinals between which membership changes
    price > 420.5             float                before 420.50000000000006, after 1000
    x exists                  schemaless           bool kind, end

A cut of a number is spelt "before the next number" or "after the number before": whichever is a whole number up to
2**53, which takes few bytes, else whichever is a float.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from typing import Final

from sievenet.content.binary import Reader, text_bytes, varint, zigzag
from sievenet.content.cost import too_much
from sievenet.content.filter import Filter
from sievenet.content.number import EXACT, next_number, previous_number
from sievenet.content.schema import MAX_ATTRIBUTES, MAX_STRING, Attribute, Schema
from sievenet.content.valueset import BOOL, NUMBER, STRING, Cut, ValueSet, after, before
from sievenet.errors import CodecError

__all__ = ["MAX_CUTS", "read_body", "write_body"]

#: Most cuts of one constraint.
MAX_CUTS: Final = 1 << 16
#: A schemaless filter may name more attributes than an event has; it is bounded all the same.
_MOST_CONSTRAINTS: Final = 4 * MAX_ATTRIBUTES - 2
_NOTHING: Final = 4 * MAX_ATTRIBUTES - 1
# Tags 0 to 4 are the bare kinds' cuts.
_INT_BEFORE, _INT_AFTER, _FLOAT_BEFORE, _FLOAT_AFTER, _TEXT, _TRUE = range(5, 11)
_LARGEST: Final = (1 << 1024) - 1
_FLOAT: Final = struct.Struct("<d")


def write_body(each: Filter) -> bytes:
    """The constraints of a filter."""
    if each.empty:
        return varint(_NOTHING)
    schema = each.schema
    if len(each.constraints) > _MOST_CONSTRAINTS:
        raise CodecError(expected=f"at most {_MOST_CONSTRAINTS} constraints", got=len(each.constraints))
    parts = [varint(len(each.constraints))]
    for name, values in each.constraints.items():
        if len(values.cuts) > MAX_CUTS:
            raise CodecError(expected=f"at most {MAX_CUTS} cuts", got=len(values.cuts), where=name)
        parts.append(text_bytes(name) if schema is None else varint(schema.positions[name]))
        parts.append(varint(len(values.cuts)))
        steps = None if schema is None else _steps(schema[name], values)
        if steps is None:
            parts += map(_write_cut, values.cuts)
        else:
            parts += map(varint, steps)
    return b"".join(parts)


def read_body(reader: Reader, schema: Schema | None, most: int | None = None) -> Filter:
    """A filter from its constraints, which costs at most so many steps, or about; only canonical ones are let in."""
    cost = 0
    count = reader.varint(_NOTHING)
    if count == _NOTHING:
        return Filter.nothing(schema)
    constraints: dict[str, ValueSet] = {}
    last: str | int | None = None
    for _ in range(count):
        here = reader.text() if schema is None else reader.varint(len(schema.attributes) - 1)
        if last is not None and here <= last:  # type: ignore[operator]
            reader.fail("constraints in order", here)
        last = here
        cuts = reader.varint(MAX_CUTS)
        cost += 2 * cuts  # at least
        if most is not None and cost > most:
            raise too_much(cost, most)
        if schema is None:
            constraints[str(here)] = _read_cuts(reader, cuts)
            continue
        attribute = schema.attributes[int(here)]
        countable = attribute.type == "int" or attribute.values is not None
        values = (_read_steps if countable else _read_attribute_cuts)(reader, cuts, attribute)
        constraints[attribute.name] = values
    found = Filter(schema, constraints)
    if found.empty or found.constraints != constraints:
        reader.fail("constraints in canonical form", "`another form`")
    return found


# -- countable domains ------------------------------------------------------------------------


def _steps(attribute: Attribute, values: ValueSet) -> list[int] | None:
    if attribute.values is not None:
        members = attribute.values
        places = [bisect_left(members, cut[1] if len(cut) > 1 else "") for cut in values.cuts]
    elif attribute.type == "int":
        places = [cut[1] - attribute.lo for cut in values.cuts]
    else:
        return None
    return [b - a for a, b in zip([0, *places], places, strict=False)]


def _read_steps(reader: Reader, count: int, attribute: Attribute) -> ValueSet:
    members = attribute.values
    base = 0 if members is not None else int(attribute.lo or 0)
    most = len(members) if members is not None else int(attribute.hi or 0) - base + 1
    cuts: list[Cut] = []
    place = 0
    for i in range(_even(reader, count)):
        step = reader.varint(most - place)
        if i and not step:
            reader.fail("ascending cuts", step)
        place += step
        if members is None:
            cuts.append((NUMBER, base + place))
        elif i & 1:
            cuts.append(after(members[place - 1]))
        elif place < most:
            cuts.append(before(members[place]))
        else:
            reader.fail(f"an ordinal below {most}", place)
    return ValueSet(tuple(cuts))


# -- other domains ----------------------------------------------------------------------------


def _write_cut(cut: Cut) -> bytes:
    if len(cut) == 1:
        return varint(cut[0])
    if cut[0] == STRING:
        return varint(_TEXT) + text_bytes(cut[1])
    if cut[0] == BOOL:
        return varint(_TRUE)
    tag, value = _spelling(cut[1])
    return varint(tag) + (zigzag(int(value)) if tag < _FLOAT_BEFORE else _FLOAT.pack(value))


def _spelling(value: float) -> tuple[int, float]:
    """The one tag and number that say a cut before a number; whether 5 or 5.0 does not matter."""
    if _small_whole(value):
        return _INT_BEFORE, value
    last = _LAST_FLOAT if value == math.inf else previous_number(value)
    if _small_whole(last):
        return _INT_AFTER, last
    if value != math.inf and float(value) == value:
        return _FLOAT_BEFORE, float(value)
    if float(last) == last:
        return _FLOAT_AFTER, float(last)
    return _INT_BEFORE, value


def _small_whole(value: float) -> bool:
    return -EXACT <= value <= EXACT and value == int(value)


_LAST_FLOAT: Final = math.nextafter(math.inf, 0)


def _read_attribute_cuts(reader: Reader, count: int, attribute: Attribute) -> ValueSet:
    values = _read_cuts(reader, count)
    if attribute.type == "float":
        values = values.floated()
    return values


def _read_cuts(reader: Reader, count: int) -> ValueSet:
    cuts: list[Cut] = []
    for _ in range(_even(reader, count)):
        cut = _read_cut(reader)
        if cuts and cut <= cuts[-1]:
            reader.fail("ascending cuts", cut)
        cuts.append(cut)
    return ValueSet(tuple(cuts))


def _read_cut(reader: Reader) -> Cut:
    tag = reader.varint(_TRUE)
    if tag <= STRING + 1:
        return (tag,)
    if tag == _TRUE:
        return (BOOL, 1)
    if tag == _TEXT:
        text = reader.text(MAX_STRING + 1)
        if not text:
            reader.fail("a cut behind the empty string", text)
        return (STRING, text)
    value: float
    if tag < _FLOAT_BEFORE:
        value = reader.zigzag(_LARGEST)
    else:
        value = reader.float()
        if not math.isfinite(value):
            reader.fail("a finite number", value)
    cut: Cut = (NUMBER, next_number(value) if tag in (_INT_AFTER, _FLOAT_AFTER) else value)
    if _spelling(cut[1]) != (tag, value):
        reader.fail("the one spelling of a cut", f"`{'after' if cut[1] != value else 'before'} {value}`")
    return cut


def _even(reader: Reader, count: int) -> int:
    if count & 1 or not count:
        reader.fail("an even number of cuts", count)
    return count
