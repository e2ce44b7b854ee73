"""Encoding: events to codes, one by one and in batches, and codes back to content.

An `Encoder` is a plan made ready: per region and axis the `Scale` (value → coordinate) and
the *places* (coordinate → bits of the code).  Placing bits is linear over xor, also when
Gray-coded, so it is one table lookup per eight bits of a coordinate for any order of bits.

A batch goes column by column through compiled kernels in blocks that stay in the cache.
The single event takes the same steps in plain integers and needs no compiler, so a client
that encodes now and then starts quickly; both use the same arithmetic and agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Event, EventBatch, Filter, StringColumn, Subscription, ValueSet
from sievenet.errors import PlanError
from sievenet.index.axis import Scale, hashed
from sievenet.index.cell import Cell
from sievenet.index.code import CODE_BITS, split
from sievenet.index.codes import Codes
from sievenet.index.dz import Dz
from sievenet.index.locator import Locator
from sievenet.index.single import coder

if TYPE_CHECKING:
    from sievenet.index.cover.boxes import Layout
    from sievenet.index.plan import Plan
    from sievenet.index.region import Region

__all__ = ["Encoder", "RegionEncoder"]

#: Rows per step of a batch: two words each stay in the second-level cache.
_BLOCK: Final = 8192
_CHUNK: Final = 8
#: Axes over fewer whole numbers than this look codes up by value, if that takes fewer steps.
_SMALL: Final = 4096
#: Most boxes that one masked cell is decoded into.
_MAX_BOXES: Final = 1 << 12


class RegionEncoder:
    """One region made ready."""

    def __init__(self, plan: Plan, region: Region) -> None:
        schema = plan.schema
        self.region = region
        self.prefix = Dz.parse(region.prefix)
        self.base = self.prefix.bits << (CODE_BITS - self.prefix.length)
        self.columns = [schema.positions[a.attribute] for a in region.axes]
        self.scales = [Scale.of(a, schema[a.attribute], *region.range(schema, a.attribute)) for a in region.axes]
        #: Per axis the position in the field (0 is the first bit) of its bits, first bit first.
        self.positions: list[list[int]] = [[] for _ in region.axes]
        for offset, i in enumerate(region.order):
            self.positions[i].append(len(region.prefix) + offset)
        self._gray = plan.gray
        #: (column, lo, hi) of every bound.
        self.bounds = [(schema.positions[b.attribute], b.lo, b.hi) for b in region.bounds]
        self._words: list[npt.NDArray[np.uint64] | None] = [None] * len(region.axes)
        self._values: list[npt.NDArray[np.uint64] | None] = [None] * len(region.axes)

    @cached_property
    def tables(self) -> list[list[list[int]]]:
        """Per axis the places of its coordinates: for each eight bits of them, the code bits of each byte."""
        return [_tables(p, self._gray) for p in self.positions]

    def holds(self, event: Event) -> bool:
        """Whether an event lies within the bounds."""
        for column, lo, hi in self.bounds:
            value = event.values[column]
            attribute = event.schema.attributes[column]
            place: Any = attribute.ordinals[value] if isinstance(value, str) else value
            if not lo <= place <= hi:
                return False
        return True

    def code(self, event: Event) -> Dz:
        """The code of an event that the region holds."""
        code = self.base
        for column, scale, tables in zip(self.columns, self.scales, self.tables, strict=True):
            coordinate = scale.coordinate(scale.place(event.values[column]))
            for table in tables:
                code ^= table[coordinate & 255]
                coordinate >>= _CHUNK
        return Dz(code >> (CODE_BITS - self.region.length), self.region.length)

    def coordinates(self, axis: int, column: Any) -> npt.NDArray[np.uint64]:
        """The grid coordinates of a column on an axis."""
        scale = self.scales[axis]
        if isinstance(column, StringColumn):
            return _places_grid(scale, _places(scale, column.categories))[column.codes]
        grid = np.empty(len(column), np.uint64)
        _grid(scale, column, grid)
        return grid

    def encode(self, columns: list[Any], hi: npt.NDArray[np.uint64], lo: npt.NDArray[np.uint64]) -> None:
        """Xor the codes of rows into words that hold the prefix."""
        from sievenet.index import kernels

        # An axis whose bits all lie in the first word, eight at most, needs one small table.
        highs = [
            np.ascontiguousarray(self._word_tables(i)[0, :, 0]) if p and len(p) <= _CHUNK and p[-1] < 64 else None
            for i, p in enumerate(self.positions)
        ]
        grid = np.empty(min(_BLOCK, len(hi)), np.uint64)
        words = [self._category_words(i, c) for i, c in enumerate(columns)]
        for at in range(0, len(hi), _BLOCK):
            part = slice(at, at + _BLOCK)
            high, low = hi[part], lo[part]
            grid = grid[: len(high)]
            for i, column in enumerate(columns):
                scale, known = self.scales[i], words[i]
                if not scale.bits:
                    continue
                if known is not None:
                    if isinstance(column, StringColumn):
                        kernels.gather(column.codes[part], known, high, low)
                    elif column.dtype == np.int32:
                        kernels.gather(column[part], known, high, low)
                    else:
                        kernels.gather_ints(column[part], int(scale.lo), known, high, low)
                    continue
                _grid(scale, column[part], grid)
                table = highs[i]
                if table is not None:
                    kernels.place_high(grid, table, high)
                else:
                    kernels.place(grid, self._word_tables(i), high, low)

    def _word_tables(self, axis: int) -> npt.NDArray[np.uint64]:
        """(chunk, byte, word): the places of an axis' coordinates as arrays."""
        found = self._words[axis]
        if found is None:
            single = np.array(list(map(_split, _places_of_bits(self.positions[axis], self._gray))), np.uint64)
            found = self._words[axis] = np.zeros((-(-len(single) // _CHUNK), 256, 2), np.uint64)
            for bit, word in enumerate(single):
                table, at = found[bit // _CHUNK], 1 << bit % _CHUNK
                table[at : 2 * at] = table[:at] ^ word
        return found

    def _category_words(self, axis: int, column: Any) -> npt.NDArray[np.uint64] | None:
        """The words of each category of a string column, of false and true, or of each of few whole numbers."""
        scale = self.scales[axis]
        if isinstance(column, StringColumn):
            places = _places(scale, column.categories)
        elif column.dtype == np.int32:
            places = _places(scale, (False, True))
        elif scale.kind == "int" and scale.hi - scale.lo < _SMALL and (scale.bits > _CHUNK or len(scale.starts) > 1):
            found = self._values[axis]
            if found is None:
                found = self._values[axis] = self._place_words(axis, range(int(scale.lo), int(scale.hi) + 1))
            return found
        else:
            return None
        return self._place_words(axis, places)

    def _place_words(self, axis: int, places: Sequence[Any]) -> npt.NDArray[np.uint64]:
        coordinates = _places_grid(self.scales[axis], places)
        found = np.zeros((len(coordinates), 2), np.uint64)
        for table in self._word_tables(axis):
            found ^= table[coordinates & np.uint64(255)]
            coordinates = coordinates >> np.uint64(_CHUNK)
        return found


class Encoder:
    """A plan made ready for encoding and decoding."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.regions = [RegionEncoder(plan, r) for r in plan.regions]
        #: Every region as a filter.
        self.areas = tuple(r.filter(plan.schema) for r in plan.regions)
        self._locator = Locator([r.bounds for r in self.regions])
        #: What covering needs; made by `cover.boxes` when first needed.
        self.layout: Layout | None = None

    def one(self, event: Event) -> tuple[Dz, ...]:
        """The codes of an event."""
        found = [self.regions[i].code(event) for i in self._candidates(event)]
        if not found:
            found = [r.code(event) for r in self.regions if r.region.rest]
        return tuple(found)

    @cached_property
    def _coders(self) -> list[Callable[[tuple[Any, ...]], int]]:
        """The codes of single events by their values, region by region."""
        return [coder(region, self.plan.gray) for region in self.regions]

    @cached_property
    def only(self) -> Callable[[tuple[Any, ...]], int] | None:
        """The code of an event by its values, if one region has all events; else None: see `codes`."""
        return self._coders[0] if len(self.regions) == 1 and not self.regions[0].bounds else None

    def codes(self, event: Event) -> list[int]:
        """The same, as numbers left-aligned in the field, in few steps."""
        only, coders = self.only, self._coders
        if only is not None:
            return [only(event.values)]
        found = [coders[i](event.values) for i in self._candidates(event)]
        return found or [code(event.values) for code, r in zip(coders, self.regions, strict=True) if r.region.rest]

    def _candidates(self, event: Event) -> list[int]:
        """The regions, without the rest, that encode an event."""
        values, attributes = event.values, event.schema.attributes

        def place(column: int) -> Any:
            value = values[column]
            return attributes[column].ordinals[value] if isinstance(value, str) else value

        found = []
        for i in self._locator.candidates(place):
            region = self.regions[i]
            if not region.region.rest and region.holds(event):
                found.append(i)
                if self.plan.once:
                    break
        return found

    def batch(self, batch: EventBatch) -> Codes:
        """The codes of a batch."""
        parts = []
        for region, rows in self.members(batch):
            if rows is not None and not len(rows) and len(self.regions) > 1:
                continue
            count = len(batch) if rows is None else len(rows)
            columns = [_taken(batch.columns[c], rows) for c in region.columns]
            high, low = _split(region.base)
            hi, lo = np.full(count, high, np.uint64), np.full(count, low, np.uint64)
            region.encode(columns, hi, lo)
            parts.append(Codes(np.arange(count) if rows is None else rows, hi, lo))
        if not parts:
            return Codes.of([])
        return parts[0] if len(parts) == 1 else Codes.concat(parts)

    def members(self, batch: EventBatch) -> list[tuple[RegionEncoder, npt.NDArray[np.int64] | None]]:
        """For each region the rows that it encodes, ascending; ``None`` stands for all."""
        if len(self.regions) == 1 and not self.regions[0].bounds:
            return [(self.regions[0], None)]
        made: dict[int, Any] = {}

        def column(number: int) -> Any:
            if number not in made:
                values: Any = batch.columns[number]
                made[number] = values.codes if isinstance(values, StringColumn) else values
            return made[number]

        parts: list[list[npt.NDArray[np.int64]]] = [[] for _ in self.regions]
        somewhere = np.zeros(len(batch), np.bool_)
        for candidates, rows in self._locator.divided(column, len(batch)):
            for i in candidates:
                region = self.regions[i]
                if region.region.rest:
                    continue
                inside = ~somewhere[rows] if self.plan.once else np.ones(len(rows), np.bool_)
                for number, lo, hi in region.bounds:
                    values = column(number)[rows]
                    inside &= (values >= lo) & (values <= hi)
                held = rows[inside]
                somewhere[held] = True
                parts[i].append(held)
        for i, region in enumerate(self.regions):
            if region.region.rest:
                parts[i].append(np.flatnonzero(~somewhere))
        nothing = np.zeros(0, np.int64)
        rows_of = [np.sort(np.concatenate(each)) if each else nothing for each in parts]
        return list(zip(self.regions, rows_of, strict=True))

    # -- back to content ----------------------------------------------------------------------

    def decode(self, code: Dz | Cell) -> Subscription:
        """The events whose codes a dz or cell holds."""
        cell = code.cell(CODE_BITS) if isinstance(code, Dz) else _widened(code)
        boxes = [box for region in self.regions for box in self._boxes(region, cell)]
        return Subscription(boxes, self.plan.schema)

    def _boxes(self, region: RegionEncoder, cell: Cell) -> list[Filter]:
        if not cell.overlaps(region.prefix.cell(CODE_BITS)):
            return []
        constraints: dict[str, ValueSet] = {}
        for scale, positions in zip(region.scales, region.positions, strict=True):
            if scale.kind != "hash" and scale.bits:
                spans = _spans(cell, positions, self.plan.gray)
                values = ValueSet.union_of(_content(scale, lo, hi) for lo, hi in spans)
                constraints[scale.attribute.name] = values
        schema = self.plan.schema
        return [Filter(schema, constraints).intersect(self.areas[self.regions.index(region)])]


def _taken(column: Any, rows: npt.NDArray[np.int64] | None) -> Any:
    if isinstance(column, StringColumn):
        return column if rows is None else column.take(rows)
    column = column if rows is None else column[rows]
    return column.astype(np.int32) if column.dtype == np.bool_ else column


def _grid(scale: Scale, column: Any, out: npt.NDArray[np.uint64]) -> None:
    """The grid coordinates of numbers."""
    from sievenet.index import kernels

    if scale.kind == "float":
        starts, scales = scale.arrays
        kernels.grid_floats(column, starts, scales, scale.rest, out)
    else:
        starts, high, low = scale.arrays
        kernels.grid_ints(np.asarray(column, np.int64), starts, high, low, scale.rest, out)


def _places(scale: Scale, categories: tuple[Any, ...]) -> Sequence[Any]:
    """Where categories lie; those outside of the scale's range, which cannot occur, moved to its end."""
    if scale.kind == "hash":
        return [hashed(c) for c in categories]
    return np.clip(np.arange(len(categories)), int(scale.lo), int(scale.hi))  # type: ignore[return-value]


def _places_grid(scale: Scale, places: Sequence[Any]) -> npt.NDArray[np.uint64]:
    """The grid coordinates of places."""
    if scale.kind == "hash":
        return np.array([scale.coordinate(p) for p in places], np.uint64)
    grid = np.empty(len(places), np.uint64)
    _grid(scale, np.asarray(places, np.int64), grid)
    return grid


def _split(word: int) -> tuple[int, int]:
    return split(word)


def _places_of_bits(positions: list[int], gray: bool) -> list[int]:
    """The code bits of each bit of a coordinate, lowest first."""
    single: list[int] = []
    for i in range(len(positions)):
        place = 1 << (CODE_BITS - 1 - positions[len(positions) - 1 - i])
        # Gray: bit i of c ^ (c >> 1) holds c's bits i and i + 1, so c's bit i goes to i and i - 1.
        below = 1 << (CODE_BITS - 1 - positions[len(positions) - i]) if gray and i else 0
        single.append(place | below)
    return single


def _tables(positions: list[int], gray: bool) -> list[list[int]]:
    """For each eight bits of a coordinate, from the lowest, the code bits of each byte."""
    single, tables = _places_of_bits(positions, gray), []
    for at in range(0, len(single), _CHUNK):
        table = [0] * 256
        for bit, word in enumerate(single[at : at + _CHUNK]):
            for byte in range(1 << bit, 2 << bit):
                table[byte] = table[byte ^ 1 << bit] ^ word
        tables.append(table)
    return tables


def _widened(cell: Cell) -> Cell:
    shift = CODE_BITS - cell.width
    return Cell(cell.value << shift, cell.mask << shift, CODE_BITS)


def _spans(cell: Cell, positions: list[int], gray: bool) -> list[tuple[int, int]]:
    """The coordinates that a cell holds on an axis, as inclusive spans."""
    prefixes = [0]
    last = max((i for i, p in enumerate(positions) if cell.mask >> (CODE_BITS - 1 - p) & 1), default=-1)
    for i, position in enumerate(positions[: last + 1]):
        place = 1 << (CODE_BITS - 1 - position)
        grown = []
        for prefix in prefixes:
            for bit in (0, 1):
                coded = bit ^ (prefix & 1) if gray and i else bit
                if not cell.mask & place or bool(cell.value & place) == bool(coded):
                    grown.append(prefix << 1 | bit)
        if len(grown) > _MAX_BOXES:
            raise PlanError(f"The cell falls into more than {_MAX_BOXES} stretches of an attribute")
        prefixes = grown
    shift = len(positions) - last - 1
    return [(p << shift, (p + 1 << shift) - 1) for p in prefixes]


def _content(scale: Scale, lo: int, hi: int) -> ValueSet:
    """The values whose coordinates are in ``[lo, hi]``."""
    first, behind = scale.place_of(lo), scale.place_of(hi + 1)
    whole = hi == (1 << scale.bits) - 1
    attribute = scale.attribute
    if scale.kind == "float":
        if first > scale.hi:
            return ValueSet(())
        return ValueSet.interval(float(first), float(scale.hi) if whole else float(behind), open_hi=not whole)
    last = int(scale.hi) if whole else int(behind) - 1
    if first > last:
        return ValueSet(())
    if attribute.values is not None:
        return ValueSet.interval(attribute.values[int(first)], attribute.values[last])
    if attribute.type == "bool":
        return ValueSet.of(*(v for v in (False, True) if first <= v <= last))
    return ValueSet.interval(int(first), last)
