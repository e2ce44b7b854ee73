"""Schemas from files: types and domains of columns, and a store of daily quotes without a word about them."""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sievenet.cli import main
from sievenet.content import Attribute
from sievenet.errors import InvalidInput
from sievenet.pipeline import inference
from sievenet.pipeline.inference import category_of, infer_schema
from sievenet.pipeline.store import Store

pytestmark = pytest.mark.spark

QUOTES = "date,symbol,open,high,low,close,volume\n" + "".join(
    f"2026-03-{1 + i % 28:02},{'IBM' if i % 2 else 'AAPL'},{100 + i}.5,{103 + i},{99 + i},{101 + i}.25,{1000 + 7 * i}\n"
    for i in range(150)
)


@pytest.fixture
def store(spark, tmp_path):
    return Store(spark, str(tmp_path / "store"))


def test_daily_quotes(store, tmp_path):
    # A row that is none, and a value that is no number, change nothing.
    (tmp_path / "quotes.csv").write_text(QUOTES + "2026-03-02,IBM,n/a,1,1,1,10\n")
    schema = infer_schema(store, "quote", [str(tmp_path / "quotes.csv")], ["date"])
    assert schema.attributes == (
        Attribute("symbol", "str", values=("AAPL", "IBM")),
        Attribute("open", "float", lo=20, hi=340),
        Attribute("high", "int", lo=0, hi=400),
        Attribute("low", "int", lo=0, hi=400),
        Attribute("close", "float", lo=0, hi=400),
        Attribute("volume", "int", lo=0, hi=3500),
    )


def test_other_types_and_formats(store, tmp_path, monkeypatch):
    rows = [{"x": -3.5 + i, "n": i - 20, "ok": i % 2 == 0, "id": f"u{i}", "none": None} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    for file, small in itertools.product(("a.parquet", "a.jsonl"), (1 << 20, -1)):
        # The driver and executors find the same.
        monkeypatch.setattr(inference, "_SMALL", small)
        schema = infer_schema(store, "a", [str(tmp_path / file)], [])
        assert {a.name: (a.type, a.lo, a.hi) for a in schema.attributes if a.name in ("x", "n")} == {
            "x": ("float", -25.0, 55.0),
            "n": ("int", -40, 40),
        }
        assert schema["ok"].type == "bool"
        # Texts that hardly repeat are identifiers.
        assert (schema["id"].type, schema["id"].values) == ("str", None)
        assert "none" not in schema


def test_nothing_to_infer_from(store, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    with pytest.raises(InvalidInput, match="files with rows to infer"):
        infer_schema(store, "a", [str(tmp_path / "empty.csv")], [])
    with pytest.raises(InvalidInput, match="a value in some column"):
        infer_schema(store, "a", [str(tmp_path / "header.csv")], [])
    with pytest.raises(InvalidInput, match="a column to infer"):
        infer_schema(store, "a", [str(tmp_path / "header.csv")], ["a", "b"])
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InvalidInput, match="of one format"):
        infer_schema(store, "a", [str(tmp_path / "header.csv"), str(tmp_path / "a.jsonl")], [])


def test_names():
    assert category_of("/data/sp500-daily.csv.gz") == "sp500_daily"
    assert category_of("trades/*.csv") == "events"


def test_command(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotes.csv").write_text(QUOTES)
    first = CliRunner().invoke(main, ["pipeline", "ingest", "store", "quotes.csv", "--by", "year"])
    assert first.exit_code == 0, first.stderr
    assert "150 events from 1 files; 0 bad rows" in first.stdout
    assert "symbol: one of" in first.stderr
    # The second time the store knows, and what does not fit is quarantined.
    (tmp_path / "quotes.csv").write_text("date,symbol,open,high,low,close,volume\n2026-04-01,TSLA,1,1,1,1,1\n")
    again = CliRunner().invoke(main, ["pipeline", "ingest", "store", "quotes.csv", "--json"])
    assert json.loads(again.stdout)["quarantined"] == 1
    assert "making one" not in again.stderr
