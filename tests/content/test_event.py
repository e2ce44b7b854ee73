"""Events, records and batches: what is let in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import MAX_PAYLOAD, Attribute, Event, EventBatch, Record, Schema, StringColumn
from sievenet.errors import EventError, InvalidInput, SchemaError, shortened
from sievenet.testing import strategies

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "IBM")),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=0, hi=100),
        Attribute("halted", "bool"),
        Attribute("note", "str"),
    ),
)
GOOD = {"symbol": "IBM", "price": 1.5, "volume": 3, "halted": False, "note": "é"}


def test_events_are_points_of_their_schema():
    event = STOCK.event(b"p", **GOOD)
    assert event["price"] == 1.5
    assert event.get("volume") == 3
    assert event.get("nothing") is None
    assert dict(event.items()) == GOOD
    assert event == STOCK.event_of(GOOD, b"p") == Event(STOCK, ["IBM", 1.5, 3, False, "é"], b"p")
    assert hash(event) == hash(STOCK.event_of(GOOD, b"p"))
    assert event != STOCK.event_of(GOOD)
    assert type(Event(STOCK, ("IBM", 1, 3, False, ""))["price"]) is float
    with pytest.raises(SchemaError):
        event["nothing"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"symbol": "GOOG"}, "Expected one of 'AAPL', 'IBM', got 'GOOG' - at stock.symbol"),
        ({"price": 1001}, r"Expected float in \[0.0, 1000.0\], got 1001 - at stock.price"),
        ({"price": float("nan")}, "got nan - at stock.price"),
        ({"volume": 1.0}, r"Expected int in \[0, 100\], got 1.0 - at stock.volume"),
        ({"volume": True}, "got True - at stock.volume"),
        ({"halted": 0}, "Expected bool, got 0 - at stock.halted"),
        ({"note": "\ud800"}, "UTF-8"),
        ({"note": "x" * 4097}, "at most 4096 bytes of text, got 4097"),
        ({"note": None}, "Expected str, got None"),
        ({"bid": 5}, "Expected attributes symbol, price, volume, halted, note, got 'bid' - at stock"),
    ],
)
def test_bad_events_are_refused(change, message):
    with pytest.raises(EventError, match=message):
        STOCK.event_of({**GOOD, **change})


def test_missing_values_and_bad_payloads():
    with pytest.raises(EventError, match="Expected a value of symbol, halted, got none - at stock"):
        STOCK.event(price=1, volume=1, note="")
    with pytest.raises(EventError, match="Expected 5 values, got 1"):
        Event(STOCK, ("IBM",))
    for payload in ("text", None, ""):
        with pytest.raises(EventError, match="payload as bytes"):
            STOCK.event_of(GOOD, payload)
    with pytest.raises(EventError, match=f"at most {MAX_PAYLOAD} bytes of payload"):
        STOCK.event_of(GOOD, bytes(MAX_PAYLOAD + 1))


def test_records():
    record = Record({"b": 1, "a": "x"}, b"p")
    assert list(record.items()) == [("a", "x"), ("b", 1)]
    assert record.get("c") is None
    assert hash(record) == hash(Record({"a": "x", "b": 1}, b"p"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({f"x{i}": 1 for i in range(65)}, "at most 64 attributes, got 65"),
        ({"x": 1 << 63}, "a 64-bit whole number"),
        ({"x": float("inf")}, "a string, bool, int or finite float, got inf - at x"),
        ({"x": None}, "a string, bool, int or finite float"),
        ({"\ud800": 1}, "UTF-8"),
        ({"x": "\ud800"}, "UTF-8"),
        ({5: 1}, "names that are strings, got 5"),
    ],
)
def test_bad_records_are_refused(fields, message):
    with pytest.raises(EventError, match=message):
        Record(fields)


# -- batches ----------------------------------------------------------------------------------


@given(st.data())
def test_batches_hold_their_events(data):
    schema = data.draw(strategies.schemas())
    events = data.draw(st.lists(strategies.events(schema), max_size=8))
    batch = EventBatch.from_events(schema, events)
    assert list(batch) == events
    assert [batch[i] for i in range(len(batch))] == events
    mask = np.array([data.draw(st.booleans()) for _ in events], bool)
    assert list(batch.take(mask)) == [e for e, kept in zip(events, mask, strict=True) if kept]
    assert list(EventBatch.concat([batch, batch.take(mask)])) == events + list(batch.take(mask))


def columns(**change):
    base = {"symbol": ["IBM", "AAPL"], "price": [1.0, 2.0], "volume": [1, 2]}
    return {**base, "halted": [True, False], "note": ["", "x"], **change}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": [1.0, np.nan]}, r"Expected float in \[0.0, 1000.0\], got nan - at stock.price\[1\]"),
        ({"volume": [1, 101]}, r"Expected int in \[0, 100\], got 101 - at stock.volume\[1\]"),
        ({"volume": [1.0, 2.0]}, "a column of int, got `float64 array of 1 dimensions`"),
        ({"volume": [[1, 2]]}, "a column of int, got `int64 array of 2 dimensions`"),
        ({"volume": [[1, 2], [3]]}, "a column of int"),
        ({"volume": [1, 1 << 70]}, "a column of int, got `object array"),
        ({"volume": np.array([1, 1 << 63], np.uint64)}, "got 9223372036854775808"),
        ({"halted": [0, 1]}, "a column of bool"),
        ({"symbol": ["IBM", "GOOG"]}, r"one of 'AAPL', 'IBM', got 'GOOG' - at stock.symbol\[1\]"),
        ({"symbol": StringColumn(np.array([0, 2], np.int32), ("AAPL", "IBM"))}, "codes from 0 to 1, got `0 to 2`"),
        ({"note": StringColumn(np.array([0, -1], np.int32), ("a",))}, "codes from 0 to 0, got `-1 to 0`"),
        ({"note": ["a", 5]}, r"Expected a string, got 5 - at stock.note\[1\]"),
        ({"note": ["a", "\ud800"]}, "UTF-8"),
        ({"note": ["a"]}, r"columns of one length, got \[1, 2\]"),
        ({"bid": [1, 2]}, "Expected columns symbol, price, volume, halted, note"),
    ],
)
def test_bad_columns_are_refused(change, message):
    with pytest.raises(EventError, match=message):
        EventBatch.of(STOCK, columns(**change))


def test_columns_have_one_form():
    batch = EventBatch.of(STOCK, columns(price=np.array([1, 2], np.int16), note=np.array(["a", "b"])))
    assert batch.column("price").dtype == np.float64
    assert batch.column("symbol").categories == ("AAPL", "IBM")
    assert batch.column("symbol").strings() == ["IBM", "AAPL"]
    assert batch.column("note").strings() == ["a", "b"]
    twice = StringColumn(np.array([0, 1], np.int32), ("a", "a"))
    assert EventBatch.of(STOCK, columns(note=twice)).column("note").categories == ("a",)
    same = StringColumn(np.array([1, 0], np.int32), ("AAPL", "IBM"))
    assert EventBatch.of(STOCK, columns(symbol=same)).column("symbol").strings() == ["IBM", "AAPL"]
    with pytest.raises(SchemaError):
        batch.column("bid")


def test_batches_of_other_schemas_and_payloads():
    other = Schema("other", (Attribute("x", "bool"),))
    with pytest.raises(EventError, match="Expected events of stock, got 'other'"):
        EventBatch.from_events(STOCK, [other.event(x=True)])
    with pytest.raises(EventError, match="Expected batches of stock, got 'other'"):
        EventBatch.concat([EventBatch.of(STOCK, columns()), EventBatch.of(other, {"x": [True]})])
    with pytest.raises(EventError, match="at least one batch"):
        EventBatch.concat([])
    with pytest.raises(EventError, match=r"payload as bytes, got 'p' - at stock\[1\]"):
        EventBatch.of(STOCK, columns(), [b"", "p"])
    with pytest.raises(EventError, match="columns of one length"):
        EventBatch.of(STOCK, columns(), [b""])
    paid = EventBatch.of(STOCK, columns(), [b"", b"p"])
    both = EventBatch.concat([paid, EventBatch.of(STOCK, columns())])
    assert both.payloads == (b"", b"p", b"", b"")
    assert both.take(slice(1, 3)).payloads == (b"p", b"")
    notes = EventBatch.concat([paid, EventBatch.of(STOCK, columns(note=["x", "z"]))]).column("note")
    assert notes.strings() == ["", "x", "x", "z"]


def test_empty_batches():
    empty = EventBatch.from_events(STOCK, [])
    assert len(empty) == 0
    assert list(EventBatch.concat([empty, EventBatch.of(STOCK, columns())])) == list(EventBatch.of(STOCK, columns()))


# -- errors -----------------------------------------------------------------------------------


def test_messages_say_expected_got_and_where():
    error = InvalidInput(expected="int", got="x" * 100, where="here")
    assert str(error).startswith("Expected int, got 'xxx")
    assert str(error).endswith("… - at here")
    assert (error.expected, error.where) == ("int", "here")
    assert isinstance(error, ValueError)
    assert len(shortened("y" * 500)) == 60
