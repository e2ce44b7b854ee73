"""The journal's file: records behind each other, every one checked by a chain.

    0       magic, format, salt, checksum
    512     mark A  ┐ sequence, end of what is acknowledged, chain there, checksum;
    1024    mark B  ┘ written in turn, so that one of them is always whole
    1536    a copy of the first line, for repairs
    2048    record  length (4) │ chain (8) │ bytes
            record  …                         chain = hash(chain before, length, bytes)

A commit is: write the records, flush them to the disk, write a mark, answer.  So whatever was answered lies before
the end that a mark names, and the two kinds of damage can be told apart:

- **Before that end** every byte counts.  One that differs breaks the chain; a file that is cut is shorter than its mark
  says.  Nobody may guess: reading such a file is refused, with the place.
- **Behind it** is what was being written when the process or the machine died.  Whole records are taken (they may have
  been answered: a mark is flushed with the next commit), and the unfinished rest is dropped.

If a mark is damaged, the other one is a commit older, and what that commit wrote is found whole behind it.  What can be
made out of a file that is refused is the business of `salvage`.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from sievenet.errors import Unavailable

__all__ = [
    "DATA",
    "MAGIC",
    "RECORD",
    "Damaged",
    "Mark",
    "Scan",
    "Writer",
    "beginning",
    "fresh",
    "link",
    "marks_in",
    "packed",
    "record_at",
    "salts_in",
    "scan",
]

MAGIC: Final = b"SIEVELOG"
_FORMAT: Final = 2
_HEAD: Final = struct.Struct("<8sI16s")
_MARK: Final = struct.Struct("<QQ8s")
#: Before each record: its length, and the chain behind it.
RECORD: Final = struct.Struct("<I8s")
_SUM: Final = 8
_MARKS: Final = (512, 1024)
_COPY: Final = 1536
#: Where records begin.
DATA: Final = 2048


class Damaged(Unavailable):
    """The file is not what was written."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far everything is acknowledged."""

    sequence: int
    end: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file holds."""

    records: list[bytes]
    salt: bytes
    mark: Mark
    #: Where the next record goes, and the chain there.
    end: int
    chain: bytes
    #: Bytes of an unfinished write behind that.
    torn: int


def _hash(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=_SUM).digest()


def link(chain: bytes, record: bytes | memoryview) -> bytes:
    """The chain behind a record."""
    return blake2b(b"".join((chain, len(record).to_bytes(4, "little"), record)), digest_size=_SUM).digest()


def beginning(salt: bytes) -> bytes:
    """The chain before the first record."""
    return _hash(salt)


def _header(salt: bytes) -> bytes:
    head = _HEAD.pack(MAGIC, _FORMAT, salt)
    return head + _hash(head)


def _mark_bytes(salt: bytes, mark: Mark) -> bytes:
    body = _MARK.pack(mark.sequence, mark.end, mark.chain)
    return body + _hash(salt, body)


def packed(chain: bytes, records: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Records as they follow a chain, and the chain behind them."""
    parts: list[bytes] = []
    for record in records:
        chain = link(chain, record)
        parts += (RECORD.pack(len(record), chain), record)
    return b"".join(parts), chain


def fresh(records: Iterable[bytes]) -> tuple[bytes, Scan]:
    """A whole new file with these records, and what it holds."""
    salt = secrets.token_bytes(16)
    kept = list(records)
    body, chain = packed(_hash(salt), kept)
    mark = Mark(1, DATA + len(body), chain)
    head = bytearray(DATA)
    header = _header(salt)
    for at in (0, _COPY):
        head[at : at + len(header)] = header
    for at, sequence in zip(_MARKS, (0, 1), strict=True):
        marked = _mark_bytes(salt, Mark(sequence, mark.end, chain))
        head[at : at + len(marked)] = marked
    return bytes(head) + body, Scan(kept, salt, mark, mark.end, chain, 0)


def _opened(data: bytes) -> tuple[bytes, Mark]:
    """Salt and mark of a file."""
    if not data:
        raise Damaged("the file is empty")
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise Damaged("expected a journal, got a file that begins otherwise - at byte 0")
    if len(data) < DATA:
        raise Damaged(f"expected at least {DATA} bytes, got {len(data)}: the file was cut")
    salt = _salt_at(data, 0)
    if salt is None:
        raise Damaged(f"the header does not match its checksum - at bytes 0 to {_HEAD.size + _SUM}")
    marks = marks_in(data, salt)
    if not marks:
        raise Damaged(f"neither mark matches its checksum - at bytes {_MARKS[0]} and {_MARKS[1]}")
    return salt, marks[-1]


