"""The router protocol: frames over TCP (or TLS) between a router and its clients, and between routers.

A frame is a length of four bytes and one message in MessagePack (`control.framing`); everything is bounded and typed.
The first message of either side is `Hello` and `Welcome`; they name the version and who speaks:

    client                                router                              router
      │ Hello(role="client")                │  ◀──────── Hello(role="router") ── │
      │ ──────────────────────────────────▶ │  ── Welcome ──────────────────▶    │
      │ ◀── Welcome(publisher number) ───── │      then `messages`, both ways
      │ Register, Subscribe, … ───────────▶ │   answered by number: Done, CategoryIs, Failure
      │ Publish ──────────────────────────▶ │   not answered; TCP holds back who is too quick
      │ ◀────────────────────── Carried ─── │   events that one of its subscriptions matches
      │ Volunteer ────────────────────────▶ │   the client computes for the router from now on:
      │ ◀────────────── Compute, Assign ─── │   (`offload.messages`)
      │ Computed, claims in Subscribe ────▶ │

`Done` to a subscription comes after the wave (`core`): the whole overlay knows it then.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from sievenet.control.framing import Framer
from sievenet.control.protocol import Failure
from sievenet.routers.messages import (
    AskWhole,
    Carried,
    Delta,
    Greeting,
    LinkStated,
    Receivers,
    SenderAsks,
    Settle,
    Settled,
    UpdateReply,
    Whole,
)
from sievenet.routers.offload.messages import MAX_CLAIMS, Assign, Claim, Compute, Computed

__all__ = [
    "MAX_FRAME",
    "MAX_PEER_FRAME",
    "PROTOCOL",
    "Advertise",
    "Ask",
    "CategoryIs",
    "Done",
    "Failure",
    "Goodbye",
    "Hello",
    "LookUp",
    "PeerFramer",
    "Publish",
    "Register",
    "Subscribe",
    "Unadvertise",
    "Unsubscribe",
    "Volunteer",
    "Welcome",
    "client_framer",
    "frame",
]

#: Version of this module and of `messages`.
PROTOCOL: Final = 1
#: Largest frame of a client, and of a neighbour (all entries of a channel at once), in bytes.
MAX_FRAME: Final = 1 << 23
MAX_PEER_FRAME: Final = 1 << 27

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$")]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Word = Annotated[int, msgspec.Meta(ge=0)]
Content = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag=True):
    """Base of all messages."""


class Hello(_Message, frozen=True):
    """Who speaks."""

    protocol: int
    role: Literal["client", "router"]
    #: A client may leave its name to the router.
    name: Name | None = None
    request: Number = 0


class Welcome(_Message, frozen=True):
    """The answer to `Hello`."""

    protocol: int
    #: The router's name, and the client's.
    router: Name
    name: Name
    #: The number under which this client's events travel.
    publisher: Word = 0
    request: Number = 0


class Register(_Message, frozen=True):
    """Make a schema known (the codec's bytes)."""

    request: Number
    schema: Content


class LookUp(_Message, frozen=True):
    """Ask for a schema by its name."""

    request: Number
    name: Annotated[str, msgspec.Meta(max_length=256)]


class CategoryIs(_Message, frozen=True):
    """The answer to both: the category and its schema."""

    request: Number
    category: Word
    schema: bytes


class Subscribe(_Message, frozen=True):
    """Say what is wanted."""

    request: Number
    id: Number
    category: Word
    content: Content
    #: Where each filter is in the router's fixed set, if it gave one.
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()


class Unsubscribe(_Message, frozen=True):
    """Take a subscription back."""

    request: Number
    id: Number


class Advertise(_Message, frozen=True):
    """Say what will be published."""

    request: Number
    id: Number
    category: Word
    content: Content


class Unadvertise(_Message, frozen=True):
    """Take an advertisement back."""

    request: Number
    id: Number


class Publish(_Message, frozen=True):
    """Events, numbered from ``first``: a batch, or schemaless records."""

    category: Word
    first: Word
    #: Nanoseconds since the epoch.
    departure: Word
    batch: Annotated[bytes, msgspec.Meta(max_length=MAX_FRAME)] = b""
    records: Annotated[tuple[Content, ...], msgspec.Meta(max_length=1 << 13)] = ()
    request: Number = 0


class Volunteer(_Message, frozen=True):
    """A client is willing to compute for its router, or no longer."""

    request: Number
    willing: bool = True


class Ask(_Message, frozen=True):
    """A question: ``status``, or ``explain`` of a filter."""

    request: Number
    about: Annotated[str, msgspec.Meta(max_length=64)]
    of: Annotated[str, msgspec.Meta(max_length=65536)] = ""


class Done(_Message, frozen=True):
    """The request is done; ``answer`` is plain data, if any."""

    request: Number
    answer: Any = None


class Goodbye(_Message, frozen=True):
    """The other side closes the connection, and why."""

    reason: Annotated[str, msgspec.Meta(max_length=1024)]


FromPeer = (
    Hello
    | Welcome
    | Register
    | LookUp
    | Subscribe
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Publish
    | Volunteer
    | Computed
    | Ask
    | Goodbye
    | Greeting
    | LinkStated
    | Delta
    | Whole
    | AskWhole
    | Receivers
    | SenderAsks
    | UpdateReply
    | Settle
    | Settled
    | Carried
)
ToClient = Welcome | CategoryIs | Done | Failure | Goodbye | Carried | Compute | Assign

_encoder = msgspec.msgpack.Encoder()
_from_peer = msgspec.msgpack.Decoder(FromPeer)
_to_client = msgspec.msgpack.Decoder(ToClient)


def frame(message: msgspec.Struct) -> bytes:
    """A message as the bytes that travel."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class PeerFramer(Framer):
    """A framer for what a router receives: frames of clients, until the other side says that it is a router."""

    def __init__(self) -> None:
        super().__init__(_from_peer, MAX_FRAME)

    def widen(self) -> None:
        """Take frames of neighbours from now on."""
        self._limit = MAX_PEER_FRAME


def client_framer() -> Framer:
    """A framer for what a client receives."""
    return Framer(_to_client, MAX_PEER_FRAME)
