"""Files as they come: a corpus of small awkward ones, each with its expected outcome."""

import io

import pytest

from sievenet.cli.lines import lines_of
from sievenet.content import Attribute, Schema
from sievenet.errors import InvalidInput, SievenetError
from sievenet.workload.trace import Reading, Row, clean, event_of, is_plain, rows_of
from tests.workload.awkward import FILES, PLAIN, SCHEMA


def outcome(rows):
    events, bad = [], 0
    for row in rows:
        if not isinstance(row, Row):
            bad += 1
            continue
        try:
            events.append(tuple(event_of(SCHEMA, row.values).values))
        except SievenetError:
            bad += 1
    return tuple(events), bad


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_awkward_files(file):
    if file.error:
        with pytest.raises(InvalidInput, match=file.error):
            list(rows_of(file.data, file.reading, file.name))
        return
    assert outcome(rows_of(file.data, file.reading, file.name)) == (file.events, file.bad)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pub_reads_them_the_same_way(file, tmp_path):
    path = tmp_path / file.name
    path.write_bytes(file.data)
    with path.open("rb") as opened:
        if file.error:
            with pytest.raises(InvalidInput, match=file.error):
                list(lines_of(opened, None, file.reading))
            return
        assert outcome(row for _, row in lines_of(opened, None, file.reading)) == (file.events, file.bad)


@pytest.mark.parametrize(
    "name", ["plain.csv", "semicolons.csv", "objects.jsonl", "no-header.csv", "torn.jsonl", "bom.csv"]
)
def test_pipes_are_read_line_by_line(name):
    (file,) = [each for each in FILES if each.name == name]
    given = list(lines_of(io.BytesIO(file.data), None, file.reading))
    assert outcome(row for _, row in given) == (file.events, file.bad)


def test_what_spark_reads_right_is_left_to_it():
    none = Reading()
    plain = [f.name for f in FILES if is_plain(f.data, f.name, f.reading)]
    assert plain == [
        "plain.csv",
        "crlf.csv",
        "no-newline.csv",
        "packed.csv.gz",
        "quoted.csv",
        "quoted-separators.csv",
        "blank-lines.csv",
        "more-columns.csv",
        "short-row.csv",
        "objects.jsonl",
        "cut-off.csv.gz",
    ]
    assert is_plain(PLAIN.encode(), "a.csv", none)
    assert not is_plain(PLAIN.encode(), "a.csv", Reading(select=("price",)))


@pytest.mark.parametrize("text", ["1_0", "1__0", "_1", "nan", "inf", "1e999"])
def test_what_only_python_reads_as_a_number_is_none(text):
    schema = Schema("room", (Attribute("celsius", "float", lo=-50, hi=100),))
    assert event_of(schema, {"celsius": " 1e1 "})["celsius"] == 10.0
    with pytest.raises(SievenetError, match=r"room\.celsius"):
        event_of(schema, {"celsius": text})


def test_names_and_lines():
    assert [clean(n) for n in ("a b", "\ufeffx", "2nd", "", "Größe (m)")] == ["a_b", "x", "c_2nd", "c_", "Grosse_m"]
    assert [clean(n) for n in ("latency µs", "Łódź", "température °C", "日")] == [
        "latency_us",
        "Lodz",
        "temperature_C",
        "c_",
    ]
    rows = list(rows_of(b"a;b\n1;2\n3\n", None))
    assert [row.line for row in rows] == [2, 3]
    assert rows[1].reason == "expected 2 fields, got 1"
    (row,) = rows_of(b"a,b\n1,2\n", Reading(select=("b",)))
    assert row.values == {"b": "2"}
    with pytest.raises(InvalidInput, match="one character as separator"):
        list(rows_of(b"a,b\n", Reading(separator="::")))
    with pytest.raises(InvalidInput, match="an encoding that Python knows"):
        list(rows_of(b"a,b\n", Reading(encoding="utf-99")))
