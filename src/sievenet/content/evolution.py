"""Versions of a schema: what a newer one may change, and what filters of one mean in another.

A newer version may add attributes, and values to enumerations. Everything else stays: names, types, ranges. An event
keeps the version it was published with, so nobody has to change at the same time as anybody else:

    publisher of version 1 ──▶ {symbol, price}          ──▶ subscribers of version 1 and 2
    publisher of version 2 ──▶ {symbol, price, venue}   ──▶ subscribers of version 1 and 2

A filter says of events of another version what it says of its own, in the attributes and values that both know:

- an event that lacks an attribute does not match a filter that constrains it;
- a filter speaks of the values that its own version knows: ``kind != hot`` of version 1 is `cold` and `warm`, and does
  not come to want the `boiling` that version 2 adds.  A filter that says nothing about `kind` wants it.
"""

from __future__ import annotations

from sievenet.content.filter import Filter, Subscription
from sievenet.content.schema import Schema
from sievenet.content.valueset import ValueSet
from sievenet.errors import SchemaError

__all__ = ["check_successor", "translated"]


def check_successor(old: Schema, new: Schema) -> None:
    """`SchemaError` unless `new` is a later version of `old`."""
    where = f"{new.name} version {new.version}"
    if new.name != old.name or new.version <= old.version:
        raise SchemaError(
            expected=f"{old.name} with a version above {old.version}", got=f"`{new.name} version {new.version}`"
        )
    for before in old.attributes:
        if before.name not in new:
            raise SchemaError(f"Expected the attribute {before.name} of version {old.version}, got none", where=where)
        after = new[before.name]
        same = (before.type, before.lo, before.hi, before.values is None)
        if same != (after.type, after.lo, after.hi, after.values is None):
            raise SchemaError(
                expected=f"{before.describes} for {before.name}, as in version {old.version}",
                got=f"`{after.describes}`",
                where=where,
            )
        lost = set(before.values or ()) - set(after.values or ())
        if lost:
            raise SchemaError(
                expected=f"all values of {before.name} in version {old.version}",
                got=f"`a version without {', '.join(sorted(lost)[:4])}`",
                where=where,
            )


def translated(wanted: Subscription, schema: Schema) -> Subscription:
    """What a subscription wants of events of another version of its schema; perhaps nothing."""
    assert wanted.schema is not None
    found = (_translated(each, wanted.schema, schema) for each in wanted.filters)
    return Subscription([each for each in found if each is not None and not each.empty], schema)


def _translated(wanted: Filter, source: Schema, target: Schema) -> Filter | None:
    constraints: dict[str, ValueSet] = {}
    for name, values in wanted.constraints.items():
        if name not in target:
            return None
        known = source[name].values
        if known is not None:
            shared = [value for value in known if value in values and value in target[name].ordinals]
            if not shared:
                return None
            values = ValueSet.of(*shared)
        constraints[name] = values
    return Filter(target, constraints)
