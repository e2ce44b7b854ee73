"""When to dial again: a small state machine, with time as an argument.

    ┌──────┐ begin  ┌────────────┐ connected ┌────────┐
    │ VOID │ ─────▶ │ CONNECTING │ ────────▶ │ ACTIVE │
    └──────┘        └────────────┘           └────────┘
                      ▲        │ failed          │ lost
                due(now)       ▼                 │
                    ┌─────────────┐              │
                    │   BACKOFF   │ ◀────────────┘         closed, from anywhere: CLOSED
                    └─────────────┘

The wait doubles from `first` to `most` and has a random part, so that the clients of a restarted process do not all
come at once; a connection that held for `steady` seconds forgets earlier failures.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import random

__all__ = ["Backoff", "State"]


class State(Enum):
    """Where the connection stands."""

    VOID = "void"
    CONNECTING = "connecting"
    ACTIVE = "active"
    BACKOFF = "backoff"
    CLOSED = "closed"


#: state, stimulus → next state. Anything else is a mistake of the caller.
TRANSITIONS: dict[tuple[State, str], State] = {
    (State.VOID, "begin"): State.CONNECTING,
    (State.CONNECTING, "connected"): State.ACTIVE,
    (State.CONNECTING, "failed"): State.BACKOFF,
    (State.ACTIVE, "lost"): State.BACKOFF,
    (State.BACKOFF, "due"): State.CONNECTING,
    **{(state, "closed"): State.CLOSED for state in State},
}


class Backoff:
    """The state, and how long to wait before the next attempt."""

    def __init__(
        self,
        first: float = 0.05,
        most: float = 2.0,
        steady: float = 5.0,
        uniform: Callable[[], float] = random,
    ) -> None:
        self.state = State.VOID
        self.attempts = 0
        #: Times that an established connection was lost.
        self.losses = 0
        self._first, self._most, self._steady = first, most, steady
        self._uniform = uniform
        self._since = 0.0

    def handle(self, stimulus: str, now: float) -> float:
        """Note what happened; returns the seconds to wait in BACKOFF, else 0."""
        self.state, before = TRANSITIONS[self.state, stimulus], self.state
        match self.state:
            case State.ACTIVE:
                self._since = now
            case State.BACKOFF:
                if before is State.ACTIVE:
                    self.losses += 1
                    if now - self._since >= self._steady:
                        self.attempts = 0
                self.attempts += 1
                ceiling = min(self._most, self._first * (1 << min(self.attempts - 1, 16)))
                return ceiling * (0.5 + 0.5 * self._uniform())
        return 0.0
