"""Grain: how much an entry has to save, so that many filters have so many entries on average.

With the same number of entries for each, a small filter wastes entries on next to nothing, while a large one lets half
of the space through.  What all of them waste together is least where a further entry would save as much for one as for
any other.  So covers end where a split saves less than the *grain*, which is found by bisection:

    budget 8      8 entries each: ▮▮▮▮▮▮▮▮  ▮▮▮▮▮▮▮▮  ▮▮▮▮▮▮▮▮        by grain: ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮  ▮▮▮▮  ▮

In five dimensions, with filters that take 0 to 60 % of each attribute, cells waste less than half as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sievenet.content import Filter, Subscription
from sievenet.index.cover import boxes_of, cover_words
from sievenet.index.plan import Plan

__all__ = ["SOME", "grained"]

#: Filters that are looked at, and steps of the bisection.
SOME: Final = 256
_STEPS: Final = 14


def grained(plan: Plan, wanted: Sequence[Filter | Subscription], budget: int) -> Plan:
    """The plan with the grain at which these filters have so many entries on average; as it is if there are none."""
    plain = msgspec.structs.replace(plan, grain=0.0)
    some = wanted[:: -(-len(wanted) // SOME) or 1]
    if len(some) < 2:
        return plain
    boxes = [boxes_of(plan, each) for each in some]
    low, high, found = 2.0**-40, 0.5, plain
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        each = msgspec.structs.replace(plan, grain=middle)
        if sum(len(cover_words(each, box, budget, kind=plan.kind)) for box in boxes) > budget * len(boxes):
            low = middle
        else:
            high, found = middle, each
    return found
