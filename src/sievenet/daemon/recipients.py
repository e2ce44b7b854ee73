"""Recipients: which numbers reach which clients in the twins of categories (`control.directed`).

A component asks for a number that reaches some clients. The same clients have the same number as long as somebody needs
it. Clients are told all their numbers in a twin whenever that set changes, subscribe to them by themselves, and are
*reached* when those subscriptions stand: then the component is answered.

    Direct(X, {a, b}) ─▶ number 7 ─▶ Directed(twin, (7,)) to a and b ─▶ their Subscribe(twin, 7) ─▶ answered

Nothing of this is kept on disk: components ask again after a restart. Numbers begin at random then, so that a number of
an earlier life, which a client may still be subscribed to, is nobody else's; the first word to a client that comes back
lets it give those up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from sievenet.content.filter import Subscription
from sievenet.control import protocol as p
from sievenet.control.directed import BITS, is_twin, recipients, twin_schema
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.errors import Rejected, Unavailable
from sievenet.session.message import Message

__all__ = ["Recipients"]

#: Seconds that a client has to subscribe to a number.
_PATIENCE: Final = 5.0


class _Group:
    """The clients that one number reaches, and who needs it."""

    def __init__(self, number: int, clients: frozenset[str]) -> None:
        self.number, self.clients = number, clients
        self.owners: set[str] = set()
        #: Clients whose subscriptions stand.
        self.reached: set[str] = set()
        self.moved = asyncio.Event()


class Recipients:
    """All numbers of one daemon; ``tell`` says something to a client and whether it is there."""

    def __init__(self, control: ControlPlane, tell: Callable[[str, p.Directed], bool]) -> None:
        self._control, self._tell = control, tell
        self._next = secrets.randbits(BITS)
        #: By the twin's name and the number.
        self._groups: dict[str, dict[int, _Group]] = {}
        #: What clients' registrations in twins are: number by client, id.
        self._held: dict[tuple[str, int], tuple[str, int]] = {}

    async def handle(self, component: str, message: p.Twin | p.Direct | p.Undirect) -> Message:
        """Carry out a request of a component."""
        match message:
            case p.Twin(request, name):
                return p.CategoryReply(request, info_of(await self.twin(name)))
            case p.Direct(request, name, clients):
                number, absent = await self.direct(component, name, clients)
                return p.Done(request, {"recipient": number, "absent": absent})
            case p.Undirect(request, name, number):
                self.undirect(component, name, number)
                return p.Done(request)

    async def twin(self, name: str) -> Category:
        """The twin of a category, made if there is none."""
        if is_twin(name):
            raise Rejected(f"Expected a category with a twin, got {name}, which is one")
        schema = twin_schema(self._control.category(name).name)
        for known in self._control.versions(schema.name):
            return known
        return await self._control.register_schema(schema, BITS)

    async def direct(self, owner: str, name: str, clients: Iterable[str]) -> tuple[int, list[str]]:
        """A number that reaches these clients for a component, and those of them that it does not reach."""
        twin = await self.twin(name)
        groups = self._groups.setdefault(twin.name, {})
        wanted = frozenset(clients)
        group = next((each for each in groups.values() if each.clients == wanted), None)
        if group is None:
            group = groups[self._next] = _Group(self._next, wanted)
            self._next = (self._next + 1) % (1 << BITS)
        group.owners.add(owner)
        there = {client for client in wanted - group.reached if self._say(client, twin)}
        try:
            async with asyncio.timeout(_PATIENCE):
                while there - group.reached:
                    group.moved.clear()
                    await group.moved.wait()
        except TimeoutError:
            pass
        return group.number, sorted(wanted - group.reached)

    async def each(self, owner: str, name: str, clients: Iterable[str]) -> dict[str, int]:
        """A number of its own for each client; `Unavailable` if one of them is not reached."""
        names = sorted(clients)
        found = await asyncio.gather(*(self.direct(owner, name, (each,)) for each in names))
        absent = [each for _, missing in found for each in missing]
        if absent:
            raise Unavailable(f"{absent[0]} is not there to be a recipient ({len(absent)} in all)")
        return {each: number for each, (number, _) in zip(names, found, strict=True)}

    def undirect(self, owner: str, name: str, number: int) -> None:
        """A component needs a number no more."""
        twin = twin_schema(name).name
        group = self._groups.get(twin, {}).get(number)
        if group is None:
            return
        group.owners.discard(owner)
        if not group.owners:
            del self._groups[twin][number]
            for client in group.clients:
                self._say(client, self._control.category(twin))

    def told(self, client: str, category: Category) -> p.Directed:
        """What a client is told of its numbers in a twin."""
        return p.Directed(info_of(category), self._numbers(client, category.name))

    def _say(self, client: str, twin: Category) -> bool:
        return self._tell(client, self.told(client, twin))

    def _numbers(self, client: str, twin: str) -> tuple[int, ...]:
        return tuple(sorted(n for n, each in self._groups.get(twin, {}).items() if client in each.clients))

    # -- registrations of clients ----------------------------------------------------------

    def check(self, client: str, twin: Category, wanted: Subscription) -> int:
        """The number that a client subscribes to; `Rejected` if it is not one of its own."""
        for number in self._numbers(client, twin.name):
            if wanted == recipients(twin.schema, (number,)):
                return number
        raise Rejected(f"Expected {client} to subscribe to a number of its own in {twin.name}, got {wanted}")

    async def subscribe(self, client: str, id: int, category: int, wanted: Subscription) -> None:
        """A client subscribes to one of its numbers; rules say nothing of that: what comes is what it subscribed to."""
        twin = self._control.numbered(category)
        number = self.check(client, twin, wanted)
        await self._control.subscribe(client, id, wanted)
        self.stands(client, id, twin.name, number)

    def stands(self, client: str, id: int, twin: str, number: int) -> None:
        """A client is reached by a number."""
        self._held[client, id] = (twin, number)
        group = self._groups.get(twin, {}).get(number)
        if group is not None:
            group.reached.add(client)
            group.moved.set()

    def ended(self, client: str, id: int) -> None:
        """A client is reached by a number no more."""
        twin, number = self._held.pop((client, id), ("", 0))
        group = self._groups.get(twin, {}).get(number)
        if group is not None:
            group.reached.discard(client)

    def left(self, client: str) -> None:
        """A client or component is gone."""
        for held in [each for each in self._held if each[0] == client]:
            self.ended(*held)
        for groups in list(self._groups.values()):
            for group in list(groups.values()):
                group.owners.discard(client)
                if not group.owners or group.clients == {client}:
                    del groups[group.number]

    def stale(self, client: str) -> Iterable[p.Directed]:
        """What a client that comes (back) is told: its numbers in every twin that it has anything in, or should."""
        member = self._control.member(client)
        held = () if member is None else {*member.by_category}
        for category in self._control.categories():
            if is_twin(category.name) and (category.label in held or self._numbers(client, category.name)):
                yield self.told(client, category)


def info_of(category: Category) -> p.CategoryInfo:
    """A category as clients are told of it."""
    return p.CategoryInfo(category.number, category.schema, category.plan.to_json(), category.epoch, category.budget)


def size_of(info: p.CategoryInfo) -> int:
    """Bytes that it takes to tell a client of a category, about: a plan says its schema again."""
    return sum(2 * len(each.plan) for each in (info, *info.siblings))
