"""Many packets through a matcher at once: whom to send them to.

Nothing is done per packet in Python, and little per call, since a process that has just woken up has forgotten each
step. Kernels over all rows, usually all of them in one call (`reach`):

    packets that came ─▶ new?    ─▶ keys of the event ─▶ match ─▶ row and recipient, each pair once
    rows of bytes        `note`     `matcher.decoder`             `choose`

The keys that subscriptions are matched under say where they belong (`homed`), so that nothing has to be looked up for
each match:

    side │ place of its recipient │ number of the subscription
    12       20 bits                30 bits

`client.parcel` makes packets of them, as rows of bytes again. What does not come in bulk goes packet by packet
(`client.matcher`), with the same outcome.
"""

from __future__ import annotations

import struct
from operator import is_
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.client.parcel import INCARNATION, PUBLISHER, SEQUENCE, Targets
from sievenet.content.layout import Bytes
from sievenet.content.schema import Schema
from sievenet.dataplane.packet import PACKET_HEADER
from sievenet.errors import InvalidInput
from sievenet.jit import compiled
from sievenet.jit.places import grid, line, placed
from sievenet.matcher import Matcher
from sievenet.matcher.decoder import Decoder, decode_rows
from sievenet.matcher.octets import load_big
from sievenet.matcher.records import Array
from sievenet.matcher.scan import match_level
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Audience", "homed", "place_of", "side_of"]

_SOURCE: Final = struct.Struct(">QQ")
#: Recipients of an event on average up to which there is room for them at once.
_EACH: Final = 4
#: Packets for which there is room from the beginning.
_FEW: Final = 1024
assert PUBLISHER + _SOURCE.size // 2 == INCARNATION
#: Bits of a key: the number of a subscription, the place of its recipient, its side.
_NUMBER: Final = 30
_PLACE: Final = 20
_SIDE: Final = 12
_PLACES: Final = (1 << _PLACE) - 1


def homed(number: int, place: int, side: int) -> int:
    """The key of a subscription, whose recipient has this place, on this side of the matcher (0: any).

    >>> homed(5, 0, 0), place_of(homed(5, 77, 3)), side_of(homed(5, 77, 3))
    (5, 77, 3)
    """
    if not (0 <= number < 1 << _NUMBER and 0 <= place <= _PLACES):
        raise InvalidInput(expected=f"up to {1 << _NUMBER} subscriptions of {1 << _PLACE} recipients", got=number)
    # Of a side beyond what can be said nothing is kept away, and duplicates are removed.
    return number | place << _NUMBER | (side if 0 <= side < 1 << _SIDE else 0) << (_NUMBER + _PLACE)


def place_of(key: Any) -> Any:
    """The place of the recipient of a subscription; of many keys, of each."""
    return key >> _NUMBER & _PLACES


def side_of(key: Any) -> Any:
    """Its side."""
    return key >> (_NUMBER + _PLACE)


@compiled
def note(
    rows: Array, start: int, side: int, ring: Array, noted: Array, fresh: Array, origins: Array
) -> tuple[int, int, int]:
    """Which packets of one source are new, that of row ``start``, as `DuplicateWindow.fresh` says one by one.

    Where the next source begins, how many packets came again, and late.
    """
    publisher, incarnation = load_big(rows, start, PUBLISHER), load_big(rows, start, INCARNATION)
    again = late = 0
    other = len(rows)
    span = np.uint64(len(ring))
    for i in range(start, len(rows)):
        if load_big(rows, i, PUBLISHER) != publisher or load_big(rows, i, INCARNATION) != incarnation:
            if start == 0:
                noted[i] = False
            if other == len(rows) and not noted[i]:
                other = i
            continue
        noted[i] = True
        number = load_big(rows, i, SEQUENCE)
        slot = np.int64(number % span)
        found = ring[slot]
        fresh[i] = found <= number
        origins[i] = side
        if found <= number:
            ring[slot] = number + np.uint64(1)
        elif found == number + np.uint64(1):
            again += 1
        else:
            late += 1
    return other, again, late


