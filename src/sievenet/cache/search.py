"""The search of a ring for what a subscriber lacks, and for what nobody can tell it any more.

A subscriber says of each source (publisher and incarnation) how far it is. Whatever the ring holds beyond that is
wanted, if the filter matches. Where the ring was *interrupted* (its cache was away for a while, or the ring does not
reach back far enough) numbers between the last before and the first after may be lost, and are named.

    ring      7  8  9 ║ 14 15          ║ an interruption (`cache.interruptions`)
    position  8                        wanted: 9 14 15, may be missing: 10 to 13

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sievenet.cache.interruptions import Interruptions
from sievenet.cache.messages import Missing, Take, ranges
from sievenet.cache.place import Place
from sievenet.cache.record import Source, key_of
from sievenet.cache.ring import Ring

__all__ = ["Backlog", "named", "search"]

#: Seconds that a subscriber's question may have taken to come here.
_DELAY: Final = 0.25
#: Ranges that one word carries.
_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a ring has for a subscriber."""

    #: Ascending, of any content.
    offsets: list[int]
    records: list[bytes]
    missing: tuple[Missing, ...]
    #: The offset from which on everything is wanted, whatever its source.
    begun: int
    #: Seconds that the ring reaches back, if that is less than was asked for.
    reaches: float | None


def search(ring: Ring, take: Take, covered: float, interruptions: Interruptions, now: float) -> Backlog:
    """What a subscriber lacks of a ring that has everything since a time, but for some interruptions."""
    since = now - min(take.back, take.age)
    oldest = max(covered, ring.oldest if ring.first > 0 and ring.oldest is not None else covered)
    uncertain = since < oldest - 1e-9
    # The question was on its way for a while, and its seconds are those of the moment at which it was asked.
    start = ring.at(since - _DELAY)
    records = ring.between(start, ring.next)
    if start < ring.first:  # a segment was damaged
        start, uncertain = ring.first, True
    begun = ring.at(now - take.age - _DELAY) if take.age < take.back else start
    last: dict[Source, int] = {(each.publisher, each.incarnation): each.sequence for each in take.positions}
    known = dict(last)
    doubtful = set(last) if uncertain else set()
    if take.after is not None:
        source = (take.after.publisher, take.after.incarnation)
        begun = _behind(records, start, source, take.after.sequence)
        last[source] = known[source] = take.after.sequence
        uncertain &= begun <= max(start, ring.at(oldest))  # unless the event itself is there
        doubtful = {source} if uncertain else set()
    points, edges = interruptions.points, interruptions.edges(ring.next)
    doubted = bool(interruptions)
    shaken: set[Source] = set()
    #: The last number of each source in the ring, whatever the subscriber has.
    chain: dict[Source, int] = {}
    offsets, wanted, missing = [], [], []
    for offset, record in enumerate(records, start):
        if offset in points:
            doubtful = set(last)
        if offset in edges:
            shaken = set(last)
        publisher, incarnation, sequence = key_of(record)
        source = (publisher, incarnation)
        before, inside = last.get(source), doubted and interruptions.inside(offset)
        if before is None:
            if sequence and doubted and interruptions.after(offset):
                missing.append(Missing(publisher, incarnation, 0, sequence - 1))
        elif inside or source in shaken or source in doubtful:
            # Here the ring knows this source again, perhaps from a number on that the subscriber has. What was dropped
            # while the subscriber was served may be behind its position.
            base = chain.get(source, before) if inside or source in shaken else before
            shaken.discard(source)
            doubtful.discard(source)
            if sequence > base + 1:
                missing.append(Missing(publisher, incarnation, base + 1, sequence - 1))
        chain[source] = max(sequence, chain.get(source, 0))
        if sequence <= known.get(source, -1):
            continue
        last[source] = sequence if before is None else max(before, sequence)
        if source not in known and offset < begun:
            continue
        offsets.append(offset)
        wanted.append(record)
    if ring.next in points or ring.next in edges:  # and nothing came since
        doubtful = set(last)
    missing += [Missing(*source, last[source] + 1, -1) for source in sorted(doubtful | shaken)]
    if len(missing) > _MOST:
        missing = _merged(missing)
    return Backlog(offsets, wanted, tuple(missing), begun, now - oldest if uncertain else None)


def _merged(missing: Sequence[Missing]) -> list[Missing]:
    """One range for each source, of as many sources as can be said: what may be missing is better told roughly."""
    found: dict[Source, Missing] = {}
    for each in missing:
        source = (each.publisher, each.incarnation)
        first = found.get(source, each).first
        found[source] = Missing(*source, min(first, each.first), each.last)
    return list(found.values())[:_MOST]


def named(place: Place, wanted: Any, take: Take, now: float, missing: tuple[Missing, ...]) -> tuple[Missing, ...]:
    """What may be missing, and besides what of the last seconds is wanted and not behind the subscriber's positions.

    The subscriber knows which of these it has; the others were dropped on their way to it.
    """
    records = place.ring.between(place.ring.at(now - min(take.back, take.age) - _DELAY), place.ring.next)
    known = {(each.publisher, each.incarnation): each.sequence for each in take.positions}
    keys = [key_of(records[row]) for row in place.filters.rows(wanted, records)]
    before = ranges(key for key in keys if key[2] <= known.get(key[:2], -1))
    return tuple([*missing, *before][:_MOST])


def _behind(records: Sequence[bytes], start: int, source: Source, sequence: int) -> int:
    """The offset behind an event; that of the first if the event is not there."""
    for offset, record in enumerate(records, start):
        if key_of(record) == (*source, sequence):
            return offset + 1
    return start
