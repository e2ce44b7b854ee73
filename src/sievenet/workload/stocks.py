"""Daily stock quotes from a CSV file: a schema, an event stream, plausible subscriptions.

The file has a header with ``date,symbol,open,high,low,close,volume`` (in any order; more
columns do no harm) and may be gzipped.  A row that makes no sense is left out, counted and
reported with its line.  Domains come from the data: prices from 0 to the next round number
above the highest, symbols as they occur.

    quotes = load_quotes("quotes.csv.gz")
    quotes.batch, quotes.times, quotes.subscriptions(1000)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Schema, StringColumn
from sievenet.errors import InvalidInput, shortened
from sievenet.workload.csvfile import BadRow, BadRows, Chunk, read_columns
from sievenet.workload.draws import Floats, rows
from sievenet.workload.interests import Interests
from sievenet.workload.watch import watchers

__all__ = ["Quotes", "load_quotes"]

Ints = npt.NDArray[np.int64]

_PRICES: Final = ("open", "high", "low", "close")
_DAY: Final = 86_400.0
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MAX_SYMBOL: Final = 32
_MAX_VOLUME: Final = float(1 << 53)
_MAX_PRICE: Final = 1e12
#: How likely a subscription constrains each attribute.
_ODDS: Final = {"symbol": 0.5, "open": 0.15, "high": 0.15, "low": 0.15, "close": 0.7, "volume": 0.4}


@dataclass(frozen=True, slots=True, eq=False)
class Quotes:
    """A history of daily quotes, by day."""

    schema: Schema
    #: All quotes in order of time; within a day in the file's order.
    batch: EventBatch
    #: When, in seconds since 1970 (midnight UTC of the day), ascending.
    times: Floats
    #: How many rows of the file were left out.
    bad_count: int
    #: The first of them, with line and reason.
    bad: tuple[BadRow, ...]

    def __len__(self) -> int:
        return len(self.batch)

    def events(self, count: int, *, start: int = 0) -> EventBatch:
        """Quotes ``start`` to ``start + count``, or as many as there are."""
        return self.batch.take(slice(start, start + count))

    def subscriptions(self, count: int, *, start: int = 0, seed: int = 0) -> Interests:
        """Subscriptions ``start`` to ``start + count``, each around a quote drawn from the history."""
        (which,) = rows(seed, 0, start, count, lambda rng, n: (rng.integers(len(self), size=n),))
        symbols = self.batch.column("symbol")
        assert isinstance(symbols, StringColumn)
        anchors = {name: np.asarray(self.batch.column(name), np.float64)[which] for name in (*_PRICES, "volume")}
        weights = np.bincount(symbols.codes, minlength=len(symbols.categories)) / len(self)
        return watchers(self.schema, seed, 1, start, symbols.codes[which].astype(np.int64), anchors, _ODDS, weights)

    def report(self) -> str:
        """What was read and what was left out, for people."""
        first, last = (date.fromordinal(int(t / _DAY) + _EPOCH) for t in (self.times[0], self.times[-1]))
        symbols = len(self.schema["symbol"].values or ())
        left_out = f"{self.bad_count} bad row{'' if self.bad_count == 1 else 's'}"
        lines = [f"{len(self)} quotes of {symbols} symbols, {first} to {last}; {left_out}"]
        lines += [f"  {row}" for row in self.bad[:10]]
        if self.bad_count > 10:
            lines.append(f"  … and {self.bad_count - 10} more")
        return "\n".join(lines)


def load_quotes(path: str | Path, *, name: str = "quote") -> Quotes:
    """Read a CSV file of daily quotes; ``name`` becomes the schema's."""
    bad = BadRows()
    days: dict[str, int] = {}
    symbols: dict[str, int] = {}
    parts = [
        _checked(chunk, days, symbols, bad)
        for chunk in read_columns(path, ("date", "symbol"), (*_PRICES, "volume"), bad)
    ]
    day, code = (np.concatenate([np.zeros(0, np.int64), *(p[i] for p in parts)]) for i in (0, 1))
    numbers = np.concatenate([np.zeros((5, 0)), *(p[2] for p in parts)], axis=1)
    if not len(day):
        reason = f"; {bad.first[0]}" if bad.first else ""
        raise InvalidInput(f"Expected at least one good row, got {bad.count} bad ones{reason}", where=str(path))
    order = np.argsort(day, kind="stable")
    columns: dict[str, Floats] = dict(zip((*_PRICES, "volume"), numbers[:, order], strict=True))
    # Symbols of bad rows only are no part of the domain.
    present = np.unique(code)
    known = list(symbols)
    categories = tuple(known[i] for i in present.tolist())
    schema = _schema(name, categories, columns)
    batch = EventBatch.of(
        schema,
        {
            **columns,
            "volume": columns["volume"].astype(np.int64),
            "symbol": StringColumn(np.searchsorted(present, code[order]).astype(np.int32), categories),
        },
    )
    return Quotes(schema, batch, day[order] * _DAY, bad.count, tuple(bad.first))


