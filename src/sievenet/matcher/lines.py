"""Lines: how the values of an attribute become whole numbers, exactly.

For the kernels every constraint is a union of *closed intervals of int64*, and every event one int64 per attribute.
Four kinds of line do this; each maps values monotonically to *keys*, and an interval's two cuts to its first and last
key, so that open and closed ends, huge integers and neighbouring floats all come out exact:

    whole     the number itself                         cut before 5 → first 5, last 4
    real      the double's bits, made monotone          after 1.5 → first key(1.5) + 1, last key(1.5)
    listed    the position in a sorted enumeration (bools: of false, true)
    ranked    how many cuts of the same store lie at or below the value

The first three are fixed by the schema.  Free strings (and all values of schemaless records, where whole numbers and
doubles beyond 2**53 share a line) have no such fixed numbering: there a store of filters keeps the sorted list of the
cuts it uses, and the key of a value is its rank among them: entering at cut i means rank > i, leaving at cut j means
rank <= j.  Ranks are local to a store and translated when stores merge.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from sievenet.content.schema import Attribute
from sievenet.content.valueset import ALL, BOOL, ValueSet

__all__ = ["Intern", "Pairs", "any_pairs", "schema_pairs", "string_pairs"]

_MAX: Final = (1 << 63) - 1
_TWO_DOUBLES: Final = struct.Struct("=2d")
_TWO_LONGS: Final = struct.Struct("=2q")
_LOWEST, _HIGHEST = ALL.cuts

#: A set of values as first and last key of every stretch, flat.
Pairs = Callable[[ValueSet], list[int]]
#: The numbers of cuts in one store, in order of their first use.
Intern = dict[Any, int]


def schema_pairs(attribute: Attribute) -> Pairs | None:
    """The line of an attribute, ``None`` if it is ranked (free strings)."""
    if attribute.values is not None:
        return _listed(attribute.values)
    return {"int": _whole, "float": _real, "bool": _bool, "str": None}[attribute.type]


def _whole(values: ValueSet) -> list[int]:
    # A canonical set of an integer attribute has cuts (NUMBER, n, 0) only, within the domain or one behind it.
    cuts = values.cuts
    if len(cuts) == 2:
        return [cuts[0][1], cuts[1][1] - 1]
    return [cut[1] - (i & 1) for i, cut in enumerate(cuts)]


def _real(values: ValueSet) -> list[int]:
    cuts = values.cuts
    # Adding 0.0 makes both zeros one.
    if len(cuts) == 2:
        (_, lo, lo_side), (_, hi, hi_side) = cuts
        first, last = _TWO_LONGS.unpack(_TWO_DOUBLES.pack(lo + 0.0, hi + 0.0))
        return [
            (first if first >= 0 else first ^ _MAX) + lo_side,
            (last if last >= 0 else last ^ _MAX) + hi_side - 1,
        ]
    bits = struct.unpack(f"={len(cuts)}q", struct.pack(f"={len(cuts)}d", *(cut[1] + 0.0 for cut in cuts)))
    return [(b if b >= 0 else b ^ _MAX) + cut[2] - (i & 1) for i, (b, cut) in enumerate(zip(bits, cuts, strict=True))]


def _bool(values: ValueSet) -> list[int]:
    first, last = values.cuts
    return [0 if len(first) == 1 else 1, 0 if last[0] == BOOL else 1]


def _listed(members: tuple[str, ...]) -> Pairs:
    # A canonical set begins at a member and ends right behind one: its cut is (STRING, member + "\0").
    first = {member: i for i, member in enumerate(members)} | {None: 0}
    last = {member + "\0": i for i, member in enumerate(members)}

    def pairs(values: ValueSet) -> list[int]:
        cuts = iter(values.cuts)
        keys: list[int] = []
        for entering, leaving in zip(cuts, cuts, strict=True):
            keys += (first[entering[1] if len(entering) > 1 else None], last[leaving[1]])
        return keys

    return pairs


def string_pairs(values: ValueSet, numbers: Intern) -> list[int]:
    """First and last key of free strings in terms of a store's *numbers of cuts*, to be translated to ranks.

    New cuts are added, each as its bare string: that is what an event's string is compared with.
    """
    keys: list[int] = []
    number = numbers.setdefault
    cuts = iter(values.cuts)
    for entering, leaving in zip(cuts, cuts, strict=True):
        keys.append(number(entering[1], len(numbers)) + 1 if len(entering) > 1 else 0)
        keys.append(number(leaving[1], len(numbers)) if len(leaving) > 1 else _MAX)
    return keys


def any_pairs(values: ValueSet, numbers: Intern) -> list[int]:
    """The same for a line of all values, as schemaless filters have; cuts are kept whole."""
    keys: list[int] = []
    for entering, leaving in values.stretches():
        keys.append(0 if entering == _LOWEST else numbers.setdefault(entering, len(numbers)) + 1)
        keys.append(_MAX if leaving == _HIGHEST else numbers.setdefault(leaving, len(numbers)))
    return keys
