"""Readers: how filters and events become keys, for a schema and without one.

A reader knows the line of each attribute (see `lines`).  Keys of fixed lines are written once per event; those of
ranked lines once per event and store, because ranks are local to a store.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from sievenet.content import Event, EventBatch, Filter, Record, Schema, StringColumn
from sievenet.content.valueset import point
from sievenet.errors import EventError, FilterError, SchemaError
from sievenet.matcher import records
from sievenet.matcher.level import Level
from sievenet.matcher.lines import Intern, Pairs, any_pairs, schema_pairs, string_pairs

__all__ = ["Columns", "Reader", "RecordReader", "SchemaReader"]

Ints = npt.NDArray[np.int64]
_LONGEST: Final = 1 << records.LENGTH_BITS


class Columns(Protocol):
    """Many events, about to be read in chunks."""

    def __len__(self) -> int: ...

    def fixed(self, xs: Ints, lo: int, hi: int) -> None:
        """Write the keys on fixed lines of events lo to hi into the first rows."""

    def ranked(self, xs: Ints, lo: int, hi: int, level: Level) -> None:
        """Write their ranks among the cuts of a level."""


class Reader(Protocol):
    """Filters and events of one kind as keys."""

    #: How many attributes there are; grows with filters if schemaless.
    attributes: int
    #: Which packed values are doubles.
    floats: npt.NDArray[np.bool_]

    def record(self, wanted: Filter, key: int, row: int, numbers: list[Intern]) -> list[int]:
        """The record of a filter; new cuts are numbered."""

    def one(self, event: Any, raw: Any) -> Any:
        """Pack an event's values on fixed lines into ``raw``; what `rank` needs of it."""

    def rank(self, values: Any, level: Level, raw: Any) -> None:
        """Add the ranks among the cuts of a level."""

    def columns(self, events: Any) -> Columns:
        """Events in any number, checked."""


