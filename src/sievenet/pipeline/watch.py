"""Watch: Structured Streaming over the live tap, and a new plan when a better one is worth it.

    tap segments ──stream──▶ micro-batch: per window what the network carries, what of it is needed, histogram
                                 │
                                 ├─▶ windows/BATCH.json       cost and drift per window
                                 └─(rate or drift too high)─▶ search on the batch's events
                                                                  │ gain ≥ threshold
                                                                  ├─▶ signals/BATCH.json, plan.json
                                                                  └─▶ apply(plan)

*Drift* of a window is the largest change of an attribute's distribution since the plan in use began: the total
variation distance of histograms, 0 for the same, 1 for disjoint.

Restart-safe: Spark's checkpoint says which segments a batch has, results are files named by batch, and what a batch
writes a second time is what it wrote the first time.  The plan in use is `plan.json`; a signal is written before its
plan is applied, and a batch that is done again applies it again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sievenet.content import EventBatch, Schema, decode_subscription, encode_subscription
from sievenet.errors import PlanError
from sievenet.index import Plan
from sievenet.pipeline.broadcast import Shared
from sievenet.pipeline.evaluate import Counting, covers_of, sources
from sievenet.pipeline.files import Files, absolute
from sievenet.pipeline.planner import sampled
from sievenet.pipeline.sources import tap_rows
from sievenet.pipeline.tables import PUBLISHER, TIME, batch_of
from sievenet.pipeline.validation import REASON
from sievenet.tuning.arrays import points
from sievenet.tuning.boxes import as_subscription
from sievenet.tuning.clusters import local_clustering
from sievenet.tuning.cost import Cost, Needed
from sievenet.tuning.covers import Covers, Interest, Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.search import Findings, search
from sievenet.tuning.sites import Sites
from sievenet.tuning.splits import edges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Settings", "Signal", "Watcher", "WindowCounts"]

_BINS: Final = 32
_BINARY: Final = "path string, modificationTime timestamp, length bigint, content binary"
#: What is summed per window.
_SUMS: Final = ("events", "packets", "delivered", "wanted", "transmissions", "received", "needed_links", "needed_hosts")
_DDL: Final = f"window bigint, {', '.join(f'{name} bigint' for name in _SUMS)}, histogram array<bigint>"
_FIELDS: Final = pa.schema([*((name, pa.int64()) for name in ("window", *_SUMS)), ("histogram", pa.list_(pa.int64()))])


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a watcher behaves."""

    #: Seconds per window.
    window: float = 60.0
    #: Entries per subscription.
    budget: int = 8
    #: A new plan must lower transmissions by this part of them.
    threshold: float = 0.05
    #: A window's drift beyond which a search is worth its time, whatever the rate.
    drift: float = 0.2
    #: Events of a batch below which nothing is concluded.
    least: int = 500
    #: Seconds of a search, and events that it looks at.
    seconds: float = 20.0
    sample: int = 10_000
    #: Methods of the search.
    methods: tuple[str, ...] = ("RI", "EVS", "EMCS", "CS", "GS", "SI1", "ASI", "GB")
    #: Segments per micro-batch.
    files: int = 100


class WindowCounts(msgspec.Struct, frozen=True):
    """What a batch saw of one window: start in seconds since 1970, sums (docs/reference/rates.md), and drift."""

    start: float
    events: int
    packets: int
    delivered: int
    wanted: int
    drift: float = 0.0
    transmissions: int = 0
    received: int = 0
    #: The necessary part of transmissions and of packets received.
    needed_links: int = 0
    needed_hosts: int = 0

    @property
    def cost(self) -> Cost:
        """What the network carried, with its rates."""
        needed = Needed(self.needed_links, self.needed_hosts, self.wanted)
        return Cost(self.events, self.packets, self.transmissions, self.received, self.delivered, needed)

    def __add__(self, other: WindowCounts) -> WindowCounts:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return WindowCounts(self.start, drift=max(self.drift, other.drift), **sums)


