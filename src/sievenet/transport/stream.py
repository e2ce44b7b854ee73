"""What a receiver knows of one stream: order, gaps, and when a missing message counts as lost.

    arrives          5    6         9    (record of 9: 8 not wanted, 7 wanted, left 3 ms before)
    delivered        5    6              9 waits for 7, until  now + F⁻¹(1 - P_t) - 3 ms
                               7 in time:  7 9                 otherwise:  9, and 7 is reported lost

Sequence numbers have gaps for everyone, since a receiver gets only what it wants. A message's publication record tells
which of the missing ones were wanted. Each such message gets a *deadline* when it is first missed: the time after
which it would come with probability P_t or less. A held message is released when every missing message before it has
come or passed its deadline; the one with the latest deadline is the latest wanted one, so this is the source's latch,
seen from the missing messages instead of from the held one. Seen so, a single mechanism also detects losses when order
is off (nothing is held, deadlines run all the same), judges digests, and waits for repairs (`hold_lost`).

The invariant: every number up to `top` that was published since the subscription stood is in exactly one place,

    settled     it came, or it is not wanted, or its loss was reported
    missing     it is wanted and has not come
    unknown     a gap beyond the record: a digest may tell, or the publisher when asked (`inquire`)

so nothing can be lost in silence. Without `inquire` an unknown stretch holds until the deadline of the record's
earliest entry; then, if the publisher sends no records at all (*basic mode*), it counts as wanted and is reported lost.

A session is one life of a publisher, one epoch: a publisher that restarts is another stream, and a flipped bit in an
epoch is a stream of one message, which harms no other. A number that leaps far ahead is believed when a second message
confirms it; one that leaps less is taken back when later messages have lower numbers, for a publisher counts upwards.

Cost: in order, one ring update and a shift; a gap of g, g entries of the record. State is bounded by `Limits`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from sievenet.transport.account import Account
from sievenet.transport.bloom import Bits
from sievenet.transport.codec import Header
from sievenet.transport.departure import Departures
from sievenet.transport.doubt import Doubt
from sievenet.transport.hold import Hold
from sievenet.transport.latch import Latch
from sievenet.transport.outcome import Limits, Loss, Missing, Released, SessionCounts
from sievenet.transport.stretch import Stretches

__all__ = ["Limits", "Loss", "Released", "SessionCounts", "Stream"]

#: Numbers below `top` for which it is remembered whether they came.
_REACH: Final = 2048
_FULL: Final = (1 << _REACH) - 1
#: A jump beyond this needs a second message to be believed.
MAX_JUMP: Final = 1 << 20
#: A publisher with digests says something every five seconds; after so many, at least one did not come.
_REGULARLY: Final = 7.5
#: Later messages with lower numbers, in a row, that show a jump to have been none.
_CONTRADICTIONS: Final = 2


class Stream(Account):
    """Sequence state of one stream at one receiver."""

    def __init__(
        self,
        publisher: int,
        interests: tuple[Bits, ...],
        model: Latch,
        *,
        order: bool = True,
        late: str = "deliver",
        hold_lost: bool = False,
        recover: bool = False,
        inquire: bool = False,
        limits: Limits | None = None,
        doubt: Doubt | None = None,
        counts: SessionCounts | None = None,
        since: float = inf,
        resume: int = -1,
        width: int = 0,
    ) -> None:
        self.counts = counts if counts is not None else SessionCounts()
        super().__init__(
            publisher,
            interests,
            model,
            limits or Limits(),
            self.counts,
            doubt,
            recover=recover or hold_lost,
            inquire=inquire,
            since=since,
        )
        #: Width of the bits in bytes, as the publisher's record has them.
        self.width = width
        #: The first number that is due, if it is known from before; else -1.
        self._resume = resume
        #: Keep order; hold later messages until a lost one is repaired or abandoned.
        self.order, self.hold_lost = order, hold_lost
        self._deliver_late = late == "deliver"
        #: Highest sequence number that is known to have been published, and when that was said (publisher's clock).
        self.top = -1
        self._stated = 0.0
        self._contradictions = 0
        self._seen = 0
        #: Arrival of the newest message that came itself.
        self._arrival = 0.0
        self._newest = -1
        self._probe = -1
        #: Number of the first message, and with what came since the share that comes here.
        self._first = 0
        #: Numbers of `_missing` (and of some that are missing no more) that hold back what is above them.
        self._barriers: list[int] = []
        #: Numbers below this are not waited for.
        self._passed = 0
        self.hold = Hold(self.counts)
        self.departures = Departures()
        #: Gap beyond the record before the last message (congestion control).
        self.uncovered = 0
        #: When something last came, by the receiver's clock; the publisher tells regularly how far it is, or has ended.
        self.touched = 0.0
        self.reports = self.ended = False

    # -- what comes -----------------------------------------------------------------------

    def arrive(self, header: Header, item: Any, now: float) -> list[Released]:
        """A message has come; returns what may be delivered now, in order."""
        self.touched = now
        self.uncovered = 0
        sequence = header.sequence
        if self.epoch < 0:
            self.counts.received += 1
            self._first, self._seen, self.reports = sequence, 1, header.reports
            self._begin(header, sequence, now)
            self._sample(header, now)
            return self._enter(header, item, now)
        if header.epoch != self.epoch:
            self.counts.stale += 1
            return []
        ahead = sequence - self.top
        if ahead > MAX_JUMP and not self._confirmed(sequence):
            return []
        self.counts.received += 1
        if ahead > 0:
            self._sample(header, now)
            self._seen = ((self._seen << min(ahead, _REACH)) | 1) & _FULL
            self.top, self._stated, self._contradictions = sequence, header.departure, 0
            if ahead > 1:
                self._gap(header, ahead - 1, now)
            elif not self.hold and not self._unknown and (not self._barriers or not self.order):
                self.hold.released = sequence  # in order, nothing waits: the common case
                return [Released(header, item)]
        else:
            if self._contradicted(header, sequence):
                self._take_back(sequence)
            elif not self._new(sequence):
                self.counts.duplicates += 1
                return []
            self._sample(header, now)
            self._came(sequence)
            if len(header.record):
                self._judge(header, now, self._share)
        return self._enter(header, item, now)

    def digest(self, header: Header, now: float) -> list[Released]:
        """A digest has come: it judges what a message of its number would, without being one."""
        last = header.sequence - 1
        if self.epoch < 0:
            self.touched = now
            self._begin(header, last, now)
        elif header.epoch != self.epoch:
            self.counts.stale += 1
            return []
        elif last - self.top > MAX_JUMP and not self._confirmed(last):
            return []
        self.touched = now
        ahead = last - self.top
        if ahead > 0:
            self._seen = (self._seen << min(ahead, _REACH)) & _FULL
            first, self.top, self._stated, self._contradictions = self.top + 1, last, header.departure, 0
            self._add_unknown(first, last, now + self._bound())
        elif ahead < 0 and not header.part and self._contradicted(header, last):
            self._take_back(last)
        # A digest takes another path: what it shows is given one more bound of delay to come.
        self._judge(header, now, self._share, extra=self.model.bound())
        self.reports, self.ended = True, header.ended or (self.ended and header.part)
        return self._flush(now)

    def repaired(self, header: Header, item: Any, now: float) -> list[Released]:
        """A repair has come; delivered if the message is due and has not come before."""
        sequence = header.sequence
        if header.epoch != self.epoch or sequence > self.top + MAX_JUMP:
            self.counts.stale += 1
            return []
        if sequence > self.top:
            return self.arrive(header, item, now)
        if not self.due(header.epoch, sequence):
            self.counts.duplicates += 1
            return []
        self.counts.received += 1
        self._came(sequence)
        if len(header.record):  # what it describes may be missing too
            self._judge(header, now, self._share)
        return self._enter(header, item, now, repair=True)

    def due(self, epoch: int, sequence: int) -> bool:
        """Whether a repair is of use: not of what is from before the subscription, unwanted, or told to be gone."""
        return epoch == self.epoch and (sequence > self.top or sequence in self._missing or sequence in self._unknown)

    def shown(self, epoch: int, sequence: int, bits: Bits, width: int, now: float) -> Loss | None:
        """Another receiver requests a message that is unknown here; returns the loss if it is missing here too."""
        if epoch != self.epoch or len(self._missing) >= self._limits.missing or not self._unknown.discard(sequence):
            return None
        missing = Missing(now, bits, width, 0.0, self._departure, lost=True)
        self._wait(sequence, missing)
        self.counts.losses += 1
        return missing.loss(self.publisher, self.epoch, sequence, believed=True)

    # -- time -----------------------------------------------------------------------------

    def expire(self, now: float) -> tuple[list[Released], list[Loss]]:
        """Deadlines up to ``now`` have passed: what is released, and what counts as lost."""
        losses = self.overdue(now)
        return self._flush(now), losses

    def abandon(self, epoch: int, sequence: int, now: float) -> list[Released]:
        """A lost message will not be repaired: releases what waits for it."""
        if epoch == self.epoch:
            self._missing.pop(sequence, None)
            self._unknown.discard(sequence)
        return self._flush(now)

    def close(self, now: float) -> tuple[list[Released], list[Loss]]:
        """Release everything that is held, in order; what is still missing or unknown is lost."""
        lost = [
            missing.loss(self.publisher, self.epoch, sequence, believed=True)
            for sequence, missing in sorted(self._missing.items())
            if not missing.lost
        ]
        if self._inquire or self._basic:
            lost += self.untold(0, self.top)
        lost += self._spilt
        self._missing.clear()
        self._unknown = Stretches()
        self._due.clear()
        self._barriers.clear()
        return self._flush(now), lost

    def silent(self, now: float) -> bool:
        """Whether a publisher with digests is overdue and has not announced its end."""
        return self.touched + _REGULARLY < now and self.reports and not self.ended

    @property
    def waiting(self) -> int:
        """Messages held back."""
        return len(self.hold)

    # -- inside ---------------------------------------------------------------------------

    @property
    def _share(self) -> float:
        """The share of all messages that come here."""
        if self._doubt is None:
            return 0.0
        return self._seen.bit_count() / max(1, min(self.top - self._first + 1, _REACH))

    def _sample(self, header: Header, now: float) -> None:
        if self._newest >= 0:
            self.model.add((now - self._arrival) - (header.departure - self._departure))
        if header.sequence > self._newest:
            self._newest, self._departure, self._arrival = header.sequence, header.departure, now

    def _begin(self, header: Header, top: int, now: float) -> None:
        """First contact: what left after the subscription stood is due, even though nothing had come yet."""
        self.epoch, self.top, self._stated = header.epoch, top, header.departure
        below = header.sequence - 1
        self._contact = header.sequence if self._resume < 0 else 0
        self.hold.released = below
        start = self._resume
        if start < 0 and header.previous * 1e-6 < now - self._since:
            start = 0
        if not 0 <= start <= below:
            return
        self.hold.released = start - 1
        self._unknown.add(start, below, now + self._bound())
        self._judge(header, now, self._share)
        if not self._inquire:  # nobody can say how much of the rest is from before the subscription
            self._unknown = Stretches()
        first = min([*self._missing, self._unknown.lowest(0, asked=True)])
        self.hold.released = below if first == inf else int(first) - 1

    def _confirmed(self, number: int) -> bool:
        """Whether a number far ahead may be believed: if the message before was as far ahead."""
        probe, self._probe = self._probe, number
        if 0 <= probe < number and probe > self.top + MAX_JUMP:
            self._probe = -1
            return True
        self.counts.absurd += 1
        return False

    def _contradicted(self, header: Header, number: int) -> bool:
        """Whether it is certain by now that `top` was never published: later messages have lower numbers."""
        if header.departure <= self._stated:
            return False
        self._contradictions += 1
        return self._contradictions >= _CONTRADICTIONS

    def _take_back(self, number: int) -> None:
        """Numbers above this were never published: removes them."""
        self.counts.absurd += 1
        self._unknown.remove(number + 1, self.top)
        self._missing = {each: missing for each, missing in self._missing.items() if each <= number}
        self._seen = self._seen >> min(self.top - number, _REACH)
        self.top = number
        self._newest, self._contradictions = min(self._newest, number - 1), 0
        self._passed = min(self._passed, number)
        self.hold.take_back(number)

    def _new(self, sequence: int) -> bool:
        """Whether a message at or below `top` has not come before, as far as that is known."""
        if sequence in self._missing or sequence in self._unknown:
            return True
        behind = self.top - sequence
        return behind < _REACH and not self._seen >> behind & 1

    def _came(self, sequence: int) -> None:
        behind = self.top - sequence
        if behind < _REACH:
            self._seen |= 1 << behind
        if self._missing.pop(sequence, None) is None and self._unknown:
            self._unknown.discard(sequence)

    def _gap(self, header: Header, gap: int, now: float) -> None:
        first, last = header.sequence - gap, header.sequence - 1
        self._add_unknown(first, last, now)
        known = min(gap, len(header.record))
        age = self._judge(header, now, self._share)
        if gap == known:
            return
        self.uncovered = gap - known
        self._basic = not len(header.record)
        if self.order or self._inquire or self._basic:
            deadline = now + min(max(self.model.latch(age), 0.0), self._limits.latch)
            self._unknown.postpone(first, last, deadline)
        else:
            self.counts.unknown += sum(b - a + 1 for a, b in self._unknown.remove(first, last))

    def _wait(self, sequence: int, missing: Missing) -> None:
        super()._wait(sequence, missing)
        if self.order and sequence > self.hold.released:
            heappush(self._barriers, sequence)

    def _enter(self, header: Header, item: Any, now: float, *, repair: bool = False) -> list[Released]:
        sequence = header.sequence
        if sequence <= self.hold.released:
            if not self.order:
                return [Released(header, item, late=True)]
            self.counts.late += 1
            if self._deliver_late or repair:
                return [Released(header, item, late=True)]
            self.counts.late_dropped += 1
            return []
        if not self.order:
            self.hold.released = sequence
            return [Released(header, item)]
        self.hold.push(sequence, now, header, item)
        if len(self.hold) > self._limits.held:
            # Wait no longer for what is missing below (losses are still reported in time).
            self.counts.overflows += 1
            self._passed = self.hold.first
        return self._flush(now)

    def _flush(self, now: float) -> list[Released]:
        """Release held messages up to the first one that is still waited for."""
        if not self.hold:
            return []
        barriers, missing = self._barriers, self._missing
        while barriers and (
            (found := missing.get(barriers[0])) is None
            or barriers[0] < self._passed
            or (found.lost and not self.hold_lost)
        ):
            heappop(barriers)
        barrier = barriers[0] if barriers else inf
        if self._unknown:
            barrier = min(barrier, self._unknown.lowest(self._passed, asked=self.hold_lost))
        return self.hold.release(barrier, now)
