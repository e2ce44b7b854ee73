"""The ledger: commands on their way into the journal.

One write at a time; whatever comes meanwhile goes with the next (group commit).  After enough
bytes a snapshot of the state replaces everything written so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sievenet.content import Subscription
from sievenet.control.commands import Command, Register, encode_command
from sievenet.control.signals import Soon, Write
from sievenet.control.state import State
from sievenet.errors import SievenetError

__all__ = ["Entered", "Ledger", "Then"]

Then = Callable[[SievenetError | None], None]


class Entered(NamedTuple):
    """A command, and who waits for it."""

    record: bytes
    command: Command
    #: The content of the command decoded, if that is at hand.
    said: Subscription | None
    ticket: int | None
    then: Then | None


class Ledger:
    """Groups commands into writes."""

    def __init__(self, state: State, snapshot: int) -> None:
        self._state = state
        self._least = snapshot
        #: Bytes at which everything is written anew.
        self._limit = snapshot
        self._size = 0
        self._waiting: list[Entered] = []
        #: What the journal is at; None if it is idle.
        self._writing: list[Entered] | None = None
        #: New schemas in both.
        self._schemas = 0

    def enter(
        self, command: Command, said: Subscription | None = None, ticket: int | None = None, then: Then | None = None
    ) -> None:
        """Queue a command for writing."""
        if isinstance(command, Register):
            command = msgspec.structs.replace(command, claim=self._state.unused(self._schemas))
            self._schemas += 1
        self._waiting.append(Entered(encode_command(command), command, said, ticket, then))

    def next(self, serial: Callable[[], int], gather: bool = False) -> Write | Soon | None:
        """What to write now, if anything; to `gather` is to write soon, with what comes in the same moment."""
        if self._writing is not None:
            return None
        if gather:
            return Soon()
        if self._waiting:
            self._writing, self._waiting = self._waiting, []
            records = [entered.record for entered in self._writing]
            self._size += sum(map(len, records))
            return Write(serial(), records)
        if self._size > self._limit:
            self._writing = []
            records = self._state.snapshot()
            self._size = 0
            # Rewriting everything must stay a small part of the work, however much there is.
            self._limit = max(self._least, 2 * sum(map(len, records)))
            return Write(serial(), records, replace=True)
        return None

    def finished(self) -> list[Entered]:
        """A write has ended; returns its commands."""
        batch, self._writing = self._writing or [], None
        self._schemas -= sum(isinstance(entered.command, Register) for entered in batch)
        return batch
