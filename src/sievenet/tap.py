"""The tap: a sample of what publishers publish, as files that the pipeline reads.

A publisher offers every event; the tap keeps one in ``factor`` (at random, seeded), and puts them into *segments*:
files that appear in a folder all at once, by a rename, and never change again.  So a reader needs no lock and no
offsets: a segment is there, or it is not.

    sampled ──▶ buffer ──▶ .name.tap.part ──(full, or old enough)──▶ name.tap

    segment   "SNTAP1\\n", header, parts to the end
    header    length (32 bits), then schema, publisher, factor
    part      length (32 bits), CRC-32 (32 bits), count (32 bits), times (count × 64 bits, µs since 1970), batch

Numbers are little-endian; schema and batch are those of `sievenet.content`.  A publisher never waits for its tap, and a
tap that cannot write (a full disk) counts what it loses and lets the publisher go on.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Event, EventBatch, Schema, decode_batch, decode_schema, encode_batch, encode_schema
from sievenet.errors import CodecError, InvalidInput

__all__ = ["SUFFIX", "Part", "Segment", "Tap", "Taps", "read_segment"]

SUFFIX: Final = ".tap"
_MAGIC: Final = b"SNTAP1\n"
_HEADER: Final = struct.Struct("<IIHI")
_PART: Final = struct.Struct("<III")
#: Longest header and longest part; what claims more is not a segment.
_MAX_HEADER: Final = 1 << 20
_MAX_PART: Final = 1 << 26
#: Events per part, and bytes per segment.
_BUFFER: Final = 4096
_SEGMENT: Final = 8 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Events and when each was published, in µs since 1970."""

    times: npt.NDArray[np.int64]
    batch: EventBatch


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """What a segment holds: who published, one in how many was kept, and the events."""

    schema: Schema
    publisher: str
    factor: int
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return sum(len(part.times) for part in self.parts)


