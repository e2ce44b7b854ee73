"""The governor: when a running network searches for a better plan, and when it takes one.

    samples, measured rate ──▶ due? ──▶ search ──▶ judged ──▶ apply, suggest or keep
                                ▲                                 │
                                └────── rest: interval, share ────┘

A search is due when there are enough events to judge by and something can be gained: at first as soon as possible, then
after a rest. The rest doubles with every search that finds nothing better, and begins anew at a *drift*: the measured
rate rises by a few points, or a part of what is wanted has changed. After a drift events are watched anew before a
search.

    share        a search of c seconds of processor is followed by a rest of c / share at least; one that has no news,
                 neither a drift nor a sample much longer than last time, by twice that: the rest is kept for drifts
    margin       a plan is taken if, on events that the search did not see, it carries less by this part; or if it
                 carries no more, and less of what hosts receive is unnecessary, by a point
    pause        between two changes of one category's plan

The margin is hysteresis: the plan in use has the advantage, so two plans that are about as good do not take turns (no
plan that is taken carries more than the one before it).
Pure: time is an argument, and nothing is done here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["Governor", "Rules", "Verdict"]

Verdict = Literal["apply", "suggest", "keep"]
Mode = Literal["off", "suggest", "auto"]

#: Rise of the measured rate after which an earlier search says nothing any more.
DRIFT: Final = 0.05
#: The same for requests, as a part of all subscriptions.
OTHER: Final = 0.1
#: Seconds after which what is measured is of the new plan alone.
SETTLED: Final = 8.0
#: Part of what hosts receive that a plan must spare them if it saves less than the margin.
SPARED: Final = 0.01
#: Seconds of events that are enough for a search: a longer sample is no news.
LONG: Final = 30.0
#: Part of the share for searches without news.
IDLE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Rules:
    """What a governor keeps to."""

    mode: Mode = "auto"
    #: Part of the transmissions that a plan must save.
    margin: float = 0.05
    #: Events of a sample below which nothing is concluded.
    least: int = 400
    #: Seconds that events are watched before the first search, and after a drift.
    watch: float = 10.0
    #: Seconds between two changes of a plan.
    pause: float = 20.0
    #: Part of one processor that searches may take on average.
    share: float = 0.09
    #: Rate below which nothing can be gained.
    quiet: float = 0.01
    #: Seconds of the first rest, and of the longest.
    rest: float = 10.0
    longest: float = 600.0


@dataclass(slots=True)
class _Category:
    """What is remembered of one category."""

    #: Since when there is a sample of it, or of it as it is since the last drift.
    begin: float | None = None
    #: When a drift was noticed that no search has looked at yet.
    drift: float | None = None
    #: When it was last searched for, and how long the next rest is.
    searched: float | None = None
    rest: float = 0.0
    changed: float | None = None
    #: Seconds of events that were there when it was last searched for.
    watched: float = 0.0
    #: The rate that is no drift (None: not measured yet with the plan of now), and what was wanted last time.
    rate: float | None = 1.0
    wanted: int = -1

    @property
    def news(self) -> bool:
        """Whether a search would see what the last one did not."""
        return self.searched is None or self.drift is not None or self.watched < LONG


@dataclass(slots=True)
class Governor:
    """Decides for all categories of a network; one search at a time."""

    rules: Rules
    begin: float
    #: Seconds of processor that searches took so far.
    spent: float = 0.0
    _categories: dict[int, _Category] = field(default_factory=dict)

    def due(self, category: int, events: int, rate: float | None, wanted: int, now: float, of: int = 0) -> bool:
        """Whether to search for a plan of a category now.

        ``events`` are those of the sample since `since`, ``rate`` is the measured rate of the last seconds (None if
        nothing came), ``wanted`` counts requests that may have changed what is wanted, ``of`` all subscriptions.
        """
        rules, known = self.rules, self._categories.setdefault(category, _Category())
        if events and known.begin is None:
            known.begin = now
        if rules.mode == "off" or rate is None:
            return False
        if known.searched is not None:
            self._look(known, rate, wanted, now, of)
        if events < rules.least or rate < rules.quiet or now < self._rested(known.news):
            return False
        if known.searched is None:
            return known.begin is not None and now >= known.begin + rules.watch
        if now < known.searched + known.rest or (known.drift is not None and now < known.drift + rules.watch):
            return False
        return known.changed is None or now >= known.changed + rules.pause

    def since(self, category: int) -> float:
        """The time from which on events say something about the traffic of now."""
        known = self._categories.get(category)
        if known is None or known.drift is None:
            return -math.inf if known is None or known.begin is None else known.begin
        return known.drift

    def _look(self, known: _Category, rate: float, wanted: int, now: float, of: int) -> None:
        """Whether the traffic or what is wanted has drifted since the last search."""
        if known.rate is None and known.changed is not None and now >= known.changed + SETTLED:
            known.rate = rate
        # A change of plan is a request too, and wants nothing.
        drifted = wanted - known.wanted > max(1.0, OTHER * of)
        drifted |= known.rate is not None and rate > known.rate + DRIFT
        if drifted and known.drift is None:
            known.drift, known.rest = now, self.rules.rest

    def _rested(self, news: bool) -> float:
        """No search before this time, whatever it is for."""
        return self.begin + self.spent / (self.rules.share * (1.0 if news else IDLE))

    def began(self, category: int, rate: float, wanted: int, now: float) -> None:
        """A search begins."""
        known = self._categories.setdefault(category, _Category())
        if known.drift is not None:
            known.begin, known.drift = known.drift, None
        known.searched, known.rate, known.wanted = now, rate, wanted
        known.watched = now - (now if known.begin is None else known.begin)

    def ended(self, category: int, cost: float, now: float) -> None:
        """A search has ended and took ``cost`` seconds of processor."""
        self.spent += cost
        known = self._categories.setdefault(category, _Category())
        known.searched = now
        known.rest = min(self.rules.longest, max(self.rules.rest, 2 * known.rest))

    def judged(self, before: float, after: float, rate_before: float = 0.0, rate_after: float = 0.0) -> Verdict:
        """What to do with a plan.

        Of the plan in use and of this one: transmissions, and the unnecessary part of what hosts receive, on the same
        events.
        """
        saves = before > 0 and after <= (1.0 - self.rules.margin) * before
        spares = after <= before and rate_after <= rate_before - SPARED
        if not saves and not spares:
            return "keep"
        return "apply" if self.rules.mode == "auto" else "suggest"

    def changed(self, category: int, now: float) -> None:
        """A plan was changed, by us or by somebody else: let it show what it does."""
        known = self._categories.setdefault(category, _Category())
        known.changed, known.rest = now, self.rules.rest
        # What is measured from now on is measured with another plan.
        known.rate = None

    def forget(self, category: int) -> None:
        """A category is no more."""
        self._categories.pop(category, None)

    def share(self, now: float) -> float:
        """The part of one processor that searches have taken since the beginning."""
        return self.spent / max(now - self.begin, 1e-9)

    def next(self, now: float) -> float:
        """Seconds until the next search can begin at the earliest."""
        return max(0.0, self._rested(any(each.news for each in self._categories.values())) - now)
