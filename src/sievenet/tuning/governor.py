"""The governor: when a running network searches for a better plan, and when it takes one.

    samples, measured rate ──▶ due? ──▶ search ──▶ judged ──▶ apply, suggest or keep
                                ▲                                 │
                                └────── rest: interval, share ────┘

A search is due when there are enough events to judge by and something can be gained: at first as soon as possible, then
after a rest. The rest doubles with every search that finds nothing better, and begins anew when the measured
false-positive rate rises by a few points (the traffic has drifted) or what is wanted has changed.

    share        a search of c seconds of processor is followed by a rest of c / share at least
    margin       a plan is taken if, on events that the search did not see, it carries less by this part
    pause        between two changes of one category's plan

The margin is hysteresis: the plan in use has the advantage, so two plans that are about as good do not take turns.
Pure: time is an argument, and nothing is done here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["Governor", "Rules", "Verdict"]

Verdict = Literal["apply", "suggest", "keep"]
Mode = Literal["off", "suggest", "auto"]

#: Rise of the measured rate after which an earlier search says nothing any more.
DRIFT: Final = 0.05


@dataclass(frozen=True, slots=True)
class Rules:
    """What a governor keeps to."""

    mode: Mode = "auto"
    #: Part of the transmissions that a plan must save.
    margin: float = 0.05
    #: Events of a sample below which nothing is concluded.
    least: int = 400
    #: Seconds that events are watched before the first search.
    watch: float = 8.0
    #: Seconds between two changes of a plan.
    pause: float = 30.0
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

    #: Since when there is a sample of it.
    begin: float | None = None
    #: When it was last searched for, and how long the next rest is.
    searched: float | None = None
    rest: float = 0.0
    changed: float | None = None
    #: The measured rate and what was wanted when it was last searched for.
    rate: float = 1.0
    wanted: int = -1


@dataclass(slots=True)
class Governor:
    """Decides for all categories of a network; one search at a time."""

    rules: Rules
    begin: float
    #: Seconds of processor that searches took so far.
    spent: float = 0.0
    _categories: dict[int, _Category] = field(default_factory=dict)
    #: No search before this time, whatever it is for.
    _rested: float = 0.0

    def due(self, category: int, events: int, rate: float | None, wanted: int, now: float) -> bool:
        """Whether to search for a plan of a category now.

        ``events`` are those of the sample, ``rate`` is the measured rate of the last seconds (None if nothing came),
        ``wanted`` changes whenever what is wanted does.
        """
        rules, known = self.rules, self._categories.setdefault(category, _Category())
        if events and known.begin is None:
            known.begin = now
        if rules.mode == "off" or events < rules.least or rate is None or rate < rules.quiet or now < self._rested:
            return False
        if known.searched is None:
            return known.begin is not None and now >= known.begin + rules.watch
        if rate > known.rate + DRIFT or wanted != known.wanted:
            known.rest = rules.rest
        if now < known.searched + known.rest:
            return False
        return known.changed is None or now >= known.changed + rules.pause

    def began(self, category: int, rate: float, wanted: int, now: float) -> None:
        """A search begins."""
        known = self._categories.setdefault(category, _Category())
        known.searched, known.rate, known.wanted = now, rate, wanted

    def ended(self, category: int, cost: float, now: float) -> None:
        """A search has ended and took ``cost`` seconds of processor."""
        self.spent += cost
        known = self._categories.setdefault(category, _Category())
        known.searched = now
        known.rest = min(self.rules.longest, max(self.rules.rest, 2 * known.rest))
        self._rested = max(now, self.begin + self.spent / self.rules.share)

    def judged(self, before: float, after: float) -> Verdict:
        """What to do with a plan, by the transmissions of the plan in use and of this one on the same events."""
        if before <= 0 or after > (1.0 - self.rules.margin) * before:
            return "keep"
        return "apply" if self.rules.mode == "auto" else "suggest"

    def changed(self, category: int, now: float) -> None:
        """A plan was changed, by us or by somebody else: let it show what it does."""
        known = self._categories.setdefault(category, _Category())
        known.changed, known.rest = now, self.rules.rest
        # What is measured from now on is measured with another plan.
        known.rate = 0.0

    def forget(self, category: int) -> None:
        """A category is no more."""
        self._categories.pop(category, None)

    def share(self, now: float) -> float:
        """The part of one processor that searches have taken since the beginning."""
        return self.spent / max(now - self.begin, 1e-9)

    def next(self, now: float) -> float:
        """Seconds until the next search can begin at the earliest."""
        return max(0.0, self._rested - now)
