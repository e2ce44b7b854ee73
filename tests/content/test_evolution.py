"""Versions of a schema, against brute force on small domains."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Schema, Subscription, ValueSet
from sievenet.content.evolution import check_successor, translated
from sievenet.errors import SchemaError

X = Attribute("x", "int", lo=0, hi=3)
OLD = Schema("s", (X, Attribute("kind", "str", values=("cold", "hot", "warm"))))
NEW = Schema(
    "s", (Attribute("added", "bool"), Attribute("kind", "str", values=("boiling", "cold", "hot", "warm", "x")), X), 2
)


def events(schema):
    domains = [a.values or (range(4) if a.type == "int" else (False, True)) for a in schema.attributes]
    return [schema.event(**dict(zip(schema.positions, values, strict=True))) for values in product(*domains)]


def filters(schema):
    kinds = schema["kind"].values
    choices = {
        "x": st.lists(st.integers(0, 3), min_size=1).map(lambda some: ValueSet.of(*some)),
        "kind": st.lists(st.sampled_from(kinds), min_size=1).map(lambda some: ValueSet.of(*some)),
    }
    if "added" in schema:
        choices["added"] = st.booleans().map(ValueSet.of)
    some = st.fixed_dictionaries({}, optional=choices).map(lambda c: Filter(schema, c))
    return st.lists(some, min_size=1, max_size=3).map(lambda several: Subscription(several, schema))


def meant(wanted, source, event):
    """What a filter of one version says of an event of another, one constraint at a time."""

    def one(each):
        for name, values in each.constraints.items():
            if name not in event.schema:
                return False
            value = event[name]
            if source[name].values is not None and value not in source[name].values:
                return False
            if value not in values:
                return False
        return True

    return any(one(each) for each in wanted.filters)


@pytest.mark.parametrize(("source", "target"), [(OLD, NEW), (NEW, OLD)])
@given(data=st.data())
def test_a_filter_says_the_same_of_events_of_another_version(source, target, data):
    wanted = data.draw(filters(source))
    found = translated(wanted, target)
    for event in events(target):
        assert found.matches(event) == meant(wanted, source, event), (wanted, found, event)


def test_what_a_newer_version_may_change():
    check_successor(OLD, NEW)
    kind = OLD["kind"]
    for bad in (
        Schema("s", OLD.attributes, 1),
        Schema("t", OLD.attributes, 2),
        Schema("s", (X,), 2),
        Schema("s", (X, Attribute("kind", "str")), 2),
        Schema("s", (X, Attribute("kind", "str", values=("cold", "hot"))), 2),
        Schema("s", (Attribute("x", "int", lo=0, hi=4), kind), 2),
        Schema("s", (Attribute("x", "float", lo=0, hi=3), kind), 2),
    ):
        with pytest.raises(SchemaError):
            check_successor(OLD, bad)
