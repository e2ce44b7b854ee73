"""The control protocol: what a client and the daemon say to each other, as values and as bytes.

One connection carries *frames*: a length of four bytes (big endian), then one message in MessagePack. A message is a
map whose ``type`` names its class here or in `session.message`. Nothing in this module touches a socket.

    client                                     daemon
      │  Hello(protocol, role, name, ticket, …)   │
      │ ────────────────────────────────────────▶ │   version and name are checked, the lease begins
      │  Welcome(name, ticket, data, lease, …)    │   or Failure, and the connection is closed
      │ ◀──────────────────────────────────────── │
      │  Subscribe(request=7, …)                  │   requests carry a number and may be many at once;
      │ ────────────────────────────────────────▶ │   replies carry the same number, in any order
      │  Done(request=7)                          │
      │ ◀──────────────────────────────────────── │
      │  PlanChanged(category)                    │   the daemon speaks unasked only to say this, that a category
      │ ◀──────────────────────────────────────── │   is no more, that rules have changed (Revised), and Goodbye
      │  PlanAdopted(number, epoch)               │
      │ ────────────────────────────────────────▶ │

Rules that keep either side safe from the other: a frame's length is checked before its bytes are awaited, decoding is
typed and refuses unknown fields, and an error travels as `Failure` with the facts of the exception, so that what the
caller of the client library catches is what the daemon raised. The whole format is versioned by `PROTOCOL`; a daemon
that does not speak the client's version says so before it closes. `CONTROL` is the table of messages: what either side
takes, the least role that may send it, and bounds.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.content.schema import Schema
from sievenet.control import caching
from sievenet.control.descriptions import MAX_REQUEST, CategoryInfo, Content, DataEndpoint, Report, Seen, Way, Word
from sievenet.control.directives import (
    MAX_GROUP,
    Await,
    Did,
    Direct,
    Directed,
    Finish,
    Interest,
    Match,
    Matched,
    Release,
    Retain,
    Serve,
    Twin,
    Undirect,
)
from sievenet.session import message
from sievenet.session.message import Alive, Done, Failure, Goodbye, Message, Number, Revised, Text
from sievenet.session.protocol import Protocol

__all__ = [
    "CONTROL",
    "MAX_GROUP",
    "MAX_REPLY",
    "MAX_REQUEST",
    "PROTOCOL",
    "Advertise",
    "Alive",
    "ApplyPlan",
    "Ask",
    "Await",
    "CategoryInfo",
    "CategoryRemoved",
    "CategoryReply",
    "DataEndpoint",
    "Did",
    "Direct",
    "Directed",
    "Done",
    "Failure",
    "Finish",
    "FitTables",
    "Goodbye",
    "Hello",
    "Interest",
    "Leave",
    "LookUp",
    "Match",
    "Matched",
    "PlanAdopted",
    "PlanChanged",
    "Register",
    "Release",
    "RemoveSchema",
    "Renew",
    "Report",
    "Retain",
    "Revised",
    "Sample",
    "Seen",
    "Serve",
    "Subscribe",
    "Twin",
    "Unadvertise",
    "Undirect",
    "Unsubscribe",
    "Way",
    "Welcome",
]

#: Version of everything in this module; both sides must have the same.
PROTOCOL: Final = 5
#: Largest frame that a client accepts, in bytes (a picture of the whole fabric is the largest reply).
MAX_REPLY: Final = 1 << 26

# -- from the client -----------------------------------------------------------------------


class Hello(message.Hello, frozen=True):
    """The first message. An observer or operator takes no name, no lease and no port; it may not publish."""

    #: Where to attach; ``None`` lets the daemon choose.
    host: Text | None = None


class Register(Message, frozen=True):
    """Make a schema known, or confirm that it is known."""

    request: Number
    schema: Schema


class LookUp(Message, frozen=True):
    """Ask for a category by its name."""

    request: Number
    name: Text


class RemoveSchema(Message, frozen=True):
    """End a category; with `force` even if something is registered in it."""

    request: Number
    name: Text
    #: 0 if there is one version only.
    version: Number = 0
    force: bool = False


class Advertise(Message, frozen=True):
    """Say what will be published: the codec's bytes of a subscription."""

    request: Number
    id: Number
    category: Number
    content: Content


class Unadvertise(Message, frozen=True):
    """Take an advertisement back."""

    request: Number
    id: Number


class Subscribe(Message, frozen=True):
    """Say what is wanted: the codec's bytes of a subscription."""

    request: Number
    id: Number
    category: Number
    content: Content


class Unsubscribe(Message, frozen=True):
    """Take a subscription back."""

    request: Number
    id: Number


