"""Batches of events, column by column.

Wherever there are many events they travel as columns: one array per attribute.  Numbers
and bools are plain arrays; strings are dictionary-encoded, since what is done per string
(hashing, ranking) is then done once per distinct string.

    >>> from sievenet.content import Attribute, Schema
    >>> schema = Schema("t", (Attribute("x", "int", lo=0, hi=9), Attribute("s", "str")))
    >>> batch = EventBatch.of(schema, {"x": [1, 2], "s": ["a", "b"]})
    >>> str(batch[1])
    't: x=2, s="b"'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.content.event import Event, check_payload
from sievenet.content.schema import Attribute, Schema, check_string
from sievenet.errors import EventError

__all__ = ["Column", "EventBatch", "StringColumn"]


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """Strings by number: ``categories[codes[i]]`` is the i-th string.

    For an enumeration the categories are the attribute's sorted values.
    """

    codes: npt.NDArray[np.int32]
    categories: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, i: int) -> str:
        return self.categories[int(self.codes[i])]

    def take(self, where: Any) -> StringColumn:
        """The chosen rows."""
        return StringColumn(self.codes[where], self.categories)

    def strings(self) -> list[str]:
        """The plain strings."""
        return [self.categories[c] for c in self.codes.tolist()]

    @staticmethod
    def of(strings: Sequence[str]) -> StringColumn:
        """Encode strings, categories in order of first appearance."""
        numbers: dict[str, int] = {}
        codes = np.fromiter((numbers.setdefault(s, len(numbers)) for s in strings), np.int32, count=len(strings))
        return StringColumn(codes, tuple(numbers))


Column = npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_] | StringColumn


@dataclass(frozen=True, slots=True, eq=False)
class EventBatch:
    """Events of one schema as columns in the schema's order; all values are in their domains."""

    schema: Schema
    columns: tuple[Column, ...]
    #: One payload per event, or ``None`` if all are empty.
    payloads: tuple[bytes, ...] | None = None

    @staticmethod
    def of(
        schema: Schema | Iterable[Event],
        columns: Mapping[str, Any] | None = None,
        payloads: Sequence[bytes] | None = None,
    ) -> EventBatch:
        """A batch from arrays or lists by attribute name, checked against the schema; or from events of one schema."""
        if not isinstance(schema, Schema):
            return _of_events(schema, columns, payloads)
        if columns is None:
            raise EventError(expected=f"columns {', '.join(schema.positions)}", got="`a schema alone`", where="batch")
        unknown = columns.keys() - schema.positions.keys()
        missing = schema.positions.keys() - columns.keys()
        if unknown or missing:
            raise EventError(expected=f"columns {', '.join(schema.positions)}", got=sorted(columns), where=schema.name)
        checked = tuple(_checked(schema, a, columns[a.name]) for a in schema.attributes)
        lengths = {len(c) for c in checked} | ({len(payloads)} if payloads is not None else set())
        if len(lengths) > 1:
            raise EventError(expected="columns of one length", got=sorted(lengths), where=schema.name)
        for row, payload in enumerate(payloads or ()):
            check_payload(payload, f"{schema.name}[{row}]")
        return EventBatch(schema, checked, None if payloads is None else tuple(payloads))

    @staticmethod
    def from_events(schema: Schema, events: Iterable[Event]) -> EventBatch:
        """A batch of events that are checked already."""
        rows = list(events)
        for event in rows:
            if event.schema is not schema and event.schema != schema:
                raise EventError(expected=f"events of {schema.name}", got=event.schema.name, where="batch")
        names = schema.positions
        return EventBatch.of(
            schema,
            {name: [e.values[i] for e in rows] for name, i in names.items()},
            [e.payload for e in rows] if any(e.payload for e in rows) else None,
        )

    @staticmethod
    def concat(batches: Sequence[EventBatch]) -> EventBatch:
        """Several batches of one schema as one."""
        if not batches:
            raise EventError(expected="at least one batch", got=batches)
        schema = batches[0].schema
        for each in batches:
            if each.schema is not schema and each.schema != schema:
                raise EventError(expected=f"batches of {schema.name}", got=each.schema.name)
        columns: list[Column] = []
        for i in range(len(schema.attributes)):
            parts = [b.columns[i] for b in batches]
            first = parts[0]
            if isinstance(first, StringColumn):
                columns.append(_concat_strings([p for p in parts if isinstance(p, StringColumn)]))
            else:
                columns.append(np.concatenate(parts))  # type: ignore[arg-type]
        payloads = None
        if any(b.payloads is not None for b in batches):
            payloads = tuple(p for b in batches for p in (b.payloads or (b"",) * len(b)))
        return EventBatch(schema, tuple(columns), payloads)

    def __len__(self) -> int:
        return len(self.columns[0])

    def column(self, name: str) -> Column:
        """The column of an attribute."""
        self.schema[name]
        return self.columns[self.schema.positions[name]]

    def __getitem__(self, i: int) -> Event:
        values = tuple(c[i] if isinstance(c, StringColumn) else c[i].item() for c in self.columns)
        return Event.trusted(self.schema, values, self.payloads[i] if self.payloads else b"")

    def __iter__(self) -> Iterator[Event]:
        columns = [c.strings() if isinstance(c, StringColumn) else c.tolist() for c in self.columns]
        schema, rows = self.schema, zip(*columns, strict=True)
        if self.payloads is None:
            return Event.trusted_many(schema, rows)
        return (Event.trusted(schema, r, p) for r, p in zip(rows, self.payloads, strict=True))

    def take(self, where: Any) -> EventBatch:
        """The chosen events: a slice, a mask or an index array."""
        columns = tuple(c.take(where) if isinstance(c, StringColumn) else c[where] for c in self.columns)
        payloads = None
        if self.payloads is not None:
            payloads = tuple(self.payloads[i] for i in np.arange(len(self))[where].tolist())
        return EventBatch(self.schema, columns, payloads)


