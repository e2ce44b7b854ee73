"""Entitlement: from which number on a subscription gets a publisher's events.

When a matcher dies publishers send again what they sent in the last seconds (`client.retention`). A subscription that
is younger than that would get events from before it, which nobody has ever sent to it, after newer ones. So whoever
subscribes while events go through matchers is told the next number of each publisher:

    publisher     1  2  3 │ 4  5  6            again: 1  2  3  4  5  6
    subscribed            └ "4"                       ╰─ not due ─╯  ╰ lost, or duplicates

Numbers below were published before the subscription stood, and are not due. A publisher that comes later has no number
below which anything could be sent again. An entry is forgotten when no publisher could have kept so old an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sievenet.transport.duplicates import Source

__all__ = ["Entitlements"]

#: Numbers of a source after which nothing from before the first of them is sent again (`retention.COUNT` and some).
_SPAN: Final = 1 << 17


class Entitlements:
    """Those of one node's subscriptions, by key."""

    def __init__(self) -> None:
        #: The first number of each source that is due, by key; empty as a rule, which whoever asks looks at first.
        self.first: dict[int, dict[Source, int]] = {}

    def told(self, key: int, answer: Any) -> Any:
        """What the daemon answered to a new subscription; given back."""
        marks = answer.get("since") if isinstance(answer, dict) else None
        if marks:
            self.first[key] = {(publisher, incarnation): number for publisher, incarnation, number in marks}
        return answer

    def drop(self, key: int) -> None:
        """A subscription is no more."""
        self.first.pop(key, None)

    def due(self, keys: Iterable[int], source: Source, number: int) -> list[int]:
        """Those of some subscriptions that are to get an event."""
        return [key for key in keys if self._due(key, source, number)]

    def due_many(self, keys: Sequence[Sequence[int]], sources: Iterable[Source], numbers: Iterable[int]) -> list[Any]:
        """The same for many events."""
        rows = zip(keys, sources, numbers, strict=True)
        return [self.due(own, source, number) if len(own) else own for own, source, number in rows]

    def _due(self, key: int, source: Source, number: int) -> bool:
        first = self.first.get(key, {}).get(source, 0)
        if number - first >= _SPAN and first:
            del self.first[key][source]
            if not self.first[key]:
                del self.first[key]
        return number >= first
