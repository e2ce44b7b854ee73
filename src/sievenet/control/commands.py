"""What the control plane was asked for, as the journal keeps it.

The journal is a list of commands; the state is what they lead to, one after the other.  A
command that cannot be granted (a name that is taken) is refused again when it is replayed,
since nothing but earlier commands decides.  What depends on the moment is not in here: ports,
which switches are up, when leases end.

Commands are arrays in MessagePack, tagged by a letter, to keep the journal small.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from sievenet.content import Schema, Subscription, decode_subscription
from sievenet.content.binary import VERSION
from sievenet.control.old_journal import read_cuts
from sievenet.errors import CodecError
from sievenet.index import Plan

__all__ = [
    "Advertise",
    "Announced",
    "Command",
    "Join",
    "Leave",
    "Lost",
    "Numbers",
    "PlanBegin",
    "PlanEnd",
    "Register",
    "Remove",
    "Subscribe",
    "Trees",
    "Unadvertise",
    "Unsubscribe",
    "decode_command",
    "decode_content",
    "encode_command",
    "plan_of",
    "registration",
    "schema_of",
    "takes_long",
]


class Register(msgspec.Struct, frozen=True, array_like=True, tag="R"):
    """A schema becomes a category."""

    number: int
    #: JSON.
    schema: bytes
    plan: bytes
    epoch: int
    budget: int
    #: The number that a new category gets, unless it is taken: with it, others keep theirs if this record is lost.
    claim: int = 0


#: Schemas and plans that were just encoded, by their JSON: of tens of thousands of values, decoding takes long.
_fresh: Final[dict[bytes, Schema | Plan]] = {}
_FRESH: Final = 8
#: Values of a schema that are many.
_MANY: Final = 500


def takes_long(schema: Schema) -> bool:
    """Whether to register a schema takes longer than an event loop should be held up."""
    return sum(len(each.values or ()) for each in schema.attributes) > _MANY


def registration(schema: Schema, bits: int, kind: Literal["dz", "cells"], budget: int) -> Register:
    """The command for a new schema, with a regular plan."""
    plan = Plan.regular(schema, bits, kind=kind)
    command = Register(0, schema.to_json(), plan.to_json(), 1, budget)
    for oldest in list(_fresh)[:-_FRESH]:
        _fresh.pop(oldest, None)
    _fresh.update({command.schema: schema, command.plan: plan})
    return command


def schema_of(command: Register) -> Schema:
    """The schema that a command speaks of."""
    found = _fresh.pop(command.schema, None)
    return found if isinstance(found, Schema) else Schema.from_json(command.schema)


def plan_of(command: Register) -> Plan:
    """The plan that it begins with."""
    found = _fresh.pop(command.plan, None)
    return found if isinstance(found, Plan) else Plan.from_json(command.plan)


class Announced(msgspec.Struct, frozen=True, array_like=True, tag="N"):
    """Whether everybody who subscribed to other versions of a schema knows of this one, so that it may be used."""

    number: int
    done: bool = True


class Remove(msgspec.Struct, frozen=True, array_like=True, tag="X"):
    """A category ends; with `force` whatever is registered in it is taken back."""

    number: int
    force: bool


class Numbers(msgspec.Struct, frozen=True, array_like=True, tag="M"):
    """The next category number, and those of removed categories, oldest first (in snapshots)."""

    next: int
    retired: tuple[int, ...]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="J"):
    """A client comes."""

    client: str
    host: str
    #: Tells this client from others that had or will have the name.
    life: int = 0


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="L"):
    """A client goes, or its lease ended: everything of it is taken back."""

    client: str


class Advertise(msgspec.Struct, frozen=True, array_like=True, tag="A"):
    """A client will publish this."""

    client: str
    id: int
    category: int
    #: The subscription, as clients send it (`content.codec`).
    content: bytes


class Unadvertise(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """The opposite of `Advertise`."""

    client: str
    id: int


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="S"):
    """A client wants this."""

    client: str
    id: int
    category: int
    #: The subscription, as clients send it (`content.codec`).
    content: bytes


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """The opposite of `Subscribe`."""

    client: str
    id: int


class PlanBegin(msgspec.Struct, frozen=True, array_like=True, tag="P"):
    """From here on a category moves to another plan."""

    number: int
    plan: bytes
    epoch: int


class PlanEnd(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The move is over."""

    number: int
    epoch: int


class Trees(msgspec.Struct, frozen=True, array_like=True, tag="T"):
    """The links of each spanning tree, after failures."""

    links: tuple[tuple[tuple[str, str], ...], ...]


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="!"):
    """Records were here and are lost: a repair puts this in the place of what it could not make out."""

    #: Bytes of the damaged file; it is not known where they end if `last` is 0.
    first: int
    last: int
    #: The damaged file.
    file: str
    #: What it was, as far as it can be read.
    hint: str = ""


Command: TypeAlias = (
    Register
    | Announced
    | Remove
    | Numbers
    | Join
    | Leave
    | Advertise
    | Unadvertise
    | Subscribe
    | Unsubscribe
    | PlanBegin
    | PlanEnd
    | Trees
    | Lost
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)


def decode_content(schema: Schema, data: bytes) -> Subscription:
    """A subscription from the bytes of a command, of earlier versions too; `CodecError` if they are something else."""
    if data[:1] and data[0] >> 4 == VERSION:
        return decode_subscription(schema, data)
    return read_cuts(schema, data)


def encode_command(command: Command) -> bytes:
    """The bytes of a command."""
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    """A command from its bytes; `CodecError` if they are something else."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(expected="a command", got=str(error), where="journal") from None
