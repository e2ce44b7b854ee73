"""What a daemon lets its node do, where that is less than the node asked for.

A registration may be narrowed to what the rules allow; events may be dropped in the data plane, over a quota or against
the rules. The daemon tells both in its answers. A narrowed advertisement refuses events that are not allowed before
they are sent; of dropped events the publisher is told at its next `publish`, or when it closes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from sievenet.client.registrations import Registration
from sievenet.content.codec import decode_subscription
from sievenet.content.filter import Subscription
from sievenet.errors import Dropped, SievenetError

__all__ = ["Allowance"]

log = logging.getLogger("sievenet.client")

#: Narrowed registrations of which it is known what the log has heard.
_LOGGED: Final = 4096


class Allowance:
    """Of one node."""

    def __init__(self) -> None:
        #: What advertisements were narrowed to.
        self._less: dict[int, Subscription] = {}
        #: What the log was told last that registrations were narrowed to; of the latest.
        self._logged: dict[int, bytes] = {}
        #: Why events were dropped, until the publisher is told.
        self.refusal: SievenetError | None = None
        #: How many since it was told: over the quota, and against the rules.
        self._over = self._unpermitted = 0

    def answered(self, entry: Registration, answer: Any) -> Subscription | None:
        """What a registration was narrowed to, by the daemon's answer; None if it stands as it was asked for."""
        content = answer.get("narrowed") if isinstance(answer, dict) else None
        if not isinstance(content, bytes):
            self._less.pop(entry.id, None)
            self._logged.pop(entry.id, None)
            return None
        allowed = decode_subscription(entry.wanted.schema, content)
        # It is answered again after each connection, and when events come from a cache no more.
        if self._logged.pop(entry.id, None) != content:
            log.warning("the %s of `%s` is narrowed to what is allowed: `%s`", entry.kind, entry.wanted, allowed)
        self._logged[entry.id] = content
        if len(self._logged) > _LOGGED:
            del self._logged[next(iter(self._logged))]
        if entry.kind == "advertisement":
            self._less[entry.id] = allowed
        return allowed

    def of(self, entry: Registration) -> Registration:
        """A registration as it is allowed."""
        return replace(entry, wanted=self._less[entry.id]) if entry.id in self._less else entry

    def told(self, answer: Any) -> None:
        """What the answer to a heartbeat says of dropped events."""
        if not isinstance(answer, dict):
            return
        over, unpermitted = answer.get("over_quota") or 0, answer.get("unpermitted") or 0
        if not over and not unpermitted:
            return
        self._over += over
        self._unpermitted += unpermitted
        reasons = [
            f"{count} events were dropped: {why}"
            for count, why in (
                (self._over, "they were more than the quota of events or bytes per second"),
                (self._unpermitted, "the rules do not let this node publish them"),
            )
            if count
        ]
        self.refused(Dropped("; ".join(reasons), count=self._over + self._unpermitted, quota=bool(self._over)))

    def refused(self, error: SievenetError) -> None:
        """Events were dropped, for this reason."""
        if self.refusal is None:
            log.warning("%s", error)
        self.refusal = error

    def check(self) -> None:
        """Tell the publisher, once, what was dropped before."""
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            self._over = self._unpermitted = 0
            raise refusal

    def left(self) -> None:
        """The node goes, and there is no next `publish` to tell of dropped events: tell now."""
        if isinstance(self.refusal, Dropped):
            self.check()
