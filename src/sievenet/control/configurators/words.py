"""What dispatcher and configurators say to each other through a store, and what they write there.

    log  partition.TERM.NUMBER   Load, Order, Order, …            everything about a partition, in its order
    log  wiring.TERM             Wiring                           the network
    cell owner.TERM.NUMBER       Owner(name, epoch)               whose it is
    word beat                    Beat, every fraction of a second  a configurator is there
    word ask.NAME                Ask: read that log up to here    to the owner; Drop: it is yours no more
    word answer.TERM             Reply: pieces of an Answer

Words may be lost.  So a dispatcher asks again while an order is open, and who has answered already answers again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeVar

import msgspec

from sievenet.control.configurators import messages as m
from sievenet.errors import CodecError
from sievenet.session.message import Name

__all__ = ["Ask", "Beat", "Owner", "Pieces", "Reply", "decode", "decode_logged", "encode", "pieces"]

_Serial = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
#: Bytes of a reply that are left for the rest of it.
_REST: Final = 512
#: Bytes of pieces that are kept in all, as large as an answer by a connection may be.
_KEPT: Final = 1 << 28
#: What decoding raises at what is not a word.
_WRONG: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """A configurator is there; or leaves, and says so."""

    name: Name
    #: Another one under the same name has another life.
    life: _Serial
    process: _Serial
    leaves: bool = False


class Owner(msgspec.Struct, frozen=True):
    """Whose a partition is."""

    name: str
    epoch: _Serial


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """Read a partition's log up to an entry, as its owner, and answer orders."""

    term: _Serial
    partition: _Serial
    epoch: _Serial
    #: The last entry of the log, and of the one about the network.
    upto: _Serial
    wiring: _Serial
    #: Orders up to this one need no answer.
    answered: _Serial
    #: Not the owner's any more: forget it.
    drop: bool = False


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A piece of an answer."""

    name: Name
    life: _Serial
    serial: _Serial
    index: _Serial
    count: _Serial
    data: bytes


T = TypeVar("T", Beat, Ask, Reply, Owner)

_encoder: Final = msgspec.msgpack.Encoder()
_LOGGED: Final[msgspec.msgpack.Decoder[m.Load | m.Order | m.Wiring]] = msgspec.msgpack.Decoder(
    m.Load | m.Order | m.Wiring
)
_ANSWER: Final[msgspec.msgpack.Decoder[m.Answer | m.Puzzled]] = msgspec.msgpack.Decoder(m.Answer | m.Puzzled)
_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Beat, Ask, Reply, Owner)
}


def encode(message: msgspec.Struct) -> bytes:
    """As bytes."""
    return _encoder.encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """From bytes; `CodecError` if they are something else."""
    try:
        found: T = _DECODERS[kind].decode(data)
    except _WRONG as error:
        raise CodecError(expected=f"a {kind.__name__}", got=str(error), where="store") from None
    return found


def decode_logged(data: bytes) -> m.Load | m.Order | m.Wiring:
    """An entry of a log; `CodecError` if it is something else."""
    try:
        return _LOGGED.decode(data)
    except _WRONG as error:
        raise CodecError(expected="an entry of a partition's log", got=str(error), where="store") from None


def pieces(name: str, life: int, answer: m.Answer | m.Puzzled, limit: int) -> Iterator[bytes]:
    """An answer as words that a store takes."""
    data, size = _encoder.encode(answer), limit - _REST
    count = -(-len(data) // size)
    for i in range(count):
        yield _encoder.encode(Reply(name, life, answer.serial, i, count, data[i * size : (i + 1) * size]))


class Pieces:
    """Puts answers together; what is missing a piece is dropped when the next answer begins, or at too many bytes."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._parts: dict[tuple[str, int], list[bytes]] = {}

    @property
    def kept(self) -> int:
        """Bytes that wait for the rest of their answers."""
        return sum(len(each) for parts in self._parts.values() for each in parts)

    def forget(self, name: str) -> None:
        """What a configurator began to say."""
        for old in [each for each in self._parts if each[0] == name]:
            del self._parts[old]

    def take(self, reply: Reply) -> m.Answer | m.Puzzled | None:
        """The answer, if this was its last piece."""
        key = reply.name, reply.serial
        if reply.index == 0:
            self.forget(reply.name)
            self._parts[key] = []
        parts = self._parts.get(key)
        if parts is None or len(parts) != reply.index:
            self._parts.pop(key, None)
            return None
        parts.append(reply.data)
        if len(parts) < reply.count:
            if self.kept > self._most:
                self.forget(reply.name)
                raise CodecError(expected=f"answers of at most {self._most} bytes", got="more", where="store")
            return None
        del self._parts[key]
        try:
            return _ANSWER.decode(b"".join(parts))
        except _WRONG as error:
            raise CodecError(expected="an answer", got=str(error), where="store") from None
