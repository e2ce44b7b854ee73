"""Many generated subscriptions as arrays, and as filters on demand.

Two hundred thousand filters are two hundred thousand objects; most uses (encoding,
clustering, counting) want their bounds as arrays.  `Interests` holds the arrays and is a
sequence of `Filter`: a filter is made when it is asked for.

    lo, hi     [subscription, attribute]   closed bounds; ordinals for strings and bools
    used       [subscription, attribute]   whether the attribute is constrained at all
    choices    attribute → sets of strings, where they are not a run of ordinals

An attribute that is not used has its whole domain as bounds, so arithmetic on bounds
needs no special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Filter, Schema, ValueSet
from sievenet.content.columns import matching
from sievenet.content.valueset import NUMBER, Cut, after, before
from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats
from sievenet.workload.space import whole

__all__ = ["Choices", "Interests"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Sets of strings: subscription i wants ``categories[c]`` for ``codes[offsets[i]:offsets[i + 1]]``.

    For an enumeration the categories are the attribute's values.  No string of free text is
    another one followed by a zero character (they would be neighbours on the line of values).
    """

    offsets: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]
    categories: tuple[str, ...]

    def take(self, where: npt.NDArray[np.int64]) -> Choices:
        """The sets of the chosen subscriptions."""
        sizes = np.diff(self.offsets)[where]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        inner = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        return Choices(offsets, self.codes[np.repeat(self.offsets[:-1][where], sizes) + inner], self.categories)


@dataclass(frozen=True, slots=True, eq=False)
class Interests(Sequence[Filter]):
    """Subscriptions of one schema, one filter each."""

    schema: Schema
    lo: Floats
    hi: Floats
    used: Bools
    choices: Mapping[int, Choices] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lo)

    @overload
    def __getitem__(self, i: int) -> Filter: ...
    @overload
    def __getitem__(self, i: slice) -> Interests: ...
    def __getitem__(self, i: int | slice) -> Filter | Interests:
        if isinstance(i, slice):
            return self.take(i)
        row = range(len(self))[i]
        return next(iter(self.take([row])))

    def __iter__(self) -> Iterator[Filter]:
        attributes = self.schema.attributes
        makers = [_maker(a, self.choices.get(j)) for j, a in enumerate(attributes)]
        names = [a.name for a in attributes]
        every = zip(self.lo.tolist(), self.hi.tolist(), self._narrowing().tolist(), strict=True)
        for row, (lo, hi, used) in enumerate(every):
            constraints = {names[j]: makers[j](row, lo[j], hi[j]) for j, on in enumerate(used) if on}
            # Canonical already: inside the domain, cuts as the domain has them, none the whole domain.
            yield Filter._canonical(self.schema, constraints)

    def _narrowing(self) -> Bools:
        """Which constraints exclude something; the others are none in a filter's canonical form."""
        narrowing = self.used.copy()
        for j, attribute in enumerate(self.schema.attributes):
            if j not in self.choices:
                least, most = whole(attribute)
                narrowing[:, j] &= (self.lo[:, j] > least) | (self.hi[:, j] < most)
            elif attribute.values is not None:
                narrowing[:, j] &= np.diff(self.choices[j].offsets) < len(attribute.values)
        return narrowing

    def filters(self) -> list[Filter]:
        """All of them as filters."""
        return list(self)

    def take(self, where: Any) -> Interests:
        """The chosen subscriptions: a slice, a mask or an index array."""
        chosen = np.arange(len(self))[where]
        choices = {j: c.take(chosen) for j, c in self.choices.items()}
        return Interests(self.schema, self.lo[chosen], self.hi[chosen], self.used[chosen], choices)

    def matrix(self, batch: EventBatch) -> Bools:
        """Which subscription (column) wants which event (row).

        The reference for tests and small experiments: it costs events x subscriptions x
        attributes, and one byte per pair.
        """
        if batch.schema != self.schema:
            raise InvalidInput(expected=f"events of {self.schema.name}", got=batch.schema.name)
        wanted = np.empty((len(batch), len(self)), np.bool_)
        for j, each in enumerate(self):
            wanted[:, j] = matching(each, batch)
        return wanted

    def matches_per_event(self, batch: EventBatch) -> npt.NDArray[np.int64]:
        """How many subscriptions want each event."""
        counts = np.zeros(len(batch), np.int64)
        for each in self:
            counts += matching(each, batch)
        return counts


def _maker(attribute: Attribute, choices: Choices | None) -> Callable[[int, float, float], ValueSet]:
    """How one attribute's bounds become a set of values, in the canonical form of its domain."""
    if choices is not None:
        return _set_maker(attribute, choices)
    match attribute.type:
        case "float":
            return lambda row, lo, hi: ValueSet(((NUMBER, lo), (NUMBER, math.nextafter(hi, math.inf))))
        case "int":
            return lambda row, lo, hi: ValueSet(((NUMBER, int(lo)), (NUMBER, int(hi) + 1)))
        case "bool":
            return lambda row, lo, hi: ValueSet((before(bool(lo)), after(bool(hi))))
        case _:
            starts, stops = [before(v) for v in attribute.values or ()], [after(v) for v in attribute.values or ()]
            return lambda row, lo, hi: ValueSet((starts[int(lo)], stops[int(hi)]))


def _set_maker(attribute: Attribute, choices: Choices) -> Callable[[int, float, float], ValueSet]:
    """Sets of strings.  In an enumeration neighbours share a stretch; in free text each has its own."""
    order = sorted(range(len(choices.categories)), key=choices.categories.__getitem__)
    rank = {code: i for i, code in enumerate(order)}
    starts = [before(choices.categories[code]) for code in order]
    stops = [after(choices.categories[code]) for code in order]
    offsets, codes = choices.offsets.tolist(), [rank[code] for code in choices.codes.tolist()]
    neighbours = attribute.values is not None

    def make(row: int, lo: float, hi: float) -> ValueSet:
        cuts: list[Cut] = []
        last = -2
        for code in sorted(set(codes[offsets[row] : offsets[row + 1]])):
            if neighbours and code == last + 1:
                cuts[-1] = stops[code]
            else:
                cuts += (starts[code], stops[code])
            last = code
        return ValueSet(tuple(cuts))

    return make
