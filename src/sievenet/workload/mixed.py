"""Subscriptions over numbers, strings and bools at once: what a matcher meets in practice.

The schema has number attributes (``f0 …`` floats and ``i0 …`` small whole numbers), string
attributes (``s0 …``, every other one free text) and bools (``b0 …``).  Events are uniform in each.  A
subscription constrains a few attributes and always at least one float:

    float   a range
    int     one value, or a short range
    str     a set of one to `set_size` strings
    bool    true or false

The ranges of the floats are made as wide as it takes for the whole subscription to match
an event with probability ``match``: of a hundred thousand subscriptions with
``match=1e-4`` every event matches about ten, however many attributes they constrain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, Column, EventBatch, Schema, StringColumn
from sievenet.errors import InvalidInput
from sievenet.workload.draws import Floats, rows
from sievenet.workload.interests import Bools, Choices, Interests
from sievenet.workload.space import column_at
from sievenet.workload.widths import check_constrained, chosen_attributes

__all__ = ["Mixed"]

#: Whole numbers are 0 … 99.
_LEVELS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Settings of the mixed workload, and the workload itself.

    >>> load = Mixed(match=0.01, seed=1)
    >>> str(load.subscriptions(1)[0]).startswith("mixed: ")
    True
    """

    #: How many attributes of each type; at least one float.
    floats: int = 3
    ints: int = 2
    strings: int = 4
    bools: int = 1
    #: Distinct strings per string attribute.
    vocabulary: int = 100
    #: Most strings in a set.
    set_size: int = 8
    #: Least and most attributes that a subscription constrains.
    constrained: tuple[int, int] = (2, 5)
    #: Probability that a subscription matches an event.
    match: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.floats < 1 or min(self.ints, self.strings, self.bools) < 0:
            raise InvalidInput(
                expected="at least one float, no negative number of attributes",
                got=(self.floats, self.ints, self.strings, self.bools),
            )
        if not 1 <= self.set_size <= self.vocabulary:
            raise InvalidInput(expected=f"1 <= set_size <= {self.vocabulary}", got=self.set_size, where="set_size")
        if not 0.0 < self.match <= 1.0:
            raise InvalidInput(expected="a probability", got=self.match, where="match")
        check_constrained(self.constrained, self._dimensions)

    @property
    def _dimensions(self) -> int:
        return self.floats + self.ints + self.strings + self.bools

    @property
    def schema(self) -> Schema:
        """The schema: floats, ints, strings, bools."""
        return _schema(self.floats, self.ints, self.strings, self.bools, self.vocabulary)

    def events(self, count: int, *, start: int = 0) -> EventBatch:
        """Events ``start`` to ``start + count``."""
        d = self._dimensions
        (cube,) = rows(self.seed, 0, start, count, lambda rng, n: (rng.random((n, d)),))
        words = _vocabulary(self.vocabulary)
        columns: dict[str, Column] = {}
        for j, attribute in enumerate(self.schema.attributes):
            if attribute.type == "str":
                codes = np.minimum((cube[:, j] * len(words)).astype(np.int32), len(words) - 1)
                columns[attribute.name] = StringColumn(codes, words)
            else:
                columns[attribute.name] = column_at(attribute, cube[:, j])
        return EventBatch.of(self.schema, columns)

    def subscriptions(self, count: int, *, start: int = 0) -> Interests:
        """Subscriptions ``start`` to ``start + count``."""
        d, m, v = self._dimensions, self.set_size, self.vocabulary
        keys, counts, sizes, places, picks, first = rows(
            self.seed,
            1,
            start,
            count,
            lambda rng, n: (
                rng.random((n, d)),
                rng.random(n),
                rng.random((n, d)),
                rng.random((n, d)),
                _distinct(rng, n, max(1, self.strings), m, v),
                rng.integers(self.floats, size=n),
            ),
        )
        # The float that every subscription has: the smallest key is always among the chosen.
        keys = keys.copy()
        keys[np.arange(count), first] = -1.0
        used = chosen_attributes(keys, counts, self.constrained)
        share = self.match ** (1.0 / used.sum(axis=1))
        lo, hi = np.zeros((count, d)), np.zeros((count, d))
        chance = np.ones(count)
        choices: dict[int, Choices] = {}
        for j in range(self.floats, d):
            name = self.schema.attributes[j].type
            if name == "str":
                number = np.clip(np.round(share * v * 2.0 * sizes[:, j]), 1, m).astype(np.int64)
                k = j - self.floats - self.ints
                choices[j] = _choices(picks[:, k], np.where(used[:, j], number, 0), _vocabulary(v))
                lo[:, j], hi[:, j], part = 0.0, v - 1.0, number / v
            else:
                lo[:, j], hi[:, j], part = _values(name, share, sizes[:, j], places[:, j], used[:, j])
            chance *= np.where(used[:, j], part, 1.0)
        ranged = used[:, : self.floats]
        width = np.minimum(1.0, (self.match / chance) ** (1.0 / ranged.sum(axis=1)))[:, None]
        begin = places[:, : self.floats] * (1.0 - width)
        lo[:, : self.floats] = np.where(ranged, begin, 0.0)
        hi[:, : self.floats] = np.where(ranged, begin + width, 1.0)
        return Interests(self.schema, lo, hi, used, choices)


