"""Text to events, as people type them: ``price=421.5, symbol=IBM``.

Strings need quotes only if they hold a blank, a comma or a quote.  What `str(event)` prints
parses back to an equal event (without its payload, which has no text form).
"""

from __future__ import annotations

import re
from typing import Final, overload

from sievenet.content.event import Event, Record
from sievenet.content.lexer import MAX_TEXT, number, quoted, shown
from sievenet.content.parser import nearest
from sievenet.content.schema import MAX_ATTRIBUTES, NAME, Attribute, Schema
from sievenet.content.valueset import Value
from sievenet.errors import EventError, ParseError

__all__ = ["parse_event"]

_FIELD: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z_][A-Za-z0-9_.-]*)?\s*(=?)\s*', re.DOTALL)
_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,"]+', re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COMMA: Final = re.compile(r"\s*(,|$)\s*")
_PREFIX: Final = re.compile(rf"\s*({NAME.pattern})\s*:\s*")


@overload
def parse_event(text: str, schema: Schema) -> Event: ...
@overload
def parse_event(text: str, schema: None) -> Record: ...
def parse_event(text: str, schema: Schema | None) -> Event | Record:
    """An event of a schema, or without one a record.

    >>> print(parse_event("x=1, color=red, tall=true", None))
    color="red", tall=true, x=1
    """
    if len(text) > MAX_TEXT:
        raise ParseError(text, MAX_TEXT, expected=f"at most {MAX_TEXT} characters", got=str(len(text)))
    at = _after_prefix(text, schema)
    found: dict[str, Value] = {}
    while schema is not None or found or text[at:].strip():
        name, attribute, value_at = _name(text, at, schema, found)
        found[name], at = _value(text, value_at, attribute)
        comma = _COMMA.match(text, at)
        if comma is None:
            raise ParseError(text, _column(text, at), expected="`,` or the end", got=_rest(text, at))
        at = comma.end()
        if not comma[1]:
            break
    if schema is None:
        return _record(text, found)
    missing = [name for name in schema.positions if name not in found]
    if missing:
        raise ParseError(text, len(text), expected=f"a value of {', '.join(missing)}", got="the end")
    return schema.event_of(found)


def _after_prefix(text: str, schema: Schema | None) -> int:
    prefix = _PREFIX.match(text)
    if prefix is None:
        return 0
    wanted = "a record without a schema" if schema is None else f"an event of {schema.name}"
    if schema is None or prefix[1] != schema.name:
        raise ParseError(text, prefix.start(1), expected=wanted, got=shown(prefix[1]))
    return prefix.end()


def _name(text: str, at: int, schema: Schema | None, found: dict[str, Value]) -> tuple[str, Attribute | None, int]:
    field = _FIELD.match(text, at)
    assert field is not None  # every part of it is optional
    word = field[1]
    column = _column(text, at) if word is None else field.start(1)
    wanted = "an attribute's name" if schema is None else f"an attribute ({', '.join(schema.positions)})"
    if word is None:
        raise ParseError(text, column, expected=wanted, got=_rest(text, at))
    name = quoted(text, column, word) if word.startswith('"') else word
    attribute = None
    if schema is not None:
        if name not in schema:
            raise ParseError(text, column, expected=wanted, got=shown(word), hint=nearest(name, schema.positions))
        attribute = schema[name]
    if name in found:
        raise ParseError(text, column, expected="each attribute once", got=f"{shown(word)} again")
    if len(found) == MAX_ATTRIBUTES:
        raise ParseError(text, column, expected=f"at most {MAX_ATTRIBUTES} attributes", got="more")
    if not field[2]:
        raise ParseError(text, field.end(), expected="`=`", got=_rest(text, field.end()))
    return name, attribute, field.end()


def _value(text: str, at: int, attribute: Attribute | None) -> tuple[Value, int]:
    match = _VALUE.match(text, at)
    expected = "a value" if attribute is None else f"{attribute.describes} for {attribute.name}"
    if match is None:
        raise ParseError(text, at, expected=expected, got=_rest(text, at))
    value = _meant(text, at, match[0], attribute)
    if attribute is None:
        return value, match.end()
    try:
        return attribute.checked(value, attribute.name), match.end()
    except EventError:
        hint = nearest(value, attribute.values) if attribute.values and isinstance(value, str) else ""
        raise ParseError(text, at, expected=expected, got=shown(match[0]), hint=hint) from None


def _meant(text: str, at: int, word: str, attribute: Attribute | None) -> Value:
    if word.startswith('"'):
        return quoted(text, at, word)
    if attribute is not None and attribute.type == "str":
        return word
    if word in ("true", "false"):
        return word == "true"
    if not _NUMBER.fullmatch(word):
        return word
    value = number(text, at, word)
    whole = attribute is not None and attribute.type == "int" and isinstance(value, float) and value.is_integer()
    return int(value) if whole else value


def _record(text: str, found: dict[str, Value]) -> Record:
    try:
        return Record(found)
    except EventError as error:
        raise ParseError(text, 0, expected=error.expected, got=shown(str(error.got))) from None


def _column(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def _rest(text: str, at: int) -> str:
    words = text[at:].split(maxsplit=1)
    return shown(words[0]) if words else "the end"
