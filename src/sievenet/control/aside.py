"""Records set aside: what a start could not carry out, kept in a file beside the journal.

A snapshot replaces the journal by what the state says, and such a record is not in the state; without this file the
first snapshot would lose it.  One JSON object per line: the record (base64), what it is in words, why it was set
aside, and when.  The file only grows; whoever has dealt with it removes it.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sievenet.append import append
from sievenet.control.commands import Lost, Register, decode_command
from sievenet.errors import CodecError, Unavailable

__all__ = ["Aside", "keep_aside", "read_aside"]


class Aside(msgspec.Struct, frozen=True):
    """A record that could not be carried out, and why."""

    record: bytes
    error: str

    @property
    def what(self) -> str:
        """The record in words."""
        try:
            command = decode_command(self.record)
        except CodecError:
            return f"{len(self.record)} bytes that are no command"
        if isinstance(command, Lost):
            until = f"to {command.last}" if command.last else "on"
            hint = f", as far as it can be read: {command.hint}" if command.hint else ""
            return f"what was in bytes {command.first} {until}{hint}"
        names = ("client", "number", "id", "category")
        about = [f"{name} {value}" for name in names if (value := getattr(command, name, ""))]
        if isinstance(command, Register):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
                about.append(f"schema {msgspec.json.decode(command.schema)['name']}")
        return " ".join((type(command).__name__.lower(), *about))


class _Line(msgspec.Struct, omit_defaults=True):
    record: str
    error: str
    what: str = ""
    time: str = ""


def keep_aside(path: Path, records: Iterable[Aside]) -> None:
    """Add to the file what is not in it; returns when that is safe, `Unavailable` if it cannot be."""
    known = {each.record for each in read_aside(path)}
    new = [each for each in records if each.record not in known]
    if not new:
        return
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    lines = [_Line(base64.b64encode(each.record).decode(), each.error, each.what, now) for each in new]
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    try:
        append(path, data, sync=True)
    except OSError as error:
        raise Unavailable(f"{len(new)} records of the journal cannot be set aside in {path}: {error}") from None


def read_aside(path: Path) -> list[Aside]:
    """The records in the file; none if there is no file."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"The records set aside in {path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            each = msgspec.json.decode(line, type=_Line)
            found.append(Aside(base64.b64decode(each.record, validate=True), each.error))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Unavailable(f"Line {number} of {path} is not a record that was set aside: {error}") from None
    return found
