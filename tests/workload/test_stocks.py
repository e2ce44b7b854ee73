"""The loader of daily quotes: good rows in order, bad rows by line, clear errors."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import numpy as np
import pytest

from sievenet.errors import InvalidInput, SchemaError
from sievenet.index import Plan
from sievenet.workload import Ticks, load_quotes, load_schema, sample_names
from sievenet.workload.samples import load_plan

HEADER = "date,symbol,open,high,low,close,volume\n"
GOOD = [
    "2021-05-13,IBM,144.0,145.5,143.0,145.0,3000",
    "2021-05-12,AAPL,123.4,124.6,122.3,122.8,112000",
    "2021-05-12,IBM,144.9,145.0,141.2,141.3,5000",
]


def write(path, text):
    path.write_text(text)
    return path


def test_quotes_come_in_order_of_time(tmp_path):
    quotes = load_quotes(write(tmp_path / "q.csv", HEADER + "\n".join(GOOD) + "\n"))
    assert [str(e) for e in quotes.batch] == [
        'quote: symbol="AAPL", open=123.4, high=124.6, low=122.3, close=122.8, volume=112000',
        'quote: symbol="IBM", open=144.9, high=145.0, low=141.2, close=141.3, volume=5000',
        'quote: symbol="IBM", open=144.0, high=145.5, low=143.0, close=145.0, volume=3000',
    ]
    assert quotes.times[0] == datetime(2021, 5, 12, tzinfo=UTC).timestamp()
    assert np.diff(quotes.times).tolist() == [0.0, 86400.0]
    assert quotes.schema["close"].hi == 200.0
    assert quotes.schema["volume"].hi == 200_000
    assert quotes.bad_count == 0
    assert len(quotes.events(2, start=2)) == 1
    assert quotes.report() == "3 quotes of 2 symbols, 2021-05-12 to 2021-05-13; 0 bad rows"


def test_a_gzipped_file_is_told_by_its_bytes_and_columns_by_their_names(tmp_path):
    path = tmp_path / "quotes"
    text = "Volume,extra,Close,low,HIGH,open,symbol,date\r\n10,?,2,1,3,2,X,2020-01-02\r\n"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode(), mtime=0))
    (event,) = load_quotes(path, name="daily").batch
    assert str(event) == 'daily: symbol="X", open=2.0, high=3.0, low=1.0, close=2.0, volume=10'


BAD = [
    ("2021-05-12,AAPL,123.4,124.6,122.3,122.8", "expected 7 fields, got 6"),
    ("2021-05-12,AAPL,123.4,124.6,122.3,122.8,1,2", "expected 7 fields, got 8"),
    ("2021-05-12,AAPL,123.4,x,122.3,122.8,1", "expected a number as high, got 'x'"),
    ("yesterday,AAPL,123.4,124.6,122.3,122.8,1", "expected a date like 2021-05-14, got 'yesterday'"),
    ("2021-05-12,,123.4,124.6,122.3,122.8,1", "expected a symbol of 1 to 32 characters, got ''"),
    ("2021-05-12,A,nan,124.6,122.3,122.8,1", "expected prices from 0 on, got open nan, high 124.6"),
    ("2021-05-12,A,-1,124.6,-2,122.8,1", "expected prices from 0 on"),
    ("2021-05-12,A,inf,inf,122.3,122.8,1", "expected prices from 0 on"),
    ("2021-05-12,A,123.4,121.6,122.3,122.8,1", "expected low <= open, close <= high"),
    ("2021-05-12,A,123.4,124.6,122.3,122.8,1.5", "expected a whole volume from 0 on, got 1.5"),
    ("2021-05-12,A,123.4,124.6,122.3,122.8,-1", "expected a whole volume from 0 on, got -1"),
]


@pytest.mark.parametrize("quote", ["", '"'], ids=["plain", "quoted"])
@pytest.mark.parametrize(("row", "reason"), BAD)
def test_bad_rows_are_left_out_and_reported_with_their_line(tmp_path, row, reason, quote):
    first = GOOD[0].replace("IBM", f"{quote}IBM{quote}")
    quotes = load_quotes(write(tmp_path / "q.csv", f"{HEADER}{first}\n\n{row}\n{GOOD[1]}\n"))
    assert len(quotes) == 2
    assert quotes.bad_count == 1
    assert str(quotes.bad[0]).startswith(f"line 4: {reason}")
    assert quotes.report().splitlines()[1].startswith(f"  line 4: {reason}")
    assert quotes.schema["symbol"].values == ("AAPL", "IBM")


def test_many_bad_rows_are_counted_and_the_first_kept(tmp_path):
    quotes = load_quotes(write(tmp_path / "q.csv", HEADER + GOOD[0] + "\n" + "x\n" * 500))
    assert quotes.bad_count == 500
    assert len(quotes.bad) == 100
    assert quotes.report().endswith("… and 490 more")


def test_a_quoted_field_may_hold_a_line_break(tmp_path):
    text = HEADER.replace("volume", "volume,note") + GOOD[0] + ',"two\nlines"\n' + GOOD[1] + ",\nbad\n"
    quotes = load_quotes(write(tmp_path / "q.csv", text))
    assert len(quotes) == 2
    assert [row.line for row in quotes.bad] == [5]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"date,symbol,open,high,low,close\n", "volume missing in 'date,symbol,open,high,low,close' - at .*line 1"),
        (b"", "Expected columns date, symbol"),
        (HEADER.encode(), "Expected at least one good row, got 0 bad ones"),
        (HEADER.encode() + b"x\n", "got 1 bad ones; line 2: expected 7 fields, got 1"),
        (HEADER.encode() + b"\xff\xff\n", "Expected text in UTF-8, got byte 0xff"),
        (gzip.compress(HEADER.encode(), mtime=0)[:-9], "Expected a readable CSV file"),
        (HEADER.encode() + b'"' + b"x" * 200_000, "Expected CSV, got: field larger than"),
    ],
)
def test_files_that_are_none(tmp_path, data, message):
    path = tmp_path / "q.csv"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=message):
        load_quotes(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"got: No such file or directory - at .*nowhere"):
        load_quotes(tmp_path / "nowhere")


def test_subscriptions_are_near_the_quotes(tmp_path):
    rng = np.random.default_rng(1)
    lines = []
    for day in range(1, 29):
        for name, price in (("AAA", 10.0), ("BBB", 100.0), ("CCC", 900.0)):
            p = price * float(np.exp(0.05 * rng.standard_normal()))
            lines.append(f"2020-02-{day:02},{name},{p:.2f},{p * 1.02:.2f},{p * 0.98:.2f},{p:.2f},{int(p * 1000)}")
    quotes = load_quotes(write(tmp_path / "q.csv", HEADER + "\n".join(lines)))
    wanted = quotes.subscriptions(500)
    assert wanted[:100].filters() == quotes.subscriptions(100).filters()
    assert wanted[100:120].filters() == quotes.subscriptions(20, start=100).filters()
    assert quotes.subscriptions(100, seed=1).filters() != quotes.subscriptions(100).filters()
    matches = wanted.matrix(quotes.batch)
    # Every subscription wants the quote it was made around, few want much.
    assert matches.any(axis=0).all()
    assert matches.mean() < 0.4
    for i, event in enumerate(quotes.batch):
        assert [f.matches(event) for f in wanted[:40]] == matches[i, :40].tolist()


def test_samples_load_and_others_are_named():
    assert sample_names() == ["plane", "sensor", "stock"]
    for name in sample_names():
        assert load_schema(name).name == name
    with pytest.raises(SchemaError, match=r"built-in schema \(plane, sensor, stock\), got 'stok': No such file"):
        load_schema("stok")


def test_schemas_load_from_files(tmp_path):
    path = tmp_path / "s.json"
    path.write_bytes(load_schema("stock").to_json())
    assert load_schema(path) == load_schema("stock")
    path.write_text('{"name": "s", "attributes": [{"name": "x", "type": "integer"}]}')
    with pytest.raises(SchemaError, match=r"s\.json"):
        load_schema(path)
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(SchemaError, match="at most 1048576 bytes"):
        load_schema(path)


def test_the_plan_of_the_sample_keeps_false_positives_away():
    market, plan = Ticks(seed=7), load_plan("stock")
    wanted, batch = market.subscriptions(18).filters(), market.events(2_000)
    rates = {}
    for each in (Plan.regular(market.schema, plan.bits), plan):
        sets = [each.cover_dz(f, 8) for f in wanted]
        delivered = useful = 0
        for event in batch:
            codes = each.encode(event)
            for cover, f in zip(sets, wanted, strict=True):
                reached = any(dz.covers(code) for dz in cover for code in codes)
                assert reached or not f.matches(event)
                delivered += reached
                useful += f.matches(event)
        rates[each] = 1 - useful / delivered
    assert rates[plan] < 0.01 < 0.5 < rates[Plan.regular(market.schema, plan.bits)]


def test_plans_that_are_none(tmp_path):
    with pytest.raises(InvalidInput, match=r"a built-in plan \(stock\), got 'stok'"):
        load_plan("stok")
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        load_plan(tmp_path / "plan.json")
