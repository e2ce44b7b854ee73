"""A subscriber's side of caching: decides by which way events come, and lets none through twice or out of order.

    plain path ─▶ idle:  deliver        ┐
                  else:  hold           ├─▶ each (publisher, incarnation, sequence) once ─▶ application
    cache ──────▶ in the stream's order ┘

**Nothing is lost** because one way begins before the other ends. The cache is asked with what is delivered already, and
sends everything behind that from its ring; only then the plain path goes. It comes back before the cache is told to
stop, and the cache goes on until its stream's end mark.

**Order is kept** because what comes plainly while a cache is asked or serves is not delivered but *held*, per source. A
held event is delivered when the cache's stream has gone past it without bringing it (so what the cache missed and the
plain path did not is there too), and at the end mark the rest follows. There are at most ``hold`` of them. While a
cache is only asked, the oldest goes to the application then; later, and after another cache was lost, the cache has it.

A subscriber that did not run for a while (`STALL`) cannot know what its socket dropped in that time, and asks a cache
as if it had been overloaded. Pure: stimuli in, instructions out, the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sievenet.cache.doubts import Doubts
from sievenet.cache.drops import Drops
from sievenet.cache.held import Held
from sievenet.cache.instructions import Deliver, Instruction, Lost, Over, Pause, Resume, Say
from sievenet.cache.messages import Drained, Ended, Missing, OnFull, Position, Progress, Stop, Take, Taken, Word
from sievenet.cache.overload import Meter
from sievenet.cache.record import Key, Source
from sievenet.cache.states import TRANSITIONS, State, Stimulus
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["STALL", "Deliver", "Instruction", "Lost", "Over", "Pause", "Resume", "Say", "Subscriber"]

#: Seconds without a tick after which something may have been dropped unseen.
STALL: Final = 0.5
#: Seconds between reports, and until something is said again.
REPORT: Final = 0.1
_REPEAT: Final = 0.3
#: Seconds until a cache that does not answer is given up, and until one is asked again: at first, and at most.
_PATIENCE: Final = 3.0
_PAUSE: Final = 1.0
_LONGEST: Final = 30.0
#: Seconds before an overload in which something may have been dropped unseen.
_BACK: Final = 2.0
#: Sources of which the position is said; those heard last.
_SOURCES: Final = 2048


class Subscriber:
    """One subscription that a cache may serve; ``waiting`` says how many events wait for the application."""

    def __init__(
        self,
        limit: float | None,
        on_full: OnFull = "end",
        *,
        now: float,
        hold: int = 10_000,
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state = State.IDLE
        self.limit, self.on_full = limit, on_full
        self._meter = None if limit is None else Meter(limit)
        self._waiting = waiting
        self._began = self._ticked = now
        self._window = DuplicateWindow(span=1 << 13)
        #: The highest number delivered of each source; the one heard last is the last.
        self._positions: dict[Source, int] = {}
        self._held = Held(hold)
        self.drops = Drops(self._window, self._positions)
        self.wants_plain = True
        self._epoch = 0
        self._stream: int | None = None
        self._next = self._turn = 0
        #: When the cache was asked first in this epoch, and when something was last said.
        self._asked = self._said = self._resumed = now
        #: Seconds since then in which it did not run; and before then in which something may be missing.
        self._deaf = self._back = 0.0
        self._after: Position | None = None
        #: Whether something before the positions may have been dropped.
        self._check = False
        self._pause, self._not_before = _PAUSE, now
        #: Whether the cache that served is gone: another one, or the same again, is waited for; in vain so far.
        self._bereft = self._vain = False
        self._patience = _PATIENCE
        self._again = False
        #: Whether events may be missing between what is delivered and what is held.
        self._gap = False
        self._doubts = Doubts(self._positions)
        #: Times that a cache began to serve, and events that came from it.
        self.activations = self.cached = self.received = 0

    @property
    def stream(self) -> int | None:
        """The cache's stream, if one serves or served last."""
        return self._stream

    def doubts(self) -> tuple[Missing, ...]:
        """From where on events may be lost of sources that were not heard since."""
        return self._doubts.open()

    def began(self, now: float) -> None:
        """The subscription stands: nothing older is wanted."""
        self._began = self._ticked = now

    # -- what comes -----------------------------------------------------------------------

    def plain(self, key: Key, item: Any, now: float) -> list[Instruction]:
        """An event has come by the plain path."""
        self.received += 1
        over = self._meter is not None and self._meter.arrived(1, now)
        stalled = now - self._ticked
        if stalled > STALL:
            self._stood_still()
        if self.state is State.IDLE:
            if stalled > STALL and now >= self._not_before:
                return self.overloaded(now, stalled) + self._hold(key, item, now)
            if over and now >= self._not_before:
                return self.overloaded(now) + self._hold(key, item, now)
            return self._deliver(key, item)
        if self.state is State.OVER:
            return []
        done: list[Instruction] = []
        if over and self.state is State.RESUMING:
            done += self._move(Stimulus.OVERLOAD, now)
        self._again |= over and self.state is State.STOPPING
        return done + self._hold(key, item, now)

    def _hold(self, key: Key, item: Any, now: float) -> list[Instruction]:
        surplus = self._held.add(key, item)
        if surplus is None:
            return []
        if self.state is State.TAKING and self._bereft and self._vain:
            return self._release(*surplus) + self._without(now)
        if self.state is State.TAKING and not self._gap and not self._bereft:
            return self._release(*surplus)
        # The cache has it, or will be asked for it; if it had it not either, that is told.
        self._again = self._gap = True
        self.drops.lack(surplus[0])
        return []

    def _stood_still(self) -> None:
        """The socket may have dropped something."""
        self._again |= self.state is State.STOPPING
        self._gap |= self.state is not State.IDLE
        self._held.path_broke()

    def _deliver(self, key: Key, item: Any, held: bool = False) -> list[Instruction]:
        if not self._window.fresh(*key):
            return []
        source, number = key[:2], key[2]
        missing = tuple(part for each in self._doubts.settled(source, number, held=held) for part in self._unseen(each))
        last = self._positions.pop(source, -1)
        self._positions[source] = max(last, number)
        if len(self._positions) > 2 * _SOURCES:
            del self._positions[next(iter(self._positions))]
        return [Lost(missing), Deliver(item)] if missing else [Deliver(item)]

    def directed(self, stream: int, number: int, key: Key, item: Any, now: float) -> list[Instruction]:
        """An event has come from the cache."""
        if not self._expected(stream, number):
            return self._complain(stream, number, now)
        self._next += 1
        self.cached += 1
        done: list[Instruction] = []
        for before, own, _ in self._held.before(key):
            done += self._release(before, own, False)  # the cache has said what is missing before it
        return done + self._deliver(key, item)

    def marked(self, stream: int, number: int, mine: bool, now: float) -> list[Instruction]:
        """An end mark has come, of this subscriber or of another of its group."""
        if not self._expected(stream, number):
            return self._complain(stream, number, now)
        self._next += 1
        if not mine:
            return []
        done: list[Instruction] = [self._progress(now)]
        if self._again:
            return done + self._move(Stimulus.AGAIN, now)
        rest, _ = self._held.all()
        for key, item, _ in rest:
            done += self._release(key, item, False)
        return done + self._move(Stimulus.END, now)

    def _expected(self, stream: int, number: int) -> bool:
        return stream == self._stream and number == self._next

    def _complain(self, stream: int, number: int, now: float) -> list[Instruction]:
        """Something before this was lost, or the cache has not heard of the end: say so, once in a while."""
        idle = self.state is State.IDLE
        if stream != self._stream or (number < self._next and not idle) or now - self._said < REPORT / 4:
            return []
        return [self._progress(now, again=not idle)]

    def _flush(self) -> list[Instruction]:
        """Deliver all that is held, though no cache has said what is missing between and behind."""
        held, broken = self._held.all()
        done = [each for entry in held for each in self._release(*entry)]
        self._doubts.add(broken)
        return done

    def _release(self, key: Key, item: Any, broken: bool) -> list[Instruction]:
        """Deliver what was held."""
        if broken:
            self._doubts.add((key[:2],))
        return self._deliver(key, item, held=not self._held.whole(key))

    # -- overload -------------------------------------------------------------------------

    def overloaded(self, now: float, back: float = 0.0) -> list[Instruction]:
        """More comes than can be taken, or something may have been dropped that long before now."""
        if self.state is not State.IDLE or now < self._not_before:
            return []
        self._gap = back > 0
        return self._ask(now, back + _BACK, Stimulus.OVERLOAD)

    def overran(self, now: float, back: float) -> list[Instruction]:
        """The switch says that too much comes, or that it dropped something in so many seconds before now."""
        if self.state is State.IDLE and now >= self._not_before:
            self._check = back > 0
            return self.overloaded(now, back)
        if back and self.state is State.IDLE:
            self._doubts.all()
        elif back:
            self._stood_still()
        return []

    def awaits_past(self) -> None:
        """The past is to come first: hold what comes until `replay`."""
        self.state = State.TAKING
        self._gap = True

    def replay(self, now: float, back: float, after: Position | None = None) -> list[Instruction]:
        """Begin with the past: what came in so many seconds before now, or behind an event."""
        self._began, self._after = now - back, after
        return self._ask(now, back, Stimulus.OVERLOAD)

    def _ask(self, now: float, back: float, why: Stimulus) -> list[Instruction]:
        self._back, self._asked, self._bereft, self._vain = back, now, why is Stimulus.LOST, False
        self._epoch += 1
        self._stream, self._again, self._deaf = None, False, 0.0
        return [*(self._move(why, now) if (self.state, why) in TRANSITIONS else ()), self._take(now)]

    def _take(self, now: float) -> Say:
        self._said = now
        recent = list(self._positions.items())[-_SOURCES:]
        positions = tuple(Position(*source, number) for source, number in recent)
        passed = now - self._asked
        return Say(
            Take(
                self._epoch,
                positions,
                self._back + passed,
                now - self._began,
                self.limit,
                self.on_full,
                self._after,
                self._check,
            )
        )

    def hear(self, word: Word, now: float) -> list[Instruction]:
        """The cache says something."""
        if getattr(word, "epoch", None) != self._epoch:
            return []
        self._vain = False
        match word:
            case Taken():
                return self._taken(word, now)
            case Drained(_, stream) if stream == self._stream and self.state is State.ACTIVE:
                return self._move(Stimulus.DRAINED, now)
            case Ended(_, reason, full, again):
                if full and self.state not in (State.IDLE, State.OVER):
                    return [*self._flush(), *self._move(Stimulus.FULL, now), Over(reason)]
                return self.refused(now) if self.state is State.TAKING and not again else self.lost(now)
        return []

    def _taken(self, word: Taken, now: float) -> list[Instruction]:
        stream, first, missing = word.stream, word.first, word.missing
        if self.state is State.TAKING:
            self._turn = word.turn
            self._stream, self._next, self._after, self._check = stream, first, None, False
            self._pause = _PAUSE
            self.activations += 1
            done: list[Instruction] = self._move(Stimulus.TAKEN, now)
            for each in missing:
                if each.last < 0:
                    self._doubts.beyond((each.publisher, each.incarnation), each.first, said=True)
            told = tuple(part for each in missing if each.last >= 0 for part in self._unseen(each))
            return [*done, *([Lost(told)] if told else []), self._progress(now)]
        if word.turn > self._turn and self.state in (State.ACTIVE, State.RESUMING, State.STOPPING):
            # It gets another stream.
            self._stream, self._next, self._turn = stream, first, word.turn
            return [self._progress(now)]
        return []

    def _unseen(self, missing: Missing) -> list[Missing]:
        """What of a range is neither delivered nor held: the cache may have missed what came by the plain path."""
        source = (missing.publisher, missing.incarnation)
        parts = self._window.unseen(source, missing.first, missing.last)
        return [Missing(*source, *rest) for part in parts for rest in self._held.without(source, *part)]

    def refused(self, now: float) -> list[Instruction]:
        """No cache serves: go on by the plain path, and ask again after a while."""
        self._vain = True
        if self.state is not State.TAKING or (self._bereft and now - self._asked - self._deaf < self._patience):
            return []
        return self._without(now)

    def _without(self, now: float) -> list[Instruction]:
        if self._gap:
            self._doubts.all()
        self._gap = False
        self._not_before = now + self._pause
        self._pause = min(_LONGEST, 2 * self._pause)
        self._after, self._check = None, False
        return self._move(Stimulus.NO_CACHE, now) + self._flush()

    def lost(self, now: float, patience: float = 0.0) -> list[Instruction]:
        """The cache is gone: another may have what it had, or itself if it comes back within some seconds."""
        if self.state in (State.IDLE, State.OVER):
            return []
        self._patience = max(patience, self._patience if self.state is State.TAKING and self._bereft else _PATIENCE)
        if self.state is not State.TAKING:
            # If no other cache can tell what is missing, the next event of a source does.
            self._doubts.all()
            self._held.interrupted()
        return self._ask(now, now - self._began, Stimulus.LOST)

    def resumed(self, now: float) -> list[Instruction]:
        """The plain path stands again."""
        self._held.path_broke()
        if self.state is not State.RESUMING:
            return []
        self._said = self._asked = self._resumed = now
        assert self._stream is not None
        return [*self._move(Stimulus.RESUMED, now), Say(Stop(self._epoch, self._stream))]

    # -- moving on ------------------------------------------------------------------------

    def _move(self, why: Stimulus, now: float) -> list[Instruction]:
        self.state = TRANSITIONS[self.state, why]
        wanted = self.state is not State.ACTIVE
        if self.wants_plain == wanted or self.state is State.OVER:
            return self._entered(why, now)
        self.wants_plain = wanted
        self._held.path_broke()
        return [Resume() if wanted else Pause(), *self._entered(why, now)]

    def _entered(self, why: Stimulus, now: float) -> list[Instruction]:
        if self.state is State.ACTIVE:
            self._again = False
        if self._meter is not None and why in (Stimulus.RESUMED, Stimulus.DRAINED, Stimulus.NO_CACHE):
            self._meter.forget()
        if why is Stimulus.TAKEN and self._bereft:  # this cache was asked for all; later ones for the last seconds
            self._doubts.clear()
            self._bereft = False
        if why is Stimulus.END:
            self._gap = False
        if why is Stimulus.AGAIN:
            self._epoch += 1
            self._stream, self._again, self._asked, self._deaf = None, False, now, 0.0
            # What came since the plain path stood may be in neither.
            self._back = now - self._resumed + _BACK
            return [self._take(now)]
        return []

    def _progress(self, now: float, again: bool = False) -> Say:
        self._said = now
        assert self._stream is not None
        taken = max(0, self._next - self._waiting())
        return Say(Progress(self._epoch, self._stream, self._next, taken, again))

    def tick(self, now: float) -> list[Instruction]:
        """Called about ten times a second."""
        stalled = now - self._ticked
        self._ticked = now
        if stalled > STALL:
            self._stood_still()
            self._deaf += stalled  # what the cache has answered meanwhile was not heard
        match self.state:
            case State.IDLE if stalled > STALL:
                return self.overloaded(now, stalled)
            case State.TAKING:
                if now - self._asked - self._deaf >= (self._patience if self._bereft else _PATIENCE):
                    return self.refused(now)
                return [self._take(now)] if now - self._said >= _REPEAT else []
            case State.ACTIVE | State.RESUMING if now - self._said >= REPORT * 0.9:
                return [self._progress(now)]
            case State.STOPPING:
                words: list[Instruction] = [self._progress(now)] if now - self._said >= REPORT * 0.9 else []
                if now - self._asked >= _REPEAT:
                    self._asked = now
                    assert self._stream is not None
                    words.append(Say(Stop(self._epoch, self._stream)))
                return words
        return []
