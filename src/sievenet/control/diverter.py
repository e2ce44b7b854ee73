"""The control plane's interface for diverting to matchers: diversions, places of clients, subscriptions."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sievenet.control import signals
from sievenet.control.inspection import Inspection
from sievenet.control.routes import Routes
from sievenet.index import Dz

__all__ = ["Diverter"]


class Diverter(Inspection):
    """Diverts subspaces, and answers the questions needed for that."""

    @abstractmethod
    def _future(self) -> asyncio.Future[Any]:
        """The answer to the next ticket."""

    @abstractmethod
    def _handle(self, stimulus: signals.Stimulus) -> None:
        """Hand a stimulus to the controller."""

    _ticket: int

    async def divert(self, number: int, switch: str, wanted: Mapping[Dz, int]) -> None:
        """Hand just these subspaces of a category to these ports at a switch; returns when it has acknowledged."""
        future = self._future()
        self._handle(signals.Divert(self._ticket, number, switch, dict(wanted)))
        await future

    def on_undiverted(self, callback: Callable[[int, str], None]) -> None:
        """Call with category and switch when diversions have ended without being asked for."""
        self._controller.fleet.diversions.on_end = callback

    def diverted(self, number: int) -> dict[str, dict[Dz, int]]:
        """What is diverted of a category, by switch."""
        return self._controller.fleet.diversions.of(number)

    def changing(self, number: int) -> bool:
        """Whether the plan of a category is being changed."""
        return number in self._controller.transitions or number not in self._controller.state.categories

    def contents(self, number: int) -> Iterator[tuple[str, int, bytes, tuple[int, ...]]]:
        """Every subscription in a category: client, id, the codec's bytes, and the dz that it is registered at."""
        for client in list(self._controller.state.clients.values()):
            if client.counts.get(number, (0, 0))[1]:
                for id, entry in list(client.subscriptions.items()):
                    if entry.category == number:
                        yield client.name, id, entry.content, entry.keys

    def content(self, client: str, id: int) -> tuple[int, bytes, tuple[int, ...]] | None:
        """One subscription: category, the codec's bytes, and the dz that it is registered at."""
        known = self._controller.state.clients.get(client)
        entry = None if known is None else known.subscriptions.get(id)
        return None if entry is None else (entry.category, entry.content, entry.keys)

    def published(self) -> list[int]:
        """The categories that somebody advertises in, or did while this control plane was away."""
        clients = self._controller.state.clients.values()
        return sorted({number for c in clients for number, (offers, _) in c.counts.items() if offers})

    def publishing(self, number: int) -> list[str]:
        """The clients that advertise in a category."""
        return [c.name for c in self._controller.state.clients.values() if c.counts.get(number, (0, 0))[0]]

    def routes(self, number: int, dz: Dz) -> Routes | None:
        """The tree on which a subspace travels; None if there are several, or none."""
        space = self._controller.spaces.get(number)
        if space is None:
            return None
        lanes = [lane for lane in space.lanes if _meet(dz, Dz.of_key(lane.prefix))]
        found = [lane.registrations.routes for lane in lanes]
        return found[0] if found and all(each is found[0] for each in found) else None

    def side(self, routes: Routes, switch: str, client: str) -> int:
        """The port of a switch by which a tree leads to a client; 0 if that is at the switch itself, or nowhere."""
        wires = self._controller.fleet.wires
        known = self._controller.state.clients.get(client)
        if known is None or known.wire is None:
            return 0
        mask = routes.to[known.wire] & wires.out[switch] & wires.links
        return wires.port[mask.bit_length() - 1] if mask else 0


def _meet(one: Dz, other: Dz) -> bool:
    return one.covers(other) or other.covers(one)
