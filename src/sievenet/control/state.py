"""State: what the commands so far lead to, before any thought of switches.

`State.execute` takes one command and says which registrations (*entries*) it adds and
removes, or refuses it.  It looks at nothing but the state, so replaying a journal leads to the
same state; see `commands`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from sievenet.content import Schema, Subscription
from sievenet.control.commands import (
    Advertise,
    Command,
    Join,
    Leave,
    PlanBegin,
    PlanEnd,
    Register,
    Subscribe,
    Trees,
    Unadvertise,
    Unsubscribe,
    decode_command,
    decode_content,
    encode_command,
)
from sievenet.errors import InvalidInput, Rejected, SchemaError
from sievenet.index import Plan
from sievenet.network import MAX_CATEGORY

__all__ = ["Category", "Client", "Entry", "State"]

#: Advertisements and subscriptions of one client.
MAX_ENTRIES: Final = 1_000_000


class Category(msgspec.Struct, frozen=True):
    """A schema with its number on the wire and its index plan of now."""

    number: int
    schema: Schema
    plan: Plan
    #: Grows with every change of the plan.
    epoch: int = 1
    #: Most dz that a subscription of it becomes.
    budget: int = 8

    @property
    def name(self) -> str:
        """The schema's name."""
        return self.schema.name


class Entry:
    """One advertisement or subscription of a client."""

    __slots__ = ("category", "keys", "record", "wants")

    def __init__(self, category: int, wants: bool, record: bytes) -> None:
        self.category = category
        self.wants = wants
        #: The command that made it, as bytes: snapshots need it, and it is the smallest form.
        self.record = record
        #: The dz that it is registered at now.
        self.keys: tuple[int, ...] = ()

    @property
    def content(self) -> bytes:
        """The bytes of what it says."""
        command = decode_command(self.record)
        assert isinstance(command, Advertise | Subscribe)
        return command.content

    def subscription(self, schema: Schema) -> Subscription:
        """What it says."""
        return decode_content(schema, self.content)


class Client:
    """A client and what is registered for it."""

    __slots__ = ("advertisements", "counts", "deadline", "host", "name", "subscriptions", "wire")

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.advertisements: dict[int, Entry] = {}
        self.subscriptions: dict[int, Entry] = {}
        #: Advertisements and subscriptions by category.
        self.counts: dict[int, tuple[int, int]] = {}
        #: Its port as a number, as soon as it has one.
        self.wire: int | None = None
        #: When its lease ends.
        self.deadline = 0.0

    def count(self, entry: Entry, change: int) -> None:
        """An entry came (1) or went (-1)."""
        ads, subs = self.counts.get(entry.category, (0, 0))
        self.counts[entry.category] = (ads, subs + change) if entry.wants else (ads + change, subs)

    def entries(self) -> Iterator[Entry]:
        """Everything registered, advertisements first."""
        yield from self.advertisements.values()
        yield from self.subscriptions.values()


class Effect(msgspec.Struct):
    """What a command does to registrations."""

    client: Client | None = None
    added: Iterable[Entry] = ()
    removed: Iterable[Entry] = ()
    #: The entry that a repeated request speaks of.
    same: Entry | None = None
    category: Category | None = None


