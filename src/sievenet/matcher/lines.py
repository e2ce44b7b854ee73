"""Lines: how the values of an attribute become whole numbers, exactly.

For the kernels every constraint is a union of *closed intervals of int64*, and every event one int64 per attribute.
Numbers, bools and enumerations have keys that their schema fixes (`content.line`).

Free strings (and all values of schemaless records, where whole numbers and doubles beyond 2**53 share a line) have no
such fixed numbering: they are *ranked*.  A store of filters keeps the sorted list of the cuts it uses, and the key of a
value is its rank among them: entering at cut i means rank > i, leaving at cut j means rank <= j.  Ranks are local to a
store and translated when stores merge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sievenet.content.schema import Attribute
from sievenet.content.valueset import ALL, ValueSet

__all__ = ["Intern", "Pairs", "any_pairs", "schema_pairs", "string_pairs"]

_MAX: Final = (1 << 63) - 1
_LOWEST, _HIGHEST = ALL.cuts

#: A set of values as first and last key of every stretch, flat.
Pairs = Callable[[ValueSet], list[int]]
#: The numbers of cuts in one store, in order of their first use.
Intern = dict[Any, int]


def schema_pairs(attribute: Attribute) -> Pairs | None:
    """The line of an attribute, ``None`` if it is ranked (free strings)."""
    return None if attribute.line is None else attribute.line.pairs


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
