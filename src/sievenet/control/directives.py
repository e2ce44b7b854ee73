"""What the daemon, components and publishers say to each other about directed delivery and hybrid filtering.

    matcher                                      daemon                                     publisher
       │  Match                                    │                                            │
       │ ────────────────────────────────────────▶ │   it may be given subspaces from now on    │
       │  Serve(1, interests, publishers)          │                       Retain(2)            │
       │ ◀──────────────────────────────────────── │ ─────────────────────────────────────────▶ │
       │  Did(1)                                   │                                    Did(2)  │
       │ ────────────────────────────────────────▶ │ ◀───────────────────────────────────────── │
       │  Await(3)  Did(3)                         │   the flow is diverted                     │
       │  Release(4, dz)  Did(4)                   │   the flow goes back                       │
       │  Finish(5, 4)  Did(5)                     │                                            │
       │                                 it dies   │   Retain(6, pause)  Did(6)                 │
       │                                           │   the flow goes back; Retain(7, again)     │

`daemon.hybrid` says when; `control.directed` has the messages about twins and recipients.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sievenet.control.descriptions import CategoryInfo, Content, Seconds, Value, Word
from sievenet.session.message import Message, Number, Text

__all__ = [
    "MAX_GROUP",
    "Await",
    "Did",
    "Direct",
    "Directed",
    "Finish",
    "Interest",
    "Match",
    "Matched",
    "Release",
    "Retain",
    "Serve",
    "Twin",
    "Undirect",
]

#: The number of a publisher, of 64 bits.
Long = Annotated[int, msgspec.Meta(ge=0)]

#: Clients that one recipient's number reaches at most.
MAX_GROUP: Final = 4096


# -- from components, and from publishers ----------------------------------------------------


class Twin(Message, frozen=True):
    """A component asks for the twin of a category (`control.directed`)."""

    request: Number
    category: Text


class Direct(Message, frozen=True):
    """A component asks for a number that reaches these clients in the twin of a category.

    Answered with it when their subscriptions stand; `absent` are those that are not there, or do not answer.
    """

    request: Number
    category: Text
    clients: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=MAX_GROUP)]


class Undirect(Message, frozen=True):
    """A component needs a recipient's number no more."""

    request: Number
    category: Text
    recipient: Number


class Match(Message, frozen=True):
    """A component says that it is a matcher, ready to serve."""

    request: Number


class Did(Message, frozen=True):
    """What the daemon asked for under this number is done, or cannot be. Not answered."""

    serial: Number
    #: Why it cannot be done; empty if it is.
    trouble: Text = ""
    #: Of a publisher: which life it is, and the number of the next event that it publishes.
    incarnation: Long = 0
    number: Long = 0


class Matched(Message, frozen=True):
    """What a matcher did since it said so last, every fraction of a second: its sign of life. Not answered."""

    received: Word = 0
    sent: Word = 0
    #: Packets that match nobody.
    unwanted: Word = 0
    #: Packets that wait, and seconds that the last batch took.
    backlog: Word = 0
    seconds: Seconds = 0.0


# -- from the daemon -------------------------------------------------------------------------


class Interest(Value, frozen=True):
    """One subscription for a matcher."""

    key: Number
    recipient: Number
    #: The port of the matcher's switch behind which the subscriber is; 0 if it is at that switch.
    side: Number
    #: The codec's bytes.
    content: Content


class Serve(Message, frozen=True):
    """A matcher is to match these subscriptions of a category too, and others no more. Answered with `Did`."""

    serial: Number
    category: CategoryInfo
    added: tuple[Interest, ...] = ()
    removed: tuple[Number, ...] = ()
    #: Whether what was said before counts no more.
    whole: bool = False
    #: Numbers of publishers, and the ports of the switch behind which they are: what comes from there need not go back.
    publishers: tuple[tuple[Long, Number], ...] = ()


class Await(Message, frozen=True):
    """A subspace is about to be diverted: the matcher waits so long before it sends. Answered with `Did`."""

    serial: Number
    seconds: float


class Release(Message, frozen=True):
    """A subspace is about to go back to the network: the matcher tells its recipients. Answered with `Did`."""

    serial: Number
    category: Number
    #: The subspace, as bits.
    dz: Text
    patience: float


class Finish(Message, frozen=True):
    """It has gone back: after so long without a packet of it the matcher says that the way has ended. `Did`.

    Without a `Release` (0) it only says that everything that came before has left it.
    """

    serial: Number
    #: That of the `Release`.
    release: Number
    seconds: float


class Retain(Message, frozen=True):
    """A publisher is to keep what it sends in a category, until it is told to forget it. Answered with `Did`.

    With `pause` it sends nothing in it until the next word; with `again` it sends once more what it kept, and goes on.
    """

    serial: Number
    category: Number
    #: Whether it has to keep anything from now on.
    keep: bool = True
    #: The number of an earlier word: what was sent before that has reached everybody, and is needed no more.
    forget: Number = 0
    pause: bool = False
    again: bool = False


class Directed(Message, frozen=True):
    """A client is to subscribe to these numbers in a twin, and to no others."""

    category: CategoryInfo
    numbers: tuple[Number, ...]
