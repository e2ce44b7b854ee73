"""Waves of `Settle` at one router: begun here or passed on, once all that came before them is in place.

A wave that came from a neighbour goes on when everything that the neighbour told before it is held (`Routing.in_step`),
and when the filters among that which clients still place are in the table (`Helpers.reached`). What waits longer than a
lease goes on all the same: whoever began it has given up by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sievenet.routers.helpers import Helpers
from sievenet.routers.messages import Settle, Settled
from sievenet.routers.routing import Context, Routing
from sievenet.routers.waves import Echo, Waves

__all__ = ["Settling"]

#: Waves that may wait at a router.
_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class _Later:
    by: str | None
    message: Settle
    marks: dict[int, int]
    until: float


class Settling:
    """``heard`` are the neighbours of now, ``tell`` sends what is due to them, ``done`` hears of own waves."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        helpers: Helpers,
        heard: Collection[str],
        tell: Callable[[], None],
        done: Callable[[int], None],
    ) -> None:
        self._context, self._routing, self._helpers = context, routing, helpers
        self._heard, self._tell, self._done = heard, tell, done
        self._waves = Waves()
        self._later: list[_Later] = []

    def enter(self, message: Settle, by: str | None) -> None:
        """A wave begins here (``None``), or came from a neighbour."""
        # What local clients wanted before is submitted before the wave is marked.
        self._tell()
        until = self._context.now + self._context.settings.lease
        self._later.append(_Later(by, message, self._helpers.marks(), until))

    def go_on(self) -> None:
        """Let waves go on that need not wait."""
        if not self._later:
            return
        waiting, self._later = self._later[-_LIMIT:], []
        for each in waiting:
            late = each.until <= self._context.now
            told = each.by is None or self._routing.in_step(each.by)
            if (told and self._helpers.reached(each.marks)) or (late and each.by is None):
                self._wave(each.message, each.by)
            elif not late and (each.by is None or each.by in self._heard):
                self._later.append(each)

    def _wave(self, message: Settle, by: str | None) -> None:
        issuer, number = message.issuer, message.number
        near = [n for n in self._routing.settle_to(issuer, by) if n in self._heard]
        self._tell()
        for neighbour in near:
            self._context.send(neighbour, Settle(issuer, number))
        until = self._context.now + self._context.settings.lease
        self._echo(self._waves.start(issuer, number, by, near, until))

    def answered(self, message: Settled, neighbour: str) -> None:
        """All behind a neighbour have it."""
        self._echo(self._waves.answered(message.issuer, message.number, neighbour))

    def lost(self, neighbour: str) -> None:
        """A neighbour is gone: nobody waits for it."""
        self._echo(self._waves.lost(neighbour))

    def expire(self) -> None:
        """Give up what took too long."""
        self._echo(self._waves.expire(self._context.now))

    def _echo(self, echoes: list[Echo]) -> None:
        for issuer, number, by in echoes:
            if by is None:
                self._done(number)
            else:
                self._context.send(by, Settled(issuer, number))
