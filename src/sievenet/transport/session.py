"""What a receiver knows of one publisher: order, gaps, and when a missing message counts as lost.

    arrives          5    6         9    (record of 9: 8 not wanted, 7 wanted, left 3 ms before)
    delivered        5    6              9 waits for 7, until  now + F⁻¹(1 - P_t) - 3 ms
                               7 in time:  7 9                 otherwise:  9, and 7 is reported lost

Sequence numbers have gaps for everyone, since a receiver gets only what it wants. A message's publication record tells
which of the missing ones were wanted. Each such message gets a *deadline* when it is first missed: the time after
which it would come with probability P_t or less. A held message is released when every missing message before it has
come or passed its deadline; the one with the latest deadline is the latest wanted one, so this is the source's latch,
seen from the missing messages instead of from the held one. Seen so, a single mechanism also detects losses when order
is off (nothing is held, deadlines run all the same), judges digests, and waits for repairs (`hold_lost`).

What a gap holds beyond the record cannot be known; it is an *unknown* stretch with the departure of the record's
earliest entry (or, without a record, of the previous message), which holds but is never reported.

Invariants: nothing at or below `released` is delivered later except as late; every held sequence number is above it;
`seen` has bit i set iff message ``top - i`` came, `judged` iff its fate was decided by a record or by its coming.

Cost: in order, one ring update and two shifts; a gap of g, g entries of the record. State is bounded by `Limits`.
Sequence numbers that jump absurdly far are believed only when a second message confirms them (as RTP does), so one
forged header cannot silence a publisher. A publisher that restarts has a higher epoch and starts a fresh session.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from sievenet.transport.bloom import Bits
from sievenet.transport.doubt import Doubt
from sievenet.transport.latch import Latch
from sievenet.transport.outcome import Limits, Loss, Missing, Released, SessionCounts
from sievenet.transport.wire import Header

__all__ = ["Limits", "Loss", "Released", "Session", "SessionCounts"]

#: Sequence numbers that `seen` and `judged` reach back.
_REACH: Final = 2048
_FULL: Final = (1 << _REACH) - 1
#: A jump beyond this needs a second message to be believed.
MAX_JUMP: Final = 1 << 20


class Session:
    """Sequence state of one publisher at one receiver."""

    def __init__(
        self,
        publisher: int,
        interests: tuple[Bits, ...],
        model: Latch,
        *,
        order: bool = True,
        late: str = "deliver",
        hold_lost: bool = False,
        limits: Limits | None = None,
        doubt: Doubt | None = None,
        counts: SessionCounts | None = None,
        since: float = inf,
        width: int = 0,
    ) -> None:
        self.publisher = publisher
        self.model = model
        #: What is wanted, in bits of ``width`` bytes as the publisher's record has them.
        self.interests, self.width = interests, width
        #: When the subscription stood: what left after that is due here, even if nothing has come yet.
        self._since = since
        self.order = order
        self.hold_lost = hold_lost
        self.counts = counts if counts is not None else SessionCounts()
        self._deliver_late = late == "deliver"
        self._doubt = doubt
        self._limits = limits or Limits()
        self.epoch = -1
        #: Highest sequence number that is known to have been published.
        self.top = -1
        self.released = -1
        self._seen = 0
        self._judged = 0
        #: Departure and arrival of the newest message that came itself.
        self._departure = 0.0
        self._arrival = 0.0
        self._newest = -1
        self._probe = -1
        #: Number of the first message, and with what came since the share that comes here.
        self._first = 0
        #: What is waited for: a message by its number, an unknown stretch by its first.
        self._missing: dict[int, Missing] = {}
        self._due: list[tuple[float, int]] = []
        #: Numbers of `_missing` (and of some that are missing no more) that hold back what is above them.
        self._barriers: list[int] = []
        self._held: list[tuple[int, float, Header, Any]] = []
        #: Gap beyond the record before the last message, and whether its record showed a loss (congestion control).
        self.uncovered = 0
        #: When something last came, by the receiver's clock.
        self.touched = 0.0

    # -- what comes -----------------------------------------------------------------------

    def arrive(self, header: Header, item: Any, now: float) -> list[Released]:
        """A message has come; returns what may be delivered now, in order."""
        self.touched = now
        self.uncovered = 0
        sequence = header.sequence
        if header.epoch != self.epoch or self.top < 0:
            fresh = self._other_epoch(header, item, now)
            if fresh is not None:
                return fresh
        ahead = sequence - self.top
        if ahead > MAX_JUMP or ahead < -MAX_JUMP:
            return self._absurd(header, item, now)
        self.counts.received += 1
        if ahead > 0:
            self._sample(header, now)
            self._seen = ((self._seen << ahead) | 1) & _FULL
            self._judged = ((self._judged << ahead) | 1) & _FULL
            self.top = sequence
            if ahead > 1:
                self._gap(header, ahead - 1, now)
            elif not self._held and (not self._barriers or not self.order):  # in order, nothing waits: the common case
                self.released = sequence
                return [Released(header, item)]
        else:
            place = 1 << -ahead
            if -ahead >= _REACH or self._seen & place:
                self.counts.duplicates += 1
                return []
            self._sample(header, now)
            self._seen |= place
            self._judged |= place
            self._found(sequence)
            if len(header.record):
                self._judge(header, now, self.top - sequence + 1)
        return self._enter(header, item, now)

    def digest(self, header: Header, now: float) -> list[Released]:
        """A digest has come: it judges what a message of its number would, without being one."""
        last = header.sequence - 1
        flushed: list[Released] = []
        if self.top < 0 or 0 < (header.epoch - self.epoch) % (1 << 32) < 1 << 31:
            flushed = self.close(now)
            self.counts.restarts += self.top >= 0
            self.epoch, self.top, self.released, self._newest = header.epoch, last, -1, -1
            self._seen, self._judged, self.touched = 0, _FULL, now
            due = header.record.younger(header.previous, now - self._since)
            if due:
                self._judged = _FULL & ~((1 << due) - 1)
                self._judge(header, now, 0, due, extra=self.model.bound())
            return flushed
        if header.epoch != self.epoch or not -MAX_JUMP <= last - self.top <= MAX_JUMP:
            self.counts.stale += 1
            return []
        self.touched = now
        ahead = last - self.top
        if ahead > 0:
            self._seen = (self._seen << ahead) & _FULL
            self._judged = (self._judged << ahead) & _FULL
            self.top = last
        # A digest takes another path: what it shows is given one more bound of delay to come.
        self._judge(header, now, self.top - last, extra=self.model.bound())
        return self._flush(now) if self._held else []

    def repaired(self, header: Header, item: Any, now: float) -> list[Released]:
        """A repair has come; delivered if the message has not come before."""
        sequence = header.sequence
        behind = self.top - sequence
        if header.epoch != self.epoch or behind >= _REACH:
            self.counts.stale += 1
            return []
        if behind < 0:
            return self.arrive(header, item, now)
        if self._seen >> behind & 1:
            self.counts.duplicates += 1
            return []
        self.counts.received += 1
        self._seen |= 1 << behind
        self._judged |= 1 << behind
        self._found(sequence)
        if len(header.record):  # what it describes may be missing too
            self._judge(header, now, behind + 1)
        return self._enter(header, item, now, repair=True)

    def due(self, epoch: int, sequence: int) -> bool:
        """Whether a repair is of use: not of what is from before the subscription, unwanted, or told to be gone."""
        behind = self.top - sequence
        if epoch != self.epoch or behind >= _REACH:
            return False
        decided = behind >= 0 and self._judged >> behind & 1 and not self._seen >> behind & 1
        return not decided or sequence in self._missing

    def lacks(self, epoch: int, sequence: int) -> bool:
        """Whether a message should have come and has not."""
        behind = self.top - sequence
        # What is from before the first message that came was never due here.
        older = self._seen >> max(behind, 0)
        return epoch == self.epoch and 0 <= behind < _REACH and older != 0 and not older & 1

    # -- time -----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        due = self._due
        while due and due[0][1] not in self._missing:
            heappop(due)
        return due[0][0] if due else None

    def expired_by(self, now: float) -> bool:
        """Whether a deadline has passed already, so that `expire` need not wait for its timer."""
        return bool(self._due) and self._due[0][0] <= now

    def expire(self, now: float) -> tuple[list[Released], list[Loss]]:
        """Deadlines up to ``now`` have passed: what is released, and what counts as lost."""
        losses = []
        while self._due and self._due[0][0] <= now:
            _, sequence = heappop(self._due)
            missing = self._missing.get(sequence)
            if missing is None or missing.lost:
                continue
            if missing.last >= 0:
                if missing.deadline <= now:
                    del self._missing[sequence]
                continue
            self.counts.losses += 1
            believed = self._doubt is None or self._doubt.believe()
            losses.append(missing.loss(self.publisher, self.epoch, sequence, believed=believed))
            if self.hold_lost:
                missing.lost = True
            else:
                del self._missing[sequence]
        return (self._flush(now) if self._held else []), losses

    def abandon(self, epoch: int, sequence: int, now: float) -> list[Released]:
        """A lost message will not be repaired: nothing waits for it any more."""
        if epoch == self.epoch:
            self._missing.pop(sequence, None)
        return self._flush(now) if self._held else []

    def close(self, now: float) -> list[Released]:
        """Release everything that is held, in order, and forget what is missing."""
        self._missing.clear()
        self._due.clear()
        self._barriers.clear()
        return self._flush(now)

    @property
    def waiting(self) -> int:
        """Messages held back."""
        return len(self._held)

    # -- inside ---------------------------------------------------------------------------

    def _sample(self, header: Header, now: float) -> None:
        if self._newest >= 0:
            self.model.add((now - self._arrival) - (header.departure - self._departure))
        if header.sequence > self._newest:
            self._newest, self._departure, self._arrival = header.sequence, header.departure, now

    def _other_epoch(self, header: Header, item: Any, now: float) -> list[Released] | None:
        """The first message of a publisher's life, or one of an earlier life."""
        if self.top >= 0 and (header.epoch - self.epoch) % (1 << 32) >= 1 << 31:
            self.counts.stale += 1
            return []
        flushed = []
        if self.top >= 0:
            self.counts.restarts += 1
            flushed = self.close(now)
        self._begin(header, now)
        if self._missing:
            return [*flushed, *self._enter(header, item, now)]
        return [*flushed, Released(header, item)]

    def _begin(self, header: Header, now: float) -> None:
        self.counts.received += 1
        self.epoch = header.epoch
        self.top = self.released = self._newest = header.sequence
        self._departure, self._arrival = header.departure, now
        self._seen, self._first = 1, header.sequence
        # What was published before this message may be from before the subscription: then it is not missed.
        self._judged = _FULL
        self._probe = -1
        due = header.record.younger(header.previous, now - self._since)
        if due:
            self._judged = _FULL & ~(((1 << due) - 1) << 1)
            self.released = header.sequence - due - 1
            self._judge(header, now, 1, due)
            if not self._missing:
                self.released = header.sequence

    def _absurd(self, header: Header, item: Any, now: float) -> list[Released]:
        probe, self._probe = self._probe, header.sequence
        if probe >= 0 and 0 < header.sequence - probe <= MAX_JUMP:
            flushed = self.close(now)
            self._since = now  # nobody can say what was due of the stretch between
            self._begin(header, now)
            return [*flushed, Released(header, item)]
        self.counts.absurd += 1
        return []

    def _gap(self, header: Header, gap: int, now: float) -> None:
        record, sequence = header.record, header.sequence
        known = min(gap, len(record))
        age = self._judge(header, now, 1, known)
        if gap > known:
            self.uncovered = gap - known
            if self.order:
                deadline = now + min(self.model.latch(age), self._limits.latch)
                if deadline > now and len(self._missing) < self._limits.missing:
                    self._wait(sequence - gap, Missing(deadline, 0, 0, age, 0.0, sequence - known - 1))

    def _wait(self, sequence: int, missing: Missing) -> None:
        self._missing[sequence] = missing
        heappush(self._due, (missing.deadline, sequence))
        if self.order and sequence > self.released:
            heappush(self._barriers, sequence)

    def _found(self, sequence: int) -> None:
        """A message has come, or been judged: it is missing no more, and an unknown stretch begins behind it."""
        missing = self._missing.pop(sequence, None)
        if missing is not None and missing.last > sequence:
            first = sequence + 1
            while first <= missing.last and self._judged >> (self.top - first) & 1:
                first += 1
            if first <= missing.last:
                self._wait(first, missing)

    def _judge(self, header: Header, now: float, behind: int, count: int | None = None, *, extra: float = 0.0) -> float:
        """Decide about the last messages of a record, the newest ``behind`` below `top`; the age of the last one."""
        record, departure = header.record, header.departure
        last = header.sequence - 1
        interests, missing = self.interests, self._missing
        longest = self._limits.latch
        age = header.previous * 1e-6
        place = behind - 1
        arrived = self._seen.bit_count() / max(1, min(self.top - self._first + 1, _REACH)) if self._doubt else 0.0
        for age, bits in record.walk(header.previous, len(record) if count is None else count):
            place += 1
            if place >= _REACH:
                break
            if self._judged >> place & 1:
                continue
            self._judged |= 1 << place
            if self._doubt is not None:
                self._doubt.judged(bits, record.width, arrived)
            for wanted in interests:
                if wanted & bits == wanted:
                    break
            else:
                continue
            if len(missing) >= self._limits.missing:
                self.counts.overflows += 1
                continue
            sequence = last - (place - behind)
            self._found(sequence)
            deadline = now + min(max(self.model.latch(age) + extra, 0.0), longest)
            self._wait(sequence, Missing(deadline, bits, record.width, age, departure - age))
        return age

    def _enter(self, header: Header, item: Any, now: float, *, repair: bool = False) -> list[Released]:
        sequence = header.sequence
        if sequence <= self.released:
            if not self.order:
                return [Released(header, item, late=True)]
            self.counts.late += 1
            if self._deliver_late or repair:
                return [Released(header, item, late=True)]
            self.counts.late_dropped += 1
            return []
        if not self.order:
            self.released = sequence
            return [Released(header, item)]
        heappush(self._held, (sequence, now, header, item))
        if len(self._held) > self._limits.held:
            self.counts.overflows += 1
            self._pass_barriers(self._held[0][0])
        return self._flush(now)

    def _pass_barriers(self, below: int) -> None:
        """Wait no longer for what is missing below a sequence number (losses are still reported in time)."""
        while self._barriers and self._barriers[0] < below:
            heappop(self._barriers)

    def _flush(self, now: float) -> list[Released]:
        """Release held messages up to the first one that is still waited for."""
        held, barriers, missing = self._held, self._barriers, self._missing
        while barriers and barriers[0] not in missing:
            heappop(barriers)
        barrier = barriers[0] if barriers else None
        released = []
        while held and (barrier is None or held[0][0] < barrier):
            sequence, since, header, item = heappop(held)
            self.released = sequence
            waited = now - since
            if waited > 0:
                self.counts.held += 1
                self.counts.held_time += waited
            released.append(Released(header, item, waited))
        return released