def _values(name: str, share: Floats, size: Floats, place: Floats, used: Bools) -> tuple[Floats, Floats, Floats]:
    """Bounds on a discrete attribute, and the part of events within: half of the ints are one value."""
    if name == "bool":
        value = np.round(place)
        return np.where(used, value, 0.0), np.where(used, value, 1.0), np.full(len(place), 0.5)
    number = np.where(size < 0.5, 1.0, np.clip(np.round(share * _LEVELS), 1, _LEVELS))
    first = np.floor(place * (_LEVELS - number + 1))
    return np.where(used, first, 0.0), np.where(used, first + number - 1, _LEVELS - 1.0), number / _LEVELS


def _distinct(
    rng: np.random.Generator, count: int, attributes: int, size: int, vocabulary: int
) -> npt.NDArray[np.int32]:
    """Distinct codes per row and attribute: an arithmetic progression modulo a prime, cut to the vocabulary."""
    prime = _prime_from(vocabulary)
    start = rng.integers(prime, size=(count, attributes, 1))
    step = rng.integers(1, prime, size=(count, attributes, 1)) if prime > 2 else np.ones((count, attributes, 1), int)
    # Codes at or behind the vocabulary's end are skipped: there are prime - vocabulary of them.
    codes = (start + step * np.arange(size + prime - vocabulary)) % prime
    order = np.argsort(codes >= vocabulary, axis=2, kind="stable")[:, :, :size]
    return np.take_along_axis(codes, order, axis=2).astype(np.int32)


def _choices(picks: npt.NDArray[np.int32], number: npt.NDArray[np.int64], words: tuple[str, ...]) -> Choices:
    kept = np.arange(picks.shape[1]) < number[:, None]
    return Choices(np.concatenate(([0], np.cumsum(number))), picks[kept], words)


def _prime_from(number: int) -> int:
    while number < 2 or any(number % k == 0 for k in range(2, int(number**0.5) + 1)):
        number += 1
    return number


@lru_cache(maxsize=16)
def _vocabulary(size: int) -> tuple[str, ...]:
    return tuple(f"w{i:0{len(str(size - 1))}}" for i in range(size))


@lru_cache(maxsize=16)
def _schema(floats: int, ints: int, strings: int, bools: int, vocabulary: int) -> Schema:
    return Schema(
        "mixed",
        (
            *(Attribute(f"f{i}", "float", lo=0.0, hi=1.0) for i in range(floats)),
            *(Attribute(f"i{i}", "int", lo=0, hi=_LEVELS - 1) for i in range(ints)),
            *(Attribute(f"s{i}", "str", values=None if i % 2 else _vocabulary(vocabulary)) for i in range(strings)),
            *(Attribute(f"b{i}", "bool") for i in range(bools)),
        ),
    )
