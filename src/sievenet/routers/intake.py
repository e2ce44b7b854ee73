"""How filters enter a router's tables: at once, or as a plug-in says.

The core hands every table that it makes to its `Intake`, tells it of time and of clients, and asks it whether all
that came so far is in place. The one here puts filters in their tables when they come. The one of `offload.helpers`
lets clients find their places; only that one knows what it says to clients and what they answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sievenet.content.filter import Filter
from sievenet.routers.routing import Context
from sievenet.routers.schemes import Covering
from sievenet.session.message import Message

__all__ = ["Intake"]


class Intake:
    """Filters enter at once."""

    #: Whether every filter is to be placed: not only those that a forest of the local ones lets through.
    place_all = False

    def __init__(self, context: Context) -> None:
        self.context = context

    def covering(self, category: int) -> Covering:
        """A new table for the filters of a category."""
        return Covering()

    def hear(self, client: str, message: Message) -> None:
        """A client says something about placing filters."""

    def claim(self, client: str, category: int, wanted: Sequence[Filter], claims: Sequence[Any]) -> None:
        """What a client says of filters that it is about to subscribe with."""

    def leave(self, client: str) -> None:
        """A client is gone."""

    def charge(self, message: Message, seconds: float) -> None:
        """Processor time that went into a message to or from a client."""

    def due(self) -> float | None:
        """When `tick` has something to do."""
        return None

    def tick(self) -> None:
        """Time has passed."""

    def marks(self) -> dict[int, int]:
        """Names what came so far, for `reached`."""
        return {}

    def reached(self, marks: dict[int, int]) -> bool:
        """Whether all that came before is in the tables."""
        return True

    def statistics(self) -> dict[str, Any]:
        """What there is to tell, by name."""
        return {}
