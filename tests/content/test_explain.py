"""Why an event matched, as text and as data."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import (
    Attribute,
    Explanation,
    Filter,
    Record,
    Schema,
    Subscription,
    explain,
    parse_event,
    parse_filter,
    parse_subscription,
)
from sievenet.errors import SchemaError
from sievenet.testing import strategies

STOCK = Schema(
    "stock",
    (Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")), Attribute("price", "float", lo=0, hi=1000)),
)


@given(st.data())
def test_it_agrees_with_matching(data):
    schema = data.draw(st.none() | strategies.schemas())
    wanted = data.draw(st.one_of(strategies.filters(schema), strategies.subscriptions(schema)))
    event = data.draw(strategies.records() if schema is None else strategies.events(schema))
    found = explain(wanted, event)
    assert found.matches == wanted.matches(event)
    filters = wanted.filters if isinstance(wanted, Subscription) else (wanted,)
    for each, answer in zip(filters, found.filters, strict=True):
        assert answer.matches == each.matches(event)
        assert [c.attribute for c in answer.constraints] == list(each.constraints)
        assert each.empty or answer.matches == all(c.ok for c in answer.constraints)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Explanation) == found


def test_text_of_a_subscription():
    wanted = parse_subscription("price > 500 and symbol = IBM or price < 100", STOCK)
    assert str(explain(wanted, parse_event("symbol=IBM, price=42.5", STOCK))) == (
        '✓ stock: symbol="IBM", price=42.5\n'
        "  ✓ stock: price < 100\n"
        "    ✓ price < 100   got 42.5\n"
        '  ✗ stock: symbol = "IBM" and price > 500\n'
        '    ✓ symbol = "IBM"   got "IBM"\n'
        "    ✗ price > 500      got 42.5"
    )


def test_absent_attributes_and_empty_filters():
    found = explain(parse_filter("x > 5 and y absent"), Record({"z": 1}))
    assert [str(c) for c in found.filters[0].constraints] == [
        "✗ x > 5   got nothing (absent)",
        "✓ y absent   got nothing (absent)",
    ]
    assert str(explain(Filter.nothing(), Record({}))) == "✗ \n  ✗ none"
    assert "matches nothing" in str(explain(Subscription([]), Record({})))
    assert explain(Filter(), Record({})).matches


def test_data():
    found = explain(parse_filter("price > 420", STOCK), parse_event("symbol=IBM, price=400", STOCK))
    assert msgspec.to_builtins(found) == {
        "event": 'stock: symbol="IBM", price=400.0',
        "matches": False,
        "filters": (
            {
                "filter": "stock: price > 420",
                "matches": False,
                "constraints": (
                    {"attribute": "price", "wanted": "> 420", "got": 400.0, "ok": False, "text": "price > 420"},
                ),
            },
        ),
    }


def test_events_of_another_schema_are_refused():
    with pytest.raises(SchemaError, match="Expected an event of stock version 1"):
        explain(Filter(STOCK), Record({}))
