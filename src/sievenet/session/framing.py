"""Framing: messages to bytes and back.

    ┌────────────┬───────────────────────────┐
    │ length  u32│ one message, MessagePack  │  length counts the message alone; the limit depends on who speaks
    └────────────┴───────────────────────────┘

A length out of bounds raises `CodecError`: the rest of the stream cannot be read, and the connection closes. A whole
frame that holds no message comes out as `Malformed`: its sender gets the error as the answer to that request, and the
next frame is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from sievenet import errors
from sievenet.session.message import Number

__all__ = ["LARGE", "Framer", "Malformed", "frame"]

_encoder = msgspec.msgpack.Encoder()
_LENGTH: Final = struct.Struct("!I")
#: Bytes of a message that may take long to decode.
LARGE: Final = 1 << 15


def frame(message: msgspec.Struct) -> bytes:
    """A message as the bytes that travel."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class _Numbered(msgspec.Struct):
    """As much of a malformed message as an answer needs."""

    request: Number = 0


_numbered = msgspec.msgpack.Decoder(_Numbered)


class Malformed(NamedTuple):
    """A whole frame that holds no message: the stream goes on, the sender gets the error."""

    request: int
    error: errors.SievenetError


class Framer:
    """Bytes in, messages out; never holds more than one frame and what came with it."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], limit: int) -> None:
        self._decoder = decoder
        #: Bytes of the largest message; may change between two messages.
        self.limit = limit
        self._buffer = bytearray()
        #: Bytes of the message that came last.
        self.size = 0

    def feed(self, data: bytes, most: int = 0) -> Iterator[Any]:
        """The messages that these bytes complete; `CodecError` for a length out of bounds.

        With ``most``, so many at once, and one that is `LARGE` alone: `front` says whether there are more.
        """
        buffer = self._buffer
        buffer += data
        start = count = length = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                large = length > LARGE
                (length,) = _LENGTH.unpack_from(buffer, start)
                if not 0 < length <= self.limit:
                    raise errors.CodecError(expected=f"a frame of 1 to {self.limit} bytes", got=length, where="frame")
                end = start + _LENGTH.size + length
                if len(buffer) < end or (most and count and (count >= most or large or length > LARGE)):
                    break
                body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                self.size = length
                count += 1
                yield self._decoded(body)
        finally:
            del buffer[:start]

    def skip(self) -> int:
        """Leave out the frame that comes next, which has arrived fully; the number of its request."""
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        body = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return _request_of(body)

    def add(self, data: bytes) -> None:
        """Keep bytes for the next `feed`."""
        self._buffer += data

    @property
    def front(self) -> int:
        """Bytes of the frame that comes next, if it has arrived fully (or is none at all); else 0."""
        if len(self._buffer) < _LENGTH.size:
            return 0
        (length,) = _LENGTH.unpack_from(self._buffer)
        whole = len(self._buffer) >= _LENGTH.size + length or not 0 < length <= self.limit
        return max(1, length) if whole else 0

    def _decoded(self, body: bytes) -> Any:
        try:
            return self._decoder.decode(body)
        except (errors.SievenetError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Malformed(_request_of(body), _told(error))

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not arrived fully."""
        return len(self._buffer)


def _told(error: Exception) -> errors.SievenetError:
    """A schema checks itself while it is decoded; its own error says more than the decoder's."""
    for each in (error, error.__cause__, error.__context__):
        if isinstance(each, errors.SievenetError):
            return each
    return errors.CodecError(f"Expected a message, got something else: {error}", where="frame")


def _request_of(body: bytes) -> int:
    try:
        return _numbered.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
