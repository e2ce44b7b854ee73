"""Sides: by which port of a matcher's switch clients are reached, so that no event goes back to where it came from."""

from __future__ import annotations

from collections.abc import Iterable

from sievenet.control.plane import ControlPlane
from sievenet.daemon.matchers import Matcher
from sievenet.daemon.planes import AnyPlane

__all__ = ["Sides"]


class Sides:
    """As the trees of categories are now."""

    def __init__(self, control: ControlPlane, plane: AnyPlane) -> None:
        self._control, self._plane = control, plane

    def of(self, number: int, matcher: Matcher, clients: Iterable[str]) -> dict[str, int]:
        """The sides of clients; 0 if events have to go to all sides."""
        regions = matcher.regions(number)
        trees = [self._control.routes(number, dz) for dz in regions]
        if not trees or trees[0] is None or any(each is not trees[0] for each in trees):
            return dict.fromkeys(clients, 0)
        return {client: self._control.side(trees[0], matcher.switch, client) for client in clients}

    def publishers(self, number: int, matcher: Matcher, clients: Iterable[str]) -> tuple[tuple[int, int], ...]:
        """The numbers of publishers, with their sides."""
        places = self._plane.clients()
        sides = self.of(number, matcher, [each for each in clients if each in places])
        return tuple((places[client].publisher, side) for client, side in sides.items())
