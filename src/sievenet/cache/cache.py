"""A cache: keeps what comes lately, and queues for subscribers who get more than they can take.

    records ─▶ ring of the category ─┬─▶ queue (subscriber a)        ─▶ at a's pace ─▶ a
                                     ├─▶ queue (b and c: same need)  ─▶ at their pace ─▶ b, c
                                     └─▶ dropped after some seconds

Idle it only keeps its rings. `Take` begins a queue with what the ring has and the subscriber lacks, and everything that
matches joins it from then on, so the time between the overload and this moment is covered. Subscribers with the same
filter, limit and policy share a queue and one transmission, if the newcomer needs nothing that was sent already; who
holds the others up gets a queue of its own. `Stop` ends a stream with a mark, after a look through the port (`looks`):
what was published before the plain path stood may still be on its way here.

Invariant: a queue holds, in the order of arrival, every record of its ring that matches from an offset on (`whole`) and
whatever its first member lacks before that. Who joins lacks nothing before it. Pure: stimuli come with the time `now`,
and what is to be said and sent is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.cache import drops
from sievenet.cache.looks import Looks
from sievenet.cache.messages import Drained, Ended, Progress, Stop, Take, Taken, Word
from sievenet.cache.place import CacheStatistics, Filters, Place, Sending, Served
from sievenet.cache.queue import Queue
from sievenet.cache.rates import Rates
from sievenet.cache.record import key_of
from sievenet.cache.ring import Ring
from sievenet.cache.search import named, search

__all__ = ["Cache", "CacheStatistics", "Filters", "Sending"]

#: Seconds that a stream goes on after `Stop`, for what is in the network; then a look sees to the cache's port.
LINGER: Final = 0.2
#: Seconds between two times that a subscriber is told the same.
_REPEAT: Final = 0.5
#: Seconds that the ring keeps what a subscriber waits for until it has asked again.
_RESERVED: Final = 15.0
#: Records that one queue sends at once.
_BURST: Final = 512

_Numbers = npt.NDArray[np.uint64]
_Keys = tuple[_Numbers, _Numbers, _Numbers]


class Cache:
    """All that one cache decides."""

    def __init__(self, *, seed: int | None = None, max_events: int = 1_000_000) -> None:
        self._rng = Random(seed)
        self._max_events = max_events
        self._places: dict[str, Place] = {}
        self._subscribers: dict[int, Served] = {}
        self.received = self.sent = self.dropped = 0
        self.looks, self._rates = Looks(), Rates()

    # -- responsibilities -----------------------------------------------------------------

    def open(self, category: str, make: Callable[[], Ring], filters: Filters, now: float) -> None:
        """Keep a category, from now on; what a durable ring still has was before an interruption."""
        if category not in self._places:
            ring = make()
            place = self._places[category] = Place(ring, filters, now)
            if ring.next > ring.first:
                place.began = min(now, ring.oldest or now)
                place.interruptions.point(ring.next)
            place.sure = ring.next

    def assign(self, member: int, category: str, wanted: Any, need: Hashable, since: float) -> None:
        """Be responsible for a subscription: everything that it wants comes here since a time."""
        if member not in self._subscribers:
            self._subscribers[member] = Served(category, wanted, need, since)

    def unassign(self, member: int) -> None:
        """Be responsible for it no more."""
        found = self._subscribers.pop(member, None)
        if found is not None:
            self._leave(member, found)
            self._places[found.category].reserved.pop(member, None)

    def whole(self, member: int, now: float) -> float:
        """For how many seconds nothing that a subscription wants can be missing here."""
        found = self._subscribers[member]
        return max(0.0, now - max(found.since, self._places[found.category].whole(now)))

    def hold(self, member: int, back: float, until: float, now: float) -> None:
        """Keep what came for a subscription since some seconds ago: it cannot ask for it yet, but may until a time."""
        found = self._subscribers.get(member)
        if found is not None and found.queue is None:
            place = self._places[found.category]
            earlier, _ = place.reserved.get(member, (place.ring.next, 0.0))
            place.reserved[member] = min(earlier, place.ring.at(now - back)), until

    # -- what may be missing --------------------------------------------------------------

    def interrupted(self, now: float) -> None:
        """Something may have been missed: the cache was cut off from the network."""
        for place in self._places.values():
            place.interruptions.point(place.ring.next)

    def sure(self) -> None:
        """The port has dropped nothing since this or `missed` was said last."""
        for place in self._places.values():
            place.sure = place.ring.next

    def missed(self, now: float, back: float = 0.0) -> None:
        """The port has dropped something since `sure` was said last, or in so many seconds before now."""
        for place in self._places.values():
            start = place.sure if not back else min(place.sure, place.ring.at(now - back))
            place.interruptions.begin(start)
        self.looks.doubt(now)

    def _settle(self, now: float) -> list[tuple[int, Word]]:
        """When everything that waited has come, those who are served ask anew, and are told what may be missing."""
        if not self.looks.settle(now):
            return []
        words: list[tuple[int, Word]] = []
        for place in self._places.values():
            place.interruptions.end(place.ring.next)
            place.sure = place.ring.next
            words += [word for queue in place.queues.values() for word in drops.words(queue, place.ring)]
        for member, found in self._subscribers.items():
            if (queue := found.queue) is None:
                continue
            place = self._places[found.category]
            if queue.needed is not None:
                place.reserved[member] = queue.needed, now + _RESERVED
            words.append((member, Ended(found.epoch, "the cache may have missed events", again=True)))
            self._leave(member, found)
        return words

    def _leave(self, member: int, found: Served) -> None:
        queue, found.queue, found.answer, found.stops, found.look = found.queue, None, None, None, None
        if queue is None:
            return
        queue.leave(member)
        if not queue.members:
            place = self._places[found.category]
            self.dropped += queue.dropped
            del place.queues[queue.stream]
            place.filters.remove(queue.stream)
            place.groups.pop(queue.stream, None)

    # -- what comes -----------------------------------------------------------------------

    def arrive(self, category: str, records: Sequence[bytes], now: float, keys: _Keys | None = None) -> None:
        """Records of a category have come; their publishers, incarnations and numbers may be given as arrays."""
        place = self._places.get(category)
        if place is None:
            return
        if keys is None:
            fresh = place.window.fresh
            new = [record for record in records if fresh(*key_of(record))]
        else:
            mask = place.window.fresh_many(*keys)
            new = list(records) if mask.all() else [each for each, good in zip(records, mask, strict=True) if good]
        if not new:
            return
        self.received += len(new)
        start = place.ring.append(new, now)
        if place.queues:
            for stream, rows in place.filters.match(new):
                if len(rows) == len(new):
                    place.queues[stream].push(range(start, start + len(new)))
                else:
                    place.queues[stream].push([start + row for row in rows])

    def hear(self, member: int, word: Word, now: float) -> Word | None:
        """A subscriber says something; the answer, if any."""
        found = self._subscribers.get(member)
        if found is None:
            return Ended(getattr(word, "epoch", 0), "this cache is not responsible for the subscription")
        match word:
            case Take():
                return self._take(member, found, word, now)
            case Progress(epoch, stream, expected, taken, again):
                if found.queue is None or found.epoch != epoch:
                    return _anew(epoch, found)
                found.heard = found.named
                if found.queue.stream == stream:
                    found.queue.reported(member, expected, taken, again, now)
                elif found.answer is not None:
                    return found.answer
            case Stop(epoch, stream):
                if found.queue is None or found.epoch != epoch:
                    return _anew(epoch, found)
                if found.queue.stream == stream and found.stops is None:
                    found.stops = now + LINGER
        return None

    def _take(self, member: int, found: Served, take: Take, now: float) -> Word:
        if found.over is not None:
            return Ended(take.epoch, found.over, full=True)
        if found.epoch == take.epoch and found.answer is not None:
            return found.answer
        if take.epoch <= found.epoch:
            return _anew(take.epoch, found)
        self._leave(member, found)
        place = self._places[found.category]
        unheard = place.interruptions.beyond(*found.heard)
        state = search(place.ring, take, max(place.began, found.since), unheard, now)
        found.named = place.ring.next, place.interruptions.count
        rows = place.filters.rows(found.wanted, state.records)
        lacking = [state.offsets[row] for row in rows]
        key = (found.need, take.limit, take.on_full)
        queue = self._joinable(place, key, lacking)
        if queue is None:
            queue = self._queue(found, take.limit, take.on_full, now)
            # What it has already is in it too, since others that lack it may join.
            queue.whole = max(lacking[0], state.begun) if lacking else place.ring.next
            since = place.ring.between(queue.whole, place.ring.next)
            more = [queue.whole + row for row in place.filters.rows(found.wanted, since)]
            queue.push(sorted({*lacking, *more}))
            place.groups[queue.stream] = key
        place.reserved.pop(member, None)
        first = queue.join(member, take.epoch, now)
        found.queue, found.epoch, found.turn = queue, take.epoch, 0
        missing = state.missing
        if take.check:
            missing = named(place, found.wanted, take, now, missing)
        found.answer = Taken(take.epoch, queue.stream, first, missing, state.reaches)
        return found.answer

    @staticmethod
    def _joinable(place: Place, key: Hashable, offsets: Sequence[int]) -> Queue | None:
        """A queue of the same need that has sent nothing yet of what is wanted."""
        for stream, queue in place.queues.items():
            if place.groups.get(stream) != key or queue.ended is not None or queue.parked:
                continue
            position = queue.position()
            if not offsets or (position is not None and offsets[0] >= max(position, queue.whole)):
                return queue
        return None

    def _merge(self, place: Place, now: float) -> list[tuple[int, Word]]:
        """Unite queues of the same need: the one that is ahead waits until its members have everything, then joins."""
        words: list[tuple[int, Word]] = []
        leaders: dict[Hashable, Queue] = {}
        for each in place.queues.values():
            each.parked = False
        streams = [stream for stream, queue in place.queues.items() if queue.ended is None and not queue.stopping]
        if len(streams) < 2:
            return words
        for stream in sorted(streams, key=lambda each: _front(place.queues[each])):
            queue, key = place.queues[stream], place.groups.get(stream)
            leader = leaders.setdefault(key, queue) if key is not None else queue
            if leader is queue:
                continue
            near, front = max(64, int(leader.release.limit or 0)), _front(queue)
            queue.parked = leader.whole <= front and leader.ahead(front) <= near
            if queue.parked and queue.settled:
                for member in list(queue.members):
                    found = self._subscribers[member]
                    if found.stops is None:
                        words.append((member, self._turn(member, found, leader, now)))
        return words

    def _queue(self, found: Served, limit: float | None, on_full: Any, now: float) -> Queue:
        place = self._places[found.category]
        stream = self._rng.getrandbits(32)
        while any(stream in each.queues for each in self._places.values()):
            stream = self._rng.getrandbits(32)
        queue = place.queues[stream] = Queue(stream, place.ring, limit, on_full, self._max_events, now)
        place.filters.add(stream, found.wanted)
        return queue

    # -- what is to be done ---------------------------------------------------------------

    def send(self, now: float) -> list[Sending]:
        """What may go to subscribers now; asked when something has come and at a steady pace."""
        found = []
        for category, place in self._places.items():
            for queue in place.queues.values():
                runs = queue.take(now, _BURST)
                if runs:
                    count = sum(len(run.records) for run in runs)
                    self.sent += count
                    self._rates.sent(self._subscribers[next(iter(queue.members))].need, count)
                    found.append(Sending(category, tuple(sorted(queue.members)), runs))
        return found

    def tick(self, now: float) -> list[tuple[int, Word]]:
        """What subscribers are to be told; asked every few milliseconds while somebody is served."""
        words = self._settle(now)
        for place in self._places.values():
            for queue in place.queues.values():
                queue.look(now)
                words += drops.words(queue, place.ring)
            words += self._merge(place, now)
            place.trim(now)
        served = [
            (member, found, found.queue) for member, found in self._subscribers.items() if found.queue is not None
        ]
        for member, found, queue in served:
            if found.queue is not queue:
                continue
            if queue.ended is not None:
                # Who wants events dropped goes on: it asks again, and hears what is missing.
                full = queue.on_full == "end"
                found.over = queue.ended if full else None
                words.append((member, Ended(found.epoch, queue.ended, full=full, again=not full)))
                self._leave(member, found)
            elif found.stops is not None:
                if found.look is None and now >= found.stops:
                    found.look = self.looks.want()
                # Who leaves while something may be missing would never be told.
                if self.looks.over(found.look) and not self.looks.doubtful:
                    queue.stop(member)
                stopping = queue.members[member].stopping
                if stopping is not None and queue.members[member].next > stopping:
                    self._leave(member, found)
            elif queue.drained and not self.looks.doubtful and now - found.told >= _REPEAT:
                found.told = now
                words.append((member, Drained(found.epoch, queue.stream)))
            elif queue.lags(member, now):
                words.append((member, self._part(member, found, queue, now)))
        return words

    def _part(self, member: int, found: Served, queue: Queue, now: float) -> Word:
        """Give a member of a group a queue of its own, with what it lacks."""
        rest = queue.rest(queue.members[member].next)
        key = self._places[found.category].groups.get(queue.stream)
        own = self._queue(found, queue.release.limit, queue.on_full, now)
        own.push(rest)
        own.whole = queue.whole
        if key is not None:
            self._places[found.category].groups[own.stream] = key
        return self._turn(member, found, own, now)

    def _turn(self, member: int, found: Served, queue: Queue, now: float) -> Word:
        """Give a member another stream; the first answer may not have come, so this says all that it said."""
        said = found.answer
        assert said is not None
        self._leave(member, found)
        found.queue, found.turn = queue, found.turn + 1
        first = queue.join(member, found.epoch, now)
        found.answer = Taken(found.epoch, queue.stream, first, said.missing, said.reaches, found.turn)
        return found.answer

    @property
    def active(self) -> bool:
        """Whether somebody is served."""
        return any(place.queues for place in self._places.values())

    @property
    def served(self) -> list[int]:
        """The subscriptions that are served now."""
        return [number for number, found in self._subscribers.items() if found.queue is not None]

    def rates(self, now: float) -> list[tuple[int, float, float]]:
        """Events per second that came for each need and went out for it, lately, by one subscription that has it."""
        needs = {found.need: (found.category, found.wanted) for found in self._subscribers.values()}
        rates = self._rates.look(self._places, needs, now)
        numbers = {found.need: number for number, found in self._subscribers.items()}
        return [(numbers[need], *each) for need, each in rates.items() if any(each)]

    def statistics(self) -> CacheStatistics:
        """What it holds and did."""
        queues = [queue for place in self._places.values() for queue in place.queues.values()]
        return CacheStatistics(
            self.received,
            self.sent,
            self.dropped + sum(queue.dropped for queue in queues),
            sum(queue.waiting for queue in queues),
            sum(len(queue.members) for queue in queues),
            len(self._subscribers),
            sum(place.ring.memory for place in self._places.values()),
        )


def _anew(epoch: int, found: Served) -> Ended:
    """What who speaks of an epoch that is over is told."""
    return Ended(epoch, found.over or "the cache began anew", full=found.over is not None, again=found.over is None)


def _front(queue: Queue) -> int:
    """The offset of the next event that a queue sends; far away if nothing waits."""
    position = queue.position()
    return 1 << 62 if position is None else position