@compiled
def choose(
    kept: Array,
    origins: Array,
    offsets: Array,
    keys: Array,
    last: Array,
    rows: Array,
    to: Array,
) -> tuple[int, int]:
    """Rows and places of recipients, each pair once; how many pairs, and how many events nobody wants.

    A recipient on the side that an event came from is left out. ``last`` is scratch: a number for each place.
    """
    count = unwanted = 0
    last[:] = -1
    for e in range(len(kept)):
        i = kept[e]
        unwanted += 1 if offsets[e] == offsets[e + 1] else 0
        for k in range(offsets[e], offsets[e + 1]):
            place, side = keys[k] >> _NUMBER & _PLACES, keys[k] >> (_NUMBER + _PLACE)
            if last[place] == e or (side != 0 and side == origins[i]):
                continue
            last[place] = e
            rows[count], to[count] = i, place
            count += 1
    return count, unwanted


#: What `reach` finds where: the audience's own, its decoder's, the matcher's level and room, the pairs.
NOTED, FRESH, ORIGINS, OPENING, TABLE, REALS, XS, KEPT, LEVEL = range(9)
(
    BUCKETS, EDGES, WORDS, ALIVE, KEYS, BLOCKS, SLOTS, CHECK_ENDS, CHECKS, SLICES, BITMAPS, USED, CHECKED, MARKS,
    ENTRIES, EVENTS, FOUND, STARTS, OUT, LAST, WHICH, TO,
) = range(LEVEL, LEVEL + 22)  # fmt: skip
#: And of what kind each is.
_KINDS: Final = (
    "|u1 |u1 <i4 |u1 <i8 <f8 <i8 <i8 |u1 <i8 <i8 |u1 <i8 <i8 <u4 <u4 <i8 <i8 <u8 <i8 <i8 <u2 <i8 <i4 <i8 <i8 <i8 "
    "<i8 <i8 <i8"
).split()


@compiled
def reach(rows: Array, start: int, side: int, ring: Array, places: Array) -> tuple[int, int, int, int, int, int]:
    """`note` a source and, if no other comes behind it, all the rest, with subscriptions that are one level.

    What `note` says; then how many events are sound, how many pairs there are (-1: no room for them), and how many
    events nobody wants.  ``places`` says where all the other arrays are.
    """
    fresh, origins = line(places, FRESH, np.uint8), line(places, ORIGINS, np.int32)
    other, again, late = note(rows, start, side, ring, line(places, NOTED, np.uint8), fresh, origins)
    if other < len(rows):
        return other, again, late, 0, 0, 0
    xs, kept = grid(places, XS, np.int64), line(places, KEPT, np.int64)
    opening, table, reals = (
        line(places, OPENING, np.uint8),
        grid(places, TABLE, np.int64),
        grid(places, REALS, np.float64),
    )
    sound = decode_rows(rows, PACKET_HEADER, fresh, opening, table, reals, xs, kept)
    found, starts, out = line(places, FOUND, np.int64), line(places, STARTS, np.int64), line(places, OUT, np.int64)
    matches, remaining = match_level(
        xs,
        grid(places, BUCKETS, np.uint8),
        sound,
        grid(places, EDGES, np.int64),
        line(places, WORDS, np.int64),
        line(places, ALIVE, np.uint8),
        line(places, KEYS, np.int64),
        grid(places, BLOCKS, np.int64),
        line(places, SLOTS, np.uint32),
        line(places, CHECK_ENDS, np.uint32),
        grid(places, CHECKS, np.int64),
        grid(places, SLICES, np.int64),
        grid(places, BITMAPS, np.uint64),
        line(places, USED, np.int64),
        line(places, CHECKED, np.int64),
        grid(places, MARKS, np.uint16),
        grid(places, ENTRIES, np.int64),
        line(places, EVENTS, np.int32),
        found,
        0,
        starts,
        out,
    )
    which, to = line(places, WHICH, np.int64), line(places, TO, np.int64)
    if matches > len(found) or remaining > len(which):
        return other, again, late, sound, -1, 0
    count, unwanted = choose(kept[:sound], origins, starts, out, line(places, LAST, np.int64), which, to)
    return other, again, late, sound, count, unwanted


