"""What loads the matcher's compiled code: a router needs it before it listens, a client before it subscribes.

A process that meets the compiler with its first events reads nothing meanwhile: others give it up, and events are lost.
So the matcher does here, with made-up filters, all that it will do with real ones: filters and events of every type,
with and without a schema, few filters and many, alone and in batches, coming and going.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from sievenet.content.batch import EventBatch
from sievenet.content.event import Record
from sievenet.content.filter import Filter
from sievenet.content.schema import Attribute, Schema
from sievenet.content.valueset import ValueSet
from sievenet.jit.warmup import Warmup

__all__ = ["EVENTS", "RECORDS", "load"]

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
    """Load all of it now, in this thread; once per process."""
    EVENTS.load()
    RECORDS.load()


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
    if schema is not None:
        _read()


def _read() -> None:
    """Events as rows of bytes, as a client gets many."""
    from sievenet.matcher import Matcher
    from sievenet.matcher.decoder import Decoder

    schema = Schema("warmup", tuple(a for a in _SCHEMA.attributes if a.name != "s"))
    matcher, decoder = Matcher(schema), Decoder(schema)
    matcher.add(1, Filter(schema))
    rows, wanted = np.zeros((2, decoder.size + 8), np.uint8), np.ones(2, np.bool_)
    xs, sound = np.zeros((2, decoder.attributes), np.int64), np.zeros(2, np.int64)
    # Bytes as they were received cannot be written to, which to a compiler is another type.
    for each in (rows, np.frombuffer(rows.tobytes(), np.uint8).reshape(rows.shape)):
        decoder.read(each, 8, wanted, xs, sound)
    matcher.match_keys(xs, 2)


#: What events with a schema need, and those without.
EVENTS: Final = Warmup(partial(_use, _SCHEMA))
RECORDS: Final = Warmup(partial(_use, None))
