"""Questions to a control plane; none of them changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from sievenet.content import Subscription
from sievenet.control.aside import Aside
from sievenet.control.controller import Controller
from sievenet.control.deployment.held import CellTables
from sievenet.control.state import Category
from sievenet.control.status import Member, Status, member_of, status_of
from sievenet.control.traffic import Merging, Traffic, masked, picture, pictured
from sievenet.errors import InvalidInput
from sievenet.network import FlowTable, SpanningTree

if TYPE_CHECKING:
    from sievenet.control.aggregation import Tables
    from sievenet.control.aggregation.masks import Masked

__all__ = ["Inspection"]


class Inspection:
    """Reads the state of a controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        #: Requests answered since the start, and those of them that were refused.
        self._answered = 0
        self._refused = 0

    def category(self, name: str) -> Category:
        """The category of the latest version of a schema, with its current plan."""
        return self._controller.state.named(name)

    def versions(self, name: str) -> list[Category]:
        """The categories of all versions of a schema, oldest first."""
        return self._controller.state.versions(name)

    @property
    def unannounced(self) -> Set[int]:
        """Versions of schemas that some subscribers have not confirmed yet."""
        return self._controller.state.unannounced

    def numbered(self, number: int) -> Category:
        """The category with a number."""
        return self._controller.state.category(number)

    def is_category(self, number: int) -> bool:
        """Whether there is a category with this number."""
        return number in self._controller.state.categories

    def epoch(self, number: int) -> int:
        """The epoch of a category's plan; -1 if there is no such category."""
        category = self._controller.state.categories.get(number)
        return -1 if category is None else category.epoch

    def categories(self) -> Iterable[Category]:
        """All categories."""
        return tuple(self._controller.state.categories.values())

    def registrations(self) -> Iterator[tuple[str, str, int, str, Subscription]]:
        """Everything registered: client, "advertisement" or "subscription", id, category, content."""
        state = self._controller.state
        for client in list(state.clients.values()):
            for kind, entries in (("advertisement", client.advertisements), ("subscription", client.subscriptions)):
                for number, entry in list(entries.items()):
                    schema = state.categories[entry.category].schema
                    yield client.name, kind, number, schema.name, entry.subscription(schema)

    def registrations_of(
        self, client: str, most: int | None = None
    ) -> tuple[dict[int, Subscription], dict[int, Subscription]]:
        """A client's advertisements and subscriptions by id, of each kind the first so many."""
        state = self._controller.state
        known = state.clients.get(client)
        if known is None:
            return {}, {}
        schema = {number: category.schema for number, category in state.categories.items()}
        return (
            {i: e.subscription(schema[e.category]) for i, e in islice(known.advertisements.items(), most)},
            {i: e.subscription(schema[e.category]) for i, e in islice(known.subscriptions.items(), most)},
        )

    def members(self) -> Iterator[Member]:
        """Every client and how much is registered for it, without looking at what that says."""
        names = self._names()
        for client in list(self._controller.state.clients.values()):
            yield member_of(client, names)

    def ids(self, client: str) -> tuple[Collection[int], Collection[int]]:
        """The current ids of a client's advertisements and subscriptions."""
        known = self._controller.state.clients.get(client)
        return ((), ()) if known is None else (known.advertisements.keys(), known.subscriptions.keys())

    def size(self, client: str) -> int:
        """Bytes of what a client has registered."""
        known = self._controller.state.clients.get(client)
        return 0 if known is None else known.size

    def member(self, client: str) -> Member | None:
        """One client, or None if nobody is known by that name."""
        known = self._controller.state.clients.get(client)
        return None if known is None else member_of(known, self._names())

    def life(self, client: str) -> int | None:
        """A number that differs for each holder of a name; None if nobody has it."""
        known = self._controller.state.clients.get(client)
        return None if known is None else known.life

    def lease_left(self, client: str) -> float:
        """Seconds until a client's lease ends, if it stays silent."""
        known = self._controller.state.clients.get(client)
        return 0.0 if known is None else known.deadline - self._controller.board.now

    def advertises(self, client: str, number: int) -> bool:
        """Whether a client advertises anything in a category."""
        known = self._controller.state.clients.get(client)
        return known is not None and known.counts.get(number, (0, 0))[0] > 0

    def sampled_subscriptions(self, number: int, most: int, random: Random) -> list[tuple[str, bytes]]:
        """Subscriptions of a category, at most so many of them at random: client, and content as bytes."""
        every = [
            (client.name, entry)
            for client in self._controller.state.clients.values()
            if client.counts.get(number, (0, 0))[1]
            for entry in client.subscriptions.values()
            if entry.category == number
        ]
        chosen = random.sample(every, most) if len(every) > most else every
        return [(client, entry.content) for client, entry in chosen]

    def trees(self, number: int) -> tuple[SpanningTree, ...]:
        """The spanning trees that a category's events take."""
        controller = self._controller
        space, routes = controller.spaces[number], controller.fleet.routes
        return tuple(space.routes_of(routes, group).tree for group in range(controller.config.spread))

    def _names(self) -> dict[int, str]:
        return {number: category.label for number, category in self._controller.state.categories.items()}

    def table(self, switch: str) -> FlowTable:
        """What a switch should hold (the control plane's belief; the data plane knows what it does hold)."""
        if switch not in self._controller.fleet.wires.out:
            raise InvalidInput(expected="a switch", got=switch)
        flows = [f for space in self._controller.spaces.values() for f in space.table(switch)]
        return FlowTable(flows + self._controller.fleet.diversions.flows(switch))

    @property
    def under_way(self) -> bool:
        """Whether changes are on their way to switches, which may hold something else than they should until then."""
        return any(
            space.held or not all(lane.idle for lane in space.lanes) for space in self._controller.spaces.values()
        )

    def lanes(self) -> list[int]:
        """The numbers of all lanes' holdings, in the order of `picture`."""
        return [lane.holdings.number for _, lane in pictured(self._controller)]

    def picture(self, traffic: Mapping[int, Traffic], load: Mapping[tuple[str, int], float]) -> list[Tables]:
        """The tables without merges, and what is known of traffic, for those who choose merges."""
        return picture(self._controller, traffic, load)

    def masked(self, traffic: Mapping[int, Traffic]) -> dict[int, Masked]:
        """The tables of cells without merges, by the number of a lane's holdings."""
        return masked(self._controller, traffic)

    def merging(self, switch: str) -> tuple[int | None, int, list[Merging]]:
        """How many entries a switch may have, how many there should be, and the merges that make up for it."""
        capacity = self._controller.fleet.rooms.capacity.get(switch)
        ideal, found = 0, []
        spaces = self._controller.spaces.items()
        for number, lane in ((number, lane) for number, space in spaces for lane in space.lanes):
            if switch in lane.holdings:
                held = lane.holdings[switch]
                ideal += held.count
                merges = tuple(held.merging())
                if merges:
                    found.append(Merging(number, merges))
        return capacity, ideal, found

    def cells(self, switch: str) -> int:
        """How many entries a switch is to have in tables per out port, which are not merged with others in mind."""
        lanes = [lane for space in self._controller.spaces.values() for lane in space.lanes]
        held = [lane.holdings[switch] for lane in lanes if switch in lane.holdings]
        return sum(len(each) for each in held if isinstance(each, CellTables))

    def status(self) -> Status:
        """The status of the control plane."""
        return status_of(self._controller, self._answered, self._refused)

    @property
    def aside(self) -> Sequence[Aside]:
        """Records that could not be carried out at the start."""
        return self._controller.aside
