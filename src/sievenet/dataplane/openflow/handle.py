"""One switch as the plane sees it, connected or not: setting it right, changing it, reading it.

Which clients are attached there is remembered here, and told to the switch whenever it (re)appears.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow import statistics, translation
from sievenet.dataplane.openflow.channel import Channel, Refused
from sievenet.dataplane.openflow.connection import Encode
from sievenet.dataplane.openflow.effect import DOUBT, Settling
from sievenet.dataplane.openflow.numbers import ALL_TABLES, Multipart
from sievenet.dataplane.openflow.statistics import read_flows
from sievenet.dataplane.openflow.tables import Table
from sievenet.dataplane.plane import Count, PortCount, SwitchCounters
from sievenet.errors import Rejected, SievenetError, Unavailable
from sievenet.network.flow import TOP_PRIORITY, Delete, FlowChange, FlowKey
from sievenet.network.table import FlowTable
from sievenet.network.topology import CLIENT_PORTS

__all__ = ["SwitchHandle"]


#: Why a switch tells of a port: it is no more.
_DELETED = 1


class SwitchHandle:
    """A switch of the topology."""

    def __init__(self, name: str, links: Iterable[int], ports: Iterable[int], rounds: Settling | None = None) -> None:
        self.name = name
        #: Waits until changes are in effect; None if the acknowledgement is enough.
        self.rounds = rounds
        #: Ports toward other switches, and all ports that the topology knows.
        self.links = frozenset(links)
        self.ports = frozenset(ports)
        #: None while it is not connected and set right.
        self.channel: Channel | None = None
        #: Ports that are there and up.
        self.present: set[int] = set()
        #: Entries of the content table that fit.
        self.limit: int | None = None
        #: Port number of each attached client → the port of its host, and the host's address if it is known.
        self.clients: dict[int, tuple[int, int | None]] = {}
        #: What clients that have left had sent and got.
        self.departed = PortCount()
        #: Clients that are leaving; whoever gets the number of one waits until it is gone.
        self._leaving: dict[int, asyncio.Event] = {}
        self._translator = translation.Translator(0)
        self._groups: set[int] = set()
        #: Entries in each table after our last change; None if a change is under way.
        self._baseline: dict[int, int] | None = None
        self._busy = 0

    @property
    def masked(self) -> bool:
        """Whether it has tables for cells under masks."""
        return self._translator.tables.last > 0

    @property
    def down_ports(self) -> frozenset[int]:
        """Ports of the topology that it does not have, or that are down."""
        return self.ports - self.present

    def port_changed(self, status: m.PortStatus) -> None:
        """A port came, went or changed."""
        if status.reason != _DELETED and status.port.up:
            self.present.add(status.port.number)
        else:
            self.present.discard(status.port.number)

    def connected(self) -> Channel:
        """Its channel, or `Unavailable`."""
        if self.channel is None or not self.channel.alive:
            raise Unavailable(f"Switch {self.name} is down: it is not connected")
        return self.channel

    # -- setting it right ----------------------------------------------------------------------------

    async def set_right(self, channel: Channel) -> None:
        """Read what is needed of a switch, and give it the entries around content and the clients' groups."""
        version = channel.version
        ports, groups, limits = await asyncio.gather(
            channel.ask(Multipart.PORT_DESC),
            channel.ask(Multipart.GROUP_DESC),
            channel.ask(Multipart.TABLE_FEATURES),
        )
        self._translator.version = version
        self._groups = set(statistics.read_group_numbers(groups))
        rooms = statistics.read_limits(limits)
        self.limit = rooms.get(Table.CONTENT)
        self.present = {port.number for port in m.read_ports(version, ports) if port.up}
        encoders: list[Encode] = [partial(translation.punt, version, kind=kind) for kind in ("discovery", "control")]
        encoders += await self._tables_right(channel, rooms)
        encoders += [partial(translation.admit_link, version, port=port) for port in sorted(self.links)]
        for number, (home, source) in self.clients.items():
            encoders += self._attaching(version, number, home, source)
        await channel.change(encoders, atomic=False)
        self._groups |= self.clients.keys()

    async def _tables_right(self, channel: Channel, rooms: Iterable[int]) -> list[Encode]:
        """Learn which tables belong to which out ports; what a switch needs around them."""
        version, tables = channel.version, self._translator.tables
        tables.limit(rooms)
        if not tables.last:
            return [partial(translation.unwanted, version, masked=False)]
        entries = await self._masked_entries(channel)
        tables.learn({e.table: min((*e.ports, *e.groups)) for e in entries if e.ports or e.groups})
        ours = self._translator.decode
        needed: list[Encode] = [partial(translation.delete_entry, version, entry=e) for e in entries if ours(e) is None]
        needed += [partial(translation.past, version, table=table, onward=onward) for table, onward in tables.chain()]
        needed += [partial(translation.unwanted_rest, version, kind=kind) for kind in ("unmarked", "unmasked")]
        tables.categories |= {flow.match.category for e in entries if (flow := ours(e)) is not None}
        needed += [partial(translation.masked, version, category=each) for each in sorted(tables.categories)]
        return [*needed, partial(translation.unwanted, version, masked=True)]

    async def _masked_entries(self, channel: Channel) -> list[statistics.FlowEntry]:
        """What the tables of ports hold, but for the entries that only lead on."""
        used = statistics.read_tables(await channel.ask(Multipart.TABLE))
        wanted = [table for table, count in used.items() if Table.FIRST <= table <= Table.LAST and count]
        answers = await asyncio.gather(*(channel.ask(Multipart.FLOW, statistics.all_flows(each)) for each in wanted))
        return [entry for answer in answers for entry in read_flows(answer) if entry.priority]

    async def _make_tables(self, channel: Channel, ports: Iterable[int], categories: set[int]) -> None:
        """See to it that these out ports have tables, to which the categories are led; `Rejected` if there are none."""
        tables, version = self._translator.tables, channel.version
        if tables.missing(ports):
            used = statistics.read_tables(await channel.ask(Multipart.TABLE))
            few = [table for table in tables.of.values() if used.get(table, 0) <= 1]
            answers = await asyncio.gather(*(channel.ask(Multipart.FLOW, statistics.all_flows(each)) for each in few))
            empty = [t for t, found in zip(few, answers, strict=True) if not any(e.priority for e in read_flows(found))]
            tables.release(empty)
            if not tables.take(ports):
                raise Rejected(
                    f"Switch {self.name} has tables for {tables.size} out ports with cells, and more are wanted. "
                    "Take a plan of kind dz (`sievenet plan apply --kind dz`)"
                )
        categories -= tables.categories
        needed: list[Encode] = [
            partial(translation.past, version, table=table, onward=onward) for table, onward in tables.grow()
        ]
        needed += [partial(translation.masked, version, category=each) for each in sorted(categories)]
        if needed:
            await channel.change(needed, atomic=False)
            tables.categories |= categories

    def _attaching(self, version: int, number: int, home: int, source: int | None) -> list[Encode]:
        known = number in self._groups
        return [
            partial(translation.group_mod, version, number=number, home=home, known=known),
            partial(translation.admit_client, version, home=home, port=number, source=source),
        ]

    async def attach(self, number: int, home: int, source: int | None = None) -> None:
        """A client is behind this port number from now on; it sends from its host's address, if that is known."""
        while number in self._leaving:
            await self._leaving[number].wait()
        channel = self.connected()
        self._translator.home[number] = home
        await self._changing(channel, self._attaching(channel.version, number, home, source), atomic=False)
        self._groups.add(number)
        self.clients[number] = home, source

    async def detach(self, number: int) -> None:
        """Nobody is behind this port number any more."""
        known = self.clients.pop(number, None)
        if known is None or self.channel is None:
            return
        home, source = known
        gone = self._leaving[number] = asyncio.Event()
        try:
            with contextlib.suppress(SievenetError):
                self.departed += await self._counted_for(number, home)
            channel = self.connected()
            version = channel.version
            leave: list[Encode] = [
                partial(translation.admit_client, version, home=home, port=number, source=source, leave=True),
                partial(translation.group_mod, version, number=number, home=None, known=number in self._groups),
            ]
            await self._changing(channel, leave, atomic=False)
        finally:
            del self._leaving[number]
            gone.set()

    async def _counted_for(self, number: int, home: int) -> PortCount:
        """What a client that leaves has sent and got; the switch forgets it with the client."""
        channel = self.connected()
        if self.rounds is not None:
            # The switch's tables hear in rounds of what its cache has forwarded.
            await self.rounds.settled(self._poke)
        admission, groups = await asyncio.gather(
            channel.ask(Multipart.FLOW, statistics.all_flows(Table.ADMISSION, translation.from_client(home, number))),
            channel.ask(Multipart.GROUP, statistics.all_groups(number)),
        )
        sent = Count(*statistics.read_groups(groups).get(number, (0, 0)))
        entries = read_flows(admission)
        return sum((PortCount(Count(entry.packets, entry.bytes)) for entry in entries), PortCount(sent=sent))

    async def relink(self, links: Iterable[int], ports: Iterable[int]) -> None:
        """The network is another: content comes in from these links, and these ports are used."""
        before, self.links, self.ports = self.links, frozenset(links), frozenset(ports)
        if self.channel is None or before == self.links:
            return  # a switch that comes back is set right then
        version = self.channel.version
        leave = [
            partial(translation.admit_link, version, port=port, leave=True) for port in sorted(before - self.links)
        ]
        admit = [partial(translation.admit_link, version, port=port) for port in sorted(self.links - before)]
        await self._changing(self.channel, [*leave, *admit], atomic=False)

    # -- changing ------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[FlowChange]) -> None:
        """See `DataPlane.apply`."""
        channel = self.connected()
        version, encode = channel.version, self._translator.encode
        missing = {port for change in changes for port in change.flow.ports if port >= CLIENT_PORTS} - self._groups
        if missing:
            # Flows that outlive their clients, or precede them, need a group to point to all the same.
            await channel.change(
                [partial(translation.group_mod, version, number=n, home=None, known=False) for n in sorted(missing)],
                atomic=False,
            )
            self._groups |= missing
        tables = self._translator.tables
        masked = {change.flow.table for change in changes if change.flow.table and not isinstance(change, Delete)}
        tables.begin(masked)
        try:
            if masked:
                categories = {change.flow.match.category for change in changes if change.flow.table}
                await self._make_tables(channel, masked, categories)
            await self._changing(channel, [partial(encode, change) for change in changes], atomic=True)
            gone = [each.flow for each in changes if isinstance(each, Delete)]
            if self.rounds is not None and gone:
                self.rounds.doubt()
                await self.rounds.refresh(0.0 if any(flow.priority >= TOP_PRIORITY for flow in gone) else DOUBT)
        except Refused as error:
            if error.partly:
                raise Unavailable(f"Some of {len(changes)} changes were not carried out: {error}") from error
            raise
        finally:
            tables.done(masked)

    async def _changing(self, channel: Channel, encoders: Sequence[Encode], *, atomic: bool) -> None:
        self._baseline = None
        self._busy += 1
        try:
            if encoders:
                await channel.change(encoders, atomic=atomic)
        finally:
            self._busy -= 1
        if not self._busy:
            await self.count()
        if self.rounds is not None and encoders:
            await self.rounds.settled(self._poke)

    async def _poke(self) -> None:
        """Change nothing."""
        channel = self.connected()
        await channel.change([partial(translation.unwanted, channel.version, masked=self.masked)], atomic=False)

    async def count(self) -> None:
        """Remember how many entries there are."""
        self._baseline = None
        found = await self._counted()
        self._baseline = found if not self._busy else None

    async def _counted(self) -> dict[int, int]:
        tables = statistics.read_tables(await self.connected().ask(Multipart.TABLE))
        return {table: count for table, count in tables.items() if count}

    async def touched(self) -> bool:
        """Whether somebody else has added or removed entries since our last change."""
        before = self._baseline
        if before is None or self.channel is None:
            return False
        found = await self._counted()
        # A change of ours may have begun while the switch was counting.
        return self._baseline is before and found != before

    # -- reading -------------------------------------------------------------------------------------

    async def entries(self) -> list[translation.CountedFlow]:
        """The flows in the switch, with their counts; entries that are none of ours are left out."""
        answer = await self.connected().ask(Multipart.FLOW, statistics.all_flows(ALL_TABLES))
        found = []
        for entry in read_flows(answer):
            flow = self._translator.decode(entry)
            if flow is not None:
                found.append(translation.CountedFlow(flow, entry.packets, entry.bytes))
        return found

    async def table(self) -> FlowTable:
        """See `DataPlane.table`."""
        return FlowTable(entry.flow for entry in await self.entries())

    async def counters(self) -> SwitchCounters:
        """See `DataPlane.counters`."""
        channel = self.connected()
        entries, ports, groups = await asyncio.gather(
            channel.ask(Multipart.FLOW, statistics.all_flows(ALL_TABLES)),
            channel.ask(Multipart.PORT_STATS, statistics.all_ports()),
            channel.ask(Multipart.GROUP, statistics.all_groups()),
        )
        flows: dict[FlowKey, Count] = {}
        unwanted, admission = 0, []
        last = {(Table.MASKED, 0), (Table.REST, 1)} if self._translator.tables.last else {(Table.CONTENT, 0)}
        for entry in read_flows(entries):
            flow = self._translator.decode(entry)
            if flow is not None:
                flows[flow.key] = Count(entry.packets, entry.bytes)
            elif entry.table == Table.ADMISSION:
                admission.append(entry)
            elif (entry.table, entry.priority) in last:
                unwanted += entry.packets
        found: dict[int, PortCount] = {}
        for port in statistics.read_port_statistics(channel.version, ports):
            if port.number in self.ports:
                received, sent = Count(port.received, port.received_bytes), Count(port.sent, port.sent_bytes)
                found[port.number] = PortCount(received, sent, port.dropped)
        sent_to = statistics.read_groups(groups)
        for entry in admission:
            came = Count(entry.packets, entry.bytes)
            number = translation.admitted_client(entry.priority, entry.fields)
            if number is not None:
                found[number] = PortCount(came, Count(*sent_to.get(number, (0, 0))))
            elif (link := translation.admitted_link(entry.priority, entry.fields)) in found:
                # Of what comes by a link, content alone counts: not what systems say to each other.
                found[link] = msgspec.structs.replace(found[link], received=came)
        return SwitchCounters(flows, found, unwanted, self.limit, self.departed)
