"""What a subscriber and its cache say to each other, beside the events.

    subscriber                                cache
      │  Take(epoch, positions, …)              │   too much comes: queue for me what I do not have
      │ ──────────────────────────────────────▶ │
      │  Taken(epoch, stream, first, missing)   │   it is queued; the plain path may go
      │ ◀────────────────────────────────────── │
      │  Progress(next, taken)                  │   what came, and what the application has taken: sets the pace
      │ ──────────────────────────────────────▶ │
      │  Dropped(missing)                       │   too many wait, and the subscriber wants these dropped
      │ ◀────────────────────────────────────── │
      │  Drained                                │   nothing waits any more: the plain path may come back
      │ ◀────────────────────────────────────── │
      │  Stop                                   │   the plain path stands; the stream ends with a mark, in its order
      │ ──────────────────────────────────────▶ │

Every message may be lost or come twice. Whoever needs an answer asks again. An *epoch* is one time that a subscription
is with a cache; what belongs to an earlier one is ignored. The daemon carries these messages, and vouches for who
speaks; it does not read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from sievenet.errors import CodecError

__all__ = [
    "DROPPED",
    "LONGEST",
    "POLICIES",
    "Drained",
    "Dropped",
    "Ended",
    "Missing",
    "OnFull",
    "Position",
    "Progress",
    "Stop",
    "Take",
    "Taken",
    "Word",
    "decoded",
    "encoded",
    "ranges",
]

#: What happens when a subscriber's queue is full: its subscription ends, or the oldest or newest events are dropped.
OnFull = Literal["end", "oldest", "newest"]
POLICIES: Final[tuple[str, ...]] = get_args(OnFull)

#: MessagePack has no larger ones.
_U64 = Annotated[int, msgspec.Meta(ge=0)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Stream = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
#: Sources of which a subscriber says how far it is, at most.
_SOURCES: Final = 4096
#: Ranges of dropped events in one word, at most, and numbers in one range: each of them is looked at.
DROPPED: Final = 64
LONGEST: Final = 4096


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="say", tag=True):
    """Base of these messages."""


class Position(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last event of a source that a subscriber has."""

    publisher: _U64
    incarnation: _U64
    sequence: _Number


class Missing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Numbers of a source that may be lost; not all of them need be wanted. ``last`` is -1 if it is not known."""

    publisher: _U64
    incarnation: _U64
    first: _Number
    last: Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]


def ranges(keys: Iterable[tuple[int, int, int]]) -> list[Missing]:
    """Events as ranges of numbers.

    >>> [(each.publisher, each.first, each.last) for each in ranges([(1, 0, 5), (2, 0, 9), (1, 0, 6), (1, 0, 8)])]
    [(1, 5, 6), (1, 8, 8), (2, 9, 9)]
    """
    found: list[Missing] = []
    for publisher, incarnation, number in sorted(keys):
        last = found[-1] if found else Missing(0, 0, 0, -1)
        follows = (last.publisher, last.incarnation, last.last) == (publisher, incarnation, number - 1)
        if found and follows and number - last.first < LONGEST:
            found[-1] = Missing(publisher, incarnation, last.first, number)
        else:
            found.append(Missing(publisher, incarnation, number, number))
    return found


class Take(Word, frozen=True):
    """Queue what is wanted and was not delivered yet."""

    epoch: _Number
    #: How far the subscriber is with each source.
    positions: Annotated[tuple[Position, ...], msgspec.Meta(max_length=_SOURCES)] = ()
    #: Seconds before now in which something may be missing.
    back: _Seconds = 0.0
    #: Seconds before now at which the subscription began: nothing older is wanted.
    age: _Seconds = 0.0
    #: Events per second; None if the pace follows the subscriber alone.
    limit: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    on_full: OnFull = "end"
    #: Everything behind this event is wanted, of any source.
    after: Position | None = None
    #: Something may be missing before the positions too: what the cache has of the last seconds is to be named.
    check: bool = False


class Taken(Word, frozen=True):
    """It is queued, and comes in a stream from a number on."""

    epoch: _Number
    stream: _Stream
    first: _Number
    missing: Annotated[tuple[Missing, ...], msgspec.Meta(max_length=_SOURCES)] = ()
    #: Seconds before now that the cache can look back, if that is less than was asked for.
    reaches: _Seconds | None = None
    #: Counts the streams of an epoch: a subscriber may be given another one, and words may come late.
    turn: _Number = 0


class Progress(Word, frozen=True):
    """The next number that is expected, and below which all were taken by the application."""

    epoch: _Number
    stream: _Stream
    next: _Number
    taken: _Number
    #: A later number has come: send again from ``next`` on.
    again: bool = False


class Drained(Word, frozen=True):
    """The queue is empty most of the time."""

    epoch: _Number
    stream: _Stream


class Dropped(Word, frozen=True):
    """The queue was full, and these events were dropped; of ``unknown`` more the cache cannot say which they were."""

    epoch: _Number
    missing: Annotated[tuple[Missing, ...], msgspec.Meta(max_length=DROPPED)] = ()
    unknown: _Number = 0


class Stop(Word, frozen=True):
    """The plain path stands again: end the stream."""

    epoch: _Number
    stream: _Stream


class Ended(Word, frozen=True):
    """The cache serves this epoch no more, for a reason; ``full`` if that is the end of the subscription."""

    epoch: _Number
    reason: Annotated[str, msgspec.Meta(max_length=1024)]
    full: bool = False
    #: It would serve another: ask again.
    again: bool = False


_DECODER: Final = msgspec.msgpack.Decoder(Take | Taken | Progress | Drained | Dropped | Stop | Ended)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encoded(word: Word) -> bytes:
    """The bytes of a message."""
    return _ENCODER.encode(word)


def decoded(data: bytes) -> Any:
    """The message in these bytes, or `CodecError`."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"Expected a message between subscriber and cache: {error}") from None
