"""Two dimensions of an index, drawn in characters.

      y ▲
    255 │ ················
        │ ······aaaaBBBb··        capitals: what the filter wants
        │ ······aAAABBBb··        small letters: covered too, though not wanted
        │ ······aAAABBBb··        dots: not covered
      0 │ ················
        └────────────────▶ x      each letter is one entry of the table above it

Every character stands for the content at its middle: it is encoded as an event would be,
and asked for in each entry, so the picture shows what a switch does and not what we think.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, Event, StringColumn, Subscription, Value, ValueSet
from sievenet.workload.space import column_at, whole

if TYPE_CHECKING:
    from rich.text import Text

    from sievenet.index import Cell, Dz, Plan

__all__ = ["can_draw", "draw", "letter", "paint"]

WIDTH, HEIGHT = 48, 20
_NOTHING, _EVENT = "·", "●"


def can_draw(plan: Plan) -> bool:
    """Whether a plan has two dimensions, neither of free text, which has no order."""
    return len(plan.dimensions) == 2 and not any(_is_free(plan.schema[name]) for name in plan.dimensions)


def letter(number: int) -> str:
    """The letter of the n-th entry; they repeat after z."""
    return ascii_lowercase[number % len(ascii_lowercase)]


def draw(plan: Plan, entries: Sequence[Dz | Cell], content: Event | Subscription) -> list[str]:
    """The lines of a picture of a plan with two dimensions, the second one upwards."""
    across, up = (plan.schema[name] for name in plan.dimensions)
    covered = _covered(plan, entries, across, up)
    asked = np.zeros((HEIGHT, WIDTH), np.bool_) if isinstance(content, Event) else _asked(content, across, up)
    rows = [
        [
            _NOTHING if entry < 0 else letter(entry).upper() if hit else letter(entry)
            for entry, hit in zip(covered[y].tolist(), asked[y].tolist(), strict=True)
        ]
        for y in range(HEIGHT)
    ]
    if isinstance(content, Event):
        rows[_place(up, content[up.name], HEIGHT)][_place(across, content[across.name], WIDTH)] = _EVENT
    return _framed(["".join(row) for row in reversed(rows)], across, up)


def paint(lines: Sequence[str]) -> Text:
    """The same with colours: wanted green, unwanted yellow."""
    from rich.text import Text

    text = Text()
    for line in lines:
        head, bar, row = line.partition("│ ")
        text.append(head + bar, "dim")
        for character in row:
            style = "dim" if character == _NOTHING else "yellow" if character.islower() else "bold green"
            text.append(character, style)
        text.append("\n")
    text.rstrip()
    return text


def _covered(plan: Plan, entries: Sequence[Dz | Cell], across: Attribute, up: Attribute) -> npt.NDArray[np.int64]:
    """The number of the first entry that holds each point, -1 if none: [row, column]."""
    columns, rows = _values(across, WIDTH), _values(up, HEIGHT)
    # The other attributes have some value, which no axis looks at.
    values: dict[str, Value] = {a.name: "" if _is_free(a) else _values(a, 1)[0] for a in plan.schema.attributes}
    found = np.full((HEIGHT, WIDTH), -1, np.int64)
    for y, x in product(range(HEIGHT), range(WIDTH)):
        event = plan.schema.event_of(values | {across.name: columns[x], up.name: rows[y]})
        codes = plan.encode(event)
        found[y, x] = next((n for n, entry in enumerate(entries) if any(_holds(entry, c) for c in codes)), -1)
    return found


def _holds(entry: Dz | Cell, code: Dz) -> bool:
    from sievenet.index import Dz

    return entry.covers(code) if isinstance(entry, Dz) else entry.covers(code.cell(entry.width))


def _asked(wanted: Subscription, across: Attribute, up: Attribute) -> npt.NDArray[np.bool_]:
    """Whether some filter wants each point, as far as these two attributes say."""
    asked = np.zeros((HEIGHT, WIDTH), np.bool_)
    for each in wanted.filters:
        columns = _members(across, each[across.name], WIDTH)
        rows = _members(up, each[up.name], HEIGHT)
        asked |= rows[:, None] & columns
    return asked


def _place(attribute: Attribute, value: Value, count: int) -> int:
    """The part of a domain, cut into ``count``, in which a value lies."""
    lo, hi = whole(attribute)
    number = attribute.ordinals[value] if isinstance(value, str) else value
    slot = 0.0 if attribute.type == "float" else 1.0
    return min(int((number - lo) / (hi - lo + slot or 1.0) * count), count - 1)


def _members(attribute: Attribute, values: ValueSet, count: int) -> npt.NDArray[np.bool_]:
    return np.array([value in values for value in _values(attribute, count)], np.bool_)


def _values(attribute: Attribute, count: int) -> list[Value]:
    """The values in the middle of equal parts of a domain."""
    column = column_at(attribute, (np.arange(count) + 0.5) / count)
    return [*column.strings()] if isinstance(column, StringColumn) else column.tolist()


def _is_free(attribute: Attribute) -> bool:
    return attribute.type == "str" and attribute.values is None


def _framed(rows: list[str], across: Attribute, up: Attribute) -> list[str]:
    """The rows with axes and the ends of their domains."""
    (left, right), (low, high) = _ends(across), _ends(up)
    margin = max(len(low), len(high), len(up.name) + 2)
    sides = [high, *[""] * (len(rows) - 2), low]
    lines = [f"{up.name} ▲".rjust(margin + 2)]
    lines += [f"{side:>{margin}} │ {row}" for side, row in zip(sides, rows, strict=True)]
    lines.append(f"{'':>{margin}} └{'─' * (WIDTH + 1)}▶ {across.name}")
    lines.append(f"{'':>{margin + 3}}{left}{right:>{WIDTH - len(left)}}")
    return lines


def _ends(attribute: Attribute) -> tuple[str, str]:
    match attribute.type:
        case "bool":
            return "false", "true"
        case "str":
            values = attribute.values or ("", "")
            return values[0][:12], values[-1][:12]
        case _:
            return f"{attribute.lo:g}", f"{attribute.hi:g}"
