"""Asking publishers what they sent, where nothing that came tells: one question per stream at a time, with backoff.

    unknown ──wait [C₁d, (C₁+C₂)d]──▶ inquiry ──▶ digests: settled, or known to be missing ─▶ requests
                                          │        "gone": told as a gap
                                    no answer: again, twice as late … ──▶ given up: told as a gap

An answer that settles something counts as a beginning: what it left open is asked for at once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from sievenet.transport.control import Inquiry

__all__ = ["Inquiries", "StreamKey"]

#: Publisher and epoch.
StreamKey = tuple[int, int]

#: No answer is expected sooner, in seconds.
_PATIENCE: Final = 0.02
#: Seconds after which a question is given up whether the publisher can be heard or not.
_LONGEST: Final = 120.0


class _Asking(msgspec.Struct):
    due: float
    span: tuple[int, int]
    since: float
    attempt: int = 0


class Inquiries:
    """The questions of one receiver."""

    def __init__(self, me: int, attempts: int, rng: Random) -> None:
        self._me, self._attempts, self._rng = me, attempts, rng
        self._asking: dict[StreamKey, _Asking] = {}
        self.sent = self.given_up = 0

    def update(self, key: StreamKey, span: tuple[int, int] | None, distance: float, now: float) -> None:
        """What of a stream is unknown now; None: nothing."""
        asking = self._asking.get(key)
        if span is None:
            if asking is not None:
                del self._asking[key]
        elif asking is None:
            self._asking[key] = _Asking(now + distance * (0.5 + self._rng.random()), span, now)
        elif asking.span[1] > span[1] or asking.span[0] < span[0]:
            # Something was answered: the rest is asked for soon.
            asking.span, asking.since, asking.attempt = span, now, 0
            asking.due = min(asking.due, now + distance * (0.5 + self._rng.random()))
        else:
            asking.span = span

    def timer(self) -> float | None:
        """When `expire` has something to do next."""
        return min((each.due for each in self._asking.values()), default=None)

    def renew(self, now: float, stream: StreamKey | None = None) -> None:
        """The connection is back: restarts the questions (about one stream, or all) with a fresh count of attempts."""
        for key, asking in self._asking.items():
            if stream in (None, key) and now <= asking.since + _LONGEST:
                asking.attempt, asking.due = 0, now

    def expire(
        self, distances: dict[StreamKey, float], now: float, silent: Callable[[StreamKey], bool] = lambda _: False
    ) -> tuple[list[Inquiry], list[StreamKey]]:
        """Questions to send now, and streams whose unknown numbers are given up; silent streams are not."""
        inquiries, given_up = [], []
        for key, asking in list(self._asking.items()):
            if asking.due > now:
                continue
            hopeless = now > asking.since + _LONGEST or not silent(key)
            if asking.attempt >= self._attempts and hopeless:
                del self._asking[key]
                self.given_up += 1
                given_up.append(key)
                continue
            wait = max(4 * distances.get(key, 0.0), _PATIENCE) * (1 << min(asking.attempt, 10))
            asking.due = now + min(wait, 5.0) * (0.75 + 0.5 * self._rng.random())
            asking.attempt += 1
            self.sent += 1
            inquiries.append(Inquiry(*key, *asking.span, self._me))
        return inquiries, given_up
