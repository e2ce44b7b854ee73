"""Journals of earlier versions, which were SQLite files: a table of blobs, each of records behind their lengths."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sievenet.errors import Unavailable

__all__ = ["SQLITE", "read_sqlite"]

#: How such a file begins.
SQLITE: Final = b"SQLite format 3\0"
_FORMAT: Final = 1
_LENGTH: Final = struct.Struct("<I")


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
