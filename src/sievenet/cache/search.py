"""The search of a ring for what a subscriber lacks, and for what nobody can tell it any more.

A subscriber says of each source (publisher and incarnation) how far it is. Whatever the ring holds beyond that is
wanted, if the filter matches. Where the ring was *interrupted* (its cache was away for a while, or the ring does not
reach back far enough) numbers between the last before and the first after may be lost, and are named.

    ring      7  8  9 ║ 14 15          ║ an interruption
    position  8                        wanted: 9 14 15, may be missing: 10 to 13

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sievenet.cache.messages import Missing, Take
from sievenet.cache.record import Source, key_of
from sievenet.cache.ring import Ring

__all__ = ["Found", "search"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a ring has for a subscriber."""

    #: Ascending, of any content.
    offsets: list[int]
    records: list[bytes]
    missing: tuple[Missing, ...]
    #: The offset from which on everything is wanted, whatever its source.
    begun: int
    #: Seconds that the ring reaches back, if that is less than was asked for.
    reaches: float | None


def search(ring: Ring, take: Take, covered: float, interruptions: Sequence[int], now: float) -> Found:
    """What a subscriber lacks of a ring that has everything since a time, but for some interruptions."""
    since = now - min(take.back, take.age)
    oldest = max(covered, ring.oldest if ring.first > 0 and ring.oldest is not None else covered)
    uncertain = since < oldest - 1e-9
    start = ring.at(since)
    records = ring.between(start, ring.next)
    begun = ring.at(now - take.age) if take.age < take.back else start
    last: dict[Source, int] = {(each.publisher, each.incarnation): each.sequence for each in take.positions}
    known = dict(last)
    doubtful = set(last) if uncertain else set()
    if take.after is not None:
        source = (take.after.publisher, take.after.incarnation)
        begun = _behind(records, start, source, take.after.sequence)
        last[source] = known[source] = take.after.sequence
        doubtful = {source} if uncertain else set()
    breaks = set(interruptions)
    offsets, wanted, missing = [], [], []
    for offset, record in enumerate(records, start):
        if offset in breaks:
            doubtful = set(last)
        publisher, incarnation, sequence = key_of(record)
        source = (publisher, incarnation)
        before = last.get(source)
        if source in doubtful:
            # Here the ring knows this source again, perhaps from a number on that the subscriber has.
            doubtful.discard(source)
            assert before is not None
            if sequence > before + 1:
                missing.append(Missing(publisher, incarnation, before + 1, sequence - 1))
        if sequence <= known.get(source, -1):
            continue
        last[source] = sequence if before is None else max(before, sequence)
        if source not in known and offset < begun:
            continue
        offsets.append(offset)
        wanted.append(record)
    if ring.next in breaks:  # and nothing came since
        doubtful = set(last)
    missing += [Missing(*source, last[source] + 1, -1) for source in sorted(doubtful)]
    return Found(offsets, wanted, tuple(missing[:4096]), begun, now - oldest if uncertain else None)


def _behind(records: Sequence[bytes], start: int, source: Source, sequence: int) -> int:
    """The offset behind an event; that of the first if the event is not there."""
    for offset, record in enumerate(records, start):
        if key_of(record) == (*source, sequence):
            return offset + 1
    return start
