"""Journals of earlier versions.

They were SQLite files: a table of blobs, each of records behind their lengths.  A subscription was the cuts of its
filters in MessagePack.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sievenet.content import Filter, Schema, Subscription, ValueSet
from sievenet.errors import CodecError, InvalidInput, Unavailable

__all__ = ["SQLITE", "read_cuts", "read_sqlite"]

#: How such a file begins.
SQLITE: Final = b"SQLite format 3\0"
_FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")
_cuts: Final = msgspec.msgpack.Decoder(list[list[tuple[str, tuple[tuple[Any, ...], ...]]]])


def read_sqlite(path: Path) -> list[bytes]:
    """The records, read from a copy, its write-ahead log included."""
    with tempfile.TemporaryDirectory(prefix="sievenet-journal-") as folder:
        copy = Path(folder) / "journal"
        shutil.copyfile(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name("journal-wal"))
        try:
            with contextlib.closing(sqlite3.connect(copy)) as database:
                version = database.execute("PRAGMA user_version").fetchone()[0]
                if version != _FORMAT:
                    raise Unavailable(f"The journal {path} has format {version}, expected {_FORMAT}")
                rows = database.execute("SELECT records FROM batches ORDER BY number").fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"The journal {path} cannot be read: {error}") from error
    return [record for (blob,) in rows for record in _unpacked(path, blob)]


def _unpacked(path: Path, blob: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(blob):
        end = at + _LENGTH.size
        if end > len(blob) or (stop := end + _LENGTH.unpack_from(blob, at)[0]) > len(blob):
            raise Unavailable(f"The journal {path} cannot be read: a record is cut off at byte {at} of its batch")
        yield blob[end:stop]
        at = stop


def read_cuts(schema: Schema, data: bytes) -> Subscription:
    """A subscription of a schema from the cuts of its filters; `CodecError` if they are something else."""
    try:
        filters = [Filter(schema, {name: ValueSet.of_cuts(cuts) for name, cuts in each}) for each in _cuts.decode(data)]
    except (msgspec.DecodeError, TypeError, InvalidInput) as error:
        raise CodecError(expected=f"a subscription of {schema.name}", got=str(error), where="journal") from None
    return Subscription(filters, schema)
