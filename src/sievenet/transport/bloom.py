"""Content as Bloom filters: what an event says and what a filter wants, as sets of bits.

The one law: *if an event matches a filter, the event's bits contain the filter's*. The converse may fail (a false
positive), which costs a wait or a needless repair and never a message. A set of bits is a plain `int`, so the test
``wanted & bits == wanted`` is two machine-near operations.

Both sides become *tags*, and a tag becomes a bit by hashing. An event carries every tag that some filter could ask
for; a filter carries only tags that every event matching it must have:

    equality     the value itself
    range        cells of a grid that hold the whole range, at every size of cell, in two grids

    level 1  |        0        |        1        |          each attribute's line, halved again and again;
    level 2  |   0    |   1    |   2    |   3    |          a range inside one cell has that cell's tag
                   ╰───r────╯                               r straddles every boundary of this grid …
    level 2  ···|   0'   |   1'   |   2'   |  ···           … but lies inside 1' of the grid moved by a third

One grid alone would leave a range across the middle without any tag. Boundaries of the two grids are at least a
third of a cell apart, so a range shorter than that lies inside a cell of one of them, on every level. An event sets
the bits of its cells on all levels of both grids; a filter sets those of all cells that enclose its range. Large
cells enclose small ones, so a narrow range has many tags and its bits tell it apart well.

Events and the ends of ranges pass through the same monotone map to the grid (exact for whole numbers, IEEE-monotone
for floats), hence no rounding can break the law. Strings have prefixes as their cells. The value itself is hashed eight
times, so equalities are told apart best. How many levels there are follows from the width and the number of attributes,
so that about two fifths of an event's bits are set. The bits of an attribute's value depend on its finest cell and are
kept, so encoding an event is a look or two per attribute.

`filter` gives one set of bits per filter: what flows are named by. A range's enclosing cell can be much larger than the
range, and every message in between would look wanted; so `subscription` cuts a filter into pieces first, at the gaps of
its sets and at boundaries of cells, and gives the bits of every piece: any of them covered means "may match".

The scheme is that of Siena B-DRP (tags of a message ⊇ tags of a filter); the pair of grids is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import ceil, inf, nextafter
from typing import Final

from sievenet.content.filter import Filter, Matchable, Subscription
from sievenet.content.line import Line
from sievenet.content.number import float_at, float_key, previous_number
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ABSENT, NUMBER, STRING, Value, ValueSet, behind_prefix
from sievenet.errors import InvalidInput

__all__ = ["MAX_WIDTH", "Bits", "Tagger", "covers", "covers_any"]

#: A set of bits.
Bits = int

#: Widest Bloom filter, in bits.
MAX_WIDTH: Final = 512
_MAX_LEVELS: Final = 12
#: Share of set bits aimed at: tags ≈ -ln(1 - 0.4) · width.
_LOAD: Final = 0.51
#: Bits of a value itself.
_EXACT: Final = 8
_KEPT: Final = 1 << 14
#: Pieces that a subscription is cut into at most, unless its filters are more.
_PIECES: Final = 32
#: Sizes of cells for numbers without a domain: the first bits of a float are its sign and exponent.
_FREE_LEVELS: Final = (2, 6, 9, 11, 12, 13, 14, 16, 18, 20)
_WORD: Final = 1 << 64


def covers(bits: Bits, wanted: Bits) -> bool:
    """Whether a message with these bits may match a filter with the bits ``wanted``."""
    return wanted & bits == wanted


def covers_any(bits: Bits, interests: Iterable[Bits]) -> bool:
    """Whether a message with these bits may match one of several filters."""
    return any(wanted & bits == wanted for wanted in interests)


class _Attribute:
    """Tags of one attribute: the grid of its line, and the bits of what was asked for lately."""

    def __init__(
        self,
        name: str,
        bit: Callable[[str], Bits],
        levels: tuple[int, ...],
        values: int | None,
        *,
        hashes: int = 1,
        moved: int = _MAX_LEVELS,
    ) -> None:
        self.name = name
        self._bit = bit
        #: Bits per cell, and levels of the moved grid.
        self._hashes, self._moved = hashes, moved
        #: Values of the line if they are countable, ``None`` for floats in [0, 1].
        self._values = values
        finest = levels[-1] if levels else 0
        self._units = 3 << finest
        self._levels = tuple((level, 1 << (finest - level)) for level in levels)
        self._cells: dict[int, Bits] = {}
        self._exact: dict[Value, Bits] = {}

    def unit(self, place: int | float) -> int:
        """The finest piece of the grid that holds a place on the line."""
        if self._values is None:
            return min(int(place * self._units), self._units - 1)
        return int(place) * self._units // self._values

    def point(self, unit: int) -> Bits:
        """The bits of all cells around one piece: what an event sets."""
        found = self._cells.get(unit)
        if found is None:
            if len(self._cells) >= _KEPT:
                self._cells.clear()
            found = self._cells[unit] = self.range(unit, unit)
        return found

    def range(self, first: int, last: int) -> Bits:
        """The bits of all cells that hold a range of pieces: what a filter sets."""
        bits = 0
        for level, third in self._levels:
            cell = 3 * third
            if first // cell == last // cell:
                for i in range(self._hashes):
                    bits |= self._bit(f"{self.name}/{level}/{i}/{first // cell}")
            if level <= self._moved and (first + third) // cell == (last + third) // cell:
                bits |= self._bit(f"{self.name}/{level}/'/{(first + third) // cell}")
        return bits

    def exactly(self, value: Value) -> Bits:
        """The bits of one value."""
        key = (value, True) if isinstance(value, bool) else value
        found = self._exact.get(key)  # type: ignore[arg-type]
        if found is None:
            if len(self._exact) >= _KEPT:
                self._exact.clear()
            found = 0
            for i in range(_EXACT):
                found |= self._bit(f"{self.name}={i}={_spelt(value)}")
            self._exact[key] = found  # type: ignore[index]
        return found

    def prefixes(self, text: str) -> Bits:
        """The bits of the first characters of a string."""
        bits = 0
        for length in range(1, 1 + min(len(text), len(self._levels))):
            bits |= self._bit(f"{self.name}^{text[:length]}")
        return bits

    def common_prefix(self, entering: str, leaving: str | None) -> Bits:
        """The bits of the prefix that all strings in ``[entering, leaving)`` share."""
        stop = (STRING + 1,) if leaving is None else (STRING, leaving)
        length = 0
        for size in range(1, 1 + min(len(entering), len(self._levels))):
            if stop > behind_prefix(entering[:size]):
                break
            length = size
        return self.prefixes(entering[:length])


class Tagger:
    """Turns events and filters of one schema (or, with ``None``, of no schema) into bits of one width."""

    def __init__(self, schema: Schema | None, width: int = 128) -> None:
        if not 8 <= width <= MAX_WIDTH or width % 8:
            raise InvalidInput(expected=f"a width of 8..{MAX_WIDTH} bits, in whole bytes", got=width)
        self.schema = schema
        self.width = width
        self._levels, self._hashes, self._moved = _shape(width, 8 if schema is None else len(schema.attributes))
        self._free: dict[str, _Attribute] = {}
        self._places: tuple[tuple[_Attribute, Attribute], ...] = ()
        self._root = 0
        if schema is not None:
            self._places = tuple((self._encoder(a), a) for a in schema.attributes)
            stem = f"{schema.name}@{schema.version}"
            self._root = self._bit(stem) | self._bit(f"{stem}'")

    def _bit(self, tag: str) -> Bits:
        name = "" if self.schema is None else self.schema.name
        digest = blake2b(f"{name}:{tag}".encode(), digest_size=8).digest()
        return 1 << int.from_bytes(digest, "big") % self.width

    def _encoder(self, attribute: Attribute) -> _Attribute:
        line = attribute.line
        if line is None:
            values: int | None = 1
        elif line.real and line.first < line.last:
            values = None
        else:
            values = line.last - line.first + 1
        useful = self._levels
        if values is not None and line is not None:
            useful = min(useful, values.bit_length())
        levels = tuple(range(1, useful + 1))
        return _Attribute(attribute.name, self._bit, levels, values, hashes=self._hashes, moved=self._moved)

    # -- events ---------------------------------------------------------------------------

    def event(self, event: Matchable) -> Bits:
        """The bits of an event (or of a record, without a schema)."""
        if self.schema is None:
            return self._record(event)
        bits = self._root
        values = getattr(event, "values", ())
        for (encoder, attribute), value in zip(self._places, values, strict=True):
            bits |= encoder.exactly(value) | _point(encoder, attribute, value)
        return bits

    def _record(self, record: Matchable) -> Bits:
        bits = 0
        for name, value in record.items():  # type: ignore[attr-defined]
            encoder = self._unbound(name)
            bits |= encoder.exactly(value) | self._bit(f"{name}?")
            if isinstance(value, str):
                bits |= encoder.prefixes(value)
            elif not isinstance(value, bool):
                bits |= encoder.point(encoder.unit(_ordered(value)))
        return bits

    def _unbound(self, name: str) -> _Attribute:
        found = self._free.get(name)
        if found is None:
            if len(self._free) >= _KEPT:
                self._free.clear()
            found = self._free[name] = _Attribute(name, self._bit, _FREE_LEVELS[: self._levels], _WORD)
        return found

    # -- filters --------------------------------------------------------------------------

    def filter(self, wanted: Filter) -> Bits:
        """The bits that every event matching a filter has."""
        if wanted.schema != self.schema:
            raise InvalidInput(expected=f"a filter of {self.schema and self.schema.name}", got=wanted)
        bits = self._root
        for name, values in wanted.constraints.items():
            if self.schema is None:
                if not values.overlaps(ABSENT):
                    bits |= self._bit(f"{name}?") | _hull(self._unbound(name), None, values)
            else:
                encoder, attribute = self._places[self.schema.positions[name]]
                bits |= _hull(encoder, attribute.line, values)
        return bits

    def subscription(self, wanted: Subscription, pieces: int = _PIECES) -> tuple[Bits, ...]:
        """The bits of a subscription cut into pieces, without those that others make needless."""
        every = sorted({self.filter(each) for each in _pieces(wanted, pieces, self._levels)}, key=int.bit_count)
        kept: list[Bits] = []
        for bits in every:
            if not covers_any(bits, kept):
                kept.append(bits)
        return tuple(kept)


def _shape(width: int, attributes: int) -> tuple[int, int, int]:
    """How many levels, bits per cell, and levels of the moved grid fill an event's bits to two fifths."""
    room = int(_LOAD * width / attributes) - _EXACT
    if room >= 16:  # pieces have cells of their own: the moved grid serves whole filters, for which few levels do
        hashes = max(2, min(5, room // 10))
        return min(_MAX_LEVELS, (room - 4) // hashes), hashes, 4
    return max(1, room // 2), 1, _MAX_LEVELS


def _pieces(wanted: Subscription, limit: int, levels: int) -> list[Filter]:
    """Filters that together are the subscription: cut at gaps first, then where halves of a domain meet."""
    done: list[Filter] = []
    queue = deque(wanted.filters)
    while queue:
        each = queue.popleft()
        parts = _cut(each, levels) if len(done) + len(queue) + 1 < limit else []
        if parts:
            queue.extend(parts)
        else:
            done.append(each)
    return done


def _cut(wanted: Filter, levels: int) -> list[Filter]:
    """The filter in two, or nothing if it is not worth it."""
    for name, values in wanted.constraints.items():
        if len(values.cuts) > 2:
            half = len(values.cuts) // 4 * 2
            halves = [ValueSet(values.cuts[:half]), ValueSet(values.cuts[half:])]
            return [Filter(wanted.schema, {**wanted.constraints, name: part}) for part in halves]
    if wanted.schema is None:
        return []
    for name, values in wanted.constraints.items():
        attribute = wanted.schema[name]
        if attribute.type not in ("int", "float") or (middle := _boundary(attribute, values, levels)) is None:
            continue
        low, high = ValueSet.interval(None, middle, open_hi=True), ValueSet.interval(middle, None)
        parts = [Filter(wanted.schema, {**wanted.constraints, name: values & part}) for part in (low, high)]
        if not any(part.empty for part in parts):
            return parts
    return []


def _boundary(attribute: Attribute, values: ValueSet, levels: int) -> int | float | None:
    """The coarsest boundary of cells inside a range, or None if the range fills most of the cell that holds it.

    Whole numbers within one of the finest cells have nothing but themselves to be told by: they are taken singly.
    """
    lo, hi = attribute.lo or 0, attribute.hi or 0
    entering, leaving = values.cuts[0], values.cuts[-1]
    first = entering[1] if len(entering) > 1 else lo
    last = leaving[1] if len(leaving) > 1 else hi
    whole = attribute.type == "int"
    size, start = float(hi) - float(lo) + whole, float(lo)
    for level in range(levels + 1):
        middle = start + size / 2
        if first < middle < last and level < levels:
            if last - first >= 0.75 * size:
                return None
            return ceil(middle) if whole else middle
        if level == levels:
            return (first + last) // 2 if whole and last - first > 1 else None
        size /= 2
        start = middle if first >= middle else start
    return None


def _spelt(value: Value) -> str:
    """One spelling per point of the line: 5 and 5.0 are the same value, ``True`` and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{'s' if isinstance(value, str) else 'b' if isinstance(value, bool) else 'n'}{value}"


def _ordered(value: float) -> int:
    """A number as a 64-bit whole number in the same order."""
    return float_key(float(min(max(value, -_LARGEST), _LARGEST))) + (1 << 63)


def _unit(encoder: _Attribute, line: Line, key: int) -> int:
    """The finest piece of the grid that holds a key: keys are taken as they are, floats by their part of the domain."""
    if not line.real:
        return encoder.unit(key - line.first)
    lo, hi = float_at(line.first), float_at(line.last)
    return encoder.unit(0 if hi == lo else (float_at(key) - lo) / (hi - lo))


def _point(encoder: _Attribute, attribute: Attribute, value: Value) -> Bits:
    if attribute.line is None:
        assert isinstance(value, str)
        return encoder.prefixes(value)
    return encoder.point(_unit(encoder, attribute.line, attribute.line.key(value)))


def _hull(encoder: _Attribute, line: Line | None, values: ValueSet) -> Bits:
    """The bits of the range from the first value of a set to its last."""
    if line is not None:
        first, last = line.hull(values)
        bits = encoder.range(_unit(encoder, line, first), _unit(encoder, line, last))
        return bits | encoder.exactly(line.value(first)) if first == last else bits
    entering, leaving = values.cuts[0], values.cuts[-1]
    if entering[0] == NUMBER and (leaving[0] == NUMBER or leaving == (STRING,)):
        lo = entering[1] if len(entering) > 1 else -_LARGEST
        hi = previous_number(leaving[1]) if len(leaving) > 1 else _LARGEST
        bits = encoder.range(encoder.unit(_ordered(lo)), encoder.unit(_ordered(hi)))
        return bits | encoder.exactly(lo) if lo == hi else bits
    if entering[0] == STRING:
        text = entering[1] if len(entering) > 1 else ""
        stop = leaving[1] if leaving[0] == STRING else None
        bits = encoder.common_prefix(text, stop)
        return bits | encoder.exactly(text) if stop == text + "\0" else bits
    if len(values.cuts) == 2 and values in (ValueSet.of(True), ValueSet.of(False)):
        return encoder.exactly(True in values)
    return 0


_LARGEST: Final = nextafter(inf, 0)
