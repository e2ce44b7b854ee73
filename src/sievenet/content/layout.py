"""Events of one schema as rows of bytes, many at a time.

The codec writes an event as a head, a fixed part that the schema alone determines, free strings, and a payload
(`content.codec`). Without free strings and payload all events of a schema are equally long, so that many of them are a
matrix of bytes, and an attribute is a column of it wherever it stands:

    head │ x u2 │ y u2 │ kind u1 │ 00        one event: 8 bytes
    head │ x u2 │ y u2 │ kind u1 │ 00
         └──┬───┘
      one NumPy expression each way

Byte for byte the same as `encode_event` and `decode_event`, with the same checks; what cannot be written so (free
strings, payloads) goes event by event as ever.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content.batch import Column, EventBatch, StringColumn
from sievenet.content.codec import encode_event, int_width
from sievenet.content.event import Event, _new_event, _set_payload, _set_schema, _set_values
from sievenet.content.schema import Attribute, Schema

__all__ = ["Bytes", "Layout", "layout_of"]

Bytes = npt.NDArray[np.uint8]

_MASK: Final = (1 << 64) - 1


class Layout:
    """How events of a schema lie in a row of bytes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._bools = [i for i, a in enumerate(schema.attributes) if a.type == "bool"]
        fields = [(f"a{i}", _type_of(a)) for i, a in enumerate(schema.attributes) if a.type != "bool"]
        if self._bools:
            fields.append(("bools", f"<u{int_width((1 << len(self._bools)) - 1)}"))
        sample = encode_event(Event(schema, tuple(_first(a) for a in schema.attributes)))
        fixed = np.dtype(fields).itemsize
        #: Opening and version, the same in every event; and an empty payload's length at the end.
        self._opening = sample[: len(sample) - fixed - 1]
        self._head = np.frombuffer(self._opening, np.uint8)
        self._type = np.dtype([("head", "u1", (len(self._head),)), *fields, ("payload", "u1")])
        #: The lower (None: there is none) and upper bound of each field.
        self._bounds: list[tuple[str, float | None, float]] = []
        for i, attribute in enumerate(schema.attributes):
            if attribute.type == "float":
                self._bounds.append((f"a{i}", float(attribute.lo or 0), float(attribute.hi or 0)))
            elif attribute.type != "bool":
                self._bounds.append((f"a{i}", None, _span(attribute)))
        if 0 < len(self._bools) < 64:
            self._bounds.append(("bools", None, (1 << len(self._bools)) - 1))
        #: For single events, of schemas without bools, which share bytes: the fields as `struct` has them, the least
        #: and the most of each as written, and how written values become the attributes' (None: they are the same).
        codes = "".join("" if a.type == "bool" else _code_of(a) for a in schema.attributes)
        self._values = struct.Struct(f"<{codes}")
        self._whole = struct.Struct(f"<{len(self._opening)}s{codes}x")
        self._spans = [
            (float(a.lo or 0), float(a.hi or 0)) if a.type == "float" else (0, _span(a)) for a in schema.attributes
        ]
        self._others: list[tuple[int, Any, Mapping[Any, int] | None]] = [
            (i, a.values if a.values is not None else int(a.lo or 0), a.ordinals if a.values is not None else None)
            for i, a in enumerate(schema.attributes)
            if a.values is not None or (a.type == "int" and a.lo)
        ]
        #: From an event's values to its bytes, without a payload; None if there are bools.
        self.writer = self._writer()
        #: Bytes of an event.
        self.size: Final = len(sample)
        assert self._type.itemsize == self.size

    @property
    def opening(self) -> bytes:
        """What every event begins with."""
        return self._opening

    def place(self, attribute: int) -> tuple[int, int]:
        """Where the bytes of an attribute begin, and how many they are; all bools share theirs, the first in bit 0."""
        assert self._type.fields is not None
        field, at = self._type.fields["bools" if attribute in self._bools else f"a{attribute}"][:2]
        return at, field.itemsize

    def encode(self, batch: EventBatch) -> Bytes | None:
        """One row for each event; None if they cannot be written so."""
        if batch.payloads is not None and any(batch.payloads):
            return None
        rows = np.zeros(len(batch), self._type)
        rows["head"] = self._head
        for i, (attribute, column) in enumerate(zip(self._schema.attributes, batch.columns, strict=True)):
            if isinstance(column, StringColumn):
                if column.categories != attribute.values:
                    return None
                rows[f"a{i}"] = column.codes
            elif attribute.type == "int":
                rows[f"a{i}"] = column.view(np.uint64) - np.uint64(int(attribute.lo or 0) & _MASK)
            elif attribute.type == "float":
                rows[f"a{i}"] = column
        for bit, i in enumerate(self._bools):
            rows["bools"] |= np.asarray(batch.columns[i]).astype(rows["bools"].dtype) << bit
        return rows.view(np.uint8).reshape(len(batch), self.size)

    def encode_one(self, event: Event) -> bytes | None:
        """A single event as `encode_event` writes it; None if that has to write it: bools, a payload."""
        return None if self.writer is None or event.payload else self.writer(*event.values)

    def _writer(self) -> Callable[..., bytes] | None:
        pack, opening, others = self._whole.pack, self._opening, self._others
        if self._bools or not others:
            return None if self._bools else partial(pack, opening)

        def write(*given: Any) -> bytes:
            values = list(given)
            for i, base, ordinals in others:
                values[i] = values[i] - base if ordinals is None else ordinals[values[i]]
            return pack(opening, *values)

        return write

    def decode_one(self, data: bytes, at: int = 0) -> Event | None:
        """The event in these bytes from a place on; None if it has to be decoded with all care: malformed, or not
        written so.

        In few steps, since most of what a single event costs is code that its process has not run for a while.
        """
        if len(data) != at + self.size or self._bools or data[-1] or not data.startswith(self._opening, at):
            return None
        found = self._values.unpack_from(data, at + len(self._opening))
        for value, (lo, hi) in zip(found, self._spans, strict=True):
            if not lo <= value <= hi:
                return None
        if self._others:
            values = list(found)
            for i, base, ordinals in self._others:
                values[i] = values[i] + base if ordinals is None else base[values[i]]
            found = tuple(values)
        # As `Event.trusted` does, without a call.
        event = _new_event(Event)
        _set_schema(event, self._schema)
        _set_values(event, found)
        _set_payload(event, b"")
        return event

    def decode(self, data: Bytes) -> tuple[EventBatch, npt.NDArray[np.bool_]]:
        """The events in these rows, and which rows they were in; the others are malformed."""
        rows = np.ascontiguousarray(data).view(self._type).reshape(len(data))
        if self._all_good(rows):
            good = np.ones(len(rows), np.bool_)
        else:
            good = self._good(rows)
            rows = rows[good]
        columns = tuple(self._column(rows, i, attribute) for i, attribute in enumerate(self._schema.attributes))
        return EventBatch(self._schema, columns), good

    def _all_good(self, rows: npt.NDArray[Any]) -> bool:
        """Whether nothing is malformed, which is quicker to ask than what is."""
        count = len(rows)
        if not count or rows["head"].tobytes() != self._opening * count or np.count_nonzero(rows["payload"]):
            return False
        for name, lo, hi in self._bounds:
            found = rows[name]
            # Not by the largest: there are values that are not numbers.
            if np.count_nonzero(found <= hi) < count or (lo is not None and np.count_nonzero(found >= lo) < count):
                return False
        return True

    def _good(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        good: npt.NDArray[np.bool_] = (rows["head"] == self._head).all(axis=1) & (rows["payload"] == 0)
        for name, lo, hi in self._bounds:
            good &= rows[name] <= hi
            if lo is not None:
                good &= rows[name] >= lo
        return good

    def _column(self, rows: npt.NDArray[Any], i: int, attribute: Attribute) -> Column:
        if attribute.type == "bool":
            bit = self._bools.index(i)
            return (rows["bools"] >> bit & 1).astype(np.bool_)
        found = rows[f"a{i}"]
        if attribute.type == "float":
            return found.astype(np.float64)
        if attribute.type == "int":
            wide = found.astype(np.uint64)
            if attribute.lo:
                wide += np.uint64(int(attribute.lo) & _MASK)
            return wide.view(np.int64)
        return StringColumn(found.astype(np.int32), attribute.values or ())


@lru_cache(maxsize=256)
def layout_of(schema: Schema | None) -> Layout | None:
    """The layout of a schema's events; None if they are not all equally long, as records without a schema."""
    if schema is None or any(a.type == "str" and a.values is None for a in schema.attributes):
        return None
    return Layout(schema)


def _span(attribute: Attribute) -> int:
    if attribute.type == "int":
        return int(attribute.hi or 0) - int(attribute.lo or 0)
    return len(attribute.values or ()) - 1


def _type_of(attribute: Attribute) -> str:
    return "<f8" if attribute.type == "float" else f"<u{int_width(_span(attribute))}"


def _code_of(attribute: Attribute) -> str:
    return "d" if attribute.type == "float" else {1: "B", 2: "H", 4: "I", 8: "Q"}[int_width(_span(attribute))]


def _first(attribute: Attribute) -> Any:
    if attribute.type == "bool":
        return False
    return (attribute.values or ("",))[0] if attribute.type == "str" else attribute.lo
