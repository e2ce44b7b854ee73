"""Loading a router's compiled code before it listens.

From the cache that takes a second or two; a machine that never ran it compiles for half a minute. A router to which
that happens with its first events reads nothing meanwhile: its neighbours give it up, and events are lost. So the
matcher does here, with made-up filters, all that it will do with real ones: filters and events of every type, with and
without a schema, few filters and many, alone and in batches, coming and going.
"""

from __future__ import annotations

import threading
from typing import Any

from sievenet.content.batch import EventBatch
from sievenet.content.event import Record
from sievenet.content.filter import Filter
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet

__all__ = ["load"]

_loading = threading.Lock()
_loaded = False

#: More than a level of the matcher needs to be worth its slices.
_MANY = 1500
_SCHEMA = Schema(
    "warmup",
    (
        Attribute("i", "int", lo=0, hi=_MANY),
        Attribute("f", "float", lo=0.0, hi=1.0),
        Attribute("s", "str"),
        Attribute("e", "str", values=("a", "b", "c")),
        Attribute("b", "bool"),
    ),
)


def load() -> None:
    """Load it now, in this thread; once per process."""
    global _loaded
    with _loading:
        if not _loaded:
            _use(_SCHEMA)
            _use(None)
            _loaded = True


def _filters(schema: Schema | None) -> list[Filter]:
    """Of every kind of constraint, alone and together, in number so that each attribute has many."""
    kinds = (
        lambda k: {"i": ValueSet.interval(k % 500, k % 500 + 40)},
        lambda k: {"f": ValueSet.interval(k / _MANY, k / _MANY + 0.01)},
        lambda k: {"s": ValueSet.of(f"s{k % 700}"), "i": ValueSet.interval(0, k)},
        lambda k: {"e": ValueSet.of("a"), "f": ValueSet.interval(0.0, k / _MANY), "i": ValueSet.of(k)},
        lambda k: {"b": ValueSet.of(k % 2 == 0), "i": ValueSet.of(k, k // 2)},
    )
    return [Filter(schema, kinds[k % len(kinds)](k)) for k in range(_MANY)]


def _use(schema: Schema | None) -> None:
    from sievenet.matcher import Matcher

    values: list[dict[str, Any]] = [
        {"i": k, "f": k / 100, "s": f"s{k}", "e": "abc"[k % 3], "b": k % 2 == 0} for k in range(100)
    ]
    rows: EventBatch | list[Record]
    if schema is None:
        rows = [Record(each) for each in values]
    else:
        rows = EventBatch.from_events(schema, [schema.event(**each) for each in values])
    filters = _filters(schema)
    # As `Forwarding` does: few, walked over one by one, then many, in a level with slices, then levels that shrink.
    matcher = Matcher(schema)
    for count in (5, 100, _MANY):
        for key in range(len(matcher), count):
            matcher.add(key, filters[key])
        for _ in range(2):
            matcher.match(rows[0])
            matcher.match_batch(rows)
    for key in range(_MANY - 50):
        matcher.remove(key)
    matcher.match(rows[0])
    matcher.match_batch(rows)
