"""Responsibilities: which cache is to have which subscriptions' part of the event space.

A cache subscribes to what it is responsible for, so each of them gets a part of the traffic: the union of the filters
that it was assigned. A filter goes to the cache that has the same filter already (subscribers with the same need are
served by one transmission), else to the one with the least to do. As load moves, so do responsibilities: a cache that
has clearly more than another hands one subscription over, one that it does not serve at that moment.

    load = subscriptions served now, then subscriptions assigned

One subscription is always with one cache, so its order is that of one stream. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Load", "choice", "move"]

#: A cache hands over if it has this many more, and this many times as many, as another.
_MORE: Final = 2
_TIMES: Final = 1.5


@dataclass
class Load:
    """What one cache has."""

    #: The needs of the subscriptions that it is responsible for.
    needs: dict[int, Hashable] = field(default_factory=dict)
    #: Those that it serves now.
    active: frozenset[int] = frozenset()
    durable: bool = False


def choice(
    loads: Mapping[str, Load], need: Hashable, *, past: bool = False, without: Collection[str] = ()
) -> str | None:
    """The cache that should be responsible for one more subscription; None if there is none."""
    able = {name: load for name, load in loads.items() if name not in without}
    if past and any(load.durable for load in able.values()):
        able = {name: load for name, load in able.items() if load.durable}
    if not able:
        return None

    def order(name: str) -> tuple[bool, int, int, str]:
        load = able[name]
        return need not in load.needs.values(), len(load.active), len(load.needs), name

    return min(able, key=order)


def move(loads: Mapping[str, Load]) -> tuple[int, str] | None:
    """A subscription that should go to another cache, and to which; None if all is well."""
    if len(loads) < 2:
        return None
    fullest = max(loads, key=lambda name: (len(loads[name].needs), name))
    emptiest = min(loads, key=lambda name: (len(loads[name].needs), name))
    many, few = len(loads[fullest].needs), len(loads[emptiest].needs)
    if many < few + _MORE or many < _TIMES * few:
        return None
    # Whole groups stay together: the rarest need goes first.
    needs = list(loads[fullest].needs.values())
    idle = [number for number in loads[fullest].needs if number not in loads[fullest].active]
    if not idle or loads[fullest].durable > loads[emptiest].durable:
        return None
    chosen = min(idle, key=lambda number: (needs.count(loads[fullest].needs[number]), number))
    if needs.count(loads[fullest].needs[chosen]) > (many - few):
        return None
    return chosen, emptiest