class Signal(msgspec.Struct, frozen=True):
    """A plan that is better by enough: transmissions per event, on the same events, with either plan."""

    batch: int
    before: float
    after: float
    name: str
    why: str
    plan: str


class _State(msgspec.Struct, frozen=True):
    """What the watcher knows of the plan in use."""

    plan: str
    #: Histograms when the plan began, attributes × bins; empty until events came.
    baseline: list[list[int]] = []


class Watcher:
    """Watches one category's tap; its state is a folder."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        plan: Plan,
        wanted: Callable[[], Sequence[Interest]],
        settings: Settings | None = None,
        *,
        sites: Callable[[], Sites | None] = lambda: None,
        apply: Callable[[Plan], None] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``wanted`` and ``sites`` (where those subscriptions are, asked after them) are asked anew for every batch."""
        self.spark = spark
        self.folder = absolute(folder).rstrip("/")
        self.files = Files(spark)
        self.schema = plan.schema
        self.settings = settings or Settings()
        self._wanted = wanted
        self._sites = sites
        self._apply = apply
        self._say = say
        if not self.files.exists(f"{self.folder}/plan.json"):
            self._keep(_State(plan.to_json().decode()))
        elif self.plan.schema != plan.schema:
            raise PlanError("The watcher's folder belongs to another schema; name another folder", where=folder)

    # -- the state --------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in use."""
        return Plan.from_json(self._state().plan)

    def _state(self) -> _State:
        return msgspec.json.decode(self.files.read(f"{self.folder}/plan.json"), type=_State)

    def _keep(self, state: _State) -> None:
        self.files.write(f"{self.folder}/plan.json", msgspec.json.encode(state))

    def windows(self) -> list[WindowCounts]:
        """All windows seen so far; parts of one window from several batches are added up."""
        found: dict[float, WindowCounts] = {}
        for file in self.files.find(f"{self.folder}/windows"):
            for part in msgspec.json.decode(self.files.read(file.path), type=list[WindowCounts]):
                old = found.get(part.start)
                found[part.start] = part if old is None else old + part
        return [found[start] for start in sorted(found)]

    def signals(self) -> list[Signal]:
        """All signals so far, in order."""
        files = self.files.find(f"{self.folder}/signals")
        found = [msgspec.json.decode(self.files.read(file.path), type=Signal) for file in files]
        return sorted(found, key=lambda signal: signal.batch)

    # -- the stream -------------------------------------------------------------------------------

    def start(self, tap: str, *, every: float | None = None) -> StreamingQuery:
        """Start the stream: to the end of what is there now, or, with ``every``, each so many seconds for ever."""
        stream = (
            self.spark.readStream.format("binaryFile")
            .schema(_BINARY)
            .option("pathGlobFilter", "*.tap")
            .option("maxFilesPerTrigger", self.settings.files)
            .load(absolute(tap))
        )
        writer: Any = tap_rows(stream, self.schema).writeStream.foreachBatch(self.batch)
        writer = writer.option("checkpointLocation", f"{self.folder}/checkpoint").queryName("sievenet-watch")
        writer = (
            writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")
        )
        query: StreamingQuery = writer.start()
        return query

    def batch(self, rows: DataFrame, number: int) -> None:
        """Take in one micro-batch."""
        from pyspark.sql import functions as f

        rows = rows.persist()
        try:
            bad = rows.where(f.col(REASON).isNotNull()).count()
            if bad:
                self._say(f"batch {number}: {bad} files were not readable tap segments")
            self._good(rows.where(f.col(REASON).isNull()), number)
        finally:
            rows.unpersist()

    def _good(self, events: DataFrame, number: int) -> None:
        done = f"{self.folder}/signals/{number:08}.json"
        if self.files.exists(done):
            # This batch signalled before it was interrupted: the same again.
            self._use(msgspec.json.decode(self.files.read(done), type=Signal), [])
            return
        wanted = list(self._wanted())
        state = self._state()
        plan = Plan.from_json(state.plan)
        interests = Interests.of(self.schema, wanted)
        parts = window_counts(events, plan, interests, self.settings, self._sites())
        if not parts:
            return
        seen = np.sum([histogram for _, histogram in parts], axis=0)
        baseline = np.array(state.baseline, np.int64) if state.baseline else seen
        if not state.baseline:
            self._keep(_State(state.plan, seen.tolist()))
        windows = [msgspec.structs.replace(window, drift=drift_of(baseline, h)) for window, h in parts]
        self.files.write(f"{self.folder}/windows/{number:08}.json", msgspec.json.encode(windows))
        # The newest windows that are enough to conclude from: a batch after a pause holds the past too.
        newest = _newest(windows, self.settings.least)
        recent = windows[newest:]
        now = np.sum([histogram for _, histogram in parts[newest:]], axis=0)
        count = sum(w.events for w in recent)
        cost = sum((w.cost for w in recent), Cost())
        drift = drift_of(baseline, now)
        self._say(f"batch {number}: {count} recent events, {cost}; drift {drift:.2f}")
        worth = cost.per_subscription >= self.settings.threshold
        worth &= drift >= self.settings.drift or not self._searched_for(plan)
        if count >= self.settings.least and wanted and worth:
            since = events.where(f"{TIME} >= {round(recent[0].start * 1e6)}")
            self._search(since, count, plan, interests, number, now)

    def _searched_for(self, plan: Plan) -> bool:
        """Whether the plan in use comes from a search of ours."""
        return any(signal.plan == plan.to_json().decode() for signal in self.signals())

    def _search(
        self, events: DataFrame, count: int, plan: Plan, interests: Interests, number: int, seen: npt.NDArray[np.int64]
    ) -> None:
        settings = self.settings
        sites = self._sites()
        sample, who = sampled(events, self.schema, settings.sample, count, seed=number)
        found = replan(plan, sample, interests, settings, sites, None if sites is None else sites.located(who))
        old = next(t.cost.transmissions for t in found.tried if t.name == "present")
        new, name = found.best.cost.transmissions, found.best.name
        before, after = old / max(1, len(sample)), new / max(1, len(sample))
        self._say(f"batch {number}: {name} would take {after:.2f} instead of {before:.2f} transmissions per event")
        if old - new < settings.threshold * old or name == "present":
            return
        signal = Signal(number, before, after, name, found.why, found.best.plan.to_json().decode())
        self.files.write(f"{self.folder}/signals/{number:08}.json", msgspec.json.encode(signal))
        self._use(signal, seen.tolist())

    def _use(self, signal: Signal, baseline: list[list[int]]) -> None:
        plan = Plan.from_json(signal.plan)
        if self._apply is not None:
            self._apply(plan)
        if self.plan != plan:
            self._keep(_State(signal.plan, baseline))


