"""Clocks: which column of a file holds the time of its rows, and how it is written.

    said              --time COLUMN
    by its name       time, timestamp, datetime, date, ts
    by its values     the first column that is no attribute and whose first values are all times (ISO 8601, or as
                      --time-format says)
    none              rows have the time of their file

The first rows of a file show it.  What was found is said, so that a wrong guess is seen before a plan is made of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sievenet.content import Schema
from sievenet.errors import SievenetError
from sievenet.workload.trace import Reading, Row, beginning, is_plain
from sievenet.workload.trace import rows_of as trace_rows_of

if TYPE_CHECKING:
    from sievenet.pipeline.store import Store

__all__ = ["HEAD", "ISO", "TIME_NAMES", "Clock", "clock_of", "first_rows", "patterned"]

#: Columns that are taken for the time if they are no attribute, best first.
TIME_NAMES: Final = ("time", "timestamp", "datetime", "date", "ts")
#: Bytes of a file that show what it is like, and rows of one that has to be read as a whole.
HEAD: Final = 1 << 15
_ROWS: Final = 1000
#: A date, or a date and a time of day, perhaps with its zone.
ISO: Final = (
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"([T ][0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?)? ?(Z|UTC|[+-][0-9]{1,2}(:?[0-9]{2})?)?$"
)
_MOMENT: Final = re.compile(ISO)
_UNITS: Final = ((1e11, "seconds"), (1e14, "milliseconds"), (1e17, "microseconds"), (float("inf"), "nanoseconds"))

Values = Mapping[str, str | None]


class Clock(NamedTuple):
    """The column of the time (none: the file's own), and how times are written there."""

    column: str | None
    form: str

    def __str__(self) -> str:
        return f"time: {self.column} ({self.form})" if self.column else "time: that of the file; --time names a column"


def first_rows(store: Store, path: str, reading: Reading) -> list[Values]:
    """The first rows of a CSV or JSON file; none if it cannot be read, which is said when it is."""
    head = store.files.head(path, HEAD)
    data = head
    if not is_plain(head, path, reading):
        data = store.files.read(path)
    elif len(beginning(head)) >= HEAD:
        # The last line may be a part of one.
        data = beginning(head).rpartition(b"\n")[0]
    try:
        rows = itertools.islice(trace_rows_of(data, reading, path), _ROWS)
        return [row.values for row in rows if isinstance(row, Row)]
    except SievenetError:
        return []


def clock_of(rows: Sequence[Values], schema: Schema, said: str | None = None, pattern: str | None = None) -> Clock:
    """The clock of a file whose first rows these are."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {n: [v for row in rows if (v := row.get(n)) is not None and v.strip()] for n in names}
    column = said or next((n for n in TIME_NAMES if n not in schema and values.get(n)), None)
    if column is None:
        others = (n for n in names if n not in schema and values[n])
        column = next((n for n in others if all(_MOMENT.match(v.strip()) for v in values[n])), None)
    return Clock(column, pattern or _form(values.get(column or "", [])))


#: Of a pattern: quoted text, letters that repeat, or anything else.
_PARTS: Final = re.compile(r"'[^']*'|([A-Za-z])\1*|.")


def _expression(part: str) -> str:
    """What a part of a pattern stands for."""
    if part.startswith("'"):
        return re.escape(part[1:-1] or "'")
    if not part[0].isalpha():
        return re.escape(part)
    if part[0] in "yuMdDHhkKmsSnA" and not (part[0] == "M" and len(part) > 2):
        return f"[0-9]{{{len(part)}}}" if len(part) > 1 and part != "yyyy" else "[0-9]+"
    return r"[^0-9]\S*" if part[0] in "MEaGL" else r"\S+"


def patterned(rows: Sequence[Values], pattern: str) -> str | None:
    """The first column whose first values are all written like a pattern such as dd/MM/yyyy HH:mm; None if none is."""
    fits = re.compile("".join(_expression(part[0]) for part in _PARTS.finditer(pattern)))
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {n: [v.strip() for row in rows if (v := row.get(n)) is not None and v.strip()] for n in names}
    return next((n for n in names if values[n] and all(fits.fullmatch(v) for v in values[n])), None)


def _form(values: Sequence[str]) -> str:
    """How times are written, by the first that is one."""
    for value in values:
        text = value.strip()
        if re.fullmatch(r"(19|20)[0-9]{6}", text):
            return "yyyyMMdd"
        if _MOMENT.match(text):
            return "ISO 8601"
        try:
            size = abs(float(text))
        except ValueError:
            continue
        return next(f"{unit} since 1970" for limit, unit in _UNITS if size < limit)
    return "ISO 8601"
