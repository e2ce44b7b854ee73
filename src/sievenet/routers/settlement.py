"""Waves of `Settle` at one router: begun here or passed on, once all that came before them is in place.

A wave belongs to a graph. One of our own begins when this router is ready (`readiness`); one that came from a neighbour
goes on when this router knows the same graph, holds everything that the neighbour told before it (`Routing.in_step`),
and the filters among that which clients still place are in the table (`Intake.reached`). It fails where the graph is
another one by now; then its issuer tries again with a new number, for one lease at most.

Where routers broadcast what is wanted (CBCB) each begins a wave of its own behind its first broadcast in a graph; only
when that is back does it count as placed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from sievenet.routers.intake import Intake
from sievenet.routers.messages import Settle, Settled
from sievenet.routers.readiness import Readiness
from sievenet.routers.routing import Context, Routing
from sievenet.routers.waves import Echo, Waves

__all__ = ["Settling"]

#: Waves of others that may wait at a router.
_LIMIT = 1024


@dataclass(slots=True)
class _Own:
    """A wave of this router: who asked for it (``None``: the router itself), and until when it is tried."""

    number: int | None
    until: float
    marks: dict[int, int]


@dataclass(slots=True)
class _Later:
    """A wave of another router that waits."""

    by: str
    message: Settle
    until: float
    #: What clients have to place first; unknown until this router is in step.
    marks: dict[int, int] | None = None


class Settling:
    """``tell`` sends what is due to neighbours, ``done`` hears of own waves."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        intake: Intake,
        readiness: Readiness,
        tell: Callable[[], None],
        done: Callable[[int, bool], None],
    ) -> None:
        self._context, self._routing, self._intake, self._readiness = context, routing, intake, readiness
        self._tell, self._done = tell, done
        self._waves = Waves()
        self._own: list[_Own] = []
        #: Own waves that failed, to be tried again.
        self._failed: list[_Own] = []
        self._under_way: dict[int, _Own] = {}
        self._later: list[_Later] = []
        self._number = context.incarnation << 16

    def begin(self, number: int) -> None:
        """Start a wave for somebody who asked."""
        # What local clients wanted before is submitted before the wave is marked.
        self._tell()
        self._own.append(_Own(number, self._context.now + self._context.settings.lease, self._intake.marks()))

    def enter(self, message: Settle, by: str) -> None:
        """A wave came from a neighbour."""
        if len(self._later) < _LIMIT:
            self._later.append(_Later(by, message, self._context.now + self._context.settings.lease))
        else:
            self._context.send(by, Settled(message.issuer, message.number, False))

    def moved(self) -> None:
        """The graph is another one."""
        self._echo(self._waves.fail())
        self.retry()
        self._own = [each for each in self._own if each.number is not None]
        if self._routing.broadcasts:
            self._own.append(_Own(None, inf, {}))

    def retry(self) -> None:
        """Try again what failed."""
        self._own += self._failed
        self._failed = []

    def go_on(self) -> None:
        """Let waves go on that need not wait."""
        own, self._own = self._own, []
        for each in own:
            free = self._readiness.linked if each.number is None else self._readiness.ready
            if free and self._intake.reached(each.marks):
                self._start(each)
            elif each.until <= self._context.now:
                self._end(each, done=False)
            else:
                self._own.append(each)
        later, self._later = self._later, []
        for wave in later:
            if not self._pass(wave):
                self._later.append(wave)

    def _start(self, own: _Own) -> None:
        if own.number is None:
            self._routing.announce()
        self._number += 1
        self._under_way[self._number] = own
        self._send(Settle(self._context.name, self._number, self._context.graph), None)

    def _pass(self, wave: _Later) -> bool:
        """Whether a wave of another router need not wait any longer."""
        context, message = self._context, wave.message
        if message.graph == context.graph and self._routing.in_step(wave.by):
            if wave.marks is None:
                wave.marks = self._intake.marks()
            if self._intake.reached(wave.marks):
                self._send(message, wave.by)
                return True
        if wave.until <= context.now or (message.graph != context.graph and message.graph in context.past):
            context.send(wave.by, Settled(message.issuer, message.number, False))
            return True
        return False

    def _send(self, message: Settle, by: str | None) -> None:
        near = self._routing.settle_to(message.issuer, by)
        self._tell()
        for neighbour in near:
            self._context.send(neighbour, message)
        until = self._context.now + self._context.settings.lease
        self._echo(self._waves.start(message.issuer, message.number, by, near, until))

    def answered(self, message: Settled, neighbour: str) -> None:
        """All behind a neighbour have it, or not."""
        self._echo(self._waves.answered(message.issuer, message.number, neighbour, message.done))

    def tick(self) -> None:
        """Give up what took too long, and try again what failed."""
        self._echo(self._waves.expire(self._context.now))
        self.retry()

    def _echo(self, echoes: list[Echo]) -> None:
        for issuer, number, by, done in echoes:
            if by is not None:
                self._context.send(by, Settled(issuer, number, done))
                continue
            own = self._under_way.pop(number, None)
            if own is None:
                continue
            if own.number is None and done:
                self._readiness.placed = True
            elif done or own.until <= self._context.now:
                self._end(own, done=done)
            else:
                self._failed.append(own)

    def _end(self, own: _Own, *, done: bool) -> None:
        if own.number is not None:
            self._done(own.number, done)
