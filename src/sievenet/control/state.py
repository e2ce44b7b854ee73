"""State: what the commands so far lead to, before any thought of switches.

`State.execute` takes one command and says which registrations (*entries*) it adds and
removes, or refuses it.  It looks at nothing but the state, so replaying a journal leads to the
same state; see `commands`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from sievenet.content import Schema, Subscription
from sievenet.content.evolution import check_successor
from sievenet.control.commands import (
    Advertise,
    Announced,
    Command,
    Join,
    Leave,
    Lost,
    Numbers,
    PlanBegin,
    PlanEnd,
    Register,
    Remove,
    Subscribe,
    Trees,
    Unadvertise,
    Unsubscribe,
    decode_command,
    decode_content,
    encode_command,
    plan_of,
    schema_of,
)
from sievenet.errors import InvalidInput, Rejected, SchemaError
from sievenet.index import Plan
from sievenet.network import MAX_CATEGORY

__all__ = ["Category", "Client", "Registration", "State"]

#: Versions of one schema at the same time.
MAX_VERSIONS: Final = 16
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

    @property
    def label(self) -> str:
        """The name, with the version unless that is the first."""
        return self.name if self.schema.version == 1 else f"{self.name} version {self.schema.version}"


class Registration:
    """One advertisement or subscription of a client."""

    __slots__ = ("category", "charged", "keys", "lanes", "record", "wants")

    def __init__(self, category: int, wants: bool, record: bytes) -> None:
        self.category = category
        self.wants = wants
        #: The command that made it, as bytes: snapshots need it, and it is the smallest form.
        self.record = record
        #: The dz that it is registered at now.
        self.keys: tuple[int, ...] = ()
        #: The lanes that were told to register it, until they all have.
        self.lanes: tuple[int, ...] = ()
        #: The dz that its client's share is charged with for it.
        self.charged = 0

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

    __slots__ = ("advertisements", "counts", "deadline", "host", "life", "name", "size", "subscriptions", "wire")

    def __init__(self, name: str, host: str, life: int = 0) -> None:
        self.name = name
        self.host = host
        self.life = life
        self.advertisements: dict[int, Registration] = {}
        self.subscriptions: dict[int, Registration] = {}
        #: Advertisements and subscriptions by category.
        self.counts: dict[int, tuple[int, int]] = {}
        #: Bytes of all of them.
        self.size = 0
        #: Its port as a number, as soon as it has one.
        self.wire: int | None = None
        #: When its lease ends.
        self.deadline = 0.0

    def count(self, entry: Registration, change: int) -> None:
        """An entry came (1) or went (-1)."""
        ads, subs = self.counts.get(entry.category, (0, 0))
        self.size += change * len(entry.record)
        self.counts[entry.category] = (ads, subs + change) if entry.wants else (ads + change, subs)

    def entries(self) -> Iterator[Registration]:
        """Everything registered, advertisements first."""
        yield from self.advertisements.values()
        yield from self.subscriptions.values()


class Effect(msgspec.Struct):
    """What a command does to registrations."""

    client: Client | None = None
    added: Iterable[Registration] = ()
    removed: Iterable[Registration] = ()
    #: The entry that a repeated request speaks of.
    same: Registration | None = None
    category: Category | None = None
    #: Entries that go with their category.
    orphans: Iterable[tuple[Client, Registration]] = ()
    #: A category that there is no more.
    closed: int | None = None


class State:
    """Clients, categories and entries."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.categories: dict[int, Category] = {}
        #: The categories of each schema, the oldest version first.
        self.by_name: dict[str, tuple[int, ...]] = {}
        #: Versions of schemas that not everybody concerned knows of yet.
        self.unannounced: set[int] = set()
        #: Numbers never used begin here; those of removed categories are used again only when there are no others, the
        #: longest unused first, so that no packet or flow of the old category is left by then.
        self._next = 1
        self._retired: deque[int] = deque()
        #: Whether commands may be missing, so that the next number may not be the one that a category had.
        self.gaps = False
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
            case Join(name, host, life):
                if name in self.clients:
                    raise Rejected(f"The name {name} is taken")
                client = self.clients[name] = Client(name, host, life)
                return Effect(client)
            case Leave(name):
                client = self._client(name)
                del self.clients[name]
                return Effect(client, removed=tuple(client.entries()))
            case Register():
                return Effect(category=self._register(command))
            case Announced(number, done):
                (self.unannounced.discard if done else self.unannounced.add)(self.category(number).number)
            case Remove(number, force):
                return self._close(self.category(number), force)
            case Numbers(number, retired):
                self._next, self._retired = number, deque(retired)
            case PlanBegin(number, plan, epoch):
                old = self.category(number)
                self.moving.add(number)
                self.categories[number] = msgspec.structs.replace(old, plan=Plan.from_json(plan), epoch=epoch)
            case PlanEnd(number, _):
                self.moving.discard(number)
            case Trees(links):
                self.trees = links
            case Lost(file=file):
                raise Rejected(f"It was damaged; the file as it was is {file}")
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
        """The category of the latest version of a schema."""
        try:
            return self.categories[self.by_name[name][-1]]
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
        entry = held[command.id] = Registration(command.category, wants, record)
        client.count(entry, 1)
        return Effect(client, added=(entry,))

    def strike(self, client: Client, entry: Registration) -> None:
        """Forget an entry, whatever its id."""
        held = client.subscriptions if entry.wants else client.advertisements
        for number in [number for number, each in held.items() if each is entry]:
            del held[number]
            client.count(entry, -1)

    @staticmethod
    def _remove(client: Client, entry: Registration | None) -> Effect:
        if entry is None:
            return Effect(client)
        client.count(entry, -1)
        return Effect(client, removed=(entry,))

    def _register(self, command: Register) -> Category:
        schema = schema_of(command)
        versions = self.versions(schema.name)
        for known in versions:
            if known.schema == schema:
                return known
        if versions and not command.number:  # a snapshot's are in order, and were checked
            if any(known.schema.version == schema.version for known in versions):
                raise Rejected(
                    f"The category {schema.name} is registered with another schema (version {schema.version}): "
                    "give a changed one a higher version"
                )
            for known in versions:
                older, newer = sorted((known.schema, schema), key=lambda each: each.version)
                check_successor(older, newer)
            if len(versions) >= MAX_VERSIONS:
                raise Rejected(f"{schema.name} has {MAX_VERSIONS} versions, which is the limit: remove an old one")
        plan = plan_of(command)
        if plan.schema != schema:
            raise InvalidInput(expected=f"a plan for {schema.name}", got=plan.schema.name, where="register")
        category = Category(self._number(command.number, command.claim), schema, plan, command.epoch, command.budget)
        self.categories[category.number] = category
        ordered = sorted((*versions, category), key=lambda each: each.schema.version)
        self.by_name[schema.name] = tuple(each.number for each in ordered)
        if versions and not command.number:
            self.unannounced.add(category.number)
        return category

    def versions(self, name: str) -> list[Category]:
        """The categories of all versions of a schema, oldest first."""
        return [self.categories[number] for number in self.by_name.get(name, ())]

    def unused(self, after: int) -> int:
        """The number of a category that becomes one after so many others; 0 if it will be one that was used before."""
        return number if (number := self._next + after) <= MAX_CATEGORY else 0

    def _number(self, wanted: int, claim: int) -> int:
        if wanted:
            self._next = max(self._next, wanted + 1)
            return wanted
        if claim >= self._next:
            self._retired.extend(range(self._next, claim))  # of those before it that were refused, or are lost
            self._next = claim + 1
            return claim
        if self.gaps:
            raise Rejected("The number of this category is not known, since records before it are lost")
        if self._next <= MAX_CATEGORY:
            self._next += 1
            return self._next - 1
        if not self._retired:
            raise Rejected(f"All {MAX_CATEGORY} category numbers are taken")
        return self._retired.popleft()

    def _close(self, category: Category, force: bool) -> Effect:
        number = category.number
        if number in self.moving:
            raise Rejected(f"The plan of {category.name} is being changed: try again when that has ended")
        users = {c.name: c for c in self.clients.values() if any(c.counts.get(number, (0, 0)))}
        if users and not force:
            shown = ", ".join(sorted(users)[:4]) + (", …" if len(users) > 4 else "")
            raise Rejected(f"{category.name} version {category.schema.version} is used by {shown}: remove it by force?")
        orphans = [(c, e) for c in users.values() for e in c.entries() if e.category == number]
        for client, entry in orphans:
            self.strike(client, entry)
        del self.categories[number]
        self.unannounced.discard(number)
        self._retired.append(number)
        rest = tuple(each for each in self.by_name.pop(category.name) if each != number)
        if rest:
            self.by_name[category.name] = rest
        return Effect(category=category, orphans=orphans, closed=number)

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
        if self._retired or self._next > max(self.categories, default=0) + 1:
            commands.append(Numbers(self._next, tuple(self._retired)))
        for c in sorted(self.categories.values(), key=lambda c: c.schema.version):
            commands.append(Register(c.number, c.schema.to_json(), c.plan.to_json(), c.epoch, c.budget))
            if c.number in self.unannounced:
                commands.append(Announced(c.number, False))
            if c.number in self.moving:
                commands.append(PlanBegin(c.number, c.plan.to_json(), c.epoch))
        if self.trees:
            commands.append(Trees(self.trees))
        records = [encode_command(c) for c in commands]
        for client in self.clients.values():
            records.append(encode_command(Join(client.name, client.host, client.life)))
            records.extend(entry.record for entry in client.entries())
        return records
