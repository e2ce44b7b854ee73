"""Events, records, filters, subscriptions and schemas as bytes.

The first byte holds the version and what follows; then (`binary` defines varints and texts)

    event         schema version, fixed part, free strings as text, payload length, payload
    record        count, per field: name, value                                  names ascending
    filter        schema version (0 if schemaless), body
    subscription  schema version (0 if schemaless), count, bodies
    schema        MessagePack of the schema
    batch         see `batch_codec`

The *fixed part* of an event is one little-endian struct that the schema alone determines: an
int as its distance from ``lo`` in the fewest of 1, 2, 4 or 8 bytes that hold the domain, an
enumeration's ordinal likewise, a float as 64 bits, all bools together as bits of one trailing
integer.  Sender and receiver hold the same schema, so no names or types travel.

A filter's body is its number of constraints (or 255 for the filter that matches nothing) and per
constraint the attribute's position (schemaless: its name), the number of cuts, and the cuts: for
an int or an enumeration the whole numbers between which membership changes, each as the distance
from the one before; otherwise a tag and a value.

Decoding trusts nothing: any bytes decode or raise `CodecError`, and only the canonical spelling
decodes, so equal values have equal bytes.  (One exception: the floats 0.0 and -0.0 are equal and
travel as they are.)
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from sievenet.content.binary import Reader, opening, text_bytes, varint, zigzag
from sievenet.content.cost import Estimate, too_much
from sievenet.content.event import MAX_PAYLOAD, Event, Record
from sievenet.content.filter import Filter, Subscription
from sievenet.content.filter_codec import read_body, write_body
from sievenet.content.parser import MAX_FILTERS
from sievenet.content.schema import MAX_ATTRIBUTES, MAX_STRING, Schema
from sievenet.content.valueset import Value
from sievenet.errors import CodecError, InvalidInput

__all__ = [
    "MAX_BYTES",
    "decode_event",
    "decode_filter",
    "decode_record",
    "decode_schema",
    "decode_subscription",
    "encode_event",
    "encode_filter",
    "encode_record",
    "encode_schema",
    "encode_subscription",
]

#: Longest encoded event, record, filter, subscription or schema.
MAX_BYTES: Final = 1 << 20

EVENT, RECORD, FILTER, SUBSCRIPTION, SCHEMA, BATCH = 1, 2, 3, 4, 5, 6
_EVENT_OPENING: Final = opening(EVENT)
_FALSE, _TRUE, _INT, _FLOAT, _TEXT = range(5)
_INT64: Final = 1 << 63


class _Layout(NamedTuple):
    """How a schema's events are laid out; derived from the schema once."""

    head: bytes
    fixed: struct.Struct
    #: Position, type, lo and the most that may be encoded: hi of a float, the distance to it of an int.
    numbers: tuple[tuple[int, str, Any, Any], ...]
    bools: tuple[int, ...]
    texts: tuple[int, ...]


def int_width(span: int) -> int:
    """Bytes of an unsigned integer from 0 to ``span``: 1, 2, 4 or 8."""
    return 1 if span < 1 << 8 else 2 if span < 1 << 16 else 4 if span < 1 << 32 else 8


_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


@lru_cache(maxsize=256)
def _layout(schema: Schema) -> _Layout:
    codes = "<"
    numbers: list[tuple[int, str, Any, Any]] = []
    bools: list[int] = []
    texts: list[int] = []
    for i, a in enumerate(schema.attributes):
        if a.type == "bool":
            bools.append(i)
        elif a.type == "float":
            codes += "d"
            numbers.append((i, "float", a.lo, a.hi))
        elif a.type == "int" or a.values is not None:
            lo = int(a.lo or 0) if a.type == "int" else 0
            span = int(a.hi or 0) - lo if a.type == "int" else len(a.values or ()) - 1
            codes += _CODES[int_width(span)]
            numbers.append((i, a.type, lo, span))
        else:
            texts.append(i)
    if bools:
        codes += _CODES[int_width((1 << len(bools)) - 1)]
    head = _EVENT_OPENING + varint(schema.version)
    return _Layout(head, struct.Struct(codes), tuple(numbers), tuple(bools), tuple(texts))


# -- events and records -----------------------------------------------------------------------


def encode_event(event: Event) -> bytes:
    """An event as bytes; the receiver needs its schema."""
    schema, values = event.schema, event.values
    head, fixed, numbers, bools, texts = _layout(schema)
    out: list[float] = []
    for i, kind, lo, _ in numbers:
        value = values[i]
        if kind == "float":
            out.append(value)  # type: ignore[arg-type]
        elif kind == "int":
            out.append(value - lo)
        else:
            out.append(schema.attributes[i].ordinals[value])  # type: ignore[index]
    if bools:
        out.append(sum(1 << bit for bit, i in enumerate(bools) if values[i]))
    strings = b"".join([text_bytes(values[i]) for i in texts])  # type: ignore[arg-type]
    return b"".join((head, fixed.pack(*out), strings, varint(len(event.payload)), event.payload))


