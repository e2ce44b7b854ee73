"""Many events as bytes, column by column.

    batch    schema version, count, columns in the schema's order, payloads
    int      distances from lo, each 1, 2, 4 or 8 bytes as the domain needs, little-endian
    float    64 bits each
    bool     a bit each, low bit first, padded with zeros
    enum     ordinals, each 1, 2 or 4 bytes
    str      number of distinct strings, the strings, then a number each of 1, 2 or 4 bytes
    payloads 0 if all are empty; else 1, a 16-bit length each, then all of them

A column is copied and checked by a few array operations, so the cost per event is some
nanoseconds per attribute.  The same rules hold as for single events (`codec`): bounded, strict.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.binary import Reader, opening, text_bytes, varint
from sievenet.content.codec import BATCH, check_version, int_width
from sievenet.content.event import MAX_PAYLOAD
from sievenet.content.schema import Attribute, Schema
from sievenet.errors import CodecError

__all__ = ["MAX_BATCH", "MAX_BATCH_BYTES", "decode_batch", "encode_batch"]

#: Most events in one encoded batch.
MAX_BATCH: Final = 1 << 20
#: Longest encoded batch.
MAX_BATCH_BYTES: Final = 1 << 28

_LENGTH: Final = np.dtype("<u2")


def encode_batch(batch: EventBatch) -> bytes:
    """A batch as bytes; the receiver needs its schema."""
    if len(batch) > MAX_BATCH:
        raise CodecError(expected=f"at most {MAX_BATCH} events", got=len(batch), where="batch")
    parts = [opening(BATCH), varint(batch.schema.version), varint(len(batch))]
    for attribute, column in zip(batch.schema.attributes, batch.columns, strict=True):
        _write_column(parts, attribute, column)
    payloads = batch.payloads
    if payloads is not None and any(payloads):
        parts += varint(1), np.array([len(p) for p in payloads], _LENGTH).tobytes(), *payloads
    else:
        parts.append(varint(0))
    data = b"".join(parts)
    if len(data) > MAX_BATCH_BYTES:
        raise CodecError(expected=f"at most {MAX_BATCH_BYTES} bytes", got=len(data), where="batch")
    return data


def decode_batch(schema: Schema, data: bytes) -> EventBatch:
    """A batch of events of this schema from bytes."""
    reader = Reader(data, BATCH, f"batch of {schema.name}", MAX_BATCH_BYTES)
    check_version(reader, schema)
    count = reader.varint(MAX_BATCH)
    columns = tuple(_read_column(reader, a, count) for a in schema.attributes)
    payloads = _read_payloads(reader, count) if reader.varint(1) else None
    reader.end()
    return EventBatch(schema, columns, payloads)


def _unsigned(span: int) -> np.dtype[Any]:
    return np.dtype(f"<u{int_width(span)}")


def _write_column(parts: list[bytes], attribute: Attribute, column: Column) -> None:
    if isinstance(column, StringColumn):
        if attribute.values is not None:
            parts.append(column.codes.astype(_unsigned(len(attribute.values) - 1)).tobytes())
            return
        used, codes = np.unique(column.codes, return_inverse=True)
        parts.append(varint(len(used)))
        parts += (text_bytes(column.categories[i]) for i in used.tolist())
        parts.append(codes.astype(_unsigned(max(len(used) - 1, 0))).tobytes())
    elif attribute.type == "int":
        lo, span = _range(attribute)
        # Modulo 2**64 the difference is right even where a signed one would overflow.
        distance = column.view(np.uint64) - np.uint64(lo % (1 << 64))
        parts.append(distance.astype(_unsigned(span)).tobytes())
    elif attribute.type == "float":
        parts.append(column.astype("<f8", copy=False).tobytes())
    else:
        parts.append(np.packbits(column.astype(np.bool_, copy=False), bitorder="little").tobytes())


def _read_column(reader: Reader, attribute: Attribute, count: int) -> Column:
    match attribute.type:
        case "str":
            return _read_strings(reader, attribute, count)
        case "bool":
            packed = np.frombuffer(reader.take((count + 7) // 8), np.uint8)
            if count % 8 and packed[-1] >> count % 8:
                reader.fail("zeros behind the last bool", int(packed[-1]))
            return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)
        case "float":
            floats = np.frombuffer(reader.take(8 * count), "<f8").astype(np.float64)
            lowest, highest = attribute.lo or 0.0, attribute.hi or 0.0
            good = (floats >= lowest) & (floats <= highest)  # false for NaN
            if not good.all():
                row = int(np.argmin(good))
                _refuse(reader, attribute, row, floats[row].item())
            return floats
        case _:
            lo, span = _range(attribute)
            distance = _read_numbers(reader, count, span)
            if count and int(distance.max()) > span:
                row = int(np.argmax(distance))
                _refuse(reader, attribute, row, lo + int(distance[row]))
            return (distance.astype(np.uint64) + np.uint64(lo % (1 << 64))).view(np.int64)


def _read_strings(reader: Reader, attribute: Attribute, count: int) -> StringColumn:
    if attribute.values is not None:
        categories = attribute.values
    else:
        categories = tuple(reader.text() for _ in range(reader.varint(count)))
        if len(set(categories)) != len(categories):
            reader.fail("distinct strings", f"`{len(categories) - len(set(categories))} repeated`")
        if count and not categories:
            reader.fail("at least one string", 0)
    codes = _read_numbers(reader, count, max(len(categories) - 1, 0))
    if count and int(codes.max()) >= len(categories):
        row = int(np.argmax(codes))
        _refuse(reader, attribute, row, f"`string number {codes[row]}`")
    if attribute.values is None and count and not np.bincount(codes, minlength=len(categories)).all():
        reader.fail("every string in use", "`some that are not`")
    return StringColumn(codes.astype(np.int32), categories)


def _read_numbers(reader: Reader, count: int, span: int) -> npt.NDArray[Any]:
    width = _unsigned(span)
    return np.frombuffer(reader.take(width.itemsize * count), width)


def _read_payloads(reader: Reader, count: int) -> tuple[bytes, ...]:
    lengths = np.frombuffer(reader.take(_LENGTH.itemsize * count), _LENGTH)
    if not lengths.any():
        reader.fail("a payload", "`none`")
    if int(lengths.max()) > MAX_PAYLOAD:
        reader.fail(f"payloads of at most {MAX_PAYLOAD} bytes", int(lengths.max()))
    whole = reader.take(int(lengths.sum(dtype=np.int64)))
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return tuple(whole[end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True))


def _range(attribute: Attribute) -> tuple[int, int]:
    lo = int(attribute.lo or 0)
    return lo, int(attribute.hi or 0) - lo


def _refuse(reader: Reader, attribute: Attribute, row: int, got: object) -> None:
    reader.fail(f"{attribute.describes} for {attribute.name} in row {row}", got)
