"""The loop closed, on a real fabric: traffic moves, the rate rises, the watcher re-plans, the rate falls, nothing
is lost.

And what the pipeline predicts is what the fabric counts, to the event.
"""

import asyncio
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import sievenet
from sievenet.content import EventBatch
from sievenet.index import Plan
from sievenet.pipeline.report import Report
from sievenet.pipeline.watch import Settings, Watcher
from sievenet.tap import Tap
from sievenet.tuning.covers import Covers, Interests
from sievenet.tuning.deliveries import Deliveries, Wants
from sievenet.workload import Hotspots, grid
from tests.fabric.harness import eventually, fabric, run

SCHEMA = grid(4, hi=1023)
BUDGET = 8
BITS = 12
#: Before the move events differ in x0 and x1, after it in x2 and x3; the hotspot is the same.
BEFORE = Hotspots(schema=SCHEMA, hotspots=1, spread=(0.3, 0.3, 0.01, 0.01), concentration=0.0, selectivity=0.12, seed=5)
AFTER = Hotspots(schema=SCHEMA, hotspots=1, spread=(0.01, 0.01, 0.3, 0.3), concentration=0.0, selectivity=0.12, seed=5)
WANTED = [*BEFORE.subscriptions(8).filters(), *AFTER.subscriptions(8).filters()]


def counted(plan, batch):
    interests = Interests.of(SCHEMA, WANTED)
    return Deliveries(plan, Covers.of(plan, interests, BUDGET), len(WANTED)).per_subscription(batch)[1]


class World:
    """A fabric with one client per subscription, a publisher with a tap, and what each should have got."""

    def __init__(self, daemon, folder):
        self.daemon = daemon
        self.folder = folder
        self.now = 1_000_000.0
        self.due = np.zeros(len(WANTED), np.int64)
        self.predicted = np.zeros(len(WANTED), np.int64)

    async def start(self, stack):
        self.nodes = [
            await stack.enter_async_context(sievenet.connect(self.daemon.url, name=f"s{i}")) for i in range(len(WANTED))
        ]
        self.publisher = await stack.enter_async_context(sievenet.connect(self.daemon.url, name="publisher"))
        await self.publisher.advertise(SCHEMA)
        self.feeds = [
            await n.subscribe(w, callback=lambda event: None) for n, w in zip(self.nodes, WANTED, strict=True)
        ]

    async def plan(self):
        return Plan.from_json(await self.publisher.plan(SCHEMA.name))

    async def publish(self, batch: EventBatch):
        """Publish and sample events; wait until every subscriber has what it wants; the rate meanwhile."""
        tap = Tap(self.folder, SCHEMA, "publisher")
        before = self.got()
        plan = await self.plan()
        await self.publisher.publish_many(batch)
        for event in batch:
            self.now += 0.01
            tap.offer(event, self.now)
        tap.close()
        self.due += Wants(SCHEMA, WANTED).per_subscription(batch)
        self.predicted += counted(plan, batch)
        await eventually(lambda: (self.got()[0] >= self.due).all() and (self.got().sum(axis=0) >= self.predicted).all())
        true, false = (self.got() - before).sum(axis=1)
        return false / (true + false)

    def got(self):
        """Wanted and unwanted deliveries per subscriber."""
        counts = [feed.statistics() for feed in self.feeds]
        return np.array([[s.delivered for s in counts], [s.false_positives for s in counts]])


@pytest.mark.spark
@pytest.mark.slow
def test_the_fabric_follows_its_traffic(spark, tmp_path):
    import contextlib

    async def main():
        async with fabric(control__bits=BITS, control__budget=BUDGET) as daemon, contextlib.AsyncExitStack() as stack:
            world = World(daemon, tmp_path / "tap")
            await world.start(stack)
            rates = []

            def apply(plan):
                # Called in a thread of Spark's: the fabric's loop goes on meanwhile.
                async def change():
                    async with sievenet.connect(daemon.url, operator=True) as node:
                        await node.apply_plan(SCHEMA.name, plan.to_json())

                asyncio.run(change())

            settings = Settings(
                window=2.0, budget=BUDGET, least=300, threshold=0.05, methods=("RI", "GS"), seconds=5.0, drift=0.3
            )

            async def watch():
                def once():
                    watcher = Watcher(spark, str(tmp_path / "state"), plan, lambda: WANTED, settings, apply=apply)
                    watcher.start(str(tmp_path / "tap")).awaitTermination()
                    return watcher

                return await asyncio.to_thread(once)

            plan = await world.plan()
            rates.append(await world.publish(BEFORE.events(400)))
            await watch()
            tuned = await world.plan()
            rates.append(await world.publish(BEFORE.events(400, start=400)))
            await watch()
            assert await world.plan() == tuned
            rates.append(await world.publish(AFTER.events(400)))
            watcher = await watch()
            rates.append(await world.publish(AFTER.events(400, start=400)))
            moved = await world.plan()
            # A rate is what the pipeline counts for the same events and plan, to the event.
            assert np.array_equal(world.got().sum(axis=0), world.predicted)
            # Not one false negative, not one duplicate.
            assert np.array_equal(world.got()[0], world.due)
            return plan, tuned, moved, rates, watcher

    plan, tuned, moved, rates, watcher = run(main(), timeout=280)
    untuned, settled, risen, fallen = rates
    assert tuned.dimensions != plan.dimensions
    assert moved.dimensions != tuned.dimensions
    assert settled < untuned
    assert risen > settled + 0.05
    assert fallen < risen - 0.05
    assert [s.plan for s in watcher.signals()][-1] == moved.to_json().decode()
    windows = watcher.windows()
    assert sum(w.events for w in windows) == 1200
    assert max(w.drift for w in windows) > 0.3
    report = Report("Drift")
    report.lines("drift", range(len(rates)), {"FPR in the fabric": rates}, "batches", "FPR")
    assert report.write(tmp_path / "report").exists()
    assert (tmp_path / "report" / "drift.svg").stat().st_size > 500


