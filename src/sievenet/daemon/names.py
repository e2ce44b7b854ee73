"""Names of clients: when one whose holder is away may be taken over.

A client that is killed keeps its name until its lease ends, so that it can come back. Whoever asks for the name
meanwhile and has the same credentials is most likely the same program, started again: it need not wait.

    holder connected                 refused: free when the holder leaves, or falls silent for a lease
    holder away, other credentials   refused: free in so many seconds
    holder away, same credentials    taken over, once the holder had a moment to come back by itself

A holder that comes back after that has a ticket of an earlier life of the name, and is refused. Pure: no clock.
"""

from __future__ import annotations

from typing import Final

from sievenet.access.identity import Identity
from sievenet.errors import Rejected

__all__ = ["Names", "same_credentials"]

#: Seconds that a client whose connection broke has to come back before its name may be taken over.
GRACE: Final = 1.5


class Names:
    """Since when holders of names are away."""

    def __init__(self, now: float, grace: float = GRACE) -> None:
        #: Clients of an earlier life of the daemon are away since it began.
        self._begin = now
        self._grace = grace
        self._lost: dict[str, float] = {}

    def lost(self, name: str, now: float) -> None:
        """The connection of a client is gone."""
        self._lost[name] = now

    def here(self, name: str) -> None:
        """A client is connected, or has left."""
        self._lost.pop(name, None)

    def since(self, name: str) -> float:
        """When the connection of a client went."""
        return self._lost.get(name, self._begin)

    def wait(self, name: str, identity: Identity, connected: bool, left: float, lease: float, now: float) -> float:
        """Seconds until a name that somebody has may be taken over; `Rejected` if it may not.

        ``left`` are the seconds that the holder's lease lasts.
        """
        if connected:
            raise Rejected(
                f"The name {name} is taken: its holder is connected. It is free when the holder leaves, "
                f"or has been silent for {lease:g} s"
            )
        if not same_credentials(identity):
            raise Rejected(f"The name {name} is taken for {max(left, 0.0):.0f} s more, unless its holder comes back")
        return max(0.0, self.since(name) + self._grace - now)


def same_credentials(identity: Identity) -> bool:
    """Whether somebody who may have a name counts as its holder.

    Members have only names of their own; without members, whoever is on this machine may do everything.
    """
    return identity.proof is not None or identity.local
