"""The states of a subscription that a cache may serve, and how one follows another: the one table.

idle        events come by the plain path
taking      too many came: a cache is asked to queue; what comes plainly is held
active      the cache sends at the subscriber's pace; the plain path is taken away
resuming    the cache has next to nothing waiting: the plain path is asked for again
stopping    the plain path stands, what comes by it is held; the cache ends its stream with a mark
over        the cache had no room: the subscription has ended
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["TRANSITIONS", "State", "Stimulus", "diagram"]


class State(StrEnum):
    """Where a subscription gets its events from."""

    IDLE = "idle"
    TAKING = "taking"
    ACTIVE = "active"
    RESUMING = "resuming"
    STOPPING = "stopping"
    OVER = "over"


class Stimulus(StrEnum):
    """What moves it on."""

    OVERLOAD = "overload"
    TAKEN = "taken"
    NO_CACHE = "no cache"
    DRAINED = "drained"
    RESUMED = "resumed"
    END = "end mark"
    AGAIN = "end mark after more overload"
    LOST = "cache lost"
    FULL = "full"


_S, _M = State, Stimulus

#: What is not here changes nothing.
TRANSITIONS: Final[dict[tuple[State, Stimulus], State]] = {
    (_S.IDLE, _M.OVERLOAD): _S.TAKING,
    (_S.TAKING, _M.TAKEN): _S.ACTIVE,
    (_S.TAKING, _M.NO_CACHE): _S.IDLE,
    (_S.TAKING, _M.LOST): _S.TAKING,
    (_S.TAKING, _M.FULL): _S.OVER,
    (_S.ACTIVE, _M.DRAINED): _S.RESUMING,
    (_S.ACTIVE, _M.LOST): _S.TAKING,
    (_S.ACTIVE, _M.FULL): _S.OVER,
    (_S.RESUMING, _M.RESUMED): _S.STOPPING,
    (_S.RESUMING, _M.OVERLOAD): _S.ACTIVE,
    (_S.RESUMING, _M.LOST): _S.TAKING,
    (_S.RESUMING, _M.FULL): _S.OVER,
    (_S.STOPPING, _M.END): _S.IDLE,
    (_S.STOPPING, _M.AGAIN): _S.TAKING,
    (_S.STOPPING, _M.LOST): _S.TAKING,
    (_S.STOPPING, _M.FULL): _S.OVER,
}


def diagram() -> str:
    """The table as a picture for the documents."""
    rows = [f"    {before} --> {after}: {why}" for (before, why), after in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> idle", *rows])
