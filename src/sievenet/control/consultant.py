"""A control plane as configurators see it: they come, answer and go, and are told what to work out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sievenet.control import signals
from sievenet.control.diverter import Diverter
from sievenet.session.message import Message

__all__ = ["Consultant"]


class Consultant(Diverter):
    """Lets others work out what changes in flow tables (`configurators`)."""

    #: Says something to a configurator; set by whoever has the connections.
    consult: Callable[[str, Message], None] | None = None

    def configurator_joined(self, name: str, process: int = 0) -> None:
        """A configurator has come."""
        self._handle(signals.ConfiguratorJoined(name, process))

    def configurator_heard(self, name: str, *messages: object) -> None:
        """A configurator says something."""
        self.configurators_heard([(name, messages)])

    def configurators_heard(self, heard: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Several say something: what is told together goes to switches together."""
        self._handle(signals.ConfiguratorHeard(heard))

    @property
    def awaited(self) -> int:
        """Answers that configurators owe."""
        desk = self._controller.fleet.desk
        return 0 if desk is None else desk.awaited

    def configurator_gone(self, name: str) -> None:
        """A configurator is lost."""
        self._handle(signals.ConfiguratorGone(name))

    def share(self, term: int) -> None:
        """Tell configurators by logs (`configurators.words`), as the leader of a term."""
        if self._controller.fleet.desk is not None:
            self._controller.fleet.desk.share(term)

    def _consult(self, order: signals.Consult) -> None:
        if self.consult is not None:
            self.consult(order.name, order.message)

    def configurators(self) -> dict[str, Any] | None:
        """Who works out what, as `status` shows it; None if this process does everything at once."""
        fleet = self._controller.fleet
        if fleet.turns is not None:
            return fleet.turns.shown()
        return None if fleet.desk is None else fleet.desk.shown()