def _salt_at(data: bytes, at: int) -> bytes | None:
    """The salt of a header, None if it is not whole; `Unavailable` if another version of Sievenet wrote it."""
    head = data[at : at + _HEAD.size]
    if len(head) < _HEAD.size or data[at + _HEAD.size : at + _HEAD.size + _SUM] != _hash(head):
        return None
    magic, version, salt = _HEAD.unpack(head)
    if magic != MAGIC:
        return None
    if version != _FORMAT:
        raise Unavailable(f"expected format {_FORMAT}, got format {version}: written by another version of Sievenet")
    return bytes(salt)


def salts_in(data: bytes) -> list[bytes]:
    """What may be the salt of a file with a damaged header, the likeliest first."""
    found = [salt for at in (0, _COPY) if (salt := _salt_at(data, at)) is not None]
    return found or ([_HEAD.unpack_from(data)[2]] if len(data) >= _HEAD.size else [])


def marks_in(data: bytes, salt: bytes) -> list[Mark]:
    """The marks that are whole, the latest last."""
    marks = []
    for at in _MARKS:
        body, checksum = data[at : at + _MARK.size], data[at + _MARK.size : at + _MARK.size + _SUM]
        if len(body) == _MARK.size and checksum == _hash(salt, body):
            marks.append(Mark(*_MARK.unpack(body)))
    return sorted(marks, key=lambda mark: mark.sequence)


def record_at(data: bytes, at: int, chain: bytes) -> tuple[bytes, int, bytes] | None:
    """The record at a place, where it ends and the chain there; None if there is none behind this chain."""
    start = at + RECORD.size
    if start > len(data):
        return None
    length, stated = RECORD.unpack_from(data, at)
    if start + length > len(data) or stated != link(chain, memoryview(data)[start : start + length]):
        return None
    return data[start : start + length], start + length, stated


def _walk(data: bytes, at: int, chain: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    while (found := record_at(data, at, chain)) is not None:
        yield found
        _, at, chain = found


def scan(data: bytes) -> Scan:
    """What a file holds; `Damaged` if something acknowledged is not as it was written."""
    salt, mark = _opened(data)
    records: list[bytes] = []
    end, chain = DATA, _hash(salt)
    passed = mark.end == DATA and mark.chain == chain
    for found in _walk(data, DATA, chain):
        record, end, chain = found
        records.append(record)
        passed |= end == mark.end and chain == mark.chain
    if not passed:
        if len(data) < mark.end:
            raise Damaged(f"expected {mark.end} bytes, got {len(data)}: the file was cut, or the disk lost its end")
        raise Damaged(f"record {len(records) + 1} does not match the chain of checksums - at byte {end}")
    return Scan(records, salt, mark, end, chain, len(data) - end)


class Writer:
    """Appends to an open file; every method blocks until it is done."""

    def __init__(self, handle: int, found: Scan, sync: bool) -> None:
        self._handle = handle
        self._salt = found.salt
        self._mark = found.mark
        self._end = found.end
        self._chain = found.chain
        self._sync = sync

    @property
    def end(self) -> int:
        """Bytes of the file."""
        return self._end

    def append(self, records: Iterable[bytes]) -> None:
        """Write, flush, mark; `OSError` if the records are not safe, and then nothing of them stays."""
        body, chain = packed(self._chain, records)
        try:
            _write(self._handle, body, self._end)
        except OSError:
            os.ftruncate(self._handle, self._end)
            raise
        if self._sync:
            os.fdatasync(self._handle)
        self._end += len(body)
        self._chain = chain
        self._mark = Mark(self._mark.sequence + 1, self._end, chain)
        _write(self._handle, _mark_bytes(self._salt, self._mark), _MARKS[self._mark.sequence % 2])

    def trim(self) -> None:
        """Drop what an unfinished write left behind."""
        os.ftruncate(self._handle, self._end)

    def close(self) -> None:
        """Close the file."""
        if self._sync:
            os.fsync(self._handle)
        os.close(self._handle)


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, at)
        view, at = view[count:], at + count
