"""Framing: messages of the control protocol to bytes and back, and errors across the wire.

    ┌────────────┬───────────────────────────┐
    │ length  u32│ one message, MessagePack  │  length counts the message alone; the limit depends on who listens
    └────────────┴───────────────────────────┘

Two kinds of wrong are told apart. A length out of bounds means that the stream has lost its footing: `CodecError`, and
the connection closes. A whole frame with a wrong inside harms nobody: it comes out as `Malformed`, its sender gets the
error as the answer to that request, and the next frame is read as if nothing had been.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from sievenet import errors
from sievenet.control.protocol import MAX_REPLY, MAX_REQUEST, Failure, FromClient, FromDaemon, Number

__all__ = ["Framer", "Malformed", "client_framer", "daemon_framer", "failure", "frame", "raised"]

_encoder = msgspec.msgpack.Encoder()
_from_client = msgspec.msgpack.Decoder(FromClient)
_from_daemon = msgspec.msgpack.Decoder(FromDaemon)
_LENGTH: Final = struct.Struct("!I")


# -- frames --------------------------------------------------------------------------------


def frame(message: FromClient | FromDaemon) -> bytes:
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
    """Bytes in, messages out; never holds more than one frame and what came with it.

    `feed` takes whatever the connection gave and yields whole messages, and `Malformed` for a frame whose inside is
    wrong. A length that is wrong raises `CodecError`: the stream has lost its footing and the connection must close.
    """

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], limit: int) -> None:
        self._decoder = decoder
        self._limit = limit
        self._buffer = bytearray()
        #: Bytes of the message that came last.
        self.size = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that these bytes complete."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if not 0 < length <= self._limit:
                    raise errors.CodecError(expected=f"a frame of 1 to {self._limit} bytes", got=length, where="frame")
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    break
                body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
                start = end
                self.size = length
                yield self._decoded(body)
        finally:
            del buffer[:start]

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


def daemon_framer(limit: int = MAX_REQUEST) -> Framer:
    """A framer for what clients send."""
    return Framer(_from_client, limit)


def client_framer(limit: int = MAX_REPLY) -> Framer:
    """A framer for what the daemon sends."""
    return Framer(_from_daemon, limit)


# -- errors across the wire ----------------------------------------------------------------

_KINDS: Final[dict[str, type[errors.SievenetError]]] = {name: getattr(errors, name) for name in errors.__all__}


def failure(request: int, error: BaseException) -> Failure:
    """An exception as the message that tells the client of it."""
    if not isinstance(error, errors.SievenetError):
        return Failure(request, "SievenetError", f"internal error in the daemon: {type(error).__name__}")
    kind = next((c.__name__ for c in type(error).__mro__ if c.__name__ in _KINDS), "SievenetError")
    if isinstance(error, errors.InvalidInput):
        got = "" if error.got is None else errors.shortened(error.got)
        return Failure(request, kind, str(error)[:4096], error.expected[:1024], got, error.where[:256])
    return Failure(request, kind, str(error)[:4096])


def raised(message: Failure) -> errors.SievenetError:
    """The exception that a failure tells of, to be raised at the client."""
    cls = _KINDS.get(message.kind, errors.SievenetError)
    error = cls.__new__(cls)
    # The text is complete already: the constructors would put it together a second time.
    Exception.__init__(error, message.message)
    if isinstance(error, errors.InvalidInput):
        error.expected, error.got, error.where = message.expected, message.got or None, message.where
    if isinstance(error, errors.ParseError):
        error.text, error.column = "", 0
    return error
