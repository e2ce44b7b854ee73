"""Index plans: how a schema's content becomes bits.

One mechanism serves every way of indexing.  A plan is a tuple of *regions*.  A region has

* a *prefix*, the bits that all its codes begin with;
* *bounds*, the part of the event space it indexes (none: all of it);
* *axes*, one per chosen attribute: a monotone map to a grid (see `axis`);
* an *order*: which axis gives the next bit, from the first bit to the last.

    regular      one region, empty prefix, no bounds, linear axes
    selective    one region per rectangle around a cluster of subscriptions (MBR)
    adaptive     axes with split points that balance the workload
    dimensions   axes for some of the attributes only

    ┌───────────────────────┐      event in A only        00……
    │   ┌──A──┐             │      event in A and B       00…… and 01……
    │   │  ┌──┼───B──┐      │      event in neither       1……  (the rest), or not sent
    │   └──┼──┘      │ rest │
    │      └─────────┘      │      filter inside B        covered in B alone
    └───────────────────────┘      any other filter       covered in every region it meets

No false negative, by construction: an event is encoded in *every* region that holds it (or
in the rest, if none does), a filter that lies in one region is covered there, and any other
in all that it meets.

With ``once`` an event is encoded in the *first* region that holds it, and a filter is covered in
every region that it meets, up to one that holds all of it.  Regions that overlap then cost entries
instead of packets.  Regions need not overlap at all: those of `subspace` tile the event space.

A plan without a rest knowingly drops events that lie in no region;
then `cover` refuses filters that reach outside of them, and `admits` tells beforehand.

With ``gray`` the coordinates are Gray-coded before their bits are placed.  Prefixes mean
the same as without; but neighbouring blocks differ in a single bit, so a mask can join them,
also across a large boundary: see `cover`.  Plans for cells have it by default.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from sievenet.content import Event, EventBatch, Filter, Schema, Subscription
from sievenet.errors import PlanError, SchemaError
from sievenet.index.axis import Number
from sievenet.index.cell import Cell
from sievenet.index.cellset import CellSet
from sievenet.index.code import MAX_BITS
from sievenet.index.codes import Codes
from sievenet.index.dz import Dz
from sievenet.index.dzset import DzSet
from sievenet.index.region import Bound, Range, Region, bounds_of, check_region, prefixed, region_of, tiled
from sievenet.index.tiles import check_tiles

if TYPE_CHECKING:
    from sievenet.index.density import Density
    from sievenet.index.encoding import Encoder

__all__ = ["DEFAULT_BUDGET", "MAX_BUDGET", "MAX_REGIONS", "Bound", "Kind", "Plan", "Region"]

Kind = Literal["dz", "cells"]

DEFAULT_BUDGET: Final = 8
MAX_BUDGET: Final = 4096
MAX_REGIONS: Final = 1024
#: How many times the budget a filter may have, under a plan with a grain.
SPREAD: Final = 16
_MAX_JSON: Final = 1 << 24


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """An index plan: a value, the same for publishers, control plane and pipeline."""

    schema: Schema
    #: Width of the field that codes live in; no region's codes are longer.
    bits: int
    regions: tuple[Region, ...]
    #: What filters become.
    kind: Kind = "dz"
    gray: bool = False
    #: Which of several plans for the schema this is; ascending.
    version: int = 1
    #: An event has one code, that of the first region that holds it, instead of one in every region that does.
    once: bool = False
    #: Share of the event space that each further entry of a filter has to save; 0 means any.  See `most`.
    grain: float = 0.0
    #: Keys of dz that a control plane may take as partitions, in the order of the space; none means equal ones.
    tiles: tuple[int, ...] = ()
    #: Version of this form itself.
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        _check(self)

    # -- making -----------------------------------------------------------------------------

    @staticmethod
    def regular(
        schema: Schema,
        bits: int,
        dimensions: Sequence[str] | None = None,
        kind: Kind = "dz",
        *,
        gray: bool | None = None,
        version: int = 1,
    ) -> Plan:
        """Halve each dimension in turn."""
        return Plan.combined(schema, bits, dimensions=dimensions, kind=kind, gray=gray, version=version)

    @staticmethod
    def selective(
        schema: Schema,
        mbrs: Sequence[Mapping[str, Range]],
        bits: int,
        dimensions: Sequence[str] | None = None,
        kind: Kind = "dz",
        *,
        rest: bool = False,
        splits: Sequence[Mapping[str, Sequence[Number]]] | None = None,
        gray: bool | None = None,
        version: int = 1,
    ) -> Plan:
        """Index rectangles only; with ``splits`` (one mapping per rectangle) adaptively inside each."""
        return Plan.combined(
            schema,
            bits,
            mbrs=mbrs,
            splits=splits,
            dimensions=dimensions,
            kind=kind,
            rest=rest,
            gray=gray,
            version=version,
        )

    @staticmethod
    def adaptive(
        schema: Schema,
        splits: Mapping[str, Sequence[Number]],
        bits: int,
        dimensions: Sequence[str] | None = None,
        kind: Kind = "dz",
        *,
        gray: bool | None = None,
        version: int = 1,
    ) -> Plan:
        """Split where the workload balances; attributes without split points are halved."""
        return Plan.combined(
            schema, bits, splits=[splits], dimensions=dimensions, kind=kind, gray=gray, version=version
        )

    @staticmethod
    def combined(
        schema: Schema,
        bits: int,
        *,
        mbrs: Sequence[Mapping[str, Range]] | None = None,
        splits: Sequence[Mapping[str, Sequence[Number]]] | None = None,
        dimensions: Sequence[str] | None = None,
        kind: Kind = "dz",
        rest: bool = False,
        gray: bool | None = None,
        version: int = 1,
    ) -> Plan:
        """Any combination.  Split points beyond a rectangle or beyond the bits are left out evenly."""
        names = tuple(schema.positions) if dimensions is None else tuple(dimensions)
        areas = [{}] if mbrs is None else [dict(m) for m in mbrs]
        points = splits if splits is not None else [{}] * len(areas)
        if not areas or len(points) != len(areas):
            raise PlanError(f"Expected split points for each of {len(areas)} regions (at least one), got {len(points)}")
        regions = [
            region_of(schema, bits, names, bounds_of(schema, area), each)
            for area, each in zip(areas, points, strict=True)
        ]
        if rest:
            regions.append(region_of(schema, bits, names, (), {}, rest=True))
        gray = kind == "cells" if gray is None else gray
        return Plan(schema, bits, prefixed(regions, bits), kind, gray, version)

    def with_rest(self) -> Plan:
        """The same plan with a region for the events that lie in none; itself if none can be missed."""
        if self.complete:
            return self
        names = tuple(dict.fromkeys(a.attribute for r in self.regions for a in r.axes))
        rest = region_of(self.schema, self.bits, names, (), {}, rest=True)
        return msgspec.structs.replace(self, regions=prefixed([*self.regions, rest], self.bits))

    # -- asking -----------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every event gets a code."""
        return any(r.rest or not r.bounds for r in self.regions) or self._tiled

    @cached_property
    def _tiled(self) -> bool:
        return tiled(self.schema, self.regions)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The attributes that some region indexes, in the schema's order."""
        used = {a.attribute for r in self.regions for a in r.axes}
        return tuple(name for name in self.schema.positions if name in used)

    def most(self, budget: int) -> int:
        """The most entries of a filter: with a grain, the budget is what many have on average."""
        return min(MAX_BUDGET, SPREAD * budget) if self.grain else budget

    def admits(self, wanted: Filter | Subscription) -> bool:
        """Whether every event that matches gets a code, so that `cover` can enclose them all."""
        if self.complete:
            return True
        filters = wanted.filters if isinstance(wanted, Subscription) else (wanted,)
        areas = self.encoder.areas
        whole = Subscription(areas, self.schema)
        return all(any(a.covers(f) for a in areas) or whole.covers(Subscription([f], self.schema)) for f in filters)

    # -- doing ------------------------------------------------------------------------------

    @cached_property
    def encoder(self) -> Encoder:
        """The plan made ready for encoding."""
        from sievenet.index.encoding import Encoder

        return Encoder(self)

    def encode(self, event: Event) -> tuple[Dz, ...]:
        """The codes of an event: one per region that holds it."""
        self._check_schema(event.schema)
        return self.encoder.one(event)

    def codes(self, event: Event) -> list[int]:
        """The same as numbers, left-aligned in 128 bits: the quickest way for a single event."""
        self._check_schema(event.schema)
        return self.encoder.codes(event)

    def encode_batch(self, batch: EventBatch) -> Codes:
        """The codes of many events."""
        self._check_schema(batch.schema)
        return self.encoder.batch(batch)

    def cover(
        self,
        wanted: Filter | Subscription,
        budget: int = DEFAULT_BUDGET,
        weights: Density | None = None,
        kind: Kind | None = None,
    ) -> DzSet | CellSet:
        """At most ``budget`` entries that enclose a filter (`most` under a plan with a grain); never worse with more.

        ``weights`` (an event sample) makes the entries waste the least traffic instead of
        volume.  ``kind`` overrides the plan's.
        """
        from sievenet.index.cover import cover

        return cover(self, wanted, budget, weights, kind or self.kind)

    def cover_dz(self, wanted: Filter | Subscription, budget: int = DEFAULT_BUDGET) -> DzSet:
        """`cover` as dz, whatever the plan's kind."""
        found = self.cover(wanted, budget, kind="dz")
        assert isinstance(found, DzSet)
        return found

    def cover_cells(self, wanted: Filter | Subscription, budget: int = DEFAULT_BUDGET) -> CellSet:
        """`cover` as cells, whatever the plan's kind."""
        found = self.cover(wanted, budget, kind="cells")
        assert isinstance(found, CellSet)
        return found

    def decode(self, code: Dz | Cell) -> Subscription:
        """The content behind a dz or cell: the events whose codes it holds, box by box.

        Exact for indexed attributes of which values are ordered; hashed strings and
        attributes that are not indexed come out unconstrained.
        """
        return self.encoder.decode(code)

    def _check_schema(self, schema: Schema) -> None:
        if schema is not self.schema and schema != self.schema:
            raise SchemaError(
                expected=f"{self.schema.name} version {self.schema.version}",
                got=f"`{schema.name} version {schema.version}`",
                where="index plan",
            )

    # -- JSON -------------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """The plan as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(data: bytes | str) -> Plan:
        """A plan from JSON; `PlanError` says where it is wrong."""
        if len(data) > _MAX_JSON:
            raise PlanError(f"Expected at most {_MAX_JSON} bytes of JSON, got {len(data)}", where="index plan")
        try:
            return msgspec.json.decode(data, type=Plan)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise PlanError(str(error), where="index plan") from None

    def __str__(self) -> str:
        lines = [f"{self.schema.name}: {self.kind}, {self.bits} bits{', Gray-coded' if self.gray else ''}"]
        for region in self.regions:
            axes = ", ".join(
                f"{a.attribute} {a.bits} bits{f' ({len(a.splits)} splits)' if a.splits else ''}" for a in region.axes
            )
            bounds = ", ".join(f"{b.attribute} {b.lo}..{b.hi}" for b in region.bounds)
            place = "the rest" if region.rest else bounds or "everything"
            lines.append(f"  {region.prefix or '-'}  {place}: {axes or 'no axes'}")
        return "\n".join(lines)