@pytest.mark.spark
def test_a_watch_resumes_where_it_was(spark, tmp_path):
    plan = Plan.regular(SCHEMA, BITS)
    settings = Settings(window=1.0, budget=BUDGET, least=10**9)

    def watched(apply=None, **changes):
        chosen = Settings(**{**{f: getattr(settings, f) for f in settings.__struct_fields__}, **changes})
        watcher = Watcher(spark, str(tmp_path / "state"), plan, lambda: WANTED, chosen, apply=apply)
        watcher.start(str(tmp_path / "tap")).awaitTermination()
        return watcher

    def sample(batch, start):
        tap = Tap(tmp_path / "tap", SCHEMA, "p")
        for i, event in enumerate(batch):
            tap.offer(event, start + i * 0.01)
        tap.close()

    sample(BEFORE.events(200), 500.0)
    first = watched()
    assert sum(w.events for w in first.windows()) == 200
    assert watched().windows() == first.windows()
    # Half a window more, and a segment that is none.
    (tmp_path / "tap" / "torn.tap").write_bytes(b"nothing")
    sample(BEFORE.events(50, start=200), 502.0)
    windows = watched().windows()
    assert [w.start for w in windows] == [500.0, 501.0, 502.0]
    assert [w.events for w in windows] == [100, 100, 50]
    expected = counted(plan, BEFORE.events(250))
    assert sum(w.delivered for w in windows) == expected.sum()
    # An apply that fails stops the stream; the next start does the same batch again, with the same plan.
    sample(AFTER.events(300), 600.0)
    tried = []

    def broken(better):
        tried.append(better)
        raise RuntimeError("the fabric is gone")

    changes = {"least": 1, "methods": ("RI", "GS"), "threshold": 0.01, "seconds": 5.0}
    with pytest.raises(Exception, match="the fabric is gone"):
        watched(broken, **changes)
    again = []
    watcher = watched(again.append, **changes)
    assert again == tried
    assert watcher.plan == again[0]
    assert len(watcher.signals()) == 1
    assert sum(w.events for w in watcher.windows()) == 550


#: Watches a tap, and is killed while it counts the first batch; a process of its own.
INTERRUPTED = """
    import os, signal, sys
    from sievenet.index import Plan
    from sievenet.pipeline.spark import spark_session
    from sievenet.pipeline.watch import Settings, Watcher
    from sievenet.workload import Hotspots, grid

    folder, budget = sys.argv[1], int(sys.argv[2])
    plan = Plan.from_json(open(f"{folder}/plan.json", "rb").read())

    def wanted():
        # Asked in the middle of a batch: nothing of it is written yet, and the stream has begun it.
        os.kill(os.getpid(), signal.SIGKILL)

    with spark_session("local[2]", settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}) as spark:
        watcher = Watcher(spark, f"{folder}/state", plan, wanted, Settings(window=1.0, budget=budget, least=10**9))
        watcher.start(f"{folder}/tap").awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_watch_that_is_killed_loses_nothing(spark, tmp_path):
    plan = Plan.regular(SCHEMA, BITS)
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    batch = BEFORE.events(200)
    tap = Tap(tmp_path / "tap", SCHEMA, "p")
    for i, event in enumerate(batch):
        tap.offer(event, 500.0 + i * 0.01)
    tap.close()
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(INTERRUPTED))
    command = [sys.executable, str(program), str(tmp_path), str(BUDGET)]
    done = subprocess.run(command, capture_output=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    settings = Settings(window=1.0, budget=BUDGET, least=10**9)
    watcher = Watcher(spark, str(tmp_path / "state"), plan, lambda: WANTED, settings)
    # The killed process had begun a batch, and had finished none.
    assert list((tmp_path / "state").rglob("offsets/0"))
    assert watcher.windows() == []
    watcher.start(str(tmp_path / "tap")).awaitTermination()
    assert [w.events for w in watcher.windows()] == [100, 100]
    assert sum(w.delivered for w in watcher.windows()) == counted(plan, batch).sum()
