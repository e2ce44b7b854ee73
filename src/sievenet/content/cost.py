"""What filters cost: an estimate of the work of normalising and covering them, made before any of it is done.

Who takes filters from strangers asks here first and refuses what is too much.  The estimate counts what the work
depends on, in one pass over the constraints:

    reading and sorting cuts          a few steps per cut
    comparing filters (`antichain`)   per cut, the depth of a tree of cuts, and one and of as many bits as filters
    covering (`index.cover`)          the stretches of each filter multiplied, at most 64, squared: boxes are compared

A step is about a microsecond of one core.  The estimate is no promise in either direction, but the work does not grow
faster than it: twice the steps allow at most about twice the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Final

from sievenet.errors import CodecError

if TYPE_CHECKING:
    from sievenet.content.filter import Filter

__all__ = ["Estimate", "cost", "too_much"]

#: Boxes that one filter is covered as at most, and all filters of a subscription in one region.
_BOXES: Final = 64
_ALL_BOXES: Final = 256
#: Filters whose bits are handled in one step.
_TOGETHER: Final = 4096


def cost(filters: Iterable[Filter]) -> int:
    """Steps (about a microsecond each) that normalising and covering an ``or`` of filters takes at most, roughly.

    A filter of five constraints costs about 30, a set of 4,000 values 16,000, 1,024 filters of 64 intervals each a
    million.  What is compared with it bounds the time that one request can take: ``cost(filters) > 200_000`` refuses
    what would take more than some tenths of a second.
    """
    estimate = Estimate()
    for each in filters:
        estimate.add(each)
    return estimate.steps


class Estimate:
    """The cost of filters that come one after the other; it never falls, so reading can end when it is too high."""

    __slots__ = ("_axes", "_boxes", "_cuts", "_number")

    def __init__(self) -> None:
        self._number = self._cuts = self._boxes = self._axes = 0

    def add(self, each: Filter) -> None:
        """One more filter."""
        sets = each.constraints.values()
        self._number += 1
        self._cuts += sum(len(values.cuts) for values in sets)
        self._boxes += min(_BOXES, prod(len(values.cuts) // 2 for values in sets))
        self._axes = max(self._axes, len(each.constraints))

    @property
    def steps(self) -> int:
        """What they cost together."""
        number, cuts, boxes = self._number, self._cuts, min(self._boxes, _ALL_BOXES)
        per_cut = 2 if number <= 1 else 2 + cuts.bit_length() // 4
        return 10 + number + cuts * per_cut * (1 + number // _TOGETHER) + self._axes * boxes * boxes // 4


def too_much(steps: int, most: int) -> CodecError:
    """The error for a subscription that costs so many steps, or more."""
    return CodecError(
        f"Expected a subscription that costs at most {most} steps, got one of {steps} or more: "
        "subscribe to fewer filters, or to fewer values in each",
        where="subscription",
    )
