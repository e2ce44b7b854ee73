"""What messages of the control protocol consist of."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sievenet.content.schema import Schema
from sievenet.session.message import Number, Text

__all__ = [
    "CELL_BITS",
    "MAX_CELLS",
    "MAX_REQUEST",
    "CategoryInfo",
    "Content",
    "DataEndpoint",
    "Report",
    "Seconds",
    "Seen",
    "Value",
    "Way",
    "Word",
]

#: Largest frame that a daemon accepts, in bytes (a schema with a long enumeration is the largest request).
MAX_REQUEST: Final = 1 << 20
#: Bits of a cell that clients count false positives by, and cells of one report.
CELL_BITS: Final = 16
MAX_CELLS: Final = 256

#: Of a count since the last report: more than any client can do in a heartbeat.
Word = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
#: Of latencies added up: a number, not negative, not without end.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Content = Annotated[bytes, msgspec.Meta(max_length=MAX_REQUEST)]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what messages consist of."""


class DataEndpoint(Value, frozen=True):
    """Where a client's events go and come from: the data plane's kind and address, and the client's own token."""

    kind: str
    address: str
    port: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    #: Proves, in every datagram, who is speaking.
    token: Annotated[int, msgspec.Meta(ge=0)]
    #: The network namespace of the host, if it is on the daemon's machine and has its own.
    namespace: Text = ""
    #: Seals the datagrams of this session, where members are known (`access.seal`); empty elsewhere.
    key: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    #: Bytes of the longest datagram in which several events may travel to switches; 0 means one event in each.
    room: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0

    def same_place(self, other: DataEndpoint) -> bool:
        """Whether another endpoint is this one, except perhaps for the key."""
        return msgspec.structs.replace(self, key=b"") == msgspec.structs.replace(other, key=b"")


class CategoryInfo(Value, frozen=True):
    """A category as the daemon knows it: number on the wire, schema, index plan and the plan's epoch."""

    number: Number
    schema: Schema
    #: The plan as JSON (`sievenet.index.Plan.to_json`).
    plan: bytes
    epoch: Number
    #: Entries that a subscription's cover may have; lets clients say which subscription drew a false positive.
    budget: Number = 0
    #: The categories of other versions of the schema, where they are not told anyway.
    siblings: tuple[CategoryInfo, ...] = ()


class Seen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a client got of one publisher in one cell, since its last report."""

    category: Number
    #: The first bits of the code.
    cell: Annotated[int, msgspec.Meta(ge=0, lt=1 << CELL_BITS)]
    #: The publisher's number.
    publisher: Annotated[int, msgspec.Meta(ge=0)]
    wanted: Word
    unwanted: Word


class Way(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Wanted events that came one way, and the seconds that they took together."""

    events: Word = 0
    seconds: Seconds = 0.0


class Report(Value, frozen=True):
    """What a client saw since its last report: it travels with the heartbeat."""

    received: Word = 0
    delivered: Word = 0
    false_positives: Word = 0
    duplicates: Word = 0
    dropped: Word = 0
    published: Word = 0
    #: Seconds from the publisher's stamp to the subscriber, if anything came.
    latency_p50: float | None = None
    latency_p99: float | None = None
    #: What it got where, if it was asked to say; by content, and from components.
    cells: Annotated[tuple[Seen, ...], msgspec.Meta(max_length=MAX_CELLS)] = ()
    by_content: Way = Way()
    directed: Way = Way()
