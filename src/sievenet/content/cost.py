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

if TYPE_CHECKING:
    from sievenet.content.filter import Filter

__all__ = ["cost"]

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
    number = cuts = boxes = axes = 0
    for each in filters:
        number += 1
        sets = each.constraints.values()
        cuts += sum(len(values.cuts) for values in sets)
        boxes += min(_BOXES, prod(len(values.cuts) // 2 for values in sets))
        axes = max(axes, len(each.constraints))
    boxes = min(boxes, _ALL_BOXES)
    per_cut = 2 if number <= 1 else 2 + cuts.bit_length() // 4
    return 10 + number + cuts * per_cut * (1 + number // _TOGETHER) + axes * boxes * boxes // 4