class SchemaReader:
    """Events and filters of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.attributes = len(schema.attributes)
        self.floats = np.array([a.type == "float" for a in schema.attributes])
        self._lines: dict[str, tuple[int, Pairs | None]] = {
            a.name: (i << 32, schema_pairs(a)) for i, a in enumerate(schema.attributes)
        }
        self._listed = [(i, a.ordinals) for i, a in enumerate(schema.attributes) if a.values is not None]
        self._free = [i for i, a in enumerate(schema.attributes) if a.type == "str" and a.values is None]
        codes = {"int": "q", "float": "d", "bool": "q", "str": "q"}
        self._pack = struct.Struct("=" + "".join(codes[a.type] for a in schema.attributes)).pack_into

    def record(self, wanted: Filter, key: int, row: int, numbers: list[Intern]) -> list[int]:
        """The record of a filter."""
        if wanted.schema is not self.schema and wanted.schema != self.schema:
            raise FilterError(expected=f"a filter of {_named(self.schema)}", got=f"`{_named(wanted.schema)}`")
        words = [key, 0]
        lines = self._lines
        for name, values in wanted.constraints.items():
            attr, line = lines[name]
            keys = line(values) if line is not None else string_pairs(values, numbers[attr >> 32])
            words.append(attr | len(keys) >> 1)
            words += keys
        return _headed(words, row)

    def one(self, event: Any, raw: Any) -> Any:
        """Pack an event."""
        if event.__class__ is not Event or (event.schema is not self.schema and event.schema != self.schema):
            got = getattr(event, "schema", None)
            if isinstance(event, EventBatch):
                raise SchemaError(expected=f"one event of {_named(self.schema)}", got="`a batch: use match_batch`")
            if got is None or got == self.schema:
                raise SchemaError(expected=f"an event of {_named(self.schema)}", got=f"`{type(event).__name__}`")
            raise SchemaError(expected=f"an event of {_named(self.schema)}", got=f"`{_named(got)}`")
        values = event.values
        if self._listed or self._free:
            plain: list[Any] = list(values)
            for attr, ordinals in self._listed:
                plain[attr] = ordinals[plain[attr]]
            for attr in self._free:
                plain[attr] = 0
            self._pack(raw, 0, *plain)
        else:
            self._pack(raw, 0, *values)
        return values

    def rank(self, values: Any, level: Level, raw: Any) -> None:
        """Rank its free strings."""
        cuts = level.cuts
        for attr in self._free:
            raw[attr] = bisect_right(cuts[attr], values[attr])

    def columns(self, events: Any) -> Columns:
        """The columns of a batch (or of a sequence of events)."""
        batch = events if isinstance(events, EventBatch) else EventBatch.from_events(self.schema, events)
        if batch.schema is not self.schema and batch.schema != self.schema:
            raise SchemaError(expected=f"a batch of {_named(self.schema)}", got=f"`{_named(batch.schema)}`")
        return _BatchColumns(batch, self._free)


class _BatchColumns:
    def __init__(self, batch: EventBatch, free: list[int]) -> None:
        self._batch = batch
        self._free = free
        # Per level and free attribute: the rank of each category.  A level outlives the batch, so its id is its own.
        self._tables: dict[tuple[int, int], Ints] = {}

    def __len__(self) -> int:
        return len(self._batch)

    def fixed(self, xs: Ints, lo: int, hi: int) -> None:
        for attr, column in enumerate(self._batch.columns):
            if isinstance(column, StringColumn):
                if attr not in self._free:
                    records.fill_ints(xs, attr, column.codes[lo:hi])
            elif column.dtype == np.float64:
                records.fill_floats(xs, attr, column[lo:hi].view(np.int64))
            else:
                records.fill_ints(xs, attr, column[lo:hi])

    def ranked(self, xs: Ints, lo: int, hi: int, level: Level) -> None:
        for attr in self._free:
            cuts = level.cuts[attr]
            if not cuts:
                continue
            column = self._batch.columns[attr]
            assert isinstance(column, StringColumn)
            table = self._tables.get((id(level), attr))
            if table is None:
                table = np.array([bisect_right(cuts, each) for each in column.categories], np.int64)
                self._tables[id(level), attr] = table
            records.fill_codes(xs, attr, column.codes[lo:hi], table)


class RecordReader:
    """Schemaless filters and records: every line is ranked, attributes are numbered as filters name them."""

    def __init__(self) -> None:
        # Kernels want at least one column, even if no filter names an attribute.
        self.attributes = 1
        self.floats = np.zeros(1, np.bool_)
        self._numbers: dict[str, int] = {}

    def record(self, wanted: Filter, key: int, row: int, numbers: list[Intern]) -> list[int]:
        """The record of a filter."""
        if wanted.schema is not None:
            raise FilterError(expected="a schemaless filter", got=f"`{_named(wanted.schema)}`")
        words = [key, 0]
        for name, values in wanted.constraints.items():
            attr = self._numbers.setdefault(name, len(self._numbers))
            while len(numbers) <= attr:
                numbers.append({})
            keys = any_pairs(values, numbers[attr])
            words.append(attr << 32 | len(keys) >> 1)
            words += keys
        if len(self._numbers) > self.attributes:
            self.attributes = len(self._numbers)
            self.floats = np.zeros(self.attributes, np.bool_)
        return _headed(words, row)

    def one(self, event: Any, raw: Any) -> Any:
        """The attributes of a record that filters name, as points of the line."""
        return self._points(event)

    def _points(self, event: Any) -> list[tuple[int, Any]]:
        numbers = self._numbers
        return [(numbers[name], point(value)) for name, value in _items(event) if name in numbers]

    def rank(self, values: Any, level: Level, raw: Any) -> None:
        """Rank its values; an absent one lies before every cut."""
        raw[:] = memoryview(bytes(8 * len(raw))).cast("q")
        cuts = level.cuts
        for attr, where in values:
            if attr < len(cuts):
                raw[attr] = bisect_right(cuts[attr], where)

    def columns(self, events: Any) -> Columns:
        """A sequence of records."""
        return _RecordColumns([self._points(event) for event in events])


class _RecordColumns:
    def __init__(self, rows: Sequence[list[tuple[int, Any]]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def fixed(self, xs: Ints, lo: int, hi: int) -> None:
        """Nothing is fixed."""

    def ranked(self, xs: Ints, lo: int, hi: int, level: Level) -> None:
        xs[: hi - lo] = 0
        cuts = level.cuts
        for i, values in enumerate(self._rows[lo:hi]):
            for attr, where in values:
                if attr < len(cuts):
                    xs[i, attr] = bisect_right(cuts[attr], where)


def _items(event: Any) -> Any:
    if isinstance(event, Record | Event | Mapping):
        return event.items()
    raise EventError(expected="a record", got=event)


def _headed(words: list[int], row: int) -> list[int]:
    if len(words) >= _LONGEST:
        raise FilterError(expected=f"a filter of fewer than {_LONGEST // 2} ends", got=len(words) // 2)
    words[1] = row << records.LENGTH_BITS | len(words)
    return words


def _named(schema: Schema | None) -> str:
    return "no schema" if schema is None else f"{schema.name} version {schema.version}"
