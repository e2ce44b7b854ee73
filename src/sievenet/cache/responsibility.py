"""Responsibilities: which cache is to have which subscriptions' part of the event space.

A cache subscribes to what it is responsible for, so each of them gets a part of the traffic: the union of the filters
that it was assigned. A filter goes to the cache that has the same filter already (subscribers with the same need are
served by one transmission), else to the one with the least to do. As load moves, so do responsibilities: a cache that
has clearly more than another hands over one need, with all who have it, that it serves nobody with at that moment.

    load = events per second that came and went, and a little for each subscription

                       before           after
    cache a   ▇▇▇▇▇▇▇▇ 800 + 300        ▇▇▇▇▇▇▇▇ 800      of what halves the difference best,
    cache b   ▇ 100                     ▇▇▇▇ 400          one at a time

One subscription is always with one cache, so its order is that of one stream. Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Load", "choice", "move"]

#: Events per second that a subscription counts as at least, though nothing comes for it.
_EACH: Final = 5.0
#: A cache hands over if it has so many events per second more, and so many times as many, as another.
_MORE: Final = 10.0
_TIMES: Final = 1.5
#: Weight of the newest report.
_NEWEST: Final = 0.2


@dataclass
class Load:
    """What one cache has."""

    #: The needs of the subscriptions whose events it keeps, for itself or as a standby.
    needs: dict[int, Hashable] = field(default_factory=dict)
    #: Those that it serves now.
    active: frozenset[int] = frozenset()
    durable: bool = False
    #: Events per second that came and went.
    rate: float = 0.0
    #: The same for each need.
    rates: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    #: Events that came and went in all, and when that was said.
    _last: tuple[int, float] | None = None

    def reported(self, events: int, rates: Iterable[tuple[int, float, float]], now: float) -> None:
        """It says how many events came and went in all, and how many per second for some subscriptions' needs."""
        last, self._last = self._last, (events, now)
        if last is not None and now > last[1]:
            self.rate += _NEWEST * (max(0, events - last[0]) / (now - last[1]) - self.rate)
        new = {self.needs[number]: (came, went) for number, came, went in rates if number in self.needs}
        for need, fresh in new.items():
            came, went = self.rates.get(need, fresh)
            self.rates[need] = came + _NEWEST * (fresh[0] - came), went + _NEWEST * (fresh[1] - went)
        there = set(self.needs.values())
        self.rates = {need: rate for need, rate in self.rates.items() if need in there}

    def weight(self, responsible: int) -> float:
        """How much it has to do, with so many subscriptions that it is responsible for."""
        return self.rate + _EACH * responsible


def choice(
    loads: Mapping[str, Load], need: Hashable, *, past: bool = False, without: Collection[str] = ()
) -> str | None:
    """The cache that should be responsible for one more subscription; None if there is none."""
    able = {name: load for name, load in loads.items() if name not in without}
    if past and any(load.durable for load in able.values()):
        able = {name: load for name, load in able.items() if load.durable}
    if not able:
        return None

    def order(name: str) -> tuple[bool, float, str]:
        load = able[name]
        return need not in load.needs.values(), load.weight(len(load.needs)), name

    return min(able, key=order)


def move(loads: Mapping[str, Load], first: Mapping[int, str]) -> tuple[list[int], str] | None:
    """Subscriptions that should go to another cache, and to which; None if all is well.

    ``first`` says which cache is responsible for each subscription. Others may keep its events too: they take over
    without more coming to them.
    """
    if len(loads) < 2:
        return None
    own = {name: [number for number in load.needs if first.get(number) == name] for name, load in loads.items()}
    weights = {name: load.weight(len(own[name])) for name, load in loads.items()}
    fullest = max(loads, key=lambda name: (weights[name], name))
    emptiest = min(loads, key=lambda name: (weights[name], name))
    source, target, more = loads[fullest], loads[emptiest], weights[fullest] - weights[emptiest]
    if more < _MORE or weights[fullest] < _TIMES * weights[emptiest] or source.durable > target.durable:
        return None
    groups: dict[Hashable, list[int]] = {}
    for number in own[fullest]:
        groups.setdefault(source.needs[number], []).append(number)
    fitting: list[tuple[float, int]] = []
    for need, numbers in groups.items():
        came, went = source.rates.get(need, (0.0, 0.0))
        here = need in target.needs.values()
        gain = went + _EACH * len(numbers) + (0.0 if here else came)
        if gain < more and source.active.isdisjoint(numbers):
            fitting.append((abs(gain - more / 2), numbers[0]))
    if not fitting:
        return None
    return groups[source.needs[min(fitting)[1]]], emptiest
