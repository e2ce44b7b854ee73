"""Reading files in place of the JVM: the same rows, and only where a table is nothing but its files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import InvalidInput
from sievenet.index import Plan
from sievenet.pipeline import evaluate as evaluating
from sievenet.pipeline import scan
from sievenet.pipeline.evaluate import evaluate
from sievenet.pipeline.scan import Part, files_of, tasks_of
from sievenet.pipeline.tables import TIME, arrow_of, event_ddl, fields_of
from sievenet.workload import Hotspots, Mixed, grid

LOAD = Hotspots(schema=grid(3, hi=255), selectivity=0.3, seed=2)
NAMES = list(LOAD.schema.positions)


@pytest.fixture
def folder(tmp_path):
    """Two files of events, one of them in groups of rows, in folders by a column; times number the rows."""
    for number, rows in enumerate((700, 300)):
        where = tmp_path / "events" / f"_slot={number}"
        where.mkdir(parents=True)
        times = np.arange(rows) + 1000 * number
        table = pa.Table.from_batches([arrow_of(LOAD.events(rows, start=1000 * number), times)])
        pq.write_table(table, where / "a b.parquet", row_group_size=(300, 1000)[number])
    return tmp_path / "events"


@pytest.mark.parametrize("shares", [1, 2, 3, 7, 800])
def test_shares_of_a_file_are_its_rows(folder, shares, monkeypatch):
    monkeypatch.setattr(scan, "ROWS", 64)
    path = str(folder / "_slot=0" / "a b.parquet")
    parts = [list(Part(path, number, shares).batches(fields_of(LOAD.schema))) for number in range(shares)]
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    rows = pa.Table.from_batches([batch for part in parts for batch in part])
    assert rows.equals(pq.read_table(path, partitioning=None))


def test_types_are_those_of_the_schema(tmp_path):
    path = tmp_path / "narrow.parquet"
    pq.write_table(pa.table({name: pa.array([1, 2], pa.int16()) for name in reversed(NAMES)}), path)
    fields = pa.schema([fields_of(LOAD.schema).field(name) for name in NAMES])
    (batch,) = Part(str(path), 0, 1).batches(fields)
    assert batch.schema == fields
    with pytest.raises(InvalidInput, match="columns x0, x1, x2"):
        list(Part(str(path), 0, 1).batches(fields_of(LOAD.schema)))


@given(st.lists(st.integers(0, 200 << 20), max_size=40), st.integers(1, 64))
def test_tasks_have_every_share_once(sizes, cores):
    files = [(f"f{i}", size) for i, size in enumerate(sizes)]
    tasks = tasks_of(files, cores)
    assert all(tasks)
    parts = [part for task in tasks for part in task]
    assert parts == [Part(p, n, s) for p, _, s in dict.fromkeys((p, 0, s) for p, _, s in parts) for n in range(s)]
    assert [p for p, _ in files] == list(dict.fromkeys(part.path for part in parts))
    assert all(sum(sizes[int(path[1:])] / shares for path, _, shares in task) <= 2 * (64 << 20) for task in tasks)


@pytest.mark.spark
def test_only_plain_scans_are_read_in_place(spark, folder):
    table = spark.read.schema(f"{event_ddl(LOAD.schema)}, _slot string").parquet(str(folder))
    files = [(str(f), f.stat().st_size) for f in sorted(folder.glob("*/*.parquet"))]
    assert files_of(table.select(*NAMES)) == files
    assert files_of(table.select(*NAMES, TIME).select("x1", "x0")) == files
    others = [
        table.where("x0 > 3").select(*NAMES),
        table.limit(10).select(*NAMES),
        table.select((table.x0 + 1).alias("x0")),
        table.select("x0", "_slot"),
        table.union(table).select(*NAMES),
        spark.createDataFrame([], event_ddl(LOAD.schema)),
    ]
    assert [files_of(other) for other in others] == [None] * len(others)
    kept = table.select(*NAMES).cache()
    assert files_of(kept.select("x0")) is None
    kept.unpersist()
    table.select("x0").write.csv(str(folder.parent / "csv"))
    assert files_of(spark.read.schema("x0 bigint").csv(str(folder.parent / "csv"))) is None


@pytest.mark.spark
@pytest.mark.parametrize("load", [LOAD, Mixed(seed=3)], ids=["whole", "mixed"])
def test_all_ways_and_covers_made_anywhere_lead_to_the_same(spark, tmp_path, load, monkeypatch):
    rows = pa.Table.from_batches([arrow_of(load.events(1500))])
    pq.write_table(rows, tmp_path / "events.parquet")
    table = spark.read.schema(event_ddl(load.schema)).parquet(str(tmp_path))
    wanted, plan = load.subscriptions(40).filters(), Plan.regular(load.schema, 12)
    assert files_of(table) is not None
    (small,) = evaluate(table, load.schema, wanted, [plan], 4)
    monkeypatch.setattr(scan, "_SMALL", -1)
    monkeypatch.setattr(scan, "_LEAST", rows.nbytes // 20)
    (direct,) = evaluate(table, load.schema, wanted, [plan], 4)
    monkeypatch.setattr(scan, "files_of", lambda table: None)
    monkeypatch.setattr(evaluating, "_ALONE", -1)
    monkeypatch.setattr(evaluating, "_CORES", 1)
    monkeypatch.setattr(evaluating, "_CHUNK", 15)
    (other,) = evaluate(table, load.schema, wanted, [plan], 4)
    assert direct.summary() == other.summary() == small.summary()
    assert direct.events == 1500
    assert np.array_equal(direct.delivered, other.delivered)
    assert np.array_equal(direct.wanted, other.wanted)
    assert np.array_equal(direct.delivered, small.delivered)
