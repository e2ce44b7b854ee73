"""The search for the best plan, within a time budget.

    RI                   regular, all dimensions: what everything is compared with
    EVS, EMCS, CS        the first n dimensions by each rank, every n
    GS                   drop dimensions one by one, by true cost
    BRS                  every subset, if there are not too many and time is left
    + SI, SI1            the best sets of dimensions, inside 2 … 64 rectangles around clusters of subscriptions
    + ASI, QI            the best sets of dimensions, split where the workload is
    + SI+QI              rectangles and split axes
    + GB                 greedy bits in the best of all, with and without split points (see `bits`)

(`candidate` says what each is.)  Every candidate is judged by its true cost on a sample (`judge`), by default by the
packets that the network carries: see `cost`.  Choosing dimensions is cheap and comes first, then what was the best most
often (greedy bits in rectangles around clusters by all attributes, in several numbers, and in subspaces), so that
little time is enough for a good plan; with `brief` that is all.  Then stages run from cheap to dear, each from the best
of those before.  When time is up the best so far is the answer.  The
plan in use is a candidate too: what carries more is never the best.  Nothing is random but the sample and the seeds of
the clusters.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sievenet.index import Plan
from sievenet.index.plan import Kind
from sievenet.tuning.bits import greedy_bits
from sievenet.tuning.candidate import Candidates, random_sets
from sievenet.tuning.clusters import Clustering
from sievenet.tuning.cost import Cost, Objective
from sievenet.tuning.dimensions import ranked
from sievenet.tuning.judge import Judge
from sievenet.tuning.profile import Profile

__all__ = ["METHODS", "RECIPES", "Findings", "Search", "Tried", "random_sets", "search"]

METHODS: Final = ("RI", "EVS", "EMCS", "CS", "GS", "BRS", "SI", "SI1", "ASI", "QI", "SI+QI", "GB")
#: What `recipes` are made of: a way to choose dimensions, and how they are indexed.
SELECTIONS: Final = ("RI", "EVS", "EMCS", "CS", "GS", "BRS")
INDEXES: Final = ("SI", "SI1", "ASI", "QI", "SI+QI", "SI1+QI")
RECIPES: Final = (
    *SELECTIONS,
    *(f"{selection}+{index}" for selection in SELECTIONS for index in INDEXES),
    *(f"GB+{index}" for index in ("RI", "SI", "SI1", "ASI")),
)
#: Numbers of rectangles that are tried, the most promising first.
RECTANGLES: Final = (16, 8, 32, 4, 64, 2)
#: The same for clusters by all attributes, and how many of the best of them get split axes too.
CLUSTERS: Final = (16, 64, 8, 32, 12, 24, 20, 28)
_SPLIT: Final = 3
#: Numbers of clusters after which a kind of rectangles that is so much worse is left alone.
_BOTH: Final = 2
_WORSE: Final = 1.25
#: Levels of subspaces that are tried.
LEVELS: Final = (4, 6, 2, 8)
#: Subsets of more dimensions than this are not all tried.
_MAX_BRS: Final = 8
#: Rectangles around clusters by all attributes, and levels of subspaces, for greedy bits.
_ALL: Final = 16
_FINE: Final = 3

Clock = Callable[[], float]
#: A plan, under a name, and the number of its rectangles.
_Base = tuple[str, Plan, int]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan and how it did."""

    name: str
    #: What it costs on the sample, and what of it counts.
    cost: Cost
    score: float
    dimensions: tuple[str, ...]
    #: Regions, without the rest.
    rectangles: int
    plan: Plan
    #: Seconds since the search began.
    at: float

    @property
    def fpr(self) -> float:
        """The false-positive rate per subscription."""
        return self.cost.per_subscription

    def record(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.name,
            **self.cost.summary(),
            "dimensions": list(self.dimensions),
            "rectangles": self.rectangles,
            "at": round(self.at, 3),
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """The best plan, everything that was tried, and why it is the best."""

    best: Tried
    tried: tuple[Tried, ...]
    why: str
    seconds: float
    #: Whether every stage was finished.
    complete: bool

    def of(self, name: str) -> Tried | None:
        """The best candidate of a name."""
        return min((t for t in self.tried if t.name == name), key=lambda t: t.score, default=None)


@dataclass(slots=True)
class Search:
    """One search; `run` does it."""

    judge: Judge
    profile: Profile
    clusters: Clustering
    bits: int
    kind: Kind = "dz"
    #: Whether plans must take events and filters outside of all rectangles.
    rest: bool = True
    seconds: float = 60.0
    methods: Sequence[str] = METHODS
    #: Whether only what was the best most often is tried.
    brief: bool = False
    #: Of `RECIPES`: try these and nothing else, and take the best of them, whatever it carries.
    recipes: Sequence[str] = ()
    version: int = 1
    #: What is to be as small as possible.
    objective: Objective = "links"
    #: The plan in use, which a better one has to beat.
    present: Plan | None = None
    clock: Clock = time.monotonic
    say: Say = lambda text: None
    tried: list[Tried] = field(default_factory=list)
    _start: float = 0.0
    _make: Candidates = field(init=False)

    def __post_init__(self) -> None:
        given = (self.judge, self.profile, self.clusters, self.bits, self.kind, self.rest, self.version)
        self._make = Candidates(*given)

    def run(self) -> Findings:
        """Search."""
        # What the first plan takes is no part of the search: compiled code is loaded for it, or made.
        first, *stages = self._stages
        for _ in first():
            self._start = self.clock()
        complete = True
        for stage in stages:
            for _ in stage():
                if self.clock() - self._start > self.seconds:
                    complete = False
                    break
            best = min(self.tried, key=lambda t: t.score)
            self.say(
                f"{len(self.tried)} plans, best {best.name}: {best.cost.transmissions:,} transmissions, "
                f"{best.fpr:.2%} per subscription, after {self.clock() - self._start:.1f} s"
            )
            if not complete:
                break
        asked = [t for t in self.tried if t.name in self.recipes] or self.tried
        best = min(asked, key=lambda t: (t.score, t.name != "present", len(t.dimensions), t.rectangles))
        return Findings(best, tuple(self.tried), self._why(best), self.clock() - self._start, complete)

    @property
    def _stages(self) -> tuple[Callable[[], Iterator[None]], ...]:
        if self.recipes:
            return (self._regular, *(partial(self._recipe, recipe) for recipe in self.recipes))
        early = (self._regular, self._ranked, self._greedy, self._promising, self._tiles)
        return early if self.brief else (*early, self._indexed, self._greedy_bits, self._every_subset)

    # -- stages: each yields after a round of judging, so that time can end between rounds --------

    def _regular(self) -> Iterator[None]:
        first = [("RI", self._make.regular(self._make.names), 1)]
        if self.present is not None:
            first.append(("present", self.present, sum(not r.rest for r in self.present.regions)))
        self._judged(first)
        yield

    def _ranked(self) -> Iterator[None]:
        names = self._make.names
        rounds = []
        for method, factors in (("EVS", self.profile.evs), ("EMCS", self.profile.emcs), ("CS", self.profile.cs)):
            if method in self.methods:
                order = ranked(factors)
                sets = ([names[i] for i in order[:n]] for n in range(1, len(names) + 1))
                rounds += [(method, self._make.regular(dims), 1) for dims in sets]
        self._judged(rounds)
        yield

    def _greedy(self) -> Iterator[None]:
        if "GS" not in self.methods:
            return
        current = tuple(self._make.names)
        self._judged([("GS", self._make.regular(current), 1)])
        while len(current) > 1:
            sets = [tuple(n for n in current if n != gone) for gone in current]
            found = self._judged([("GS", self._make.regular(dims), 1) for dims in sets])
            current = min(found, key=lambda t: t.score).dimensions
            yield

    def _every_subset(self) -> Iterator[None]:
        names = self._make.names
        if "BRS" not in self.methods or len(names) > _MAX_BRS:
            return
        for size in range(1, len(names) + 1):
            self._judged([("BRS", self._make.regular(dims), 1) for dims in itertools.combinations(names, size)])
            yield

    def _indexed(self) -> Iterator[None]:
        """Rectangles and split points on the best sets of dimensions."""
        sets = self._best_sets(4)
        kinds = [kind for kind in ("SI", "SI1") if kind in self.methods]
        for count in RECTANGLES if kinds else ():
            if count.bit_length() - 1 < self.bits:
                self._judged([self._selective(name, dims, count, kind) for kind in kinds for name, dims in sets])
                yield
            if count == RECTANGLES[0]:
                yield from self._adaptive(sets)
        if not kinds:
            yield from self._adaptive(sets)
        if "SI+QI" in self.methods:
            best = sorted((t for t in self.tried if t.name.endswith(("+SI", "+SI1"))), key=lambda t: t.score)[:3]
            self._judged([(t.name + "+QI", self._make.split(t.plan), t.rectangles) for t in best])
            yield

    def _recipe(self, recipe: str) -> Iterator[None]:
        """One way to choose dimensions and one way to index them, as asked for."""
        selection, _, index = recipe.partition("+")
        if selection == "GB":
            base = self._based(index)
            self._judged([base])
            for split in (False, True):
                self._given_bits(base, split=split)
                yield
            return
        stages = {"GS": self._greedy, "BRS": self._every_subset, "RI": self._regular}
        self.methods = (selection,)
        yield from stages.get(selection, self._ranked)()
        dims = min((t for t in self.tried if t.name == selection), key=lambda t: t.score).dimensions
        if index.startswith("SI"):
            kind = index.removesuffix("+QI")
            for count in RECTANGLES:
                if count.bit_length() - 1 < self.bits:
                    made = self._selective(selection, dims, count, kind)
                    if kind != index:
                        made = (recipe, self._make.split(made[1]), made[2])
                    self._judged([made])
                    yield
        elif index:
            self.methods = (index,)
            yield from self._adaptive([(selection, dims)])

    def _based(self, index: str) -> _Base:
        """What greedy bits begin with."""
        names = self._make.names
        if index == "ASI":
            tiles = self._make.subspaces(names, min(_FINE, self.bits - 1))
            return "RI+ASI", tiles, len(tiles.regions)
        return ("RI", self._make.regular(names), 1) if index == "RI" else self._selective("RI", names, _ALL, index)

    def _adaptive(self, sets: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[None]:
        if "QI" in self.methods:
            self._judged([(f"{name}+QI", self._make.quantiles(dims), 1) for name, dims in sets])
            yield
        for levels in LEVELS if "ASI" in self.methods else ():
            if levels < self.bits:
                plans = [(f"{name}+ASI", self._make.subspaces(dims, levels)) for name, dims in sets]
                self._judged([(name, plan, len(plan.regions)) for name, plan in plans])
                yield

    def _selective(self, name: str, dims: Sequence[str], count: int, kind: str) -> _Base:
        plan, rectangles = self._make.selective(dims, count, once=kind == "SI1")
        return f"{name}+{kind}", plan, rectangles

    def _promising(self) -> Iterator[None]:
        """What was the best most often: clusters by all attributes, each rectangle with dimensions of its own.

        How many clusters are best is known afterwards only, and they cost little; split axes are tried on the best.
        """
        if "GB" not in self.methods:
            return
        names, bases = self._make.names, set()
        given: list[tuple[_Base, Tried]] = []
        kinds = [kind for kind in ("SI1", "SI") if kind in self.methods]
        for number, count in enumerate(c for c in CLUSTERS if c.bit_length() - 1 < self.bits):
            if number == _BOTH:
                best = {kind: min(t.score for (n, _, _), t in given if n.endswith(f"+{kind}")) for kind in kinds}
                kinds = [kind for kind in kinds if best[kind] <= _WORSE * min(best.values())]
            for kind in kinds:
                base = self._selective("RI", names, count, kind)
                if base[1].regions not in bases:  # fewer filters than clusters, say
                    bases.add(base[1].regions)
                    given.append((base, self._given_bits(base)))
                    yield
        if not given:
            given.append((self._based("RI"), self._given_bits(self._based("RI"))))
        for base, _ in sorted(given, key=lambda pair: pair[1].score)[:_SPLIT]:
            self._given_bits(base, split=True)
            yield

    def _tiles(self) -> Iterator[None]:
        """Subspaces of all dimensions and of the best set, with bits of their own."""
        if not {"GB", "ASI"} <= set(self.methods):
            return
        bases = [self._based("ASI")]
        sets = self._best_sets(1)[:1]
        for levels in LEVELS[:2]:
            if levels < self.bits:
                bases += [(f"{n}+ASI", p := self._make.subspaces(d, levels), len(p.regions)) for n, d in sets]
        given = []
        for base in bases:
            given.append((base, self._given_bits(base)))
            yield
        self._given_bits(min(given, key=lambda pair: pair[1].score)[0], split=True)
        yield

    def _greedy_bits(self) -> Iterator[None]:
        if "GB" not in self.methods:
            return
        different: dict[tuple[int, bool], Tried] = {}
        for each in sorted(self.tried, key=lambda t: t.score):
            if not each.name.startswith(("GB", "present")):
                different.setdefault((each.rectangles, each.plan.once), each)
        for each in list(different.values())[:2]:
            for split in (False, True):
                self._given_bits((each.name, each.plan, each.rectangles), split=split)
                yield

    def _given_bits(self, base: _Base, *, split: bool = False) -> Tried:
        """Bits given anew, on even axes or on split ones."""
        name, plan, rectangles = base
        splits = None
        if split:
            splits = self._make.splits([{b.attribute: (b.lo, b.hi) for b in r.bounds} for r in plan.regions])
        kind = name.split("+", 1)[-1] if rectangles > 1 else "RI"
        made = greedy_bits(plan, self.judge.batch, self.judge.interests, splits)
        [found] = self._judged([(f"GB+{kind}{'+QI' if split else ''}", made, rectangles)])
        return found

    def _best_sets(self, count: int) -> list[tuple[str, tuple[str, ...]]]:
        """The best sets of dimensions so far, and the best of each way to choose them."""
        found: dict[tuple[str, ...], str] = {}
        ordered = sorted((t for t in self.tried if t.name != "present"), key=lambda t: t.score)
        for name in ("GS", "CS", "EMCS", "EVS"):
            best = next((t for t in ordered if t.name == name), None)
            if best is not None:
                found.setdefault(best.dimensions, name)
        for each in ordered:
            if len(found) >= count + 2:
                break
            found.setdefault(each.dimensions, each.name)
        return [(name, dims) for dims, name in found.items()]

    def _judged(self, candidates: Sequence[_Base]) -> list[Tried]:
        costs = self.judge.costs([plan for _, plan, _ in candidates])
        now = self.clock() - self._start if self.tried else 0.0
        found = [
            Tried(name, cost, cost.judged(self.objective), plan.dimensions, rectangles, plan, now)
            for (name, plan, rectangles), cost in zip(candidates, costs, strict=True)
        ]
        self.tried += found
        return found

    def _why(self, best: Tried) -> str:
        regular = self.tried[0]
        others = {t.name: t for t in sorted(self.tried, key=lambda t: -t.score) if t.name != best.name}
        where = f" in {best.rectangles} regions" if best.rectangles > 1 else ""
        lines = [
            f"{best.name} on {', '.join(best.dimensions)}{where}: {best.cost}.",
            f"All {len(regular.dimensions)} dimensions halved in turn: {regular.cost}.",
        ]
        if others:
            nearest = sorted(others.values(), key=lambda t: t.score)[:4]
            listed = ", ".join(f"{t.name} {t.cost.transmissions:,} transmissions, {t.fpr:.2%}" for t in nearest)
            lines.append(f"Next: {listed}.")
        events, wanted = len(self.judge.batch), len(self.judge.interests)
        lines.append(f"{len(self.tried)} plans tried on {events} events and {wanted} subscriptions.")
        return " ".join(lines)


def search(judge: Judge, profile: Profile, clusters: Clustering, bits: int, **settings: Any) -> Findings:
    """The best plan of so many bits; settings are the fields of `Search`."""
    return Search(judge, profile, clusters, bits, **settings).run()
