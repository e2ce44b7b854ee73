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
      │ Alive ◀───────────────────────────▶ │   a few times per lease; silence for a lease ends the connection
      │ ◀─────────────────────── Missed ─── │   so many events may be missing
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
    Count,
    Delta,
    Digest,
    Greeting,
    LinkStated,
    Missed,
    Name,
    Publisher,
    Ready,
    Received,
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
    "MAX_HELLO",
    "MAX_PEER_FRAME",
    "PROTOCOL",
    "Advertise",
    "Alive",
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
PROTOCOL: Final = 3
#: Largest frame of a client, and of a neighbour (all entries of a channel at once), in bytes.
MAX_FRAME: Final = 1 << 23
MAX_PEER_FRAME: Final = 1 << 27
#: Largest frame before the other side has said who it is.
MAX_HELLO: Final = 1 << 12

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Content = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
Ticket = Annotated[bytes, msgspec.Meta(max_length=64)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type", tag=True):
    """Base of all messages."""


class Hello(_Message, frozen=True):
    """Who speaks."""

    protocol: Number
    role: Literal["client", "router"]
    #: A client may leave its name to the router.
    name: Name | None = None
    request: Number = 0
    #: The ticket of an earlier connection under this name, which this one replaces.
    ticket: Ticket = b""
    #: Events that a client has taken since it was new to the router.
    taken: Count = 0


class Welcome(_Message, frozen=True):
    """The answer to `Hello`."""

    protocol: Number
    #: The router's name, and the client's.
    router: Name
    name: Name
    #: The number under which this client's events travel.
    publisher: Publisher = 0
    request: Number = 0
    #: Shown in the next `Hello`, it proves that the name is still ours.
    ticket: Ticket = b""
    #: Seconds of silence after which either side gives the other up.
    lease: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    #: Events for earlier connections of this ticket that will not come.
    missed: Count = 0
    #: Whether everything is as it was on the connection of this ticket; events that were not taken follow.
    resumed: bool = False


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
    category: Digest
    schema: bytes


class Subscribe(_Message, frozen=True):
    """Say what is wanted."""

    request: Number
    id: Number
    category: Digest
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
    category: Digest
    content: Content


class Unadvertise(_Message, frozen=True):
    """Take an advertisement back."""

    request: Number
    id: Number


class Publish(_Message, frozen=True):
    """Events, numbered from ``first``: a batch, or schemaless records."""

    category: Digest
    first: Count
    #: Nanoseconds since the epoch.
    departure: Count
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


class Alive(_Message, frozen=True):
    """Nothing else to say, but still here: said by either side a few times per lease."""


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
    | Alive
    | Goodbye
    | Failure
    | Missed
    | Greeting
    | Ready
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
    | Received
)
ToClient = Welcome | CategoryIs | Done | Failure | Goodbye | Alive | Missed | Carried | Compute | Assign

_encoder = msgspec.msgpack.Encoder()
_from_peer = msgspec.msgpack.Decoder(FromPeer)
_to_client = msgspec.msgpack.Decoder(ToClient)


def frame(message: msgspec.Struct) -> bytes:
    """A message as the bytes that travel."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class PeerFramer(Framer):
    """A framer for what a router receives: one small frame, until the other side has said who it is."""

    def __init__(self) -> None:
        super().__init__(_from_peer, MAX_HELLO)

    def widen(self, role: str) -> None:
        """Take frames of a client or of a neighbour from now on."""
        self._limit = MAX_PEER_FRAME if role == "router" else MAX_FRAME


def client_framer() -> Framer:
    """A framer for what a client receives."""
    return Framer(_to_client, MAX_PEER_FRAME)