def _schema(name: str, symbols: tuple[str, ...], columns: dict[str, Floats]) -> Schema:
    top = _round_up(max(float(columns[p].max()) for p in _PRICES))
    return Schema(
        name,
        (
            Attribute("symbol", "str", values=symbols),
            *(Attribute(p, "float", lo=0.0, hi=top) for p in _PRICES),
            Attribute("volume", "int", lo=0, hi=int(_round_up(float(columns["volume"].max())))),
        ),
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, … at or above a value."""
    power = 10.0 ** max(0, math.floor(math.log10(max(value, 1.0))))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value)


def _checked(chunk: Chunk, days: dict[str, int], symbols: dict[str, int], bad: BadRows) -> tuple[Ints, Ints, Floats]:
    """A chunk's days, symbols and numbers, without the rows that make no sense."""
    dates, names = chunk.texts
    for text in set(dates).difference(days):
        days[text] = _day(text)
    for text in set(names).difference(symbols):
        symbols[text] = len(symbols)
    day = np.array([days[text] for text in dates], np.int64)
    code = np.array([symbols[text] for text in names], np.int64)
    short = np.array([0 < len(text) <= _MAX_SYMBOL for text in symbols], np.bool_)
    opening, high, low, close, volume = chunk.numbers
    numbers = np.array(chunk.numbers)
    prices = numbers[:4]
    tests: tuple[tuple[Any, str], ...] = (
        (day != _NO_DAY, "expected a date like 2021-05-14, got {date}"),
        (short[code], f"expected a symbol of 1 to {_MAX_SYMBOL} characters, got {{symbol}}"),
        (((prices >= 0) & (prices < _MAX_PRICE)).all(axis=0), "expected prices from 0 on, got {prices}"),
        (
            (low <= np.minimum(opening, close)) & (high >= np.maximum(opening, close)),
            "expected low <= open, close <= high, got {prices}",
        ),
        (
            (volume >= 0) & (volume <= _MAX_VOLUME) & (volume == np.floor(volume)),
            "expected a whole volume from 0 on, got {volume}",
        ),
    )
    good = np.logical_and.reduce([test for test, _ in tests])
    for row in np.flatnonzero(~good).tolist():
        reason = next(reason for test, reason in tests if not test[row])
        shown = {
            "date": shortened(dates[row]),
            "symbol": shortened(names[row]),
            "prices": ", ".join(f"{p} {v[row]:g}" for p, v in zip(_PRICES, prices, strict=True)),
            "volume": f"{volume[row]:g}",
        }
        bad.add(chunk.lines[row], reason.format(**shown))
    return day[good], code[good], numbers[:, good]


_NO_DAY: Final = -(1 << 62)


def _day(text: str) -> int:
    """Days since 1970."""
    try:
        return date.fromisoformat(text.strip()).toordinal() - _EPOCH
    except ValueError:
        return _NO_DAY
