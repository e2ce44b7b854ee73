"""Events and records: points.

An `Event` belongs to a schema and has a value for each attribute.  A `Record` is
schemaless, in Siena's manner: any set of named values.  Filters ask both the same
question, `get(name)`, and ``None`` means that the attribute is absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sievenet.content.schema import MAX_ATTRIBUTES, Schema, check_string
from sievenet.content.valueset import MAX_STRING, Value
from sievenet.errors import EventError

__all__ = ["MAX_PAYLOAD", "Event", "Record"]

#: Longest opaque payload in bytes; an event must fit one datagram.
MAX_PAYLOAD: Final = 32768


@dataclass(frozen=True, slots=True)
class Event:
    """A point of a schema's event space, with an optional opaque payload."""

    schema: Schema
    values: tuple[Value, ...]
    payload: bytes = b""

    def __post_init__(self) -> None:
        schema = self.schema
        if len(self.values) != len(schema.attributes):
            raise EventError(expected=f"{len(schema.attributes)} values", got=len(self.values), where=schema.name)
        if not _plainly_good(schema, self.values):
            checked = tuple(
                a.checked(v, f"{schema.name}.{a.name}") for a, v in zip(schema.attributes, self.values, strict=True)
            )
            object.__setattr__(self, "values", checked)
        if self.payload or type(self.payload) is not bytes:
            check_payload(self.payload, schema.name)

    @staticmethod
    def trusted(schema: Schema, values: tuple[Value, ...], payload: bytes = b"") -> Event:
        """An event whose values are known to be in their domains, such as a row of a batch."""
        event = _new_event(Event)
        _set_schema(event, schema)
        _set_values(event, values)
        _set_payload(event, payload)
        return event

    @staticmethod
    def trusted_many(schema: Schema, rows: Iterable[tuple[Value, ...]]) -> Iterator[Event]:
        """Such events without payloads, one for each row of values; without a call for each."""
        new, set_schema, set_values, set_payload = _new_event, _set_schema, _set_values, _set_payload
        for values in rows:
            event = new(Event)
            set_schema(event, schema)
            set_values(event, values)
            set_payload(event, b"")
            yield event

    def get(self, name: str) -> Value | None:
        """The value of an attribute, or ``None`` if the schema has no such attribute."""
        i = self.schema.positions.get(name)
        return None if i is None else self.values[i]

    def __getitem__(self, name: str) -> Value:
        self.schema[name]
        return self.values[self.schema.positions[name]]

    def items(self) -> Iterator[tuple[str, Value]]:
        """The attributes' names and values, in the schema's order."""
        return zip(self.schema.positions, self.values, strict=True)

    def __hash__(self) -> int:
        return hash((self.schema.name, self.values, self.payload))

    def __str__(self) -> str:
        return f"{self.schema.name}: {_listed(self.items())}"


_new_event: Final = object.__new__
_set_schema: Final = vars(Event)["schema"].__set__
_set_values: Final = vars(Event)["values"].__set__
_set_payload: Final = vars(Event)["payload"].__set__


def _plainly_good(schema: Schema, values: tuple[object, ...]) -> bool:
    """Whether every value is good as it is; if not, it may still be wanted in another form."""
    for (kind, lo, hi, members), value in zip(schema.quick_checks, values, strict=True):
        if type(value) is not kind:
            return False
        if kind is str:
            if members is None:
                if not (len(value) <= MAX_STRING and value.isascii()):  # type: ignore[arg-type, attr-defined]
                    return False
            elif value not in members:
                return False
        elif not lo <= value <= hi:
            return False
    return type(values) is tuple


@dataclass(frozen=True, slots=True)
class Record:
    """A schemaless event: named values in any number up to `MAX_ATTRIBUTES`."""

    fields: Mapping[str, Value]
    payload: bytes = b""

    def __post_init__(self) -> None:
        if len(self.fields) > MAX_ATTRIBUTES:
            raise EventError(expected=f"at most {MAX_ATTRIBUTES} attributes", got=len(self.fields))
        checked: dict[str, Value] = {}
        for name in self.fields:
            if type(name) is not str:
                raise EventError(expected="attribute names that are strings", got=name)
        for name in sorted(self.fields):
            value = self.fields[name]
            check_string(name, "attribute name", EventError)
            if type(value) is str:
                check_string(value, name, EventError)
            elif type(value) is int:
                if not -(1 << 63) <= value < 1 << 63:
                    raise EventError(expected="a 64-bit whole number", got=value, where=name)
            elif type(value) is not bool and not (type(value) is float and math.isfinite(value)):
                raise EventError(expected="a string, bool, int or finite float", got=value, where=name)
            checked[name] = value
        object.__setattr__(self, "fields", checked)
        check_payload(self.payload, "record")

    def get(self, name: str) -> Value | None:
        """The value of an attribute, or ``None`` if the record has none."""
        return self.fields.get(name)

    def items(self) -> Iterator[tuple[str, Value]]:
        """The attributes' names and values, by name."""
        return iter(self.fields.items())

    def __hash__(self) -> int:
        return hash((tuple(self.fields.items()), self.payload))

    def __str__(self) -> str:
        return _listed(self.items())


def check_payload(payload: bytes, where: str) -> None:
    """Refuse a payload that is not bytes or too long."""
    if not isinstance(payload, bytes):
        raise EventError(expected="payload as bytes", got=payload, where=where)
    if len(payload) > MAX_PAYLOAD:
        raise EventError(f"Expected at most {MAX_PAYLOAD} bytes of payload, got {len(payload)}", where=where)


def _listed(items: Iterator[tuple[str, Value]]) -> str:
    from sievenet.content.text import literal, name_text

    return ", ".join(f"{name_text(name)}={literal(value)}" for name, value in items)
