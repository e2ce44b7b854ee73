"""Why did it (not) match?

    >>> from sievenet.content import Record, parse_filter
    >>> print(explain(parse_filter('price > 420 and symbol = "IBM"'), Record({"price": 400, "symbol": "IBM"})))
    ✗ price=400, symbol="IBM"
      ✗ price > 420 and symbol = "IBM"
        ✗ price > 420      got 400
        ✓ symbol = "IBM"   got "IBM"

The same as data: an `Explanation` is a msgspec struct, so `msgspec.json.encode` gives JSON.
"""

from __future__ import annotations

import msgspec

from sievenet.content.event import Event, Record
from sievenet.content.filter import Filter, Subscription
from sievenet.content.text import constraint_text, filter_text, literal, values_text
from sievenet.content.valueset import Value

__all__ = ["ConstraintAnswer", "Explanation", "FilterAnswer", "explain"]


class ConstraintAnswer(msgspec.Struct, frozen=True):
    """What one constraint says about an event."""

    attribute: str
    #: The wanted values as text, such as ``> 420``.
    wanted: str
    #: The event's value; null if the event has no such attribute.
    got: Value | None
    ok: bool
    #: The whole constraint as text, such as ``price > 420``.
    text: str

    def __str__(self) -> str:
        return f"{_mark(self.ok)} {self.text}   got {_got(self.got)}"


class FilterAnswer(msgspec.Struct, frozen=True):
    """What one filter says about an event; an empty or unconstrained filter has no constraints."""

    filter: str
    matches: bool
    constraints: tuple[ConstraintAnswer, ...]

    def __str__(self) -> str:
        width = max((len(c.text) for c in self.constraints), default=0)
        lines = [f"{_mark(self.matches)} {self.filter}"]
        lines += (f"  {_mark(c.ok)} {c.text.ljust(width)}   got {_got(c.got)}" for c in self.constraints)
        return "\n".join(lines)


class Explanation(msgspec.Struct, frozen=True):
    """The answer to "why?": one `FilterAnswer` per filter; one that matches is enough."""

    event: str
    matches: bool
    filters: tuple[FilterAnswer, ...]

    def __str__(self) -> str:
        lines = [f"{_mark(self.matches)} {self.event}"]
        for each in self.filters:
            lines += (f"  {line}" for line in str(each).splitlines())
        if not self.filters:
            lines.append("  ✗ none: a subscription without filters matches nothing")
        return "\n".join(lines)


def explain(wanted: Filter | Subscription, event: Event | Record) -> Explanation:
    """Why a filter or subscription matches an event, or why not, constraint by constraint."""
    filters = (wanted,) if isinstance(wanted, Filter) else wanted.filters
    answers = tuple(_answer(each, event) for each in filters)
    return Explanation(str(event), any(a.matches for a in answers), answers)


def _answer(each: Filter, event: Event | Record) -> FilterAnswer:
    schema = each.schema
    matches = each.matches(event)  # first: it refuses an event of another schema
    constraints = tuple(
        ConstraintAnswer(
            attribute=name,
            wanted=values_text(values, schema[name] if schema else None),
            got=event.get(name),
            ok=event.get(name) in values,
            text=constraint_text(name, values, schema[name] if schema else None),
        )
        for name, values in each.constraints.items()
    )
    return FilterAnswer(filter_text(each), matches, constraints)


def _mark(ok: bool) -> str:
    return "✓" if ok else "✗"


def _got(value: Value | None) -> str:
    return "nothing (absent)" if value is None else literal(value)