def replan(
    plan: Plan,
    sample: EventBatch,
    interests: Interests,
    settings: Settings,
    sites: Sites | None = None,
    source: npt.NDArray[np.int64] | None = None,
) -> Findings:
    """The best plan for a sample, of the same bits and kind, one version later."""
    return search(
        LocalJudge(sample, interests, settings.budget, sites, source),
        profile_batches([sample], plan.schema, interests.wanted),
        local_clustering(plan.schema, interests.wanted, sample=sample),
        plan.bits,
        kind=plan.kind,
        rest=True,
        seconds=settings.seconds,
        methods=settings.methods,
        version=plan.version + 1,
        present=plan,
    )


def _newest(windows: Sequence[WindowCounts], least: int) -> int:
    """The number of the first of the last windows that have ``least`` events together; 0 if all have fewer."""
    seen = 0
    for at in range(len(windows) - 1, -1, -1):
        seen += windows[at].events
        if seen >= least:
            return at
    return 0


# -- counting per window ----------------------------------------------------------------------------


def window_counts(
    events: DataFrame, plan: Plan, interests: Interests, settings: Settings, sites: Sites | None = None
) -> list[tuple[WindowCounts, npt.NDArray[np.int64]]]:
    """Sums and histograms (attributes × bins) per window."""
    (covers,) = covers_of(events.sparkSession, [plan], interests, settings.budget)
    encoded = [encode_subscription(as_subscription(w)) for w in interests.wanted]
    shared = Shared(events.sparkSession, _counting, plan.to_json(), covers, encoded, sites)
    columns = [f"`{name}`" for name in plan.schema.positions]
    micros = round(settings.window * 1e6)
    chosen = events.select(*columns, TIME, PUBLISHER)
    rows = chosen.mapInArrow(lambda parts: _counted(shared.get(), parts, micros), _DDL)
    found: dict[int, tuple[WindowCounts, npt.NDArray[np.int64]]] = {}
    for row in rows.collect():
        number, seen = row["window"], np.array(row["histogram"], np.int64).reshape(-1, _BINS)
        window = WindowCounts(number * settings.window, **{name: row[name] for name in _SUMS})
        old = found.get(number)
        found[number] = (window, seen) if old is None else (old[0] + window, old[1] + seen)
    return [found[number] for number in sorted(found)]


