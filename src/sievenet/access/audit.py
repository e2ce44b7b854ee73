"""The audit log: who changed what, one JSON object per line.

    {"time": "2026-11-17T08:30:00.123Z", "who": "alice", "role": "client", "from": "10.0.0.7", "what": "Subscribe",
     "about": "stock: price > 420", "outcome": "done"}

Everything that changes something is in it, and every refusal and greeting; questions and events are not. No secret
gets here: records are made of names and content alone. A member that is refused again and again fills no disk: beyond
some per second its refusals are counted, and told in one record. If the file cannot be written, the daemon goes on,
says so once, and counts what is missing in the next record that can be written; half a record never stays.
"""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from sievenet.access.quota import Bucket
from sievenet.append import append
from sievenet.errors import InvalidInput

__all__ = ["AuditLog", "record"]

log = logging.getLogger("sievenet.access")

#: Refusals per second of one member that are written each.
_REFUSALS: Final = 10.0
#: Members whose refusals are counted apart; more share one count.
_MEMBERS: Final = 4096
_ABOUT: Final = 1000


def record(now: float, who: str, role: str, origin: str, what: str, about: str, outcome: str) -> dict[str, Any]:
    """One record; ``now`` in seconds since 1970."""
    time = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="milliseconds")
    return {
        "time": time.replace("+00:00", "Z"),
        "who": who,
        "role": role,
        "from": origin,
        "what": what,
        "about": about[:_ABOUT],
        "outcome": outcome[:_ABOUT],
    }


class AuditLog:
    """Appends to a file that only its owner can read; a file that was moved away is begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refusals: dict[str, Bucket] = {}
        self._suppressed: dict[str, int] = {}
        self._missing = 0
        self._failed = False

    @classmethod
    def at(cls, path: str) -> Self:
        """The log at a path that somebody chose; `InvalidInput` if there can be no file."""
        found = Path(path)
        if found.is_dir() or not found.parent.is_dir():
            raise InvalidInput(expected="a file in a folder that exists", got=path, where="audit log")
        return cls(found)

    def write(
        self, now: float, who: str, role: str, origin: str, what: str, about: str = "", outcome: str = "done"
    ) -> None:
        """Write one record, unless there are too many refusals of one member."""
        extra: dict[str, Any] = {}
        if outcome != "done":
            key = self._key(who)
            if not self._refusals.setdefault(key, Bucket(_REFUSALS)).take(1, now):
                self.suppress(who, 1)
                return
            if key in self._suppressed:
                extra["refused_before"] = self._suppressed.pop(key)
        if self._missing:
            extra["missing_before"] = self._missing
        line = msgspec.json.encode(record(now, who, role, origin, what, about, outcome) | extra) + b"\n"
        try:
            append(self._path, line)
        except OSError as error:
            self._missing += 1
            if not self._failed:
                self._failed = True
                log.error("the audit log %s cannot be written: %s", self._path, error.strerror)
            return
        self._missing, self._failed = 0, False

    def suppress(self, who: str, refusals: int) -> None:
        """So many refusals of a member are not written, but counted in its next record."""
        key = self._key(who)
        self._suppressed[key] = self._suppressed.get(key, 0) + refusals

    def _key(self, who: str) -> str:
        return who if who in self._refusals or len(self._refusals) < _MEMBERS else ""