def decode_event(schema: Schema, data: bytes) -> Event:
    """An event of this schema from bytes."""
    reader = Reader(data, EVENT, f"event of {schema.name}", MAX_BYTES)
    check_version(reader, schema)
    _, fixed, numbers, bools, texts = _layout(schema)
    found = fixed.unpack(reader.take(fixed.size))
    values: list[Value] = [False] * len(schema.attributes)
    attributes = schema.attributes
    for (i, kind, lo, most), value in zip(numbers, found, strict=False):
        if kind == "float":
            if not lo <= value <= most:  # NaN too
                reader.fail(f"{attributes[i].describes} for {attributes[i].name}", value)
            values[i] = value
        elif value > most:
            reader.fail(f"{attributes[i].describes} for {attributes[i].name}", lo + value)
        else:
            values[i] = lo + value if kind == "int" else attributes[i].values[value]  # type: ignore[index]
    if bools:
        bits = found[-1]
        if bits >> len(bools):
            reader.fail(f"{len(bools)} bools", f"`{bits:#x}`")
        for bit, i in enumerate(bools):
            values[i] = bool(bits >> bit & 1)
    for i in texts:
        values[i] = reader.text()
    payload = reader.take(reader.varint(MAX_PAYLOAD))
    reader.end()
    return Event.trusted(schema, tuple(values), payload)


def encode_record(record: Record) -> bytes:
    """A schemaless record as bytes."""
    parts = [opening(RECORD), varint(len(record.fields))]
    for name, value in record.items():
        parts.append(text_bytes(name))
        if isinstance(value, bool):
            parts.append(varint(_TRUE if value else _FALSE))
        elif isinstance(value, int):
            parts += varint(_INT), zigzag(value)
        elif isinstance(value, float):
            parts += varint(_FLOAT), struct.pack("<d", value)
        else:
            parts += varint(_TEXT), text_bytes(value)
    parts += varint(len(record.payload)), record.payload
    return b"".join(parts)


def decode_record(data: bytes) -> Record:
    """A schemaless record from bytes."""
    reader = Reader(data, RECORD, "record", MAX_BYTES)
    fields: dict[str, Value] = {}
    last: str | None = None
    for _ in range(reader.varint(MAX_ATTRIBUTES)):
        name = reader.text()
        if last is not None and name <= last:
            reader.fail("ascending attribute names", name)
        last = name
        fields[name] = _read_value(reader)
    payload = reader.take(reader.varint(MAX_PAYLOAD))
    reader.end()
    return Record(fields, payload)


def _read_value(reader: Reader) -> Value:
    match reader.varint(_TEXT):
        case 0 | 1 as tag:
            return tag == _TRUE
        case 2:
            whole = reader.zigzag(_INT64)
            if whole == _INT64:
                reader.fail("a 64-bit whole number", whole)
            return whole
        case 3:
            value = reader.float()
            if not math.isfinite(value):
                reader.fail("a finite number", value)
            return value
        case _:
            return reader.text()


# -- filters ----------------------------------------------------------------------------------


def encode_filter(each: Filter) -> bytes:
    """A filter as bytes; the receiver needs its schema, if it has one."""
    return _limited(opening(FILTER) + _version(each.schema) + write_body(each))


def decode_filter(schema: Schema | None, data: bytes) -> Filter:
    """A filter of this schema (or a schemaless one) from bytes."""
    reader = Reader(data, FILTER, "filter", MAX_BYTES)
    check_version(reader, schema)
    found = read_body(reader, schema)
    reader.end()
    return found


def encode_subscription(each: Subscription) -> bytes:
    """A subscription as bytes; the receiver needs its schema, if it has one."""
    if len(each) > MAX_FILTERS:
        raise CodecError(expected=f"at most {MAX_FILTERS} filters", got=len(each), where="subscription")
    parts = [opening(SUBSCRIPTION), _version(each.schema), varint(len(each)), *map(write_body, each)]
    return _limited(b"".join(parts))


def decode_subscription(schema: Schema | None, data: bytes, most: int | None = None) -> Subscription:
    """A subscription of this schema (or a schemaless one) from bytes; with ``most``, if its `cost` is not higher."""
    reader = Reader(data, SUBSCRIPTION, "subscription", MAX_BYTES)
    check_version(reader, schema)
    estimate = Estimate()
    read = []
    for _ in range(reader.varint(MAX_FILTERS)):
        read.append(read_body(reader, schema, most))
        if most is not None:
            estimate.add(read[-1])
            if (steps := estimate.steps) > most:
                raise too_much(steps, most)  # at once: reading the rest is work too
    reader.end()
    filters = tuple(read)
    found = Subscription(filters, schema)
    if found.filters != filters:
        reader.fail("filters in order, none covered by another", "`another form`")
    return found


# -- schemas ----------------------------------------------------------------------------------


def encode_schema(schema: Schema) -> bytes:
    """A schema as bytes."""
    return _limited(opening(SCHEMA) + msgspec.msgpack.encode(schema))


def decode_schema(data: bytes) -> Schema:
    """A schema from bytes."""
    reader = Reader(data, SCHEMA, "schema", MAX_BYTES)
    try:
        found = msgspec.msgpack.decode(reader.take(len(data) - 1), type=Schema)
    except (msgspec.DecodeError, InvalidInput, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"Expected a schema: {error}", where="byte 1 of schema") from None
    if encode_schema(found) != data:
        reader.fail("the shortest form of a schema", "`another`")
    return found


# -- shared -----------------------------------------------------------------------------------


def _version(schema: Schema | None) -> bytes:
    return varint(0 if schema is None else schema.version)


def check_version(reader: Reader, schema: Schema | None) -> None:
    """The schema's version must be the next number."""
    version = reader.varint((1 << 16) - 1)
    if version != (0 if schema is None else schema.version):
        wanted = "a schemaless form" if schema is None else f"{schema.name} version {schema.version}"
        reader.fail(wanted, f"`version {version}`" if version else "`a schemaless form`")


def _limited(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise CodecError(expected=f"at most {MAX_BYTES} bytes", got=len(data))
    return data


assert MAX_ATTRIBUTES * (MAX_STRING + 2) + MAX_PAYLOAD < MAX_BYTES  # every event fits