def _check(plan: Plan) -> None:
    if not 0 <= plan.bits <= MAX_BITS:
        raise PlanError(expected=f"0 to {MAX_BITS} bits", got=plan.bits, where="index plan")
    if not 1 <= plan.version < 1 << 32:
        raise PlanError(expected="a version from 1 to 2**32 - 1", got=plan.version, where="index plan")
    if not 0 <= plan.grain < 1:
        raise PlanError(expected="a grain from 0 to below 1", got=plan.grain, where="index plan")
    check_tiles(plan.tiles)
    if not 1 <= len(plan.regions) <= MAX_REGIONS:
        raise PlanError(expected=f"1 to {MAX_REGIONS} regions", got=len(plan.regions), where="index plan")
    for number, region in enumerate(plan.regions):
        check_region(plan.schema, plan.bits, region, f"regions[{number}]")
    prefixes = sorted(Dz.parse(r.prefix) for r in plan.regions)
    if any(a.covers(b) for a, b in itertools.pairwise(prefixes)):
        raise PlanError(expected="prefixes of which none begins another", got=[str(p) for p in prefixes])
    if sum(r.rest for r in plan.regions) > 1 or any(r.rest and r.bounds for r in plan.regions):
        raise PlanError("Expected at most one region for the rest, without bounds")
