"""The mapping file: which topics become which events, and which events which topics. Pure.

    [[in]]                                   # broker → network
    topic = "sensors/{station}/{kind}"       # levels in braces are attributes
    category = "sensor"
    fields = { value = "reading.celsius" }   # attribute = place in the JSON message; "." is the whole message

    [[out]]                                  # network → broker
    filter = "sensor: value > 30"
    topic = "alerts/{station}/{kind}"

An attribute that no level and no field names is the member of the same name of the JSON message.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from sievenet.bridge.topic import Template
from sievenet.content import Event, Schema
from sievenet.errors import EventError, InvalidInput
from sievenet.workload.trace import event_of

__all__ = ["Inbound", "Mapping", "Outbound", "load_mapping"]

Scalar = str | int | float | bool


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what a mapping file has."""


class Inbound(_Entry, frozen=True):
    """Messages of some topics as events of a category."""

    topic: str
    category: str
    fields: dict[str, str] = {}
    #: Values of attributes that no message has.
    constants: dict[str, Scalar] = {}
    #: 0: at most once; 1: the broker keeps a message until the network has taken its event.
    qos: Literal[0, 1] = 1
    #: Whether the message's bytes become the event's payload.
    payload: bool = False

    def event(self, schema: Schema, template: Template, topic: str, message: bytes) -> Event:
        """The event that a message is; `EventError` if it is none."""
        levels = template.values(topic)
        if levels is None:
            raise EventError(expected=f"a topic like {self.topic}", got=topic, where="topic")
        names = [name for name in schema.positions if name not in levels and name not in self.constants]
        content = _decoded(message, topic) if names else None
        values: dict[str, str | None] = {name: _scalar(_found(content, self.fields.get(name, name))) for name in names}
        values |= {name: _scalar(value) for name, value in self.constants.items()}
        event = event_of(schema, values | levels)
        return Event(schema, event.values, message) if self.payload else event

    def check(self, schema: Schema) -> None:
        """`InvalidInput` if it names attributes that the schema does not have."""
        for name in (*Template(self.topic, "in.topic").names, *self.fields, *self.constants):
            if name not in schema.positions:
                known = ", ".join(schema.positions)
                raise InvalidInput(expected=f"an attribute of {schema.name} ({known})", got=name, where=self.topic)


class Outbound(_Entry, frozen=True):
    """Events that match a filter as messages of a topic."""

    filter: str
    topic: str
    qos: Literal[0, 1] = 1
    retain: bool = False
    #: What a message says: the event as a JSON object, or its payload.
    body: Literal["json", "payload"] = "json"

    def message(self, template: Template, event: Event) -> tuple[str, bytes]:
        """Topic and content of the message that an event is."""
        values = dict(event.items())
        body = event.payload if self.body == "payload" else msgspec.json.encode(values)
        return template.filled(values), body

    def check(self, schema: Schema) -> None:
        """`InvalidInput` if its topic cannot be made of events of the schema."""
        template = Template(self.topic, "out.topic")
        if template.wild:
            raise InvalidInput(expected="a topic without + and #", got=self.topic, where="out.topic")
        for name in template.names:
            if name not in schema.positions:
                known = ", ".join(schema.positions)
                raise InvalidInput(expected=f"an attribute of {schema.name} ({known})", got=name, where=self.topic)


class Mapping(_Entry, frozen=True):
    """All of it; schemas are files to register, if the network may not know them."""

    inbound: tuple[Inbound, ...] = msgspec.field(default=(), name="in")
    outbound: tuple[Outbound, ...] = msgspec.field(default=(), name="out")
    schemas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.inbound and not self.outbound:
            raise InvalidInput(expected="at least one [[in]] or [[out]]", got="none", where="mapping")
        for each in self.inbound:
            Template(each.topic, "in.topic")
        for out in self.outbound:
            Template(out.topic, "out.topic")


def load_mapping(path: str | Path) -> Mapping:
    """The mapping of a TOML file; `InvalidInput` says what is wrong with it."""
    try:
        return msgspec.convert(tomllib.loads(Path(path).read_text()), Mapping)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Expected a readable file, got {error}", where=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"Expected TOML, got something else: {error}", where=str(path)) from None
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):
            raise error.__cause__ from None
        raise InvalidInput(str(error), where=str(path)) from None


def _decoded(message: bytes, topic: str) -> Any:
    try:
        return msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return message.decode()  # a plain text, as simple devices send it
    except UnicodeDecodeError:
        raise EventError(expected="JSON or text", got=message[:32], where=topic) from None


def _found(content: Any, path: str) -> Any:
    if path == ".":
        return content
    for name in path.split("."):
        if not isinstance(content, dict):
            return None
        content = content.get(name)
    return content


def _scalar(value: Any) -> str | None:
    """As text, which the schema's types then read."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if isinstance(value, str) else None
