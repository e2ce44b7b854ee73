"""Ingest: good rows become events, bad ones a quarantine with reasons, whatever the format, and nothing twice."""

import collections
import gzip
import json
import random
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sievenet import programs
from sievenet.cli import main
from sievenet.content import Attribute, EventBatch, Schema
from sievenet.errors import EventError, InvalidInput, SchemaError, Unavailable
from sievenet.pipeline.clock import clock_of, patterned
from sievenet.pipeline.ingest import How, ingest
from sievenet.pipeline.store import Store
from sievenet.tap import Tap
from sievenet.workload import Hotspots, grid
from sievenet.workload.trace import Reading
from tests.workload import awkward

pytestmark = pytest.mark.spark

SCHEMA = Schema(
    "trade",
    (
        Attribute("symbol", "str", values=("GE", "IBM", "TSLA")),
        Attribute("price", "float", lo=0.0, hi=1000.0),
        Attribute("volume", "int", lo=0, hi=10_000),
        Attribute("halted", "bool"),
        Attribute("note.text", "str"),
    ),
)
GOOD = {"symbol": "IBM", "price": 420.5, "volume": 100, "halted": False, "note.text": "a,b"}
HEADER = "time,symbol,price,volume,halted,note.text"


@pytest.fixture
def store(spark, tmp_path):
    return Store(spark, str(tmp_path / "store"))


def rows(store):
    found = store.events("trade").collect()
    return sorted(tuple(row) for row in found)


def test_csv(store, tmp_path):
    (tmp_path / "a.csv").write_text(
        f"{HEADER}\n"
        '2026-05-14T09:30:00Z,IBM,420.5,100,false,"a,b"\n'
        "2026-05-14T10:30:00Z,GE,1e2,7.0,1,\n"
        "2026-05-14T10:31:00Z,GE,12,8,true,x,too,many\n"
        "2026-05-14T10:31:00Z,AMD,12,8,true,x\n"
        "2026-05-14T10:31:00Z,GE,1001,8,true,x\n"
        "2026-05-14T10:31:00Z,GE,nan,8,true,x\n"
        "2026-05-14T10:31:00Z,GE,12,8.5,true,x\n"
        "2026-05-14T10:31:00Z,GE,12,-1,true,x\n"
        "2026-05-14T10:31:00Z,GE,12,99999999999999999999999,true,x\n"
        "2026-05-14T10:31:00Z,GE,12,8,maybe,x\n"
        "some day,GE,12,8,true,x\n"
    )
    run = ingest(store, SCHEMA, [str(tmp_path / "a.csv")], by="hour")
    assert (run.events, run.quarantined) == (1, 10)
    assert rows(store) == [("IBM", 420.5, 100, False, "a,b", 1778751000000000, "")]
    reasons = sorted(row["reason"] for row in store.quarantine("trade").collect())
    assert "expected int in [0, 10000] for volume, got 8.5" in reasons
    assert "expected float in [0.0, 1000.0] for price, got 1001" in reasons
    assert any(r.startswith("expected a time in time (ISO 8601, ") and r.endswith("got some day") for r in reasons)
    assert "expected a row of the file's columns, got something else" in reasons
    assert sum(run.reasons.values()) == 10
    assert run.reasons["expected int in [0, 10000] for volume"] == 3
    # The second row has no text: nothing is not an empty text.
    assert "expected str for note.text, got nothing" in reasons
    slots = {p.name for p in (tmp_path / "store" / "events" / "trade").glob("*/*") if p.is_dir()}
    assert slots == {"_slot=2026-05-14T09"}


def test_nothing_is_read_twice_and_what_is_new_is_read(store, tmp_path):
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.csv").write_text(f"{HEADER}\n2026-05-14T09:30:00Z,IBM,420.5,100,false,x\n")
    assert ingest(store, SCHEMA, [str(inputs)]).events == 1
    assert ingest(store, SCHEMA, [str(inputs)]).events == 0
    with gzip.open(inputs / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps({**GOOD, "date": "2026-05-15", "publisher": "nyse"}) + "\n{broken\n[1, 2]\n")
        file.write(json.dumps({**GOOD, "price": "12", "date": 7}) + "\n")
    pq.write_table(pa.Table.from_pylist([GOOD, {**GOOD, "volume": 20_000}]), inputs / "c.parquet")
    second = ingest(store, SCHEMA, [str(inputs)])
    assert (second.events, second.quarantined) == (3, 3)
    assert ingest(store, SCHEMA, [str(inputs / "*.csv"), str(inputs)]).events == 0
    assert [row[-1] for row in rows(store)].count("nyse") == 1
    assert store.events("trade").count() == 4


