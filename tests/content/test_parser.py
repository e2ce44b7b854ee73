"""What is wrong with a text, and at which column."""

import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sievenet.content import Attribute, Event, Filter, Record, Schema, parse_event, parse_filter, parse_subscription
from sievenet.content.lexer import MAX_TEXT, tokens, words
from sievenet.content.parser import MAX_FILTERS, MAX_TERMS
from sievenet.errors import FilterError, InvalidInput, ParseError

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=0, hi=10_000),
        Attribute("halted", "bool"),
        Attribute("note", "str"),
    ),
)
OTHER = Schema("weather", (Attribute("rain", "bool"),))


@pytest.mark.parametrize(
    ("text", "expected", "got", "hint"),
    [
        # The caret marks the column.
        ("^prise > 4", "an attribute of stock (symbol, price, volume, halted, note)", "prise", "did you mean price?"),
        ("price > 4 and ^Volume > 2", "an attribute of stock", "Volume", "did you mean volume?"),
        ("price > 4 and^", "an attribute of stock", "the end", ""),
        ("^", "an attribute of stock", "the end", ""),
        ("^(price > 4)", "an attribute of stock", "(", "filters have no parentheses"),
        ('price > ^"a"', "float in [0.0, 1000.0] for price", '"a"', ""),
        ("price > ^true", "float in [0.0, 1000.0] for price", "true", ""),
        ("price > ^2000", "float in [0.0, 1000.0] for price", "2000", ""),
        ("price > ^-1", "float in [0.0, 1000.0] for price", "-1", ""),
        ("price in [5, ^1001)", "float in [0.0, 1000.0]", "1001", ""),
        ("price >^", "float in [0.0, 1000.0]", "the end", ""),
        ("price > ^and", "float in [0.0, 1000.0]", "and", ""),
        ("price > ^1e999", "a number that fits 64-bit floats", "1e999", ""),
        (f"price > ^{'9' * 400}", "a number that fits", f"{'9' * 59}…", ""),
        (f"price > ^{'9' * 5000}", "a number that fits", f"{'9' * 59}…", ""),
        ("volume = ^3.5", "int in [0, 10000] for volume", "3.5", ""),
        ("halted = ^1", "bool for halted", "1", ""),
        ("symbol = ^GOOG", "one of 'AAPL', 'IBM', 'MSFT' for symbol", "GOOG", ""),
        ("symbol = ^ibm", "one of 'AAPL'", "ibm", "did you mean IBM?"),
        ("symbol in {IBM, ^5}", "one of 'AAPL'", "5", ""),
        ("note = ^IBM", "str for note", "IBM", 'strings are in quotes: "IBM"'),
        ("note = ^5", "str for note", "5", ""),
        ('price ^prefix "a"', "float in [0.0, 1000.0] for price", "prefix", ""),
        ("note prefix ^5", "a string in quotes", "5", ""),
        ("price ^string", "float in [0.0, 1000.0]", "string", ""),
        ("note ^number", "str for note", "number", ""),
        ("price ^exist", "a condition", "exist", "did you mean exists?"),
        ("price ^5", "a condition", "5", ""),
        ("price ^and volume > 5", "a condition", "and", ""),
        ("price not ^5", "`in`, `prefix` or `exists`", "5", ""),
        ("price in ^volume", "a set of values", "volume", ""),
        ("price in [1 ^5]", "`,`", "5", ""),
        ("price in [1, 5^", "`]` or `)`", "the end", ""),
        ("price in {1, 5^", "`}`", "the end", ""),
        ("price in {^}", "float in", "}", ""),
        ("price in ^[5, 1]", "an interval from low to high", "[5, 1]", ""),
        ("price in ^(5, 5]", "an interval from low to high", "(5, 5]", ""),
        ("price in [^-inf, inf]", "an interval with at least one end", "-inf", ""),
        ("price in ^5..1", "a range from low to high", "5..1", ""),
        ("price > 5 ^or volume > 5", "`and` or the end", "or", "a subscription"),
        ("price > 5 ^AND volume > 5", "`and` or the end", "AND", "did you mean and?"),
        ("price > 5 ^volume", "`and` or the end", "volume", ""),
        ("price ^$ 5", "a name, value or operator", "'$'", ""),
        ("note = ^'a'", "a name, value or operator", '"\'"', "double quotes"),
        ('note = "ab^', "a closing quote", "the end", ""),
        (r'note = "ab^\q"', "an escape such as", r"\q", ""),
        (r'note = "^\u12"', "an escape such as", r"\u", ""),
        (r'note = ^"\ud800"', "text that UTF-8 can encode", "", ""),
        (f'note = ^"{"x" * 4097}"', "at most 4096 bytes of text", "4097", ""),
        ("^stok: price > 4", "a schema (stock)", "stok", "did you mean stock?"),
        ("stock: ^stock: price > 4", "an attribute of stock", "stock", ""),
    ],
)
def test_filter_errors_point_at_the_column(text, expected, got, hint):
    column = text.index("^")
    with pytest.raises(ParseError) as caught:
        parse_filter(text.replace("^", "", 1), STOCK)
    error = caught.value
    assert error.column == column
    assert expected in error.expected
    assert error.got == got or not got
    assert hint in error.hint
    assert bool(hint) == bool(error.hint)
    assert f"at column {column + 1}\n" in str(error)
    shown, caret = str(error).splitlines()[-2:]
    assert caret.index("^") - 2 <= column
    assert len(shown) <= 130
    assert isinstance(error, FilterError)
    assert isinstance(error, InvalidInput)


