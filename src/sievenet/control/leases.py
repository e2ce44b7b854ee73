"""Leases: a client that is silent for longer than its lease is considered dead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sievenet.control.config import ControlConfig
from sievenet.control.state import Client, State
from sievenet.control.switchboard import Switchboard

__all__ = ["Leases"]

#: Seconds that a look at a lease may come late before it counts as not having listened.
_DEAF: Final = 0.25


class Leases:
    """Checks each lease when it may have expired."""

    def __init__(
        self, state: State, board: Switchboard, config: ControlConfig, ended: Callable[[Client], None]
    ) -> None:
        self._state = state
        self._board = board
        self._config = config
        self._ended = ended

    def begin(self, client: Client) -> None:
        """Start the lease of a new client."""
        self.renew(client)
        self._watch(client)

    def renew(self, client: Client) -> None:
        """Renew the lease of a client."""
        client.deadline = self._board.now + self._config.lease

    def _watch(self, client: Client) -> None:
        self._board.at(client.deadline, partial(self._look, client))

    def _look(self, client: Client) -> None:
        if self._state.clients.get(client.name) is not client:
            return
        now = self._board.now
        if now - client.deadline > min(_DEAF, self._config.lease / 2):
            # Nobody listened (the machine slept, or was kept busy), so signs of life may still wait to be read.
            self.renew(client)
        if client.deadline > now:
            self._watch(client)
            return
        client.deadline = now + self._config.retry  # if the journal is full, once more then
        self._watch(client)
        self._ended(client)
