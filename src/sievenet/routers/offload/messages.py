"""What a router and its clients say about offloaded work.

    Volunteer  the client is willing, or no longer         answered with Done
    Compute    place these filters among those vectors     one message per client and batch, however many vectors
    Computed   the answers, one per vector                 sorted, so that equal answers are equal bytes
    Assign     the fixed set to place filters in           seldom: when the table has outgrown it
    Claim      where a filter is in the fixed set          goes with its subscription

A vector is not sent again and again: a client keeps it, and a request brings the changes since the version that the
client has (``base`` 0: the whole vector). A client that lacks that version says so in ``missing``. The schema travels
with the first request that needs it.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from sievenet.session.message import Message

__all__ = [
    "MAX_CLAIMS",
    "Answer",
    "Assign",
    "Claim",
    "Compute",
    "Computed",
    "Relations",
    "VectorUpdate",
    "Volunteer",
    "decode_answer",
    "decode_pairs",
    "encode_answer",
]

#: Claims that may go with a subscription.
MAX_CLAIMS: Final = 1024

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]
#: The digest of a schema: any 64 bits.
Category = Annotated[int, msgspec.Meta(ge=0)]
Blob = Annotated[bytes, msgspec.Meta(max_length=1 << 16)]
Batch = Annotated[tuple[Blob, ...], msgspec.Meta(max_length=1024)]


class VectorUpdate(NamedTuple):
    """A vector, as its changes from version ``base`` on."""

    id: Number
    base: Number
    version: Number
    #: Filters that are new, by their number in the table, and numbers that are gone.
    added: Annotated[dict[Number, Blob], msgspec.Meta(max_length=1 << 16)]
    removed: Annotated[tuple[Number, ...], msgspec.Meta(max_length=1 << 16)] = ()


class Volunteer(Message, frozen=True):
    """A client is willing to compute for its router, or no longer."""

    request: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    willing: bool = True


class Compute(Message, frozen=True):
    """Say how these filters relate to those of each vector, and to each other."""

    job: Number
    #: The schema's category, so that the client can read the filters; 0 for schemaless (or hidden) ones.
    category: Category
    inputs: Batch
    vectors: tuple[VectorUpdate, ...]
    #: The schema in the codec's bytes, in the first request of a category to a client.
    schema: Annotated[bytes, msgspec.Meta(max_length=1 << 20)] = b""


class Answer(NamedTuple):
    """Of one vector: its number, and `Relations` in bytes."""

    vector: Number
    relations: bytes


class Computed(Message, frozen=True):
    """The answers of a client."""

    job: Number
    answers: tuple[Answer, ...]
    #: Pairs (i, j) of inputs where the i-th covers the j-th, sorted, in bytes.
    inputs: bytes
    #: Vectors whose base this client does not have.
    missing: tuple[Number, ...] = ()


class Assign(Message, frozen=True):
    """The fixed set of a category, which replaces any before."""

    version: Number
    category: Category
    filters: Annotated[tuple[Blob, ...], msgspec.Meta(max_length=4096)]
    #: As in `Compute`; always there, unless schemaless.
    schema: Annotated[bytes, msgspec.Meta(max_length=1 << 20)] = b""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Where a filter is among the fixed set: places of its immediate predecessors and successors."""

    version: Number
    preds: Annotated[tuple[Number, ...], msgspec.Meta(max_length=4096)] = ()
    succs: Annotated[tuple[Number, ...], msgspec.Meta(max_length=4096)] = ()


class Relations(NamedTuple):
    """For each input: the numbers that cover it, and those that it covers; sorted."""

    above: tuple[tuple[int, ...], ...]
    below: tuple[tuple[int, ...], ...]


_encoder = msgspec.msgpack.Encoder()
_relations = msgspec.msgpack.Decoder(Relations)
_pairs = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])


def encode_answer(value: Relations | tuple[tuple[int, int], ...]) -> bytes:
    """An answer's bytes: equal for equal answers."""
    return _encoder.encode(value)


def decode_answer(data: bytes) -> Relations:
    """An answer from its bytes; raises `msgspec.DecodeError`."""
    return _relations.decode(data)


def decode_pairs(data: bytes) -> tuple[tuple[int, int], ...]:
    """The relations of the inputs from their bytes; raises `msgspec.DecodeError`."""
    return _pairs.decode(data)
