"""Schemas: what an event of a category may say.

A schema is a value: a name, a version and an ordered tuple of typed attributes with
their domains.  Everybody who speaks of a category (publisher, subscriber, control
plane, pipeline) holds an equal one.

    >>> stock = Schema("stock", (Attribute("symbol", "str", values=("AAPL", "IBM")),
    ...                          Attribute("price", "float", lo=0, hi=1000)))
    >>> stock.event(symbol="IBM", price=421.5).values
    ('IBM', 421.5)

An attribute knows its *domain* (a `ValueSet`) and how to bring any set of values into
the domain's canonical form; that is all that distinguishes the types for the algebra.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np

from sievenet.content.line import Line, line_of
from sievenet.content.valueset import BOOLS, MAX_STRING, STRINGS, Value, ValueSet
from sievenet.errors import EventError, InvalidInput, SchemaError

if TYPE_CHECKING:
    from sievenet.content.event import Event

__all__ = ["MAX_ATTRIBUTES", "MAX_STRING", "NAME", "RESERVED", "Attribute", "AttributeType", "Schema"]

AttributeType = Literal["int", "float", "str", "bool"]

MAX_ATTRIBUTES: Final = 64
#: Words of the filter language; an attribute cannot be named so.
RESERVED: Final = frozenset("and or not in is prefix exists absent any none true false inf bool number string".split())

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_INT64: Final = 1 << 63


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """One attribute: its name, type and domain.

    Numbers need a closed domain ``[lo, hi]``.  Strings are an enumeration when ``values``
    are given, else free text.
    """

    name: str
    type: AttributeType
    lo: int | float | None = None
    hi: int | float | None = None
    values: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in RESERVED:
            raise SchemaError(
                expected="an attribute name: a letter or _, then letters, digits, _ . - (no reserved word)",
                got=self.name,
            )
        where = self.name
        if self.type in ("int", "float"):
            self._check_range(where)
        elif self.lo is not None or self.hi is not None:
            raise SchemaError(f"Only numbers have lo and hi, {self.type} has not", where=where)
        if self.values is not None:
            if self.type != "str":
                raise SchemaError(f"Only strings are enumerated, {self.type} is not", where=where)
            if not self.values:
                raise SchemaError(expected="at least one value", got=self.values, where=where)
            if not _plain(self.values):
                for value in self.values:
                    check_string(value, where)
            if len(set(self.values)) != len(self.values):
                raise SchemaError(expected="distinct values", got=self.values, where=where)
            msgspec.structs.force_setattr(self, "values", tuple(sorted(self.values)))

    def _check_range(self, where: str) -> None:
        lo, hi = self.lo, self.hi
        if lo is None or hi is None:
            raise SchemaError(expected=f"lo and hi of an {self.type}", got=(lo, hi), where=where)
        if self.type == "int":
            if not (isinstance(lo, int) and isinstance(hi, int)) or max(abs(lo), abs(hi)) >= _INT64:
                raise SchemaError(expected="64-bit whole lo and hi", got=(lo, hi), where=where)
        else:
            try:
                lo, hi = float(lo), float(hi)
            except OverflowError:  # a whole number beyond every float
                raise SchemaError(expected="finite lo and hi", got=(lo, hi), where=where) from None
            msgspec.structs.force_setattr(self, "lo", lo)
            msgspec.structs.force_setattr(self, "hi", hi)
            if not math.isfinite(hi - lo):
                raise SchemaError(expected="finite lo and hi", got=(lo, hi), where=where)
        if lo > hi:
            raise SchemaError(expected="lo <= hi", got=(lo, hi), where=where)

    @cached_property
    def domain(self) -> ValueSet:
        """Every value this attribute can have, in canonical form."""
        match self.type:
            case "bool":
                return BOOLS
            case "str":
                return STRINGS if self.values is None else ValueSet.of(*self.values).among(self.values)
            case "int":
                return ValueSet.interval(self.lo, self.hi).rounded()
            case _:
                return ValueSet.interval(self.lo, self.hi).floated()

    @cached_property
    def line(self) -> Line | None:
        """The values as whole numbers in the same order; ``None`` for free text."""
        return line_of(self)

    def canonical(self, values: ValueSet) -> ValueSet:
        """The part of a set inside the domain, in the one form that equal sets share."""
        if self.values is not None:
            return values.among(self.values)
        kind = self.type
        if kind == "float":
            values = values.floated()
        elif kind == "int":
            values = values.rounded()
        return values & self.domain

    @property
    def describes(self) -> str:
        """The domain in words, for error messages."""
        match self.type:
            case "int" | "float":
                return f"{self.type} in [{self.lo}, {self.hi}]"
            case "str" if self.values is not None:
                shown = ", ".join(map(repr, self.values[:4]))
                return f"one of {shown}{', …' if len(self.values) > 4 else ''}"
            case _:
                return self.type

    def checked(self, value: object, where: str) -> Value:
        """The value if the domain allows it; whole numbers become floats where floats are due."""
        if isinstance(value, np.generic):
            value = value.item()
        kind = type(value)
        found: Any = value
        match self.type:
            case "int" if kind is int and self.lo <= found <= self.hi:
                return int(found)
            case "float" if (kind is float or kind is int) and self.lo <= found <= self.hi:
                return float(found)
            case "bool" if kind is bool:
                return bool(found)
            case "str" if kind is str:
                if self.values is None:
                    return check_string(found, where, EventError)
                if found in self.ordinals:
                    return str(found)
        raise EventError(expected=self.describes, got=value, where=where)

    @cached_property
    def ordinals(self) -> dict[str, int]:
        """The position of each value of an enumeration."""
        return {value: i for i, value in enumerate(self.values or ())}


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A category of events: name, attributes in order, version."""

    name: str
    attributes: tuple[Attribute, ...]
    version: int = 1

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in RESERVED:
            raise SchemaError(expected="a schema name: a letter or _, then letters, digits, _ . -", got=self.name)
        if not 1 <= self.version < 1 << 16:
            raise SchemaError(expected="a version from 1 to 65535", got=self.version, where=self.name)
        if not 1 <= len(self.attributes) <= MAX_ATTRIBUTES:
            raise SchemaError(expected=f"1 to {MAX_ATTRIBUTES} attributes", got=len(self.attributes), where=self.name)
        if len(self.positions) != len(self.attributes):
            raise SchemaError(
                expected="distinct attribute names", got=[a.name for a in self.attributes], where=self.name
            )

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each attribute by its name."""
        return {a.name: i for i, a in enumerate(self.attributes)}

    @cached_property
    def quick_checks(self) -> tuple[tuple[type, Any, Any, dict[str, int] | None], ...]:
        """Per attribute its Python type, bounds and members: what a good value passes at once."""
        types: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
        return tuple(
            (types[a.type], False if a.type == "bool" else a.lo, True if a.type == "bool" else a.hi, a.ordinals or None)
            for a in self.attributes
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.version, self.attributes))

    def __hash__(self) -> int:
        return self._hash

    def __getitem__(self, name: str) -> Attribute:
        try:
            return self.attributes[self.positions[name]]
        except KeyError:
            known = ", ".join(a.name for a in self.attributes)
            raise SchemaError(expected=f"an attribute of {self.name} ({known})", got=name) from None

    def __contains__(self, name: object) -> bool:
        return name in self.positions

    def event(self, payload: bytes = b"", /, **values: Value) -> Event:
        """An event of this category, checked."""
        return self.event_of(values, payload)

    def event_of(self, values: Mapping[str, Value], payload: bytes = b"") -> Event:
        """An event from a mapping: every attribute once, nothing else."""
        from sievenet.content.event import Event

        for name in values:
            if name not in self.positions:
                known = ", ".join(self.positions)
                raise EventError(expected=f"attributes {known}", got=name, where=self.name)
        missing = [a.name for a in self.attributes if a.name not in values]
        if missing:
            raise EventError(f"Expected a value of {', '.join(missing)}, got none", where=self.name)
        return Event(self, tuple(values[a.name] for a in self.attributes), payload)

    # -- JSON -----------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """The schema as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @staticmethod
    def from_json(data: bytes | str) -> Schema:
        """A schema from JSON; `SchemaError` says where it is wrong."""
        try:
            return msgspec.json.decode(data, type=Schema)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SchemaError(str(error)) from None

    @staticmethod
    def from_builtins(data: Any) -> Schema:
        """A schema from plain dicts and lists, as any JSON or TOML reader gives."""
        try:
            return msgspec.convert(data, Schema)
        except msgspec.ValidationError as error:
            raise SchemaError(str(error)) from None


def _plain(values: tuple[str, ...]) -> bool:
    """Whether all of very many values are certainly encodable and not too long: one look instead of one for each."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return max(map(len, values)) * 4 <= MAX_STRING


def check_string(value: str, where: str, error: type[InvalidInput] = SchemaError) -> str:
    """The string if it is encodable and not too long."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise error(expected="text that UTF-8 can encode", got=value, where=where) from None
    if size > MAX_STRING:
        raise error(f"Expected at most {MAX_STRING} bytes of text, got {size}", where=where)
    return value
