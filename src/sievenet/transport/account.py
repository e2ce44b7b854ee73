"""What of a stream is not accounted for: messages that are wanted and missing, and numbers of which nothing is known.

    gap ──▶ unknown ──record, digest──▶ not wanted: settled
               │            ╰─────────▶ missing ──came──▶ settled
               │                            ╰──deadline──▶ lost: reported once; with recovery missing until repaired
               ╰──deadline──▶ asked for (`inquire`), or counted (there is a record), or lost (there is none: basic mode)

`Stream` puts numbers in, and takes out what came. Nothing leaves any other way than by coming, by being judged not
wanted, or as a `Loss`; where there is no room for one more missing message, it stays unknown and is asked for later.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from sievenet.transport.bloom import Bits
from sievenet.transport.codec import Header
from sievenet.transport.doubt import Doubt
from sievenet.transport.latch import Latch
from sievenet.transport.outcome import Limits, Loss, Missing, SessionCounts
from sievenet.transport.stretch import Stretches

__all__ = ["Account"]


class Account:
    """The open numbers of one stream at one receiver."""

    def __init__(
        self,
        publisher: int,
        interests: tuple[Bits, ...],
        model: Latch,
        limits: Limits,
        counts: SessionCounts,
        doubt: Doubt | None,
        *,
        recover: bool,
        inquire: bool,
        since: float,
    ) -> None:
        self.publisher = publisher
        self.epoch = -1
        #: What is wanted, in bits as the publisher's record has them.
        self.interests = interests
        self.model = model
        self._limits, self.counts, self._doubt = limits, counts, doubt
        #: Lost messages stay missing until they are repaired or abandoned; publishers are asked what is unknown.
        self._recover, self._inquire = recover, inquire
        #: When the subscription stood: what left after that is due here, even if nothing has come yet.
        self._since = since
        #: What is below this may be from before the subscription.
        self._contact = 0
        self._missing: dict[int, Missing] = {}
        self._unknown = Stretches()
        self._due: list[tuple[float, int]] = []
        #: Losses for which there was no room.
        self._spilt: list[Loss] = []
        #: The publisher sends no records.
        self._basic = False
        #: When the newest message that came left, by the publisher's clock.
        self._departure = 0.0

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        due = self._due
        while due and due[0][1] not in self._missing:
            heappop(due)
        when = min(due[0][0] if due else inf, self._unknown.timer() if self._unknown else inf)
        return None if when == inf else when

    def expired_by(self, now: float) -> bool:
        """Whether a deadline has passed already, so that `expire` need not wait for its timer."""
        return (bool(self._due) and self._due[0][0] <= now) or bool(self._spilt)

    def overdue(self, now: float) -> list[Loss]:
        """Deadlines up to ``now`` have passed: what counts as lost."""
        losses, self._spilt = self._spilt, []
        while self._due and self._due[0][0] <= now:
            _, sequence = heappop(self._due)
            missing = self._missing.get(sequence)
            if missing is None or missing.lost:
                continue
            self.counts.losses += 1
            believed = self._doubt is None or self._doubt.believe()
            losses.append(missing.loss(self.publisher, self.epoch, sequence, believed=believed))
            if self._recover:
                missing.lost = True
            else:
                del self._missing[sequence]
        for stretch in self._unknown.overdue(now):
            if self._inquire:
                stretch.asked = True
                continue
            self._unknown.remove(stretch.first, stretch.last)
            if self._basic:  # every gap is wanted
                losses.append(self._unaccounted(stretch.first, stretch.last))
            else:
                self.counts.unknown += stretch.last - stretch.first + 1
        return losses

    def postpone(self, loss: Loss, until: float) -> None:
        """Too many requests are open: the message counts as lost later."""
        self.counts.losses -= 1
        missing = Missing(until, loss.bits, loss.width, loss.age, loss.departure)
        self._wait(loss.sequence, missing)

    def asking(self) -> tuple[int, int] | None:
        """The range of numbers to ask the publisher about; None if none is unknown, or there is no room."""
        if len(self._missing) >= self._limits.missing:
            return None
        return self._unknown.asking()

    def untold(self, first: int, last: int) -> list[Loss]:
        """Nobody knows what these were: the unknown ones among them are losses."""
        return [self._unaccounted(*each) for each in self._unknown.remove(first, last)]

    # -- inside ---------------------------------------------------------------------------

    def _bound(self) -> float:
        return min(max(self.model.bound(), 0.0), self._limits.latch)

    def _add_unknown(self, first: int, last: int, deadline: float) -> None:
        spilt = self._unknown.add(first, last, deadline)
        if spilt is not None:
            self._spilt.append(self._unaccounted(spilt.first, spilt.last))

    def _unaccounted(self, first: int, last: int) -> Loss:
        self.counts.losses += last - first + 1
        return Loss(self.publisher, self.epoch, first, 0, 0, 0.0, self._departure, last=last)

    def _wait(self, sequence: int, missing: Missing) -> None:
        self._missing[sequence] = missing
        if not missing.lost:
            heappush(self._due, (missing.deadline, sequence))

    def _judge(self, header: Header, now: float, arrived: float, *, extra: float = 0.0) -> float:
        """Decide about unknown messages that a record describes; the age of the last one.

        ``arrived`` is the share of all messages that came.
        """
        record, departure, unknown = header.record, header.departure, self._unknown
        contact, horizon = self._contact, now - self._since
        interests, longest = self.interests, self._limits.latch
        age = header.previous * 1e-6
        number = header.sequence
        for age, bits in record.walk(header.previous, len(record)):
            number -= 1
            if not unknown:
                break
            if number not in unknown:
                continue
            if number < contact and age >= horizon:  # this and all before it are from before the subscription
                unknown.remove(0, number)
                break
            if self._doubt is not None:
                self._doubt.judged(bits, record.width, arrived)
            for wanted in interests:
                if wanted & bits == wanted:
                    break
            else:
                unknown.discard(number)
                continue
            if len(self._missing) >= self._limits.missing:
                self.counts.overflows += 1
                if self._inquire:
                    break  # it stays unknown, and is asked for when there is room
                self._spilt.append(self._unaccounted(number, number))
                unknown.discard(number)
                continue
            unknown.discard(number)
            deadline = now + min(max(self.model.latch(age) + extra, 0.0), longest)
            self._wait(number, Missing(deadline, bits, record.width, age, departure - age))
        return age
