"""What people publish by HTTP: JSON objects, one, several, or line by line, as events of a schema.

    {"symbol": "IBM", "price": 421.5, "volume": 100}            the attributes
    {"event": {"symbol": "IBM", …}, "payload": "aGVsbG8="}      the same with a payload (base64), as subscribers get it

A body that is one JSON value is published whole or not at all. JSON lines are published as they come, so that a body
may go on for ever; a line that is wrong ends it, and the answer says how many went before.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from sievenet.content import Event, Schema
from sievenet.errors import EventError, InvalidInput, SievenetError

__all__ = ["CHUNK", "decoded", "event_of", "events_of", "lines_of"]

#: Events that are published together.
CHUNK: Final = 256
_DECODER: Final = msgspec.json.Decoder()


def event_of(schema: Schema, said: Any, where: str) -> Event:
    """An event from a JSON object."""
    payload = b""
    try:
        if isinstance(said, dict) and isinstance(said.get("event"), dict) and "event" not in schema.positions:
            payload = _payload(said.get("payload"))
            said = said["event"]
        if not isinstance(said, dict):
            raise EventError(expected="a JSON object with the attributes", got=said)
        return schema.event_of(said, payload)
    except InvalidInput as error:
        raise type(error)(f"{where}: {error}") from None


def _payload(said: Any) -> bytes:
    if said is None:
        return b""
    if not isinstance(said, str):
        raise EventError(expected="a payload in base64", got=said)
    try:
        return b64decode(said, validate=True)
    except ValueError:  # no base64, or characters beyond ASCII
        raise EventError(expected="a payload in base64", got=said) from None


def decoded(data: bytes | str, decoder: msgspec.json.Decoder[Any] = _DECODER) -> Any:
    """What JSON says; `EventError` if it is none, or is nested so deeply that nobody means it."""
    try:
        return decoder.decode(data)
    except RecursionError:
        raise EventError("Expected JSON, got something else: it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventError(f"Expected JSON, got something else: {error}") from None


async def events_of(schema: Schema, body: bytes) -> list[Event]:
    """The events of a whole body: an object, a list of objects, or lines; others have their turn meanwhile."""
    try:
        said = decoded(body)
    except EventError:
        lines = [line for line in body.split(b"\n") if line.strip()]
        if len(lines) < 2:
            raise
        rows = (_line(schema, line, number) for number, line in enumerate(body.split(b"\n"), 1) if line.strip())
    else:
        if not isinstance(said, list):
            return [event_of(schema, said, "event")]
        rows = (event_of(schema, each, f"event {number}") for number, each in enumerate(said, 1))
    found: list[Event] = []
    while some := list(islice(rows, CHUNK)):
        found += some
        await asyncio.sleep(0)
    return found


def _line(schema: Schema, line: bytes, number: int) -> Event:
    try:
        said = decoded(line)
    except EventError as error:
        raise EventError(f"line {number}: {error}") from None
    return event_of(schema, said, f"line {number}")


async def lines_of(schema: Schema, pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[list[Event]]:
    """Events of JSON lines as they come, those that came together at once; raises at a line that is wrong."""
    rest, number = b"", 0

    def parsed(lines: Iterable[bytes]) -> Iterator[Event]:
        nonlocal number
        for line in lines:
            number += 1
            if line.strip():
                yield _line(schema, line, number)

    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > most:
            raise EventError(f"Expected lines of at most {most} bytes, got a longer one", where=f"line {number + 1}")
        found: list[Event] = []
        try:
            for event in parsed(whole):
                found.append(event)
                if len(found) == CHUNK:
                    yield found
                    found = []
        except SievenetError:
            if found:
                yield found
            raise
        if found:
            yield found
    if rest.strip():
        yield list(parsed([rest]))