@pytest.mark.parametrize(
    ("text", "expected", "got"),
    [
        ("^stock: x > 5", "a schemaless filter", "schema stock"),
        ("^5 > x", "an attribute's name", "5"),
        ("^( x > 5)", "an attribute's name", "("),
        ("x > ^y", 'a value (a number, "string", true or false)', "y"),
        ('x in [5, ^"a"]', "a number, like the other end", '"a"'),
        ('x in true..^"a"', "a set", ""),
        ('x in "b"..^5', "a string, like the other end", "5"),
        ("x ^inf", "a condition", "inf"),
    ],
)
def test_schemaless_errors(text, expected, got):
    column = text.index("^")
    with pytest.raises(ParseError) as caught:
        parse_filter(text.replace("^", "", 1))
    assert expected in caught.value.expected
    if got:
        assert (caught.value.column, caught.value.got) == (column, got)


def test_the_message_in_full():
    with pytest.raises(ParseError) as caught:
        parse_filter("stock: prise > 420", STOCK)
    assert str(caught.value) == (
        "Expected an attribute of stock (symbol, price, volume, halted, note), got prise; did you mean price?"
        " - at column 8\n"
        "  stock: prise > 420\n"
        "         ^"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.column, again.where) == (str(caught.value), 7, "column 8")


def test_long_texts_are_shown_around_the_column():
    text = "price > 1 and " * 100 + "\n prise = 1 and " + "price > 1 and " * 100
    with pytest.raises(ParseError) as caught:
        parse_filter(text, STOCK)
    _, shown, caret = str(caught.value).splitlines()
    assert shown[caret.index("^") :].startswith("prise = 1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^price > 5", "a schema's name and a colon (stock, weather)"),
        ("^sock: price > 5", "a schema (stock, weather)"),
        ("stock: price > 5 or ^weather: rain = true", "the same schema (stock)"),
        ("stock: price > 5 or^", "an attribute of stock"),
        ("stock: price > 5 ^, price < 3", "`and`, `or` or the end"),
        ("stock: any ^price > 3", "`and`, `or` or the end"),
    ],
)
def test_subscription_errors(text, expected):
    with pytest.raises(ParseError) as caught:
        parse_subscription(text.replace("^", ""), {"stock": STOCK, "weather": OTHER})
    assert caught.value.column == text.index("^")
    assert expected in caught.value.expected


def test_bounds():
    with pytest.raises(ParseError, match=f"at most {MAX_TEXT} characters, got {MAX_TEXT + 1}"):
        parse_filter("x" * (MAX_TEXT + 1))
    with pytest.raises(ParseError, match="at most 65536 characters"):
        parse_event("x" * (MAX_TEXT + 1), None)
    with pytest.raises(ParseError, match=f"at most {MAX_TERMS} values"):
        parse_filter(f"x in {{{', '.join('1' for _ in range(MAX_TERMS + 1))}}}")
    with pytest.raises(ParseError, match=f"at most {MAX_FILTERS} filters"):
        parse_subscription(" or ".join("x = 1" for _ in range(MAX_FILTERS + 1)))
    with pytest.raises(ParseError, match="at most 64 attributes"):
        parse_event(", ".join(f"x{i}=1" for i in range(65)), None)


