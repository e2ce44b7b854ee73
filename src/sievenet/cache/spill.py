"""Spill: the part of a ring that is on disk, as segments that say whether they are whole.

A segment is a file with the records of one block, named by the offset of its first:

    00000000000000004096.segment
        frame   checksum u32 │ length u32 │ records u32 │ for each: time f64, length u32 │ the records' bytes
        frame   …                                       one frame for each `append`

What is written to a file survives the death of its process; with ``sync`` it survives that of the machine too. A frame
that was being written when the process died does not match its checksum: it and what follows are dropped, everything
before it is there. This module does I/O, and blocks while it does.
"""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from sievenet.errors import Unavailable

__all__ = ["Segment", "Spill"]

_FRAME: Final = struct.Struct(">III")
_ENTRY: Final = struct.Struct(">dI")
_SUFFIX: Final = ".segment"

#: Records and the times at which they came.
Segment = tuple[list[bytes], "array[float]"]


class Spill:
    """A folder of segments, bounded in bytes. One process uses it at a time."""

    def __init__(self, folder: Path, max_bytes: int, *, sync: bool = False) -> None:
        self._folder, self._sync = folder, sync
        self.max_bytes = max_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = sorted(folder.glob(f"*{_SUFFIX}"))
            self._sizes = {int(path.name.removesuffix(_SUFFIX)): path.stat().st_size for path in found}
        except (OSError, ValueError) as error:
            raise Unavailable(f"Cannot keep events in {folder}: {error}") from None
        self._open: tuple[int, int] | None = None
        #: Frames that were found damaged, and everything behind them.
        self.damaged = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    @property
    def starts(self) -> list[int]:
        """The offsets at which segments begin, ascending."""
        return sorted(self._sizes)

    def fits(self, size: int) -> bool:
        """Whether so many bytes more may be written."""
        return self.size + size <= self.max_bytes

    def append(self, start: int, records: Sequence[bytes], times: Sequence[float]) -> None:
        """Write records behind those of a segment; `Unavailable` if the disk does not take them."""
        heads = b"".join(_ENTRY.pack(when, len(record)) for when, record in zip(times, records, strict=True))
        body = heads + b"".join(records)
        frame = _FRAME.pack(crc32(body), len(body), len(records)) + body
        try:
            handle = self._handle(start)
            view = memoryview(frame)
            while view:
                view = view[os.write(handle, view) :]
            if self._sync:
                os.fdatasync(handle)
        except OSError as error:
            # Half a frame would hide what is written behind it later.
            with contextlib.suppress(OSError):
                os.truncate(self._path(start), self._sizes.get(start, 0))
            raise Unavailable(f"Cannot write events to {self._folder}: {error}") from None
        self._sizes[start] = self._sizes.get(start, 0) + len(frame)

    def _handle(self, start: int) -> int:
        if self._open is not None:
            if self._open[0] == start:
                return self._open[1]
            os.close(self._open[1])
            self._open = None
        handle = os.open(self._path(start), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._open = (start, handle)
        return handle

    def read(self, start: int) -> Segment:
        """The records of a segment that are whole."""
        try:
            data = self._path(start).read_bytes()
        except OSError as error:
            raise Unavailable(f"Cannot read events from {self._folder}: {error}") from None
        records: list[bytes] = []
        times = array("d")
        for body, count in self._frames(data):
            at = count * _ENTRY.size
            for when, length in _ENTRY.iter_unpack(body[:at]):
                times.append(when)
                records.append(body[at : at + length])
                at += length
        return records, times

    def _frames(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        at = 0
        while at < len(data):
            after = at + _FRAME.size
            whole = False
            if after <= len(data):
                checksum, length, count = _FRAME.unpack_from(data, at)
                body = data[after : after + length]
                whole = len(body) == length and crc32(body) == checksum and count * _ENTRY.size <= length
            if not whole:
                self.damaged += 1
                return
            yield body, count
            at = after + length

    def drop(self, start: int) -> None:
        """A segment is not needed any more."""
        if self._open is not None and self._open[0] == start:
            os.close(self._open[1])
            self._open = None
        if self._sizes.pop(start, None) is not None:
            with contextlib.suppress(OSError):
                self._path(start).unlink()

    def close(self) -> None:
        """Close the file that is being written."""
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:020d}{_SUFFIX}"
