"""What a subscriber wants of caches (the arguments of `subscribe`, checked), and what they did for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from sievenet.cache import messages
from sievenet.cache.messages import OnFull, Position
from sievenet.client.delivery import Delivery
from sievenet.errors import InvalidInput
from sievenet.transport.actions import Gap

__all__ = ["CacheOptions", "CacheStatistics"]


#: Seconds that one may ask to look back.
_LONGEST: Final = 1e9


class CacheOptions(msgspec.Struct, frozen=True):
    """What a subscriber wants of caches."""

    #: Events per second; None if it is measured how fast the application takes them.
    limit: float | None
    on_full: OnFull = "end"
    #: Seconds to begin before the call (less than 0 is after it), or the event to begin behind.
    since: float | Position | None = None
    on_gap: Callable[[Gap], None] | None = None
    #: When the call was, by the system's clock that never jumps.
    called: float = 0.0

    @staticmethod
    def of(max_rate: Any, on_full: Any, since: Any, on_gap: Callable[[Gap], None] | None) -> CacheOptions | None:
        """From the arguments of `subscribe`; None if no cache is wanted."""
        if on_full not in messages.POLICIES:
            raise InvalidInput(expected=f"one of {', '.join(messages.POLICIES)}", got=on_full, where="on_full")
        if max_rate is None and since is None:
            return None
        limit = None if max_rate in (None, "measured") else max_rate
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= 1e9
        ):
            expected = 'events per second, above 0 and at most 1e9, or "measured"'
            raise InvalidInput(expected=expected, got=max_rate, where="max_rate")
        limit = None if limit is None else float(limit)
        return CacheOptions(limit, on_full, _beginning(since), on_gap, time.monotonic())

    @property
    def back(self) -> float:
        """Seconds from this moment back to where it begins: however long the call takes, nothing is left out.

        When an event was is not known here: far back.
        """
        if self.since is None or isinstance(self.since, Position):
            return 0.0 if self.since is None else _LONGEST
        return max(0.0, self.since + time.monotonic() - self.called)


class CacheStatistics(msgspec.Struct, frozen=True):
    """What caches did for a subscription."""

    #: Where its events come from: idle (by content), active (from a cache) or on the way between.
    state: str
    #: Times that a cache began to serve, and events that came from it.
    activations: int
    cached: int
    #: Events that are lost because it was full (`on_full`).
    dropped: int
    #: The cache that is responsible, if there is one.
    cache: str | None


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _beginning(since: Any) -> float | Position | None:
    """Seconds before the call, or the event to begin behind."""
    if since is None:
        return None
    if isinstance(since, Delivery):
        since = (since.publisher, since.incarnation, since.sequence)
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise InvalidInput(expected="a time with its time zone", got=str(since), where="since")
        return min(time.time() - since.timestamp(), _LONGEST)  # caches remember less
    if isinstance(since, tuple) and len(since) == 3 and all(map(_is_number, since)) and since[2] < 1 << 63:
        return Position(*since)
    if isinstance(since, bool) or not isinstance(since, int | float):
        expected = "seconds, a time, or a delivery (or its publisher, incarnation and number) to begin behind"
        raise InvalidInput(expected=expected, got=since, where="since")
    if not 0 <= since <= _LONGEST:
        expected = f"seconds before now, from 0 to {_LONGEST:,.0f}, or a time"
        raise InvalidInput(expected=expected, got=since, where="since")
    return float(since)