def test_a_run_that_died_leaves_nothing(store, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text(f"{HEADER}\n2026-05-14T09:30:00Z,IBM,420.5,100,false,x\n")
    with monkeypatch.context() as patched:

        def killed(category, manifest):
            raise KeyboardInterrupt

        patched.setattr(store, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(store, SCHEMA, [str(tmp_path / "a.csv")])
    assert store.events("trade").count() == 0
    assert ingest(store, SCHEMA, [str(tmp_path / "a.csv")]).events == 1
    assert len(list((tmp_path / "store" / "events" / "trade").iterdir())) == 1


def test_files_that_are_none_are_set_aside(store, tmp_path):
    inputs = tmp_path / "in"
    inputs.mkdir()
    pq.write_table(pa.Table.from_pylist([GOOD] * 3), inputs / "good.parquet")
    whole = (inputs / "good.parquet").read_bytes()
    (inputs / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (inputs / "empty.parquet").write_bytes(b"")
    run = ingest(store, SCHEMA, [str(inputs)])
    assert run.events == 3
    assert sorted(b.path.rsplit("/", 1)[-1] for b in run.bad_files) == ["cut.parquet", "empty.parquet"]
    assert all(b.reason for b in run.bad_files)
    assert ingest(store, SCHEMA, [str(inputs)]).files == ()


def test_bad_requests_are_told(store, tmp_path):
    with pytest.raises(InvalidInput, match="got none - at"):
        ingest(store, SCHEMA, [str(tmp_path / "nothing*.csv")])
    (tmp_path / "a.csv").write_text("symbol,price\nIBM,1\n")
    with pytest.raises(InvalidInput, match=r"missing: volume, halted, note.text; found: symbol, price"):
        ingest(store, SCHEMA, [str(tmp_path / "a.csv")])
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InvalidInput, match=r"ends in \.csv"):
        ingest(store, SCHEMA, [str(tmp_path / "a.txt")])
    (tmp_path / "b.csv").write_text(f"{HEADER}\n")
    with pytest.raises(InvalidInput, match="a column clock for the time"):
        ingest(store, SCHEMA, [str(tmp_path / "b.csv")], time="clock")
    other = Schema("trade", SCHEMA.attributes, version=2)
    with pytest.raises(SchemaError, match="has events of trade version 1, got version 2"):
        ingest(store, other, [str(tmp_path / "b.csv")])
    with pytest.raises(SchemaError, match="own column under the name _time"):
        ingest(store, Schema("t", (Attribute("_time", "bool"),)), [str(tmp_path / "b.csv")])
    with pytest.raises(SchemaError, match="one of trade"):
        store.schema("tirade")
    assert ingest(store, SCHEMA, [str(tmp_path / "b.csv")]).events == 0


def test_checks_agree_with_event_batches(store, tmp_path):
    rng = random.Random(4)
    values = {
        "symbol": ["IBM", "GE", "ibm", "", None],
        "price": [0, 1000.0, 1000.1, -0.0, float("nan"), float("inf"), None, 5],
        "volume": [0, 10_000, 10_001, -1, None],
        "halted": [True, False, None],
        "note.text": ["", "x" * 4096, "ü" * 2049, None],
    }
    # Mostly good values, so that rows with a single bad one are common.
    listed = [
        {name: (rng.choice(options) if rng.random() < 0.3 else GOOD[name]) for name, options in values.items()}
        for _ in range(400)
    ]
    good = []
    for row in listed:
        try:
            good += EventBatch.of(SCHEMA, {name: [value] for name, value in row.items()})
        except EventError:
            continue
    types = pa.schema(
        [
            ("symbol", pa.string()),
            ("price", pa.float64()),
            ("volume", pa.int32()),
            ("halted", pa.bool_()),
            ("note.text", pa.string()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(listed, schema=types), tmp_path / "a.parquet")
    run = ingest(store, SCHEMA, [str(tmp_path / "a.parquet")])
    assert run.events == len(good)
    assert run.quarantined == 400 - len(good)
    assert sorted(r[:5] for r in rows(store)) == sorted(e.values for e in good)


def test_tap_segments(store, tmp_path):
    load = Hotspots(schema=grid(3, hi=99, name="trade"), seed=4)
    tap = Tap(tmp_path / "tap", load.schema, "market", seconds=1.0)
    other = Tap(tmp_path / "tap", grid(2, name="else"), "market")
    newer = Tap(tmp_path / "tap", Schema("trade", load.schema.attributes, version=2), "market")
    events = list(load.events(2000))
    for i, event in enumerate(events):
        tap.offer(event, 3600.0 * 500_000 + i * 0.001)
    other.offer(next(iter(Hotspots(schema=other.schema).events(1))), 5.0)
    newer.offer(EventBatch.of(newer.schema, {n: [1] for n in newer.schema.positions})[0], 5.0)
    for each in (tap, other, newer):
        each.close()
    (tmp_path / "tap" / "torn.tap").write_bytes(next(iter((tmp_path / "tap").glob("trade*.tap"))).read_bytes()[:-1])
    run = ingest(store, load.schema, [str(tmp_path / "tap")])
    assert (run.events, run.quarantined) == (2000, 2)
    found = sorted(tuple(row) for row in store.events("trade").collect())
    times = [round((3600.0 * 500_000 + i * 0.001) * 1e6) for i in range(2000)]
    assert found == sorted((*e.values, t, "market") for e, t in zip(events, times, strict=True))


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own, and a way to make that disk larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        programs.command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)),
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small disk needs root: {mounted.stderr.decode().strip()}")
    yield folder, lambda: subprocess.run(programs.command("mount", "-o", "remount,size=64m", str(folder)), check=True)
    subprocess.run(programs.command("umount", "-l", str(folder)), check=True)


def test_a_full_disk(spark, small_disk, tmp_path):
    folder, enlarge = small_disk
    load = Hotspots(schema=grid(4, hi=1 << 40), spread=0.3, seed=4)
    table = pa.table(dict(zip(load.schema.positions, load.events(100_000).columns, strict=True)))
    pq.write_table(table, tmp_path / "a.parquet")
    store = Store(spark, str(folder / "store"))
    with pytest.raises(Unavailable, match=r"disk is full: .*No space left on device.*nothing of this run is kept"):
        ingest(store, load.schema, [str(tmp_path / "a.parquet")])
    assert store.manifests("grid") == []
    assert store.events("grid").count() == 0
    assert list((folder / "store" / "events" / "grid").glob("_run=*")) == []
    enlarge()
    assert ingest(store, load.schema, [str(tmp_path / "a.parquet")]).events == 100_000
    assert store.events("grid").count() == 100_000


def test_awkward_files_are_read_as_pub_reads_them(store, tmp_path):
    """All of the corpus that needs no option, in one run: events, bad rows and files set aside."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    alone = [f for f in awkward.FILES if f.reading == Reading()]
    for file in alone:
        (folder / file.name).write_bytes(file.data)
    run = ingest(store, awkward.SCHEMA, [str(folder)])
    names = list(awkward.SCHEMA.positions)
    found = sorted(tuple(row[n] for n in names) for row in store.events("trade").collect())
    assert found == sorted(event for file in alone for event in file.events)
    bad = collections.Counter(row["source"].rsplit("/", 1)[-1] for row in store.quarantine("trade").collect())
    expected = {file.name: file.bad + bool(file.error) for file in alone if file.bad or file.error}
    # Spark itself reads gzip that is called so, and sets aside what is cut off.
    assert expected.pop("cut-off.csv.gz") == 1
    assert [b.path.rsplit("/", 1)[-1] for b in run.bad_files] == ["cut-off.csv.gz"]
    assert bad == expected


@pytest.mark.parametrize("file", [f for f in awkward.FILES if f.reading != Reading()], ids=lambda file: file.name)
def test_awkward_files_are_read_as_told(store, tmp_path, file):
    """Each of the corpus that needs an option."""
    (tmp_path / file.name).write_bytes(file.data)
    run = ingest(store, awkward.SCHEMA, [str(tmp_path / file.name)], how=How(file.reading))
    found = sorted(tuple(row[n] for n in awkward.SCHEMA.positions) for row in store.events("trade").collect())
    assert found == sorted(file.events)
    assert run.quarantined == file.bad


def test_times_in_any_unit(store, tmp_path):
    stamps = {
        "1700000000": 1_700_000_000,
        "1700000000.5": 1_700_000_000.5,
        "1700000000000": 1_700_000_000,
        "1700000000000000": 1_700_000_000,
        "1700000000000000000": 1_700_000_000,
        "2023-11-14T22:13:20Z": 1_700_000_000,
        "2023-11-14 22:13:20+00:00": 1_700_000_000,
        "20231114": 1_699_920_000,
        "yesterday": None,
    }
    lines = [f"{stamp},x,{i},1,true" for i, stamp in enumerate(stamps)]
    (tmp_path / "t.csv").write_text("time,symbol,price,volume,ok\n" + "\n".join(lines) + "\n")
    run = ingest(store, awkward.SCHEMA, [str(tmp_path / "t.csv")])
    found = {row["price"]: row["_time"] / 1e6 for row in store.events("trade").collect()}
    assert found == {i: moment for i, moment in enumerate(stamps.values()) if moment is not None}
    (reason,) = run.reasons
    assert "ISO 8601, yyyyMMdd, or seconds, ms" in reason


def test_the_time_is_found_by_its_values(store, tmp_path):
    (tmp_path / "t.csv").write_text("id,picked_up,dropped_off,price\na,2026-05-14 09:30:00,2026-05-14 09:50:00,1\n")
    (tmp_path / "t.jsonl").write_text('{"id": "b", "price": 2, "begun": "2026-05-14T10:30:00+01:00"}\n')
    schema = Schema("trip", (Attribute("id", "str"), Attribute("price", "int", lo=0, hi=9)))
    said = []
    run = ingest(store, schema, [str(tmp_path / "t.csv"), str(tmp_path / "t.jsonl")], say=said.append)
    found = {row["id"]: row["_time"] for row in store.events("trip").collect()}
    assert found == {"a": 1778751000_000_000, "b": 1778751000_000_000}
    assert "time: picked_up (ISO 8601)" in said
    assert run.between == "2026-05-14 09:30:00 to 2026-05-14 09:30:00 UTC"
    rows = [{"ts": "1700000000123", "n": "1"}]
    forms = {"1700000000": "seconds", "1700000000123": "milliseconds", "1700000000123456": "microseconds"}
    for text, unit in forms.items():
        assert str(clock_of([{**rows[0], "ts": text}], schema)) == f"time: ts ({unit} since 1970)"
    assert str(clock_of([{"n": "1"}], schema)) == "time: that of the file; --time names a column"


def test_a_pattern_finds_its_column():
    rows = [{"id": "7", "at": "01/03/2026 10:30", "d": "2026-03-01"}, {"id": "31", "at": "31/12/2026 00:00", "d": " "}]
    assert patterned(rows, "dd/MM/yyyy HH:mm") == "at"
    assert patterned(rows, "d/M/yyyy H:mm") == "at"
    assert patterned(rows, "yyyy-MM-dd") == "d"
    assert patterned(rows, "yyyyMMdd HHmmss") is None
    assert patterned([], "yyyy") is None
    assert patterned([{"t": "5 Mar 2026 at 7 PM"}], "d MMM yyyy 'at' h a") == "t"
    assert patterned([{"t": "20260301 101500.250"}], "yyyyMMdd HHmmss.SSS") == "t"


def test_from_the_command_line(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        result = CliRunner().invoke(main, ["pipeline", *arguments])
        assert result.exit_code == code, f"{result.stderr}\n{result.exception!r}"
        return result.stdout

    rows = [f"{1 + i % 28:02}/03/2026 10:30;A{i % 3};{5 + i / 10};vendor" for i in range(60)]
    (tmp_path / "bars.txt").write_text("\n".join([*rows, "x;A1;5;vendor"]) + "\n")
    options = ["--format", "csv", "--columns", "when,kind,px,source", "--rename", "px=price", "--category", "bar"]
    options += ["--time-format", "dd/MM/yyyy HH:mm"]
    wrong = CliRunner().invoke(main, ["pipeline", "ingest", "store", "bars.txt", *options])
    assert wrong.exit_code == 2
    assert "Expected a column whose values are written like dd/MM/yyyy HH:mm, got none (when, kind," in wrong.stderr
    options += ["--time", "when"]
    shown = call("ingest", "store", "bars.txt", *options, "--dry-run")
    assert "price: float in" in shown
    assert "source: one of" in shown
    assert "60 events; 1 bad rows; nothing is kept" in shown
    assert "2026-03-01 10:30" in shown
    assert call("store", "list", "store") == "no categories yet\n"
    assert "60 events from 1 files; 1 bad rows" in call("ingest", "store", "bars.txt", *options)
    assert len(list((tmp_path / "store" / "events").rglob("*.parquet"))) <= 4
    assert json.loads(call("store", "list", "store", "--json")) == [
        {"category": "bar", "runs": 1, "events": 60, "quarantined": 1}
    ]
    assert "kind: one of" in call("store", "show", "store", "bar")
    assert "1  expected a time in when" in call("quarantine", "show", "store", "bar")
    assert call("store", "drop", "store", "bar") == "bar: 1 runs removed\n"
    assert call("store", "list", "store") == "no categories yet\n"
    call("store", "drop", "store", "bar", code=2)
