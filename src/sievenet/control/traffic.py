"""Traffic as far as it is known, the picture of the network that `aggregation` needs, and what merging costs.

Merges are a suggestion: whatever comes of it, tables enclose what they should and fit.  So the picture is taken while
requests go on, and worked on beside the event loop; merges that no longer help are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np

from sievenet.control.deployment.held import CellTables, DzTable
from sievenet.control.deployment.keys import covers
from sievenet.control.layout import UNITED
from sievenet.errors import CodecError, InvalidInput
from sievenet.index import Cell, Dz

if TYPE_CHECKING:
    from sievenet.control.aggregation import Sample, Tables
    from sievenet.control.aggregation.masks import Masked
    from sievenet.control.controller import Controller
    from sievenet.control.lane import Lane

__all__ = ["FitReport", "Merging", "Traffic", "masked", "picture", "pictured", "traffic_from"]

#: Most rows of a traffic table.
_ROWS: Final = 1 << 20


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was published in a category, counted: rows of a code's first 64 bits, a publisher's number, packets."""

    category: Annotated[str, msgspec.Meta(max_length=256)]
    #: The plan that codes are of.
    epoch: int
    publishers: Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=65536)]
    #: Little-endian arrays of as many rows: 64 bits, 32 bits, 64-bit floats.
    codes: bytes
    sources: bytes
    counts: bytes

    @classmethod
    def of(cls, category: str, epoch: int, rows: Mapping[tuple[str, int], float]) -> Traffic:
        """From packets by publisher and code."""
        names = sorted({name for name, _ in rows})
        number = {name: i for i, name in enumerate(names)}
        ordered = sorted((code, number[name], count) for (name, code), count in rows.items())
        columns = list(zip(*ordered, strict=True)) or [(), (), ()]
        return cls(
            category,
            epoch,
            names,
            np.array(columns[0], "<u8").tobytes(),
            np.array(columns[1], "<u4").tobytes(),
            np.array(columns[2], "<f8").tobytes(),
        )

    def sample(self, sources: Mapping[str, Sequence[int]], count: int) -> Sample:
        """As `aggregation` wants it: `sources` are a publisher's numbers there, of `count` in all.

        Packets of publishers that are not there (any more) count for all that are, evenly.
        """
        from sievenet.control.aggregation import Sample

        codes, whose = np.frombuffer(self.codes, "<u8"), np.frombuffer(self.sources, "<u4")
        counts = np.frombuffer(self.counts, "<f8")
        if not codes.size == whose.size == counts.size <= _ROWS:
            raise InvalidInput(expected=f"equal columns of up to {_ROWS} rows", got=codes.size, where="traffic")
        if whose.size and int(whose.max()) >= len(self.publishers):
            raise InvalidInput(expected="publishers' numbers", got=int(whose.max()), where="traffic")
        if not np.isfinite(counts).all() or (counts < 0).any():
            raise InvalidInput(expected="counts of 0 or more", got="others", where="traffic")
        known = np.array([sources.get(name, (-1,))[0] for name in self.publishers] or [-1], np.int64)
        found = known[whose.astype(np.int64)]
        lost = found < 0
        found[lost] = np.arange(int(lost.sum())) % max(1, count)
        order = np.argsort(codes, kind="stable")
        return Sample(codes[order].astype(np.uint64), found[order], counts[order].astype(np.float64))


def traffic_from(data: bytes) -> list[Traffic]:
    """Traffic tables from bytes of others."""
    try:
        return msgspec.msgpack.decode(data, type=list[Traffic])
    except (msgspec.DecodeError, ValueError) as error:
        raise CodecError(f"Expected traffic tables, got something else: {error}") from None


class Merging(msgspec.Struct, frozen=True):
    """The merges of one category at a switch."""

    category: int
    #: The dz or cells, the entries that each stands for, and the share of what it sends too far, if all is even.
    merges: tuple[tuple[Dz | Cell, int, float], ...]


class FitReport(msgspec.Struct, frozen=True):
    """How fitting tables went."""

    #: Limited switches that had too many entries for what they hold, and those in all.
    merged: int
    switches: int
    #: Entries that there should be, and those that there are.
    ideal: int
    deployed: int
    #: "pattern" if recorded traffic was at hand (FA-PB), else "load" (FA-LB).
    method: str
    seconds: float


def picture(
    controller: Controller, traffic: Mapping[int, Traffic], load: Mapping[tuple[str, int], float]
) -> list[Tables]:
    """The tables of all lanes, in the order of `pictured`, with what is known of traffic.

    `load` are packets by switch and port of publishers.
    """
    return [_tables(controller, lane, traffic.get(number), load) for number, lane in pictured(controller)]


def pictured(controller: Controller) -> list[tuple[int, Lane]]:
    """All lanes whose tables can be merged, with the number of their category."""
    spaces = [(number, space) for number, space in controller.spaces.items() if space.layout is UNITED]
    return [(number, lane) for number, space in spaces for lane in space.lanes]


def masked(controller: Controller, traffic: Mapping[int, Traffic]) -> dict[int, Masked]:
    """The tables of lanes with cells at switches with limits, by the number of the lane's holdings."""
    from sievenet.control.aggregation.masks import Masked

    found = {}
    for number, space in controller.spaces.items():
        for lane in space.lanes if space.layout is not UNITED else ():
            held = {switch: each for switch, each in lane.holdings.items() if isinstance(each, CellTables)}
            limits = {switch: controller.fleet.rooms.limit(switch, lane.holdings.who) for switch in held}
            known = traffic.get(number)
            fresh = known is not None and known.epoch == controller.state.categories[number].epoch
            found[lane.holdings.number] = Masked(
                {switch: each.deployment.ideal for switch, each in held.items()},
                {switch: limit for switch, limit in limits.items() if limit is not None},
                known.sample({}, 1) if fresh and known is not None else None,
            )
    return found


def _tables(
    controller: Controller, lane: Lane, traffic: Traffic | None, load: Mapping[tuple[str, int], float]
) -> Tables:
    from sievenet.control.aggregation import Source, Tables

    number, tree, wires = lane.owner.number, lane.registrations.routes.tree, controller.fleet.wires
    switches = [switch for switch in controller.fleet.switches() if switch in tree.parent]
    tables: dict[str, dict[int, frozenset[int]]] = {}
    for switch in switches:
        if switch in lane.holdings:
            held = lane.holdings[switch]
            assert isinstance(held, DzTable)
            tables[switch] = dict(held.wanted)
        else:
            dz = [(flow.match.cell, flow.ports) for flow in lane.table(switch)]
            tables[switch] = {cell.key: ports for cell, ports in dz if isinstance(cell, Dz)}
    sources: list[Source] = []
    named: dict[str, list[int]] = {}
    for client in controller.state.clients.values():
        if client.wire is None:
            continue
        switch, port = wires.owner[client.wire], wires.port[client.wire]
        keys = {
            max(key, lane.prefix)
            for entry in client.advertisements.values()
            if entry.category == number
            for key in entry.keys
            if covers(lane.prefix, key) or covers(key, lane.prefix)
        }
        if keys and switch in tables:
            named.setdefault(client.name, []).append(len(sources))
            sources.append(Source(switch, port, tuple(keys), 1.0 + load.get((switch, port), 0.0)))
    links = {switch: {p: s for p, s in tree.tree_ports(switch).items() if s in tables} for switch in tables}
    known = traffic is not None and sources and traffic.epoch == controller.state.categories[number].epoch
    sample = traffic.sample(named, len(sources)) if known and traffic is not None else None
    return Tables(tables, links, sources, sample)
