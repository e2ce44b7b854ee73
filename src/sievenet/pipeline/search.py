"""The search for the best plan, within a time budget.

    RI                   regular, all dimensions: what everything is compared with
    EVS, EMCS, CS        the first n dimensions by each rank, every n
    GS                   drop dimensions one by one, by true rate
    BRS                  every subset, if there are not too many and time is left
    + SI                 the best sets of dimensions, inside 2 … 64 rectangles around clusters of subscriptions
    + ASI                the best sets of dimensions, split where the workload is
    + SI+ASI             both
    + GB                 greedy bits in the best of all, with and without split points (see `bits`)

Every candidate is judged by its true false-positive rate on a sample (`judging`).  What was the best most often comes
first (greedy bits in rectangles around clusters by all attributes), so that little time is enough for a good plan; then
stages run from cheap to dear, each from the best of those before.  When time is up the best so far is the answer.
Nothing is random but the sample and the seeds of the clusters.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch
from sievenet.index import Plan
from sievenet.index.arrays import points
from sievenet.index.dimensions import ranked
from sievenet.index.plan import Kind
from sievenet.index.splitting import edges, histogram, splits
from sievenet.pipeline.bits import greedy_bits
from sievenet.pipeline.clusters import Clustering, Rectangle
from sievenet.pipeline.counting import Wants
from sievenet.pipeline.judging import Judge
from sievenet.pipeline.profile import Profile

__all__ = ["METHODS", "Found", "Search", "Tried", "search"]

METHODS: Final = ("RI", "EVS", "EMCS", "CS", "GS", "BRS", "SI", "ASI", "SI+ASI", "GB")
#: Numbers of rectangles that are tried, the most promising first.
RECTANGLES: Final = (16, 8, 32, 4, 64, 2)
#: Subsets of more dimensions than this are not all tried.
_MAX_BRS: Final = 8
#: Rectangles around clusters by all attributes, for greedy bits.
_ALL: Final = 16
#: Bits of split points on an adaptive axis.
_SPLIT_BITS: Final = 8
#: Bins of the histograms that they come from.
_BINS: Final = 4096

Clock = Callable[[], float]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan and how it did."""

    name: str
    fpr: float
    dimensions: tuple[str, ...]
    #: Regions, without the rest.
    rectangles: int
    plan: Plan
    #: Seconds since the search began.
    at: float

    def record(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.name,
            "fpr": self.fpr,
            "dimensions": list(self.dimensions),
            "rectangles": self.rectangles,
            "at": round(self.at, 3),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan, everything that was tried, and why it is the best."""

    best: Tried
    tried: tuple[Tried, ...]
    why: str
    seconds: float
    #: Whether every stage was finished.
    complete: bool

    def of(self, name: str) -> Tried | None:
        """The best candidate of a name."""
        return min((t for t in self.tried if t.name == name), key=lambda t: t.fpr, default=None)


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
    version: int = 1
    clock: Clock = time.monotonic
    say: Say = lambda text: None
    tried: list[Tried] = field(default_factory=list)
    _start: float = 0.0
    _matching: npt.NDArray[np.int64] | None = None
    _areas: dict[tuple[int, tuple[str, ...]], list[Rectangle]] = field(default_factory=dict)

    def run(self) -> Found:
        """Search."""
        self._start = self.clock()
        complete = True
        for stage in self._stages:
            for _ in stage():
                if self.clock() - self._start > self.seconds:
                    complete = False
                    break
            best = min(self.tried, key=lambda t: t.fpr)
            self.say(
                f"{len(self.tried)} plans, best {best.name} {best.fpr:.2%} after {self.clock() - self._start:.1f} s"
            )
            if not complete:
                break
        best = min(self.tried, key=lambda t: (t.fpr, len(t.dimensions), t.rectangles))
        return Found(best, tuple(self.tried), self._why(best), self.clock() - self._start, complete)

    @property
    def _stages(self) -> tuple[Callable[[], Iterator[None]], ...]:
        early = (self._regular, self._promising, self._ranked, self._greedy)
        return (*early, self._indexed, self._greedy_bits, self._every_subset)

    # -- stages: each yields after a round of judging, so that time can end between rounds --------

    def _regular(self) -> Iterator[None]:
        self._judged([("RI", self._plan(self._names), 1)])
        yield

    def _ranked(self) -> Iterator[None]:
        names = self._names
        rounds = []
        for method, factors in (("EVS", self.profile.evs), ("EMCS", self.profile.emcs), ("CS", self.profile.cs)):
            if method in self.methods:
                order = ranked(factors)
                rounds += [(method, self._plan([names[i] for i in order[:n]]), 1) for n in range(1, len(names) + 1)]
        self._judged(rounds)
        yield

    def _greedy(self) -> Iterator[None]:
        if "GS" not in self.methods:
            return
        current = tuple(self._names)
        self._judged([("GS", self._plan(current), 1)])
        while len(current) > 1:
            sets = [tuple(n for n in current if n != gone) for gone in current]
            found = self._judged([("GS", self._plan(dims), 1) for dims in sets])
            current = min(found, key=lambda t: t.fpr).dimensions
            yield

    def _every_subset(self) -> Iterator[None]:
        names = self._names
        if "BRS" not in self.methods or len(names) > _MAX_BRS:
            return
        for size in range(1, len(names) + 1):
            self._judged([("BRS", self._plan(dims), 1) for dims in itertools.combinations(names, size)])
            yield

    def _indexed(self) -> Iterator[None]:
        """Rectangles and split points on the best sets of dimensions."""
        sets = self._best_sets(4)
        if "SI" in self.methods:
            for count in RECTANGLES:
                if count.bit_length() - 1 < self.bits:
                    self._judged([self._selective(name, dims, count) for name, dims in sets])
                    yield
                if count == RECTANGLES[0] and "ASI" in self.methods:
                    self._judged([(f"{name}+ASI", self._adaptive(dims), 1) for name, dims in sets])
                    yield
        elif "ASI" in self.methods:
            self._judged([(f"{name}+ASI", self._adaptive(dims), 1) for name, dims in sets])
            yield
        if "SI+ASI" in self.methods:
            best = sorted((t for t in self.tried if t.name.endswith("+SI")), key=lambda t: t.fpr)[:3]
            self._judged([(t.name + "+ASI", self._both(t), t.rectangles) for t in best])
            yield

    def _promising(self) -> Iterator[None]:
        """What was the best most often: clusters by all attributes, each rectangle with dimensions of its own."""
        if "GB" in self.methods:
            name, plan, count = ("RI", self.tried[0].plan, 1)
            if "SI" in self.methods:
                name, plan, count = self._selective("RI", self._names, _ALL)
            (base,) = self._judged([(name, plan, count)])
            yield
            yield from self._given_bits(base)

    def _greedy_bits(self) -> Iterator[None]:
        if "GB" not in self.methods:
            return
        different: dict[int, Tried] = {}
        for each in sorted(self.tried, key=lambda t: t.fpr):
            if not each.name.startswith("GB"):
                different.setdefault(each.rectangles, each)
        for each in list(different.values())[:2]:
            yield from self._given_bits(each)

    def _given_bits(self, base: Tried) -> Iterator[None]:
        """Bits given anew, on even axes and on split ones."""
        judge, name = self.judge, "GB+SI" if base.rectangles > 1 else "GB+RI"
        self._judged([(name, greedy_bits(base.plan, judge.batch, judge.interests), base.rectangles)])
        yield
        splits = self._splits([{b.attribute: (b.lo, b.hi) for b in r.bounds} for r in base.plan.regions])
        plan = greedy_bits(base.plan, judge.batch, judge.interests, splits)
        self._judged([(f"{name}+ASI", plan, base.rectangles)])
        yield

    # -- plans ----------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return list(self.profile.schema.positions)

    def _plan(self, names: Sequence[str]) -> Plan:
        ordered = [n for n in self._names if n in names]
        return Plan.regular(self.profile.schema, self.bits, ordered, self.kind, version=self.version)

    def _adaptive(self, names: Sequence[str]) -> Plan:
        splits = {n: s for n, s in self.profile.splits(_SPLIT_BITS).items() if n in names}
        return Plan.adaptive(self.profile.schema, splits, self.bits, names, self.kind, version=self.version)

    def _selective(self, name: str, names: Sequence[str], count: int) -> tuple[str, Plan, int]:
        key = (count, tuple(names))
        if key not in self._areas:
            self._areas[key] = self.clusters(count, names)
        areas = self._areas[key]
        return f"{name}+SI", self._combined(areas, names, None), len(areas)

    def _both(self, tried: Tried) -> Plan:
        areas = [{b.attribute: (b.lo, b.hi) for b in r.bounds} for r in tried.plan.regions if not r.rest]
        splits = [{n: s for n, s in each.items() if n in tried.dimensions} for each in self._splits(areas)]
        return self._combined(areas, tried.dimensions, splits)

    def _splits(self, areas: Sequence[Mapping[str, tuple[float, float]]]) -> list[dict[str, tuple[int | float, ...]]]:
        """Split points that balance the workload of the sample inside each area."""
        if self._matching is None:
            wants = Wants(self.profile.schema, self.judge.interests.wanted)
            self._matching = wants.per_event(self.judge.batch)
        return [area_splits(self.judge.batch, self._matching, area, _SPLIT_BITS) for area in areas]

    def _combined(self, areas: Sequence[Any], names: Sequence[str], splits: Any) -> Plan:
        whole = any(not area for area in areas)
        plan = Plan.combined(
            self.profile.schema,
            self.bits,
            mbrs=areas,
            splits=splits,
            dimensions=list(names),
            kind=self.kind,
            rest=False,
            version=self.version,
        )
        return plan.with_rest() if self.rest and not whole else plan

    def _best_sets(self, count: int) -> list[tuple[str, tuple[str, ...]]]:
        """The best sets of dimensions so far, and the best of each way to choose them."""
        found: dict[tuple[str, ...], str] = {}
        ordered = sorted(self.tried, key=lambda t: t.fpr)
        for name in ("GS", "CS", "EMCS", "EVS"):
            best = next((t for t in ordered if t.name == name), None)
            if best is not None:
                found.setdefault(best.dimensions, name)
        for each in ordered:
            if len(found) >= count + 2:
                break
            found.setdefault(each.dimensions, each.name)
        return [(name, dims) for dims, name in found.items()]

    def _judged(self, candidates: Sequence[tuple[str, Plan, int]]) -> list[Tried]:
        rates = self.judge.rates([plan for _, plan, _ in candidates])
        now = self.clock() - self._start
        found = [
            Tried(name, rate, plan.dimensions, rectangles, plan, now)
            for (name, plan, rectangles), rate in zip(candidates, rates, strict=True)
        ]
        self.tried += found
        return found

    def _why(self, best: Tried) -> str:
        regular = self.tried[0]
        others = sorted(
            {t.name: t.fpr for t in sorted(self.tried, key=lambda t: -t.fpr) if t.name != best.name}.items(),
            key=lambda p: p[1],
        )
        where = f" inside {best.rectangles} rectangles" if best.rectangles > 1 else ""
        lines = [
            f"{best.name} on {', '.join(best.dimensions)}{where}: {best.fpr:.2%} of all deliveries are unnecessary,",
            f"against {regular.fpr:.2%} when all {len(regular.dimensions)} dimensions are halved in turn.",
        ]
        if others:
            listed = ", ".join(f"{name} {rate:.2%}" for name, rate in others[:4])
            lines.append(f"Next: {listed}.")
        events, wanted = len(self.judge.batch), len(self.judge.interests)
        lines.append(f"{len(self.tried)} plans tried on {events} events and {wanted} subscriptions.")
        return " ".join(lines)


def search(judge: Judge, profile: Profile, clusters: Clustering, bits: int, **settings: Any) -> Found:
    """The best plan of so many bits; settings are the fields of `Search`."""
    return Search(judge, profile, clusters, bits, **settings).run()


def area_splits(
    batch: EventBatch, matching: npt.NDArray[np.int64], area: Mapping[str, tuple[float, float]], bits: int
) -> dict[str, tuple[int | float, ...]]:
    """Split points inside an area, given how many subscriptions want each event; free strings get none."""
    schema = batch.schema
    places = points(batch)
    weights = matching
    for name, (least, most) in area.items():
        column = places[:, schema.positions[name]]
        weights = np.where((column >= least) & (column <= most), weights, 0)
    found: dict[str, tuple[int | float, ...]] = {}
    for name in schema.positions:
        attribute = schema[name]
        if attribute.type != "str" or attribute.values is not None:
            lo, hi = area.get(name, (None, None))
            borders = edges(attribute, lo, hi, _BINS)
            mass = histogram(places[:, schema.positions[name]], weights, borders)
            found[name] = splits(mass, borders, bits, attribute.type != "float")
    return found


def random_sets(names: Sequence[str], seed: int = 0) -> list[tuple[str, ...]]:
    """RS: dimensions in a random order, the first n of them for every n; for comparison."""
    order = np.random.default_rng(seed).permutation(len(names))
    return [
        tuple(n for i, n in enumerate(names) if i in set(order[:size].tolist())) for size in range(1, len(names) + 1)
    ]