def _of_events(events: Any, *others: Any) -> EventBatch:
    rows = list(events) if isinstance(events, Iterable) and not isinstance(events, str | bytes | Mapping) else None
    if rows is None or any(each is not None for each in others) or not all(isinstance(e, Event) for e in rows):
        raise EventError(expected="a schema and columns, or events alone", got=events, where="batch")
    if not rows:
        raise EventError(
            expected="at least one event, which names the schema (or EventBatch.from_events(schema, []))",
            got="`none`",
            where="batch",
        )
    return EventBatch.from_events(rows[0].schema, rows)


def _checked(schema: Schema, attribute: Attribute, column: Any) -> Column:
    where = f"{schema.name}.{attribute.name}"
    if attribute.type == "str":
        return _checked_strings(attribute, column, where)
    try:
        array = np.asarray(column)
    except ValueError:  # rows of different lengths
        raise EventError(expected=f"a column of {attribute.type}", got=column, where=where) from None
    if array.size == 0 and array.ndim == 1:
        array = array.astype(_DTYPES[attribute.type])
    fits = {"int": "iu", "float": "fiu", "bool": "b"}[attribute.type]
    if array.ndim != 1 or array.dtype.kind not in fits:
        raise EventError(
            expected=f"a column of {attribute.type}",
            got=f"`{array.dtype} array of {array.ndim} dimensions`",
            where=where,
        )
    if attribute.type == "float":
        array = array.astype(np.float64, copy=False)
    if attribute.type != "bool" and array.size:
        # A comparison with NaN is false, so this refuses NaN too.
        good = (array >= attribute.lo) & (array <= attribute.hi)
        if not good.all():
            row = int(np.argmin(good))
            raise EventError(expected=attribute.describes, got=array[row].item(), where=f"{where}[{row}]")
    return np.ascontiguousarray(array, dtype=_DTYPES[attribute.type])


_DTYPES: dict[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}


def _checked_strings(attribute: Attribute, column: Any, where: str) -> StringColumn:
    encoded = column if isinstance(column, StringColumn) else StringColumn.of(_texts(column, where))
    codes = encoded.codes
    if len(codes) and not (codes.min() >= 0 and codes.max() < len(encoded.categories)):
        raise EventError(
            expected=f"codes from 0 to {len(encoded.categories) - 1}",
            got=f"`{codes.min()} to {codes.max()}`",
            where=where,
        )
    if attribute.values is None:
        if len(set(encoded.categories)) != len(encoded.categories):
            return StringColumn.of(encoded.strings())
        for text in encoded.categories:
            check_string(text, where, EventError)
        return encoded
    if encoded.categories == attribute.values:
        return encoded
    ordinals = attribute.ordinals
    table = np.array([ordinals.get(c, -1) for c in encoded.categories], np.int32)
    codes = table[codes] if len(codes) else codes
    if len(codes) and codes.min() < 0:
        row = int(np.argmin(codes))
        raise EventError(expected=attribute.describes, got=encoded[row], where=f"{where}[{row}]")
    return StringColumn(codes, attribute.values)


def _texts(column: Any, where: str) -> list[str]:
    texts = column.tolist() if isinstance(column, np.ndarray) else list(column)
    for row, text in enumerate(texts):
        if type(text) is not str:
            raise EventError(expected="a string", got=text, where=f"{where}[{row}]")
    return texts


def _concat_strings(parts: list[StringColumn]) -> StringColumn:
    if all(p.categories == parts[0].categories for p in parts):
        return StringColumn(np.concatenate([p.codes for p in parts]), parts[0].categories)
    numbers: dict[str, int] = {}
    codes = []
    for part in parts:
        table = np.array([numbers.setdefault(c, len(numbers)) for c in part.categories], np.int32)
        codes.append(table[part.codes] if len(part) else part.codes)
    return StringColumn(np.concatenate(codes), tuple(numbers))
