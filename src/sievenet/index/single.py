"""The code of one event, in few steps: a plan as a chain of small functions.

`RegionEncoder.code` and the compiled batch encoder serve every plan alike and ask at every event what kind of axis they
are at. A publisher of single events pays for each of those questions with code that its processor has not run for a
while. Here they are asked once: each axis becomes one function from a value to the bits of the code that it decides.

    x ──▶ (x - lo) · factor >> n ──▶ shifted into its place   ┐
    kind ──▶ {"bid": 0b01…, "ask": 0b10…}                      ├ xor ──▶ code, left-aligned in 128 bits
    price ──▶ bucket, then scaled ──▶ tables of eight bits     ┘

Same arithmetic, same codes: a test compares all kinds of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sievenet.index.code import CODE_BITS

if TYPE_CHECKING:
    from sievenet.index.axis import Scale
    from sievenet.index.encoding import RegionEncoder

__all__ = ["Placer", "coder"]

#: From a value of an attribute to the bits of a code that it decides.
Placer: TypeAlias = Callable[[Any], int]

_CHUNK: Final = 8
_WORD: Final = (1 << 64) - 1


def coder(region: RegionEncoder, gray: bool) -> Callable[[tuple[Any, ...]], int]:
    """From the values of an event that a region holds to its code."""
    axes = zip(region.columns, region.scales, region.tables, region.positions, strict=True)
    placers = [(column, _placer(scale, tables, places, gray)) for column, scale, tables, places in axes if places]
    base = region.base
    if len(placers) == 1:
        [(column, place)] = placers
        return lambda values: base ^ place(values[column])

    def code(values: tuple[Any, ...]) -> int:
        found = base
        for column, place in placers:
            found ^= place(values[column])
        return found

    return code


def _placer(scale: Scale, tables: Sequence[Sequence[int]], places: Sequence[int], gray: bool) -> Placer:
    attribute = scale.attribute
    shift = _shift(places, gray)
    spread = _spread(tables) if shift is None else lambda coordinate: coordinate << shift
    if attribute.values is not None or attribute.type == "bool":
        known: tuple[Any, ...] = attribute.values if attribute.values is not None else (False, True)
        return {value: spread(scale.coordinate(scale.place(value))) for value in known}.__getitem__
    if scale.kind == "int" and len(scale.starts) == 1 and scale.rest:
        lo, drop = int(scale.starts[0]), 64 - scale.rest
        high, low = scale.factors[0]
        if shift is not None:
            # Written out: this is the common case.
            up = shift

            def shifted(value: int) -> int:
                x = value - lo
                return (x * high + (x * low >> 64) & _WORD) >> drop << up

            return shifted

        def place(value: int) -> int:
            x = value - lo
            return spread((x * high + (x * low >> 64) & _WORD) >> drop)

        return place
    if scale.kind == "float" and len(scale.starts) == 1 and scale.rest:
        start, factor, most = float(scale.starts[0]), scale.scales[0], (1 << scale.rest) - 1
        return lambda value: spread(min(int((value - start) * factor), most))
    return lambda value: spread(scale.coordinate(scale.place(value)))


def _shift(places: Sequence[int], gray: bool) -> int | None:
    """How far left a coordinate's bits lie in the code, if they lie side by side; else None."""
    together = list(places) == list(range(places[0], places[0] + len(places)))
    return CODE_BITS - 1 - places[-1] if together and not gray else None


def _spread(tables: Sequence[Sequence[int]]) -> Callable[[int], int]:
    """From a coordinate to its bits in the code."""
    if len(tables) == 1:
        return tables[0].__getitem__
    first, second, *more = tables

    def spread(coordinate: int) -> int:
        found = first[coordinate & 255] ^ second[coordinate >> _CHUNK & 255]
        coordinate >>= 2 * _CHUNK
        for table in more:
            found ^= table[coordinate & 255]
            coordinate >>= _CHUNK
        return found

    return spread
