"""A whole fabric in virtual time: switches, control plane, clients; and what it should do, worked out naively."""

from __future__ import annotations

import asyncio
import random

from sievenet.content import Attribute, Event, Filter, Schema, Subscription, ValueSet
from sievenet.control.config import ControlConfig
from sievenet.control.covering import Coverer
from sievenet.control.journal import MemoryJournal
from sievenet.control.plane import ControlPlane
from sievenet.dataplane.packet import Packet
from sievenet.dataplane.simulator import Simulator
from sievenet.index import ROOT, Cell, CellSet, Dz, DzSet, Plan
from sievenet.network import FlowTable, SpanningTree, Topology
from tests.control import definition

SCHEMA = Schema("grid", (Attribute("x", "int", lo=0, hi=15), Attribute("y", "int", lo=0, hi=15)))
OTHER = Schema("list", (Attribute("n", "int", lo=0, hi=63),))
CONFIG = ControlConfig(bits=6, budget=4, lease=3600.0, trees=3, forwarding_delay=0.5, recovery=5.0)


class VirtualWorker:
    """A worker in virtual time: other things happen between a question and its answer."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.calls = 0

    async def run(self, work, *arguments):
        self.calls += 1
        await asyncio.sleep(self.random.random() / 20)
        found = work(*arguments)
        await asyncio.sleep(self.random.random() / 20)
        return found


class World:
    """The fabric and the truth about it."""

    def __init__(self, topology: Topology, seed: int, config: ControlConfig = CONFIG, **simulator) -> None:
        self.random = random.Random(seed)
        self.config = config
        self.plane = Simulator.on_loop(topology, seed=seed, **simulator)
        self.journal = MemoryJournal()
        self.worker = VirtualWorker(random.Random(seed))
        self.clients: dict[str, str] = {}
        self.advertisements: dict[tuple[str, int], Subscription] = {}
        self.subscriptions: dict[tuple[str, int], Subscription] = {}
        self.plans: dict[str, Plan] = {}
        self.received: dict[int, list[str]] = {}
        self.next = 0
        #: Entries that a switch holds, if there is a limit.
        self.capacity: int | None = simulator.get("capacity")

    async def start(self) -> None:
        self.control = await ControlPlane.start(self.plane, self.journal, self.config, self.worker)
        self.control.on_plan(self.adopt)
        for category in self.control.categories():
            self.plans.setdefault(category.name, category.plan)

    async def adopt(self, category) -> None:
        await asyncio.sleep(self.random.random() / 10)
        self.plans[category.name] = category.plan

    async def open(self, *schemas: Schema) -> None:
        await self.start()
        for schema in schemas or (SCHEMA,):
            self.plans[schema.name] = (await self.control.register_schema(schema)).plan

    async def crash(self) -> None:
        """The controller is gone from one moment to the next; another one starts from the journal."""
        old = self.control
        old._closed = True
        for task in [*old._tasks, old._listening]:
            task.cancel()
        if old._timer is not None:
            old._timer.cancel()
        await self.start()
        await self.settle()
        for category in self.control.categories():
            self.plans[category.name] = category.plan

    # -- acting ----------------------------------------------------------------------------

    def content(self, schema: Schema = SCHEMA) -> Subscription:
        def box() -> Filter:
            limits = {}
            for a in schema.attributes:
                if self.random.random() < 0.8:
                    lo = self.random.randint(a.lo, a.hi)
                    limits[a.name] = ValueSet.interval(lo, self.random.randint(lo, min(a.hi, lo + a.hi // 2)))
            return Filter(schema, limits)

        return Subscription([box() for _ in range(self.random.choice((1, 1, 1, 2)))])

    async def join(self, host: str | None = None) -> str:
        self.next += 1
        name = f"c{self.next}"
        self.clients[name] = host or self.random.choice(self.plane.topology.hosts)
        await self.control.join(name, self.clients[name])
        self.plane.listen(name, lambda packet: self.received.setdefault(packet.sequence, []).append(name))
        return name

    async def leave(self, name: str) -> None:
        for held in (self.advertisements, self.subscriptions):
            for key in [k for k in held if k[0] == name]:
                del held[key]
        del self.clients[name]
        await self.control.leave(name)

    async def advertise(self, client: str, content: Subscription) -> int:
        self.next += 1
        number = self.next
        await self.control.advertise(client, number, content)
        self.advertisements[client, number] = content
        return number

    async def subscribe(self, client: str, content: Subscription) -> int:
        self.next += 1
        number = self.next
        await self.control.subscribe(client, number, content)
        self.subscriptions[client, number] = content
        return number

    async def drop(self) -> None:
        """Take back something that is registered."""
        wants = self.random.random() < 0.6
        held = self.subscriptions if wants else self.advertisements
        if held:
            key = self.random.choice(sorted(held))
            del held[key]
            await (self.control.unsubscribe if wants else self.control.unadvertise)(*key)

    async def drop_subscription(self) -> None:
        """Take a subscription back, when what was published for it has arrived."""
        if self.subscriptions:
            key = self.random.choice(sorted(self.subscriptions))
            del self.subscriptions[key]
            await asyncio.sleep(0.1)
            await self.control.unsubscribe(*key)

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0.05)
            c = self.control._controller
            if not (c.open_requests or c.transitions or c.fleet.joining) and all(s.idle for s in c.spaces.values()):
                return
        raise AssertionError(f"never at rest: {self.control.status()}")

    def publish(self, client: str, event: Event) -> int:
        self.next += 1
        plan = self.plans[event.schema.name]
        number = self.control.category(event.schema.name).number
        for code in plan.encode(event):
            aligned = code.bits << (128 - code.length)
            self.plane.send(client, Packet(number, aligned, publisher=1, sequence=self.next, departure=0))
        return self.next

    def event(self, schema: Schema = SCHEMA) -> Event:
        return Event(schema, tuple(self.random.randint(a.lo, a.hi) for a in schema.attributes))

    # -- the truth -------------------------------------------------------------------------

    def covers(self, content: Subscription, wants: bool = True) -> DzSet | CellSet:
        category = self.control.category(content.schema.name)
        found = map(Cell.of_key, Coverer(category.plan, category.budget).keys(content, wants))
        return CellSet(found) if category.plan.kind == "cells" else DzSet(found)

    def holds(self, content: Subscription, code: Dz) -> bool:
        return any(code.code & mask == value for value, mask in (piece.masked for piece in self.covers(content)))

    def tree(self, number: int, dz: Dz) -> SpanningTree:
        """The tree of a dz that is no larger than a partition."""
        trees = self.control._controller.fleet.trees.trees
        return trees[(number + dz.prefix(self.config.spread.bit_length() - 1).bits) % len(trees)]

    def expected_tables(self) -> dict[str, FlowTable]:
        places = {n: a.attachment for n, a in self.plane.clients().items()}
        tables = {switch: list[object]() for switch in self.plane.topology.switches}
        for category in self.control.categories():
            masks = category.plan.kind == "cells"
            depth = (self.config.spread if masks else self.config.partitions).bit_length() - 1
            tiles = pieces(ROOT, depth)
            if self.config.tiling == "balanced" and category.plan.tiles and not masks:
                tiles = Dz.of_keys(category.plan.tiles)

            def placed(held, wants, category=category, tiles=tiles, cut=cut if masks else cut_dz):
                return [
                    (*places[name], piece)
                    for (name, _), content in held.items()
                    if content.schema == category.schema
                    for dz in self.covers(content, wants)
                    for piece in cut(dz, tiles)
                ]

            offers, wants = placed(self.advertisements, False), placed(self.subscriptions, True)
            for group in pieces(ROOT, self.config.spread.bit_length() - 1):
                found = (definition.per_port if masks else definition.tables)(
                    category.number,
                    self.tree(category.number, group),
                    [o for o in offers if within(group, o[2])],
                    [w for w in wants if within(group, w[2])],
                )
                for switch, table in found.items():
                    tables[switch] += table
        return {switch: FlowTable(flows) for switch, flows in tables.items()}

    def check_tables(self) -> None:
        down, _ = self.plane.down()
        for switch, table in self.expected_tables().items():
            if switch not in down and self.capacity is not None:
                held = self.plane.table_now(switch)
                assert self.control.table(switch) == held, f"{switch}\n{held}\n≠\n{self.control.table(switch)}"
                assert len(held) <= self.capacity
                assert encloses(held, table), f"{switch}\n{held}\nlacks some of\n{table}"
            elif switch not in down:
                assert self.plane.table_now(switch) == table, f"{switch}\n{self.plane.table_now(switch)}\n≠\n{table}"
                assert self.control.table(switch) == table

    async def check_deliveries_at_least(self, count: int = 20) -> None:
        """Everybody gets what is wanted, whatever else."""
        for _ in range(count):
            (client, _), content = self.random.choice(sorted(self.advertisements.items(), key=lambda kv: kv[0]))
            event = self.event(content.schema)
            if content.matches(event):
                sent = self.publish(client, event)
                await asyncio.sleep(0.2)
                wanted = {n for (n, _), s in self.subscriptions.items() if n != client and s.matches(event)}
                assert wanted <= set(self.received.pop(sent, []))

    async def check_deliveries(self, count: int = 6) -> None:
        """Everybody gets exactly what the index says, and so all that is wanted, once."""
        publishers = sorted(self.advertisements)
        if not publishers:
            return
        number_of = {c.name: c.number for c in self.control.categories()}
        for _ in range(count):
            client, number = self.random.choice(publishers)
            content = self.advertisements[client, number]
            event = self.event(content.schema)
            if not content.matches(event):
                continue
            sent = self.publish(client, event)
            await asyncio.sleep(0.2)
            got = sorted(self.received.pop(sent, []))
            codes = self.plans[event.schema.name].encode(event)
            by_index = sorted(
                other
                for code in codes
                for other in self.clients
                if other != client
                and self.joined(number_of[event.schema.name], code, client, other)
                and any(
                    n == other and s.schema == event.schema and self.holds(s, code)
                    for (n, _), s in self.subscriptions.items()
                )
            )
            wanted = {
                n
                for (n, _), s in self.subscriptions.items()
                if n != client
                and s.schema == event.schema
                and s.matches(event)
                and any(self.joined(number_of[event.schema.name], code, client, n) for code in codes)
            }
            if self.capacity is None:
                assert got == by_index, f"{event} from {client}"
            assert set(by_index) <= set(got)
            assert len(got) <= len(set(got)) * len(codes), "somebody got it twice"
            assert wanted <= set(got)

    def joined(self, number: int, code: Dz, a: str, b: str) -> bool:
        places = self.plane.clients()
        here, there = places[a].switch, places[b].switch
        down_switches, down_links = self.plane.down()
        if here in down_switches or there in down_switches:
            return False
        for client, switch in ((a, here), (b, there)):
            host = self.clients[client]
            if tuple(sorted((host, switch))) in {tuple(sorted(link)) for link in down_links}:
                return False
        return self.tree(number, code).joined(here, there)


def filled(cell: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    """Whether some cells together hold all of one."""
    value, mask = cell
    near = [(v, m) for v, m in others if not (v ^ value) & m & mask]
    if any(not m & ~mask for _, m in near):
        return True
    free = [m & ~mask for _, m in near]
    if not free:
        return False
    bit = free[0] & -free[0]
    return all(filled((value | part, mask | bit), near) for part in (0, bit))


def encloses(held: FlowTable, ideal: FlowTable) -> bool:
    """Whether one table sends every packet wherever the other does."""
    for flow in ideal:
        if flow.table:
            same = [f.match.bits for f in held if (f.table, f.match.category) == (flow.table, flow.match.category)]
            if not filled(flow.match.bits, same):
                return False
            continue
        inside = [other.match.cell for other in (*ideal, *held) if other.match.category == flow.match.category]
        corners = {dz.code for dz in inside if flow.match.cell.covers(dz)} | {flow.match.cell.code}
        corners |= {dz.code + (1 << 128 - dz.length) for dz in inside if flow.match.cell.covers(dz)}
        for code in corners:
            if not flow.match.matches(flow.match.category, code):
                continue
            if not ideal.ports(flow.match.category, code) <= held.ports(flow.match.category, code):
                return False
    return True


def within(group: Dz, piece: Dz | Cell) -> bool:
    (value, mask), (mine, bits) = group.masked, piece.masked
    return bits & mask == mask and mine & mask == value


def cut(cell, tiles):
    """A cell cut at the borders of dz of a length."""
    more = max(tiles[0].length - cell.width, 0)
    whole = Cell(cell.value << more, cell.mask << more, cell.width + more)
    borders = [dz.masked for dz in tiles]
    shift = 128 - whole.width
    found = (whole.intersect(Cell(value >> shift, mask >> shift, whole.width)) for value, mask in borders)
    return [piece for piece in found if piece is not None]


def cut_dz(dz, tiles):
    """A dz cut at the borders of partitions."""
    return [tile for tile in tiles if dz.covers(tile)] or [dz]


def pieces(dz, depth):
    """The parts of a dz that are of one length."""
    if dz.length >= depth:
        return [dz]
    return [p for child in dz.children for p in pieces(child, depth)]
