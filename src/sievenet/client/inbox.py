"""A bounded queue between the network and the application, with a policy for when it is full.

    wait          the node reads nothing more from the network until there is room: nothing is lost here, but everything
                  else of this node waits too, and the operating system's own buffer overflows in the end
    drop_oldest   the newest events matter: room is made by dropping the one that has waited longest
    drop_newest   the oldest events matter: what does not fit is dropped

Every drop is counted and reported. Pure: no event loop in here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from sievenet.errors import InvalidInput

__all__ = ["POLICIES", "Inbox", "Overflow", "Policy"]

Policy = Literal["wait", "drop_oldest", "drop_newest"]
POLICIES: Final[tuple[str, ...]] = get_args(Policy)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Overflow:
    """What an application is told when its queue was full."""

    subscription: str
    policy: Policy
    #: Events dropped since the last report (with ``wait``: 0, but the network had to wait).
    dropped: int
    #: Events dropped since the subscription began.
    total: int


class Inbox(Generic[T]):
    """At most ``limit`` items, oldest first."""

    def __init__(self, limit: int = 10_000, policy: Policy = "drop_oldest") -> None:
        if policy not in POLICIES:
            raise InvalidInput(expected=f"one of {', '.join(POLICIES)}", got=policy, where="when_full")
        if limit < 1:
            raise InvalidInput(expected="a queue of at least 1", got=limit, where="queue")
        self.limit = limit
        self.policy: Policy = policy
        self.dropped = 0
        #: Times that an item found the queue full under ``wait``.
        self.waits = 0
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Whether there is no room."""
        return len(self._items) >= self.limit

    def offer(self, item: T) -> bool:
        """Take an item, dropping one if the policy says so. False: full under ``wait``; come again with the item."""
        if len(self._items) >= self.limit:
            if self.policy == "wait":
                self.waits += 1
                return False
            self.dropped += 1
            if self.policy == "drop_newest":
                return True
            self._items.popleft()
        self._items.append(item)
        return True

    def append(self, item: T) -> None:
        """Take an item even if there is no room: the last ones of a queue that ends."""
        self._items.append(item)

    def pop(self) -> T:
        """The oldest item; `IndexError` if there is none."""
        return self._items.popleft()

    def clear(self) -> None:
        """Forget everything that waits."""
        self._items.clear()