class Tap:
    """Samples the events of one publisher and one schema into a folder.

    Time is given in seconds since 1970, as everywhere.  Nothing here raises because of the disk: see `lost`.
    """

    def __init__(
        self,
        folder: Path | str,
        schema: Schema,
        publisher: str,
        *,
        factor: int = 1,
        seconds: float = 10.0,
        seed: int = 0,
    ) -> None:
        if factor < 1:
            raise InvalidInput(expected="a sampling factor from 1 on", got=factor, where="tap")
        self.folder = Path(folder)
        self.schema = schema
        self.publisher = publisher
        self.factor = factor
        #: A segment appears after this many seconds at the latest, if events keep coming.
        self.seconds = seconds
        #: Events offered, kept, and kept but not written since the disk would not take them.
        self.offered = 0
        self.kept = 0
        self.lost = 0
        #: Segments that have appeared.
        self.segments = 0
        self._rng = np.random.default_rng(seed)
        self._skip = self._gap()
        self._events: list[Event] = []
        self._times: list[int] = []
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._size = 0
        #: Events written to the open segment.
        self._written = 0
        self._opened = 0.0

    def _gap(self) -> int:
        """How many events to pass before the next that is kept; on average ``factor`` - 1."""
        return 0 if self.factor == 1 else int(self._rng.geometric(1.0 / self.factor)) - 1

    def offer(self, event: Event, now: float) -> None:
        """See an event go by."""
        self.offered += 1
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._gap()
        if not self._events and self._file is None:
            self._opened = now
        self.kept += 1
        self._events.append(event)
        self._times.append(round(now * 1e6))
        if len(self._events) >= _BUFFER or now - self._opened >= self.seconds:
            self._flush(now)

    def close(self) -> None:
        """Write what is there."""
        self._flush(None)

    def _flush(self, now: float | None) -> None:
        """Move the buffer into the open segment; let it appear if it is full, old or the last."""
        try:
            if self._events:
                self._write()
            if self._file is not None and (now is None or self._size >= _SEGMENT or now - self._opened >= self.seconds):
                self._appear()
        except OSError:
            self._give_up()

    def _write(self) -> None:
        batch = EventBatch.from_events(self.schema, self._events)
        times = np.array(self._times, "<i8").tobytes()
        body = times + encode_batch(EventBatch(batch.schema, batch.columns))
        if self._file is None:
            self._open()
        assert self._file is not None
        self._file.write(_PART.pack(len(body), zlib.crc32(body), len(self._times)) + body)
        self._file.flush()
        self._size += len(body)
        self._written += len(self._events)
        self._events, self._times = [], []

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.publisher)[:64]
        name = f"{self.schema.name}-{safe}-{self._times[0]:016x}-{os.getpid():x}-{self.segments:x}{SUFFIX}"
        self._path = self.folder / name
        part = self.folder / f".{name}.part"
        # What publishers say is not for everybody on the machine.
        self._file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")
        schema, publisher = encode_schema(self.schema), self.publisher.encode()[:1024]
        length = _HEADER.size - 4 + len(schema) + len(publisher)
        head = _HEADER.pack(length, len(schema), len(publisher), self.factor)
        self._file.write(_MAGIC + head + schema + publisher)

    def _appear(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        (self.folder / f".{self._path.name}.part").rename(self._path)
        self.segments += 1
        self._file, self._size, self._written = None, 0, 0

    def _give_up(self) -> None:
        """Forget the open segment and the buffer, and count them."""
        self.lost += self._written + len(self._events)
        self._events, self._times = [], []
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                (self.folder / f".{self._path.name}.part").unlink()
        self._file, self._size, self._written = None, 0, 0


class Taps:
    """The taps of one publisher, one per schema, made as events come."""

    def __init__(self, folder: Path | str, publisher: str | Callable[[], str] = "", factor: int = 100) -> None:
        self.folder = Path(folder)
        self.factor = factor
        #: Asked when a tap is made: a node learns its name when it connects.
        self._publisher = publisher
        self._taps: dict[str, Tap] = {}
        #: Of taps that are closed already.
        self._kept = self._lost = 0
        if factor < 1:
            raise InvalidInput(expected="a sampling factor from 1 on", got=factor, where="tap")

    def offer(self, event: Event, now: float) -> None:
        """See an event go by, in seconds since 1970."""
        tap = self._taps.get(event.schema.name)
        if tap is None or tap.schema is not event.schema:
            if tap is not None and tap.schema != event.schema:
                tap.close()
                self._kept, self._lost = self._kept + tap.kept, self._lost + tap.lost
                tap = None
            if tap is None:
                name = self._publisher if isinstance(self._publisher, str) else self._publisher()
                tap = Tap(self.folder, event.schema, name, factor=self.factor)
                self._taps[event.schema.name] = tap
        tap.offer(event, now)

    @property
    def lost(self) -> int:
        """Events that were kept but that the disk would not take."""
        return self._lost + sum(tap.lost for tap in self._taps.values())

    @property
    def kept(self) -> int:
        """Events of the sample, those that were lost included."""
        return self._kept + sum(tap.kept for tap in self._taps.values())

    def name(self, publisher: str) -> None:
        """Who publishes, for taps that are made from now on."""
        self._publisher = publisher

    def close(self) -> None:
        """Write what is there."""
        for tap in self._taps.values():
            tap.close()


def read_segment(data: bytes, where: str = "segment") -> Segment:
    """A segment from bytes; `CodecError` says what is wrong with it."""
    at = len(_MAGIC) + _HEADER.size
    if not data.startswith(_MAGIC) or len(data) < at:
        raise CodecError(expected="a tap segment", got=data[:16], where=where)
    length, schema_length, name_length, factor = _HEADER.unpack_from(data, len(_MAGIC))
    if length != _HEADER.size - 4 + schema_length + name_length or length > _MAX_HEADER or factor < 1:
        raise CodecError(expected="a header that adds up", got=length, where=where)
    end = at + schema_length + name_length
    if end > len(data):
        raise CodecError(expected=f"{end} bytes of header", got=len(data), where=where)
    schema = decode_schema(data[at : at + schema_length])
    try:
        publisher = data[at + schema_length : end].decode()
    except UnicodeDecodeError:
        raise CodecError("Expected a publisher's name in UTF-8", where=where) from None
    parts = []
    while end < len(data):
        part, end = _part(schema, data, end, where)
        parts.append(part)
    return Segment(schema, publisher, factor, tuple(parts))


def _part(schema: Schema, data: bytes, at: int, where: str) -> tuple[Part, int]:
    start = at + _PART.size
    if start > len(data):
        raise CodecError(expected=f"{_PART.size} bytes of a part", got=len(data) - at, where=f"{where}, byte {at}")
    length, checksum, count = _PART.unpack_from(data, at)
    end = start + length
    if length > _MAX_PART or end > len(data) or 8 * count > length:
        raise CodecError(expected=f"a part of {length} bytes", got=len(data) - start, where=f"{where}, byte {at}")
    body = data[start:end]
    if zlib.crc32(body) != checksum:
        raise CodecError("Expected the part's checksum", where=f"{where}, byte {at}")
    times = np.frombuffer(body, "<i8", count).astype(np.int64)
    batch = decode_batch(schema, body[8 * count :])
    if len(batch) != count:
        raise CodecError(expected=f"{count} events", got=len(batch), where=f"{where}, byte {at}")
    return Part(times, batch), end