class _Counting(Counting):
    """Counts costs and histograms under one plan."""

    def __init__(self, plan: Plan, covers: Covers, wanted: Sequence[Interest], sites: Sites | None) -> None:
        super().__init__([plan], [covers], wanted, sites)
        self.borders = [_borders(plan.schema, i) for i in range(len(plan.schema.attributes))]

    def histogram(self, batch: EventBatch) -> npt.NDArray[np.int64]:
        places = points(batch)
        return np.stack([np.histogram(places[:, i], b)[0] for i, b in enumerate(self.borders)]).astype(np.int64)


def _borders(schema: Schema, i: int) -> npt.NDArray[np.float64]:
    attribute = schema.attributes[i]
    ends = edges(attribute, bins=_BINS)
    return np.linspace(ends[0], ends[-1], _BINS + 1)


def _counting(plan: bytes, covers: Covers, encoded: list[bytes], sites: Sites | None) -> _Counting:
    known = Plan.from_json(plan)
    return _Counting(known, covers, [decode_subscription(known.schema, each) for each in encoded], sites)


def _counted(counting: _Counting, parts: Iterable[pa.RecordBatch], micros: int) -> Iterator[pa.RecordBatch]:
    for part in parts:
        batch = batch_of(counting.schema, part)
        windows = np.asarray(part.column(TIME).to_numpy(), np.int64) // micros
        source = None if counting.sites is None else sources(counting.sites, part)
        for window in np.unique(windows).tolist():
            rows = np.flatnonzero(windows == window)
            inside = batch.take(rows)
            (cost,) = counting.costs(inside, None if source is None else source[rows])
            needed = cost.needed
            carried = (cost.transmissions, cost.received, needed.transmissions, needed.received)
            sums = (cost.events, cost.packets, cost.delivered, needed.delivered, *carried)
            histogram = counting.histogram(inside).ravel().tolist()
            arrays = [pa.array([v], pa.int64()) for v in (window, *sums)]
            arrays.append(pa.array([histogram], pa.list_(pa.int64())))
            yield pa.RecordBatch.from_arrays(arrays, schema=_FIELDS)


def drift_of(before: npt.NDArray[np.int64], now: npt.NDArray[np.int64]) -> float:
    """The largest total variation distance of an attribute's two histograms."""
    shares = [h / np.maximum(h.sum(axis=1, keepdims=True), 1) for h in (before, now)]
    return float((np.abs(shares[0] - shares[1]).sum(axis=1) / 2).max())
