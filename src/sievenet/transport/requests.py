"""Asking for lost messages: SRM's requests over publish/subscribe.

    lost ──wait [C₁d, (C₁+C₂)d]──▶ ask ──wait twice as long──▶ ask again … ──▶ give up: a gap, told to the application
              │                         │
         heard another ask:        repair: found
         wait twice as long

Attempts are counted while the publisher can be heard. Where it says something regularly and is silent, the way to it
may be broken: then nothing is given up, and when it is heard again everything is asked for as if for the first time.

A request goes to everyone whose filter's bits are within the lost message's bits, so it reaches those who may have the
message and those who miss it too; the latter fall silent. What nobody has, the publisher's log may (`repairs`), and
what it no longer has, it says (`gone`). The distance to a publisher is half the round trip of an echo, sent when the
publisher is new and along with requests later on. A repair that comes sooner lowers it; one that comes later says
nothing: a repairer waits first, in proportion to the distance it was told, so measured distances would grow without
end. A long round trip of an echo is not certain either: routers keep messages for a neighbour that is away, so the echo
may have waited for a restart. It is repeated at once, and the shorter of the two counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final

import msgspec

from sievenet.transport.control import Echo, Gone, Request
from sievenet.transport.deadline import Deadlines
from sievenet.transport.options import Recover
from sievenet.transport.stream import Loss
from sievenet.transport.timers import AdaptiveTimer

__all__ = ["Key", "RequestCounts", "Requests"]

#: publisher, epoch, sequence; and without the sequence.
Key = tuple[int, int, int]
Stream = tuple[int, int]

#: Distances that are remembered.
_PUBLISHERS: Final = 1024
#: Seconds after which an echo that was answered, and one that was not, may be repeated.
_ECHO_AGAIN: Final = 1.0
_ECHO_LOST: Final = 0.5
#: No distance is taken to be shorter, and no first repetition comes sooner than twice this, in seconds.
_NEAREST: Final = 0.001
#: A longer round trip is not believed, in seconds.
_FARTHEST: Final = 10.0
_PATIENCE: Final = 0.01
#: Seconds after which a message is given up whether its publisher can be heard or not.
_LONGEST: Final = 120.0


class RequestCounts(msgspec.Struct):
    """What asking came to, in messages."""

    wanted: int = 0
    sent: int = 0
    heard: int = 0
    found: int = 0
    given_up: int = 0
    #: Sum of the seconds from noticing a loss to its repair.
    time: float = 0.0


class _Want(msgspec.Struct):
    loss: Loss
    since: float
    attempt: int = 0
    #: When it was first asked for, by me or others.
    asked: float = -1.0
    #: When I last asked, and how often.
    sent: float = -1.0
    own: int = 0
    #: Requests of others for the same message.
    heard: int = 0
    #: Until then another request belongs to the round that made me wait already.
    deaf: float = 0.0


class Requests:
    """What one receiver misses and is asking for."""

    def __init__(self, me: int, options: Recover, rng: Random) -> None:
        self._me = me
        self._options = options
        self._rng = rng
        self.timer_parameters = AdaptiveTimer(1.0, 1.0)
        self.counts = RequestCounts()
        self._wants: dict[Key, _Want] = {}
        self._due: Deadlines[Key] = Deadlines()
        #: publisher → smoothed round trip.
        self._trips: OrderedDict[int, float] = OrderedDict()
        #: Last echo: publisher → when it was sent and False, or when it was answered and True.
        self._greeted: OrderedDict[int, tuple[float, bool]] = OrderedDict()
        #: publisher → a long round trip that no second one has confirmed yet.
        self._doubted: OrderedDict[int, float] = OrderedDict()

    def distance(self, publisher: int) -> float:
        """Seconds to those who answer for a publisher."""
        trip = self._trips.get(publisher)
        return self._options.distance if trip is None else max(trip / 2, _NEAREST)

    def hint(self, publisher: int, round_trip: float) -> None:
        """A round trip to a publisher was measured."""
        if not 0.0 <= round_trip <= _FARTHEST:
            return
        known = self._trips.pop(publisher, inf)
        # A short one is certain, a long one may have waited somewhere.
        self._trips[publisher] = round_trip if round_trip < known else known + 0.25 * (round_trip - known)
        if len(self._trips) > _PUBLISHERS:
            self._trips.popitem(last=False)

    def greet(self, publisher: int, now: float) -> Echo | None:
        """Ask a publisher how far away it is, unless that was done lately."""
        sent, answered = self._greeted.pop(publisher, (-inf, False))
        if now < sent + (_ECHO_AGAIN if answered else _ECHO_LOST):
            self._greeted[publisher] = (sent, answered)
            return None
        self._greeted[publisher] = (now, False)
        if len(self._greeted) > _PUBLISHERS:
            self._greeted.popitem(last=False)
        return Echo(self._me, publisher, now)

    def echoed(self, echo: Echo, now: float) -> bool:
        """A publisher answers an echo; False if none was sent. After a long one `greet` gives another at once."""
        publisher, trip = echo.publisher, now - echo.sent
        if self._greeted.get(publisher) != (echo.sent, False):
            return False
        before = self._doubted.pop(publisher, None)
        if before is None and trip > _ECHO_LOST:
            self._doubted[publisher] = trip
            if len(self._doubted) > _PUBLISHERS:
                self._doubted.popitem(last=False)
            del self._greeted[publisher]
            return True
        self._greeted[publisher] = (now, True)
        self.hint(publisher, trip if before is None else min(trip, before))
        return True

    def __len__(self) -> int:
        return len(self._wants)

    def __contains__(self, key: Key) -> bool:
        return key in self._wants

    # -- what happens ---------------------------------------------------------------------

    def lost(self, loss: Loss, now: float) -> bool:
        """Schedules a request for a lost message. False if too many are open."""
        key = (loss.publisher, loss.epoch, loss.sequence)
        if key in self._wants:
            return True
        if self.full:
            return False
        self.counts.wanted += 1
        self._wants[key] = _Want(loss, now)
        self._due.set(key, now + self.timer_parameters.draw(self._rng, self.distance(loss.publisher)))
        return True

    def heard(self, request: Request, now: float) -> None:
        """Another receiver sent a request: if this one misses the same message, it waits twice as long."""
        want = self._wants.get((request.publisher, request.epoch, request.sequence))
        if want is None or request.requester == self._me:
            return
        self.counts.heard += 1
        want.heard += 1
        if want.asked < 0:
            want.asked = now
        if now >= want.deaf:
            want.attempt += 1
            self._schedule(want, now)

    def found(self, key: Key, now: float) -> bool:
        """A message came; returns whether it had been requested."""
        want = self._wants.pop(key, None)
        if want is None:
            return False
        self._due.set(key, None)
        self.counts.found += 1
        self.counts.time += now - want.since
        if want.own == 1:  # a repair of a repeated request could answer either
            took = now - want.sent
            if took < self._trips.get(key[0], 0.0):
                self.hint(key[0], took)
        self._settle(key[0], want)
        return True

    def gone(self, gone: Gone) -> list[Loss]:
        """The publisher no longer has these: gives up those that no peer had either."""
        done = [
            key
            for key, want in self._wants.items()
            if key[:2] == (gone.publisher, gone.epoch) and gone.first <= key[2] <= gone.last and want.attempt > 1
        ]
        return [self._give_up(key) for key in done]

    def renew(self, now: float, stream: Stream | None = None) -> None:
        """The connection is back: restarts all requests (of one stream, or of all) with a fresh count of attempts."""
        for key, want in self._wants.items():
            if stream in (None, key[:2]) and now <= want.since + _LONGEST:
                want.attempt = want.own = 0
                self._due.set(key, now + self.timer_parameters.draw(self._rng, self.distance(key[0])))

    def forget(self, stream: Stream) -> list[Loss]:
        """Give up everything of a stream: publisher and epoch."""
        return [self._give_up(key) for key in [key for key in self._wants if key[:2] == stream]]

    @property
    def full(self) -> bool:
        """Whether no more can be asked for now."""
        return len(self._wants) >= self._options.wanted

    # -- time -----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        return self._due.next()

    def expire(
        self, now: float, silent: Callable[[Stream], bool] = lambda _: False
    ) -> tuple[list[Request], list[Loss]]:
        """Requests to send now, and losses to give up; a silent stream gives up nothing."""
        requests, given_up = [], []
        for key in self._due.passed(now):
            want = self._wants[key]
            hopeless = now > want.since + _LONGEST or not silent(key[:2])
            if want.own >= self._options.attempts and hopeless:
                given_up.append(self._give_up(key))
                continue
            requests.append(self._request(want, now))
        return requests, given_up

    # -- inside ---------------------------------------------------------------------------

    def _request(self, want: _Want, now: float) -> Request:
        loss = want.loss
        distance = self.distance(loss.publisher)
        if want.asked < 0:
            want.asked = now
        want.sent = now
        want.own += 1
        self.counts.sent += 1
        request = Request(
            loss.publisher,
            loss.epoch,
            loss.sequence,
            self._me,
            want.attempt,
            distance,
            min(now - want.since + loss.age + distance, 3600.0),
            loss.bits,
            loss.width,
        )
        want.attempt += 1
        self._schedule(want, now)
        return request

    def _schedule(self, want: _Want, now: float) -> None:
        loss = want.loss
        distance = self.distance(loss.publisher)
        wait = self.timer_parameters.draw(self._rng, distance, float(1 << min(want.attempt, 6)))
        # A repair needs a round trip and the repairer's own wait: asking sooner only makes duplicates. And those who
        # have the message may be farther away than the one who sent it.
        wait = max(wait, 4.0 * distance, _PATIENCE * (1 << min(want.attempt, 10)))
        want.deaf = now + wait / 2
        self._due.set((loss.publisher, loss.epoch, loss.sequence), now + wait)

    def _give_up(self, key: Key) -> Loss:
        want = self._wants.pop(key)
        self._due.set(key, None)
        self.counts.given_up += 1
        self._settle(key[0], want)
        return want.loss

    def _settle(self, publisher: int, want: _Want) -> None:
        if want.asked >= 0:
            # One request per round is enough, no matter who sends it.
            duplicates = want.heard + want.own - want.attempt
            self.timer_parameters.finished(duplicates, (want.asked - want.since) / self.distance(publisher))