_pieces = st.sampled_from(
    """price volume note and or not in prefix [ ( ] ) { } , | .. : 5 -1.5 "a" true inf -inf = != <= > any absent
    stock $ " \\""".split()
)


@example("\xa0")
@given(st.lists(_pieces, max_size=14).map(" ".join) | st.text(max_size=30))
def test_any_text_parses_or_raises_parse_error(text):
    columns = []
    for parse in (parse_filter, parse_subscription, parse_event):
        for schema in (STOCK, None):
            try:
                found = parse(text, schema)
            except ParseError as error:
                columns.append(error.column)
            else:
                if not isinstance(found, Event | Record):
                    assert parse(str(found), schema) == found
    assert all(0 <= column <= len(text) for column in columns)


def test_events_as_typed():
    event = parse_event("price=421.5, symbol=IBM,volume = 1e3, halted=false , note=12%", STOCK)
    assert event.values == ("IBM", 421.5, 1000, False, "12%")
    assert parse_event('stock: price=1,symbol="IBM",volume=0,halted=true,note="a, b"', STOCK)["note"] == "a, b"
    assert parse_event("", None) == Record({})
    assert parse_event('a=1, b=1.0, c=x, d=true, "e f"="true"', None) == Record(
        {"a": 1, "b": 1.0, "c": "x", "d": True, "e f": "true"}
    )


@pytest.mark.parametrize(
    ("text", "expected", "got"),
    [
        ("^prise=1", "an attribute (symbol, price, volume, halted, note)", "prise"),
        ("price=^x", "float in [0.0, 1000.0] for price", "x"),
        ("price=^-1", "float in [0.0, 1000.0] for price", "-1"),
        ("volume=^1.5", "int in [0, 10000] for volume", "1.5"),
        ("symbol=^ibm", "one of 'AAPL', 'IBM', 'MSFT' for symbol", "ibm"),
        ("halted=^1", "bool for halted", "1"),
        ("price=1, ^price=2", "each attribute once", "price again"),
        ("price ^> 5", "`=`", ">"),
        ("price=^", "float in", "the end"),
        ("price=1^", "a value of symbol, volume, halted, note", "the end"),
        ("price=1 ^symbol=IBM", "`,` or the end", "symbol=IBM"),
        ("price=1, ^", "an attribute", "the end"),
        ("^", "an attribute", "the end"),
        ("^=1", "an attribute", "=1"),
        ("^weather: rain=true", "an event of stock", "weather"),
        (r'note=^"\ud800"', "text that UTF-8 can encode", '"\\\\ud800"'),
    ],
)
def test_event_errors_point_at_the_column(text, expected, got):
    with pytest.raises(ParseError) as caught:
        parse_event(text.replace("^", ""), STOCK)
    assert expected in caught.value.expected
    assert caught.value.got.strip("'") == got
    assert caught.value.column == text.index("^")


def test_record_errors():
    with pytest.raises(ParseError, match="a record without a schema, got stock"):
        parse_event("stock: a=1", None)
    with pytest.raises(ParseError, match="a 64-bit whole number"):
        parse_event(f"a={1 << 64}", None)


def test_parse_filter_without_schema_is_schemaless():
    assert parse_filter("price > 5").schema is None
    assert parse_filter("any") == Filter()


@given(
    st.lists(
        st.sampled_from([*"ab_1.-+\"\\<>=!(){}[],|: \n'é$", "-inf", "and", "1e5", '"a"', '"\\n"', "..", "in"]),
        max_size=12,
    )
)
def test_words_are_those_of_tokens(parts):
    """What is split quickly is what is split carefully, wherever that finds nothing wrong."""
    text = "".join(parts)
    try:
        careful = tokens(text)
    except ParseError:
        with pytest.raises(ParseError):
            parse_filter(f"x = {text}")
    else:
        assert words(text) == [token.text for token in careful]


def test_quotes_that_never_close_are_refused_at_once():
    begun = time.process_time()
    for text in ('"' + '\\"' * 30_000, '"\\' * 30_000, 'x = "' + "a" * 60_000, '"' * 60_001):
        with pytest.raises(ParseError):
            parse_filter(text)
    assert time.process_time() - begun < 5