class Renew(Message, frozen=True):
    """A heartbeat: the lease begins anew."""

    request: Number
    report: Report = Report()


class PlanAdopted(Message, frozen=True):
    """The publisher encodes with the plan of that epoch from now on. Not answered."""

    category: Number
    epoch: Number


class Sample(Message, frozen=True):
    """Some of the events that a publisher published since its last heartbeat, as a batch. Not answered."""

    category: Number
    #: How many there were, and how many of them these are.
    seen: Word
    count: Annotated[int, msgspec.Meta(ge=0, le=4096)]
    events: Annotated[bytes, msgspec.Meta(max_length=1 << 15)]


class ApplyPlan(Message, frozen=True):
    """Change a category's index plan under traffic."""

    request: Number
    category: Text
    plan: Content


class FitTables(Message, frozen=True):
    """Choose merges anew where tables do not fit; `traffic` is what was published, counted (`traffic.Traffic`)."""

    request: Number
    traffic: Content = b""


class Ask(Message, frozen=True):
    """A question of an operator: status, topology, flows of a switch, trace of an event. Answered in `Done.answer`."""

    request: Number
    about: Text
    of: Annotated[str, msgspec.Meta(max_length=65536)] = ""


class Leave(Message, frozen=True):
    """Take everything back and go."""

    request: Number


# -- from the daemon -----------------------------------------------------------------------


class Welcome(message.Welcome, frozen=True):
    """The answer to `Hello`. Categories are not in it: a client looks up those that it works with.

    When the lease is over the daemon takes back everything of a client that was silent. The ticket is good at any
    daemon with the same state.
    """

    host: Text = ""
    #: Seconds between heartbeats that the daemon wishes for, for the sake of the reports in them.
    heartbeat: float = 1.0
    data: DataEndpoint | None = None
    #: Largest event that the data plane carries, in bytes as encoded.
    max_event: int = 0
    #: What the daemon holds of this client already.
    advertisements: tuple[Number, ...] = ()
    subscriptions: tuple[Number, ...] = ()
    #: Events of each category that the daemon wishes to see with a heartbeat (`Sample`); 0 for none.
    sample: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0


class CategoryReply(Message, frozen=True):
    """The answer to `Register` and `LookUp`."""

    request: Number
    category: CategoryInfo


class PlanChanged(Message, frozen=True):
    """A category has a new plan, or is new: clients answer with `PlanAdopted` once they are ready for it."""

    category: CategoryInfo


class CategoryRemoved(Message, frozen=True):
    """A category is no more; whatever was registered in it is gone."""

    number: Number


#: Whoever has a place in the network.
_MEMBER: Final = (Role.CLIENT, Role.COMPONENT)

CONTROL: Final = Protocol(
    "control",
    "daemon",
    PROTOCOL,
    "sievenet",
    Hello,
    Welcome,
    taken={
        LookUp: (Role.OBSERVER, Role.COMPONENT),
        Ask: Role.OBSERVER,
        Register: Role.CLIENT,
        Advertise: _MEMBER,
        Unadvertise: _MEMBER,
        Subscribe: _MEMBER,
        Unsubscribe: _MEMBER,
        Renew: _MEMBER,
        PlanAdopted: _MEMBER,
        Sample: _MEMBER,
        Leave: _MEMBER,
        Twin: Role.COMPONENT,
        Direct: Role.COMPONENT,
        Undirect: Role.COMPONENT,
        Match: Role.COMPONENT,
        Matched: Role.COMPONENT,
        Did: _MEMBER,
        caching.Cache: Role.CLIENT,
        caching.Uncache: Role.CLIENT,
        caching.ToCache: Role.CLIENT,
        caching.ServeCache: Role.COMPONENT,
        caching.Assumed: Role.COMPONENT,
        caching.AskPort: Role.COMPONENT,
        caching.ToSubscriber: Role.COMPONENT,
        caching.CacheLoad: Role.COMPONENT,
        ApplyPlan: Role.OPERATOR,
        FitTables: Role.OPERATOR,
        RemoveSchema: Role.OPERATOR,
        Alive: None,
        Goodbye: None,
    },
    given=(
        *(Welcome, Done, CategoryReply, Failure, PlanChanged, CategoryRemoved, Revised, Alive, Goodbye),
        *(Directed, Retain, Serve, Await, Release, Finish),
        *(caching.Assign, caching.Unassign, caching.FromSubscriber, caching.CacheSays, caching.CacheLost),
        *(caching.Hold, caching.PortDropped, caching.PortOverran),
    ),
    largest=dict.fromkeys(Role, MAX_REQUEST),
    max_given=MAX_REPLY,
)
