"""Records: events as caches keep and send them, as bytes.

    record     publisher u64 │ incarnation u64 │ sequence u64 │ departure ns u64 │ event in the codec's bytes

A record is the end of a packet as `dataplane.packet` writes it, so a cache neither decodes nor encodes what it keeps. A
*stream* is one queue's way to its subscribers, and numbers count what it sends: what is lost on the way is seen, and
sent again. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["HEAD", "Key", "Run", "Source", "key_of", "name_of", "packed"]

_HEAD: Final = struct.Struct(">QQQQ")
_NAME: Final = struct.Struct(">QQQ")
#: Bytes of a record before the event.
HEAD: Final = _HEAD.size

#: Publisher and incarnation.
Source = tuple[int, int]
#: Publisher, incarnation and sequence: the name of an event in the whole fabric.
Key = tuple[int, int, int]


class Run(NamedTuple):
    """Records of a stream with numbers that follow each other; or, with a leaver, the stream's end for that one."""

    stream: int
    first: int
    records: list[bytes]
    leaver: int | None = None


def packed(publisher: int, incarnation: int, sequence: int, departure: int, body: bytes) -> bytes:
    """An event as a record."""
    return _HEAD.pack(publisher, incarnation, sequence, departure) + body


def key_of(record: bytes) -> Key:
    """Which event a record is; its name is enough."""
    return _NAME.unpack_from(record)


def name_of(record: bytes) -> bytes:
    """The part of a record that says which event it is."""
    return record[: _NAME.size]
