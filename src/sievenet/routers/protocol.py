"""The router protocol: frames over TCP (or TLS) between a router and its clients, and between routers.

A frame is a length of four bytes and one message in MessagePack (`session.framing`); everything is bounded and typed.
The first message of either side is `Hello` and `Welcome`; they name the version and who speaks:

    client                                router                              router
      │ Hello(role="client")                │  ◀───── Hello(role="component") ─── │
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

from typing import Annotated, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.routers.messages import (
    AskWhole,
    Carried,
    Count,
    Delta,
    Digest,
    Greeting,
    LinkStated,
    Missed,
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
from sievenet.routers.offload.messages import MAX_CLAIMS, Assign, Claim, Compute, Computed, Volunteer
from sievenet.session import message
from sievenet.session.message import Alive, Done, Failure, Goodbye, Message, Name, Number, Revised
from sievenet.session.protocol import Protocol

__all__ = [
    "MAX_FRAME",
    "MAX_PEER_FRAME",
    "PROTOCOL",
    "ROUTING",
    "Advertise",
    "Alive",
    "Ask",
    "CategoryIs",
    "Done",
    "Failure",
    "Goodbye",
    "Hello",
    "LookUp",
    "Publish",
    "Refused",
    "Register",
    "Revised",
    "Subscribe",
    "Unadvertise",
    "Unsubscribe",
    "Volunteer",
    "Welcome",
]

#: Version of this module and of `messages`.
PROTOCOL: Final = 5
#: Largest frame of a client, and of a neighbour (all entries of a channel at once), in bytes.
MAX_FRAME: Final = 1 << 23
MAX_PEER_FRAME: Final = 1 << 27

Content = Annotated[bytes, msgspec.Meta(max_length=1 << 20)]


class Hello(message.Hello, frozen=True):
    """Who speaks: a client, or a component: that is a router."""

    #: Events that a client has taken since it was new to the router.
    taken: Count = 0


class Welcome(message.Welcome, frozen=True):
    """The answer to `Hello`; the name is the client's."""

    #: The router's name.
    router: Name = "router"
    #: The number under which this client's events travel.
    publisher: Publisher = 0
    #: Events for earlier connections of this ticket that will not come.
    missed: Count = 0
    #: Whether everything is as it was on the connection of this ticket; events that were not taken follow.
    resumed: bool = False


class Register(Message, frozen=True):
    """Make a schema known (the codec's bytes)."""

    request: Number
    schema: Content


class LookUp(Message, frozen=True):
    """Ask for a schema by its name."""

    request: Number
    name: Annotated[str, msgspec.Meta(max_length=256)]


class CategoryIs(Message, frozen=True):
    """The answer to both: the category and its schema."""

    request: Number
    category: Digest
    schema: bytes


class Subscribe(Message, frozen=True):
    """Say what is wanted."""

    request: Number
    id: Number
    category: Digest
    content: Content
    #: Where each filter is in the router's fixed set, if it gave one.
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()


class Unsubscribe(Message, frozen=True):
    """Take a subscription back."""

    request: Number
    id: Number


class Advertise(Message, frozen=True):
    """Say what will be published."""

    request: Number
    id: Number
    category: Digest
    content: Content


class Unadvertise(Message, frozen=True):
    """Take an advertisement back."""

    request: Number
    id: Number


class Publish(Message, frozen=True):
    """Events, numbered from ``first``: a batch, or schemaless records."""

    category: Digest
    first: Count
    #: Nanoseconds since the epoch.
    departure: Count
    batch: Annotated[bytes, msgspec.Meta(max_length=MAX_FRAME)] = b""
    records: Annotated[tuple[Content, ...], msgspec.Meta(max_length=1 << 13)] = ()
    request: Number = 0


class Refused(Message, frozen=True):
    """Events that a client published were dropped, and why."""

    reason: Annotated[str, msgspec.Meta(max_length=1024)]


class Ask(Message, frozen=True):
    """A question: ``status``, or ``explain`` of a filter."""

    request: Number
    about: Annotated[str, msgspec.Meta(max_length=64)]
    of: Annotated[str, msgspec.Meta(max_length=65536)] = ""


ROUTING: Final = Protocol(
    "router",
    "router",
    PROTOCOL,
    "sievenet+router",
    Hello,
    Welcome,
    taken={
        Ask: Role.OBSERVER,
        LookUp: Role.OBSERVER,
        Register: Role.CLIENT,
        Subscribe: Role.CLIENT,
        Unsubscribe: Role.CLIENT,
        Advertise: Role.CLIENT,
        Unadvertise: Role.CLIENT,
        Publish: Role.CLIENT,
        Volunteer: Role.CLIENT,
        Computed: Role.CLIENT,
        Welcome: Role.COMPONENT,
        Failure: Role.COMPONENT,
        Missed: Role.COMPONENT,
        Greeting: Role.COMPONENT,
        Ready: Role.COMPONENT,
        LinkStated: Role.COMPONENT,
        Delta: Role.COMPONENT,
        Whole: Role.COMPONENT,
        AskWhole: Role.COMPONENT,
        Receivers: Role.COMPONENT,
        SenderAsks: Role.COMPONENT,
        UpdateReply: Role.COMPONENT,
        Settle: Role.COMPONENT,
        Settled: Role.COMPONENT,
        Carried: Role.COMPONENT,
        Received: None,
        Alive: None,
        Goodbye: None,
    },
    given=(Welcome, CategoryIs, Done, Failure, Refused, Revised, Goodbye, Alive, Missed, Carried, Compute, Assign),
    largest={
        Role.OBSERVER: MAX_FRAME,
        Role.CLIENT: MAX_FRAME,
        Role.OPERATOR: MAX_FRAME,
        Role.COMPONENT: MAX_PEER_FRAME,
    },
    max_given=MAX_PEER_FRAME,
)
