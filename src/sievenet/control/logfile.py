"""The journal's file: records behind each other, every one checked by a chain.

    0       magic, format, salt, checksum
    512     mark A  ┐ sequence, end of what is acknowledged, chain there, checksum;
    1024    mark B  ┘ written in turn, so that one of them is always whole
    2048    record  length (4) │ chain (8) │ bytes
            record  …                         chain = hash(chain before, length, bytes)

A commit is: write the records, flush them to the disk, write a mark, answer.  So whatever was answered lies before
the end that a mark names, and the two kinds of damage can be told apart:

- **Before that end** every byte counts.  One that differs breaks the chain; a file that is cut is shorter than its mark
  says.  Nobody may guess: reading such a file is refused, with the place.
- **Behind it** is what was being written when the process or the machine died.  Whole records are taken (they may have
  been answered: a mark is flushed with the next commit), and the unfinished rest is dropped.

If a mark is damaged, the other one is a commit older, and what that commit wrote is found whole behind it.
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

__all__ = ["DATA", "MAGIC", "Damaged", "Mark", "Scan", "Writer", "fresh", "packed", "salvage", "scan"]

MAGIC: Final = b"SIEVELOG"
_FORMAT: Final = 2
_HEAD: Final = struct.Struct("<8sI16s")
_MARK: Final = struct.Struct("<QQ8s")
_RECORD: Final = struct.Struct("<I8s")
_SUM: Final = 8
_MARKS: Final = (512, 1024)
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


def _link(chain: bytes, record: bytes | memoryview) -> bytes:
    return blake2b(b"".join((chain, len(record).to_bytes(4, "little"), record)), digest_size=_SUM).digest()


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
        chain = _link(chain, record)
        parts += (_RECORD.pack(len(record), chain), record)
    return b"".join(parts), chain


def fresh(records: Iterable[bytes]) -> tuple[bytes, Scan]:
    """A whole new file with these records, and what it holds."""
    salt = secrets.token_bytes(16)
    kept = list(records)
    body, chain = packed(_hash(salt), kept)
    mark = Mark(1, DATA + len(body), chain)
    head = bytearray(DATA)
    header = _header(salt)
    head[: len(header)] = header
    for at, sequence in zip(_MARKS, (0, 1), strict=True):
        marked = _mark_bytes(salt, Mark(sequence, mark.end, chain))
        head[at : at + len(marked)] = marked
    return bytes(head) + body, Scan(kept, salt, mark, mark.end, chain, 0)


def _opened(data: bytes) -> tuple[bytes, Mark]:
    """Salt and mark of a file."""
    if len(data) < DATA:
        raise Damaged(f"expected at least {DATA} bytes, got {len(data)}: the file was cut")
    head = data[: _HEAD.size]
    magic, version, salt = _HEAD.unpack(head)
    if magic != MAGIC:
        raise Damaged("expected a journal, got a file that begins otherwise - at byte 0")
    if data[_HEAD.size : _HEAD.size + _SUM] != _hash(head):
        raise Damaged(f"the header does not match its checksum - at bytes 0 to {_HEAD.size + _SUM}")
    if version != _FORMAT:
        raise Damaged(f"expected format {_FORMAT}, got format {version}: written by another version of Sievenet")
    marks = []
    for at in _MARKS:
        body, checksum = data[at : at + _MARK.size], data[at + _MARK.size : at + _MARK.size + _SUM]
        if checksum == _hash(salt, body):
            marks.append(Mark(*_MARK.unpack(body)))
    if not marks:
        raise Damaged(f"neither mark matches its checksum - at bytes {_MARKS[0]} and {_MARKS[1]}")
    return salt, max(marks, key=lambda mark: mark.sequence)


def _record(data: bytes, at: int, chain: bytes) -> tuple[bytes, int, bytes] | None:
    """The record at a place, where it ends and the chain there; None if there is none behind this chain."""
    start = at + _RECORD.size
    if start > len(data):
        return None
    length, stated = _RECORD.unpack_from(data, at)
    if start + length > len(data) or stated != _link(chain, memoryview(data)[start : start + length]):
        return None
    return data[start : start + length], start + length, stated


def _walk(data: bytes, at: int, chain: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    while (found := _record(data, at, chain)) is not None:
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


def salvage(data: bytes) -> tuple[list[bytes], list[str]]:
    """All records of a damaged file that can be made out, and what is lost, in words."""
    lost: list[str] = []
    expected = len(data)
    try:
        salt, mark = _opened(data)
        expected, chain = mark.end, _hash(salt)
    except Damaged as error:
        lost.append(str(error))
        chain = b""
    records: list[bytes] = []
    at = DATA
    while at < len(data):
        found = _record(data, at, chain)
        if found is None:
            resumed = _resumed(data, at, chain)
            if resumed is None:
                break
            start, chain = resumed
            lost.append(f"bytes {at} to {start}, behind record {len(records)}")
            at = start
        else:
            record, at, chain = found
            records.append(record)
    if at < expected:
        lost.append(f"everything from byte {at} to byte {expected}, behind record {len(records)}")
    return records, lost


def _resumed(data: bytes, at: int, chain: bytes) -> tuple[int, bytes] | None:
    """Where the next whole record begins behind a damaged one, and the chain before it."""
    if at + _RECORD.size > len(data):
        return None
    length, stated = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    if start + length <= len(data):
        for before in (stated, _link(chain, data[start : start + length])):
            if _record(data, start + length, before) is not None:
                return start + length, before
    for place in range(start, len(data) - _RECORD.size + 1):  # its length is damaged
        if _record(data, place, stated) is not None:
            return place, stated
    return None


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
