"""What the dispatcher and a configurator say to each other.

    configurator                                   dispatcher
      │  Hello(name, process)                          │
      │ ─────────────────────────────────────────────▶ │
      │  Welcome, then Wiring(switches, links)         │   again when the network is redrawn
      │ ◀───────────────────────────────────────────── │
      │  Load(partition, epoch, all that is registered)│   before the first order of an epoch
      │  Order(partition, epoch, serial, requests)     │
      │ ◀───────────────────────────────────────────── │
      │  Answer(partition, epoch, serial, changes)     │   or Puzzled, if it cannot be worked out
      │ ─────────────────────────────────────────────▶ │
      │  Drop(partition)                               │   it is somebody else's now
      │ ◀───────────────────────────────────────────── │
      │  Dropped(partition)                            │   shows that one that was silent is awake
      │ ─────────────────────────────────────────────▶ │

Orders are answered one after the other.  A configurator that has nothing to answer says `Alive` now and then.  Frames,
errors and roles are those of `sievenet.session`; whoever says hello here is a component.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sievenet.access.identity import Role
from sievenet.session import message
from sievenet.session.message import Alive, Failure, Goodbye, Message, Number
from sievenet.session.protocol import Protocol

__all__ = [
    "CONFIGURATORS",
    "PROTOCOL",
    "Answer",
    "Dismissed",
    "Drop",
    "Dropped",
    "Fact",
    "Hello",
    "Load",
    "Order",
    "Own",
    "Puzzled",
    "Welcome",
    "Wiring",
]

#: Version of everything in this module; both sides must have the same.
PROTOCOL: Final = 5
#: Bytes of the largest frame either way: a partition with millions of registrations.
_LARGEST: Final = 1 << 28

_Serial = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Mask = Annotated[bytes, msgspec.Meta(max_length=1 << 16)]
_Wire = Annotated[int, msgspec.Meta(ge=0, lt=1 << 18)]


class Fact(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A wire: its number, the number of its switch, its port, and the ways to and from the client behind it."""

    wire: _Wire
    switch: Number
    port: Number
    #: Signed, the lowest byte first; empty for a link.
    to: _Mask = b""
    frm: _Mask = b""


class Hello(message.Hello, frozen=True):
    """A configurator comes."""

    #: Its process, for people to see.
    process: Number = 0


class Welcome(message.Welcome, frozen=True):
    """It is welcome."""


class Wiring(Message, frozen=True):
    """The network: switches in the order of their numbers, and the links between them."""

    switches: tuple[str, ...]
    links: tuple[Fact, ...]


class Load(Message, frozen=True):
    """A partition is yours from this epoch on."""

    partition: _Serial
    epoch: _Serial
    category: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    #: All that is registered (`Puts`), but for what is to be taken back first.
    puts: bytes
    undo: bytes
    facts: tuple[Fact, ...]


class Order(Message, frozen=True):
    """Carry out these requests and say what the switches must be told."""

    partition: _Serial
    epoch: _Serial
    serial: _Serial
    puts: bytes
    #: Wires that were not told before in this epoch, or have changed hands.
    facts: tuple[Fact, ...] = ()


class Drop(Message, frozen=True):
    """A partition is yours no more."""

    partition: _Serial


class Own(Message, frozen=True):
    """A partition with a log has another owner (`words`); never said over a connection."""

    partition: _Serial
    epoch: _Serial
    #: Orders up to this one need no answer any more.
    answered: _Serial


class Dismissed(Message, frozen=True):
    """A partition with a log is in use no more; never said over a connection."""

    partition: _Serial


class Dropped(Message, frozen=True):
    """A partition was dropped, with what was not begun of it."""

    partition: _Serial


class Answer(Message, frozen=True):
    """What the switches must be told: `Changes`, switch by switch."""

    partition: _Serial
    epoch: _Serial
    serial: _Serial
    #: The keys of the dz in two columns, and everything else in columns (`columns`); nothing if nothing changes.
    places: bytes
    rows: bytes
    used: _Mask
    #: Microseconds that it took.
    spent: _Serial = 0


class Puzzled(Message, frozen=True):
    """An order that cannot be carried out: something is wrong here."""

    partition: _Serial
    epoch: _Serial
    serial: _Serial
    reason: Annotated[str, msgspec.Meta(max_length=4096)]


CONFIGURATORS: Final = Protocol(
    name="configurator",
    listener="dispatcher",
    version=PROTOCOL,
    scheme="sievenet+configurator",
    hello=Hello,
    welcome=Welcome,
    taken={
        Answer: Role.COMPONENT,
        Puzzled: Role.COMPONENT,
        Dropped: Role.COMPONENT,
        Alive: None,
        Goodbye: None,
    },
    given=(Welcome, Wiring, Load, Order, Drop, Failure, Goodbye, Alive),
    largest=dict.fromkeys(Role, _LARGEST),
    max_given=_LARGEST,
)