class State:
    """Clients, categories and entries."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.categories: dict[int, Category] = {}
        self.by_name: dict[str, int] = {}
        #: Categories whose plan is being changed.
        self.moving: set[int] = set()
        #: The links of the trees in use, if failures changed them.
        self.trees: tuple[tuple[tuple[str, str], ...], ...] = ()

    def execute(self, command: Command, record: bytes) -> Effect:
        """Carry out a command; `Rejected` or `InvalidInput` if that cannot be."""
        match command:
            case Subscribe() | Advertise():
                return self._add(command, record)
            case Unsubscribe(name, number):
                client = self._client(name)
                return self._remove(client, client.subscriptions.pop(number, None))
            case Unadvertise(name, number):
                client = self._client(name)
                return self._remove(client, client.advertisements.pop(number, None))
            case Join(name, host):
                if name in self.clients:
                    raise Rejected(f"The name {name} is taken")
                client = self.clients[name] = Client(name, host)
                return Effect(client)
            case Leave(name):
                client = self._client(name)
                del self.clients[name]
                return Effect(client, removed=tuple(client.entries()))
            case Register():
                return Effect(category=self._register(command))
            case PlanBegin(number, plan, epoch):
                old = self.category(number)
                self.moving.add(number)
                self.categories[number] = msgspec.structs.replace(old, plan=Plan.from_json(plan), epoch=epoch)
            case PlanEnd(number, _):
                self.moving.discard(number)
            case Trees(links):
                self.trees = links
        return Effect()

    def _client(self, name: str) -> Client:
        try:
            return self.clients[name]
        except KeyError:
            raise Rejected(f"Nobody is known as {name}: join first (the lease may have ended)") from None

    def category(self, number: int) -> Category:
        """The category with a number."""
        try:
            return self.categories[number]
        except KeyError:
            raise SchemaError(expected="a registered category", got=number) from None

    def named(self, name: str) -> Category:
        """The category with a name."""
        try:
            return self.categories[self.by_name[name]]
        except KeyError:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise SchemaError(expected=f"a registered category ({known})", got=name) from None

    def _add(self, command: Subscribe | Advertise, record: bytes) -> Effect:
        client = self._client(command.client)
        self.category(command.category)
        wants = isinstance(command, Subscribe)
        held = client.subscriptions if wants else client.advertisements
        known = held.get(command.id)
        if known is not None:
            if known.record == record:
                return Effect(client, same=known)
            what = "subscription" if wants else "advertisement"
            raise Rejected(f"{client.name} has another {what} {command.id} already")
        if len(held) >= MAX_ENTRIES:
            raise Rejected(f"{client.name} has {MAX_ENTRIES} registrations already, which is the limit")
        entry = held[command.id] = Entry(command.category, wants, record)
        client.count(entry, 1)
        return Effect(client, added=(entry,))

    def strike(self, client: Client, entry: Entry) -> None:
        """Forget an entry, whatever its id."""
        held = client.subscriptions if entry.wants else client.advertisements
        for number in [number for number, each in held.items() if each is entry]:
            del held[number]
            client.count(entry, -1)

    @staticmethod
    def _remove(client: Client, entry: Entry | None) -> Effect:
        if entry is None:
            return Effect(client)
        client.count(entry, -1)
        return Effect(client, removed=(entry,))

    def _register(self, command: Register) -> Category:
        schema = Schema.from_json(command.schema)
        number = self.by_name.get(schema.name)
        if number is not None:
            known = self.categories[number]
            if known.schema != schema:
                raise Rejected(
                    f"The category {schema.name} is registered with another schema (version {known.schema.version})"
                )
            return known
        number = command.number or max(self.categories, default=0) + 1
        if number > MAX_CATEGORY:
            raise Rejected(f"All {MAX_CATEGORY} category numbers are taken")
        plan = Plan.from_json(command.plan)
        if plan.schema != schema:
            raise InvalidInput(expected=f"a plan for {schema.name}", got=plan.schema.name, where="register")
        category = Category(number, schema, plan, command.epoch, command.budget)
        self.by_name[schema.name] = number
        self.categories[number] = category
        return category

    def wires_of(self, number: int) -> tuple[set[int], set[int]]:
        """The wires of all who want, and of all who offer, something of a category."""
        wanting, offering = set(), set()
        for client in self.clients.values():
            ads, subs = client.counts.get(number, (0, 0))
            if client.wire is not None and subs:
                wanting.add(client.wire)
            if client.wire is not None and ads:
                offering.add(client.wire)
        return wanting, offering

    def snapshot(self) -> list[bytes]:
        """Commands that lead to this state at once."""
        commands: list[Command] = []
        for c in self.categories.values():
            commands.append(Register(c.number, c.schema.to_json(), c.plan.to_json(), c.epoch, c.budget))
            if c.number in self.moving:
                commands.append(PlanBegin(c.number, c.plan.to_json(), c.epoch))
        if self.trees:
            commands.append(Trees(self.trees))
        records = [encode_command(c) for c in commands]
        for client in self.clients.values():
            records.append(encode_command(Join(client.name, client.host)))
            records.extend(entry.record for entry in client.entries())
        return records