class Audience:
    """Who gets packets of one category: what a matcher knows of duplicates, subscriptions and sides."""

    def __init__(self, schema: Schema, matcher: Matcher, window: DuplicateWindow) -> None:
        self._matcher, self._window = matcher, window
        self._decoder = Decoder(schema)
        #: Bytes of packets that can be read here; -1 if none can.
        self.width = PACKET_HEADER + self._decoder.size if self._decoder.possible else -1
        #: The level of the matcher that `_places` is for; it holds its arrays, so that they stay where they are.
        self._level: tuple[Any, ...] | None = None
        if self._decoder.possible:
            self._fit(_FEW, 0)

    def takes(self, rows: Bytes) -> bool:
        """Whether packets of this width are events that can be read here."""
        return bool(rows.shape[1] == self.width)

    def reads(self, size: int) -> bool:
        """Whether events of so many bytes can be read here."""
        return size + PACKET_HEADER == self.width

    def targets(
        self,
        rows: Bytes,
        publishers: dict[int, int],
        numbers: npt.NDArray[np.uint32],
    ) -> Targets:
        """Whom to send packets to that came; valid until the next call.

        ``publishers`` are the sides of publishers, by number; ``numbers`` the recipients, by place.
        """
        total = len(rows)
        if total > self._room or len(numbers) > self._recipients:
            self._fit(max(self._room, 1 << (total - 1).bit_length()), len(numbers))
        window, level = self._window, self._matcher.sole(total)
        if level is None:
            self._level = None  # or it would stay in memory beside those that have come instead
        elif self._level is None or not all(map(is_, level, self._level)):  # the same arrays may be in another tuple
            self._places = placed((*self._read, *level, self._last, *self._pairs), _KINDS)
            self._level = level  # not before there are places for it
        start = old = sound = unwanted = 0
        count = -1
        which, to = self._pairs
        while start < total:
            source = _SOURCE.unpack_from(rows, start * self.width + PUBLISHER)  # type: ignore[arg-type]
            side, ring = publishers.get(source[0], 0), window.ring(source)
            if level is None:
                start, again, late = note(rows, start, side, ring, *self._seen)
            else:
                start, again, late, sound, count, unwanted = reach(rows, start, side, ring, self._places)
            if again or late:
                window.count(again, late)
                old += again + late
        if count < 0:
            xs, kept = self._read[-2:]
            sound = self._decoder.read(rows, PACKET_HEADER, self._seen[1], xs, kept)
            found = self._matcher.match_keys(xs, sound)
            which, to = np.empty((2, len(found.keys)), np.int64)
            matches = found.offsets, found.keys
            count, unwanted = choose(kept[:sound], self._seen[2], *matches, self._last, which, to)
        return Targets(which[:count], to[:count], numbers, unwanted, total - old - sound)

    def _fit(self, packets: int, recipients: int) -> None:
        """Make room for so many."""
        self._level = None
        self._room = self._recipients = 0  # until there is
        #: What is known of packets: whether looked at, whether new, and their sides.
        self._seen = np.empty(packets, np.uint8), np.empty(packets, np.uint8), np.empty(packets, np.int32)
        #: All that `reach` reads with: that, how events are read, the events as keys, and their rows.
        xs, kept = np.empty((packets, self._decoder.attributes), np.int64), np.empty(packets, np.int64)
        self._read = *self._seen, *self._decoder.arrays, xs, kept
        self._last = np.empty(recipients, np.int64)
        #: Rows and places of recipients.
        self._pairs = np.empty(_EACH * packets, np.int64), np.empty(_EACH * packets, np.int64)
        self._room, self._recipients = packets, recipients
