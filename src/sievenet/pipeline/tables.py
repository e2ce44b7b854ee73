"""What the tables are: columns of events, subscriptions and results, in Arrow and in Spark.

    events        one column per attribute under its name, `_time` (µs since 1970), `_publisher`
    quarantine    `source`, `reason`, `row` (the row as text)
    interests     `key`, `kind`, `client`, `host`, `content` (encoded subscription)

The events table holds checked values only, so an Arrow batch of it becomes an `EventBatch` without another check, and
without a copy where the types allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import Attribute, Column, EventBatch, Schema, StringColumn
from sievenet.errors import SchemaError

__all__ = [
    "INTERESTS",
    "PUBLISHER",
    "QUARANTINE",
    "TIME",
    "arrow_of",
    "batch_of",
    "ddl_of",
    "event_ddl",
    "fields_of",
    "quoted",
]

TIME: Final = "_time"
PUBLISHER: Final = "_publisher"

_ARROW: Final = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
_SQL: Final = {"int": "bigint", "float": "double", "bool": "boolean", "str": "string"}

QUARANTINE: Final = "source string, reason string, row string"
INTERESTS: Final = "key bigint, kind string, client string, host string, content binary"


def quoted(name: str) -> str:
    """A column's name in Spark SQL."""
    return f"`{name.replace('`', '``')}`"


def ddl_of(attribute: Attribute) -> str:
    """The SQL type of an attribute's column."""
    return _SQL[attribute.type]


def event_ddl(schema: Schema) -> str:
    """The columns of a schema's events table, as Spark takes them."""
    check_names(schema)
    own = [f"{quoted(a.name)} {_SQL[a.type]}" for a in schema.attributes]
    return ", ".join([*own, f"{TIME} bigint", f"{PUBLISHER} string"])


def fields_of(schema: Schema) -> pa.Schema:
    """The same for Arrow."""
    own = [pa.field(a.name, _ARROW[a.type]) for a in schema.attributes]
    return pa.schema([*own, pa.field(TIME, pa.int64()), pa.field(PUBLISHER, pa.string())])


def check_names(schema: Schema) -> None:
    """Refuse attributes called like our own columns."""
    for name in (TIME, PUBLISHER):
        if name in schema:
            raise SchemaError(f"The pipeline keeps its own column under the name {name}", where=schema.name)


def batch_of(schema: Schema, table: pa.RecordBatch) -> EventBatch:
    """An Arrow batch of the events table as events."""
    return EventBatch(schema, tuple(_column(a, table.column(a.name)) for a in schema.attributes))


def _column(attribute: Attribute, values: Any) -> Column:
    if attribute.type != "str":
        return np.asarray(values.to_numpy(zero_copy_only=False))
    encoded = values.dictionary_encode()
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32)
    categories = tuple(encoded.dictionary.to_pylist())
    if attribute.values is None:
        return StringColumn(codes, categories)
    table = np.array([attribute.ordinals[c] for c in categories], np.int32)
    return StringColumn(table[codes] if len(codes) else codes, attribute.values)


def arrow_of(
    batch: EventBatch, times: npt.NDArray[np.int64] | None = None, publishers: Sequence[str] | str = ""
) -> pa.RecordBatch:
    """Events as an Arrow batch of the events table."""
    count = len(batch)
    columns = []
    for column in batch.columns:
        if isinstance(column, StringColumn):
            categories = pa.array(column.categories, pa.string())
            columns.append(pa.DictionaryArray.from_arrays(pa.array(column.codes), categories).cast(pa.string()))
        else:
            columns.append(pa.array(column))
    columns.append(pa.array(np.zeros(count, np.int64) if times is None else times))
    names = [publishers] * count if isinstance(publishers, str) else list(publishers)
    columns.append(pa.array(names, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=fields_of(batch.schema))
