"""Schemas: what they allow, and what their errors say."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import MAX_ATTRIBUTES, Attribute, Schema, ValueSet
from sievenet.errors import EventError, SchemaError
from sievenet.testing import strategies


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Attribute("1a", "bool"), "an attribute name.*got '1a'"),
        (lambda: Attribute("a b", "bool"), "an attribute name"),
        (lambda: Attribute("prefix", "bool"), "no reserved word"),
        (lambda: Attribute("a" * 65, "bool"), "an attribute name"),
        (lambda: Attribute("x", "int"), r"Expected lo and hi of an int, got \(None, None\) - at x"),
        (lambda: Attribute("x", "int", lo=0.5, hi=1), "64-bit whole lo and hi"),
        (lambda: Attribute("x", "int", lo=0, hi=1 << 63), "64-bit whole lo and hi"),
        (lambda: Attribute("x", "float", lo=0, hi=float("inf")), "finite lo and hi"),
        (lambda: Attribute("x", "float", lo=0, hi=float("nan")), "finite lo and hi"),
        (lambda: Attribute("x", "float", lo=0, hi=10**400), "finite lo and hi"),
        (lambda: Attribute("x", "int", lo=2, hi=1), r"Expected lo <= hi, got \(2, 1\) - at x"),
        (lambda: Attribute("x", "bool", lo=0), "Only numbers have lo and hi, bool has not"),
        (lambda: Attribute("x", "int", lo=0, hi=1, values=("a",)), "Only strings are enumerated, int is not"),
        (lambda: Attribute("x", "str", values=()), "at least one value"),
        (lambda: Attribute("x", "str", values=("a", "a")), "distinct values"),
        (lambda: Attribute("x", "str", values=("\ud800",)), "UTF-8"),
        (lambda: Attribute("x", "str", values=("y" * 4097,)), "at most 4096 bytes of text, got 4097"),
        (lambda: Schema("no name", (Attribute("x", "bool"),)), "a schema name"),
        (lambda: Schema("s", ()), f"1 to {MAX_ATTRIBUTES} attributes, got 0 - at s"),
        (lambda: Schema("s", tuple(Attribute(f"x{i}", "bool") for i in range(65))), "1 to 64 attributes, got 65"),
        (lambda: Schema("s", (Attribute("x", "bool"), Attribute("x", "bool"))), "distinct attribute names"),
        (lambda: Schema("s", (Attribute("x", "bool"),), version=0), "a version from 1 to 65535, got 0"),
    ],
)
def test_contradictions_are_refused(build, message):
    with pytest.raises(SchemaError, match=message):
        build()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"name": "s"}', "missing required field `attributes`"),
        ('{"name": "s", "attributes": [{"name": "x", "type": "int", "lo": "0"}]}', r"\$\.attributes\[0\]\.lo"),
        ('{"name": "s", "attributes": [{"name": "x", "type": "date"}]}', r"enum value 'date'.*\$\.attributes\[0\]"),
        ('{"name": "s", "attributes": [{"name": "x", "type": "bool", "low": 0}]}', "unknown field `low`"),
        (
            '{"name": "s", "attributes": [{"name": "x", "type": "int", "lo": 2, "hi": 1}]}',
            r"Expected lo <= hi, got \(2, 1\) - at x - at `\$\.attributes\[0\]`",
        ),
        (b"\xff\xfe", "malformed|invalid"),
        ('"\xff', "."),
    ],
)
def test_json_errors_say_where(text, message):
    with pytest.raises(SchemaError, match=message):
        Schema.from_json(text)


def test_builtins():
    data = {"name": "s", "attributes": [{"name": "x", "type": "float", "lo": 0, "hi": 1}]}
    schema = Schema.from_builtins(data)
    assert schema["x"].lo == 0.0
    assert Schema.from_builtins(msgspec.to_builtins(schema)) == schema
    with pytest.raises(SchemaError, match=r"\$\.name"):
        Schema.from_builtins({**data, "name": 5})


def test_equal_schemas_are_one_key():
    make = lambda: Schema("s", (Attribute("x", "str", values=("b", "a")), Attribute("y", "int", lo=0, hi=9)))  # noqa: E731
    assert make() == make()
    assert len({make(), make()}) == 1
    assert make()["x"].values == ("a", "b")
    assert "x" in make()
    assert "z" not in make()
    with pytest.raises(SchemaError, match=r"an attribute of s \(x, y\), got 'z'"):
        make()["z"]


@given(st.data())
def test_domains_hold_exactly_the_values(data):
    attribute = data.draw(strategies.attributes())
    value = data.draw(strategies.values(attribute))
    assert value in attribute.domain
    assert attribute.checked(value, "x") == value
    found = attribute.canonical(ValueSet.of(value))
    assert value in found
    # Among numbers the next one depends on the domain: the next float, or the next whole number.
    assert found == ValueSet.of(value) or attribute.type in ("int", "float")


def test_values_are_checked():
    number, whole = Attribute("x", "float", lo=0, hi=1), Attribute("n", "int", lo=0, hi=9)
    assert type(number.checked(1, "x")) is float
    assert type(number.checked(np.float64(0.5), "x")) is float
    assert type(whole.checked(np.int32(5), "n")) is int
    for attribute, bad in (
        (number, 2), (number, True), (number, "1"), (number, float("nan")), (whole, 1.0), (whole, True), (whole, None)
    ):  # fmt: skip
        with pytest.raises(EventError, match=r"got .* - at here"):
            attribute.checked(bad, "here")
    many = Attribute("e", "str", values=tuple("abcdef"))
    with pytest.raises(EventError, match=r"Expected one of 'a', 'b', 'c', 'd', …, got 'z' - at here"):
        many.checked("z", "here")
