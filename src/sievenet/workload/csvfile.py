"""Rows of a CSV file as arrays, with bad rows counted, explained and left out.

Columns are found by the header's names, in any order; other columns are ignored.  The
file may be gzipped (told by its first bytes, not its name).  It is read in chunks: a chunk
without quotes whose every field parses is converted column by column, the others are gone
through row by row.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import numpy as np

from sievenet.errors import InvalidInput, shortened
from sievenet.workload.draws import Floats

__all__ = ["BadRow", "BadRows", "Chunk", "read_columns"]

_CHUNK: Final = 1 << 16
#: Bad rows that are kept with their reason; the others are counted.
_KEPT: Final = 100


class BadRow(NamedTuple):
    """A row that was left out."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(slots=True)
class BadRows:
    """How many rows were left out, and the first of them with their reasons."""

    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Note a row."""
        self.count += 1
        if len(self.first) < _KEPT:
            self.first.append(BadRow(line, reason))


class Chunk(NamedTuple):
    """Some good rows: their line numbers, text columns and number columns, in the order asked for."""

    lines: Sequence[int]
    texts: list[Sequence[str]]
    numbers: list[Floats]


def read_columns(path: str | Path, texts: Sequence[str], numbers: Sequence[str], bad: BadRows) -> Iterator[Chunk]:
    """The named text and number columns, chunk by chunk; rows without them go to ``bad``."""
    where = str(path)
    try:
        with _opened(path) as file:
            yield from _read(file, where, texts, numbers, bad)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"Expected text in UTF-8, got byte {error.object[error.start]:#04x}", where=where) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Expected a readable CSV file, got: {reason}", where=where) from None


def _opened(path: str | Path) -> IO[str]:
    with Path(path).open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped:
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig"))
    return Path(path).open(encoding="utf-8-sig")


def _read(file: IO[str], where: str, texts: Sequence[str], numbers: Sequence[str], bad: BadRows) -> Iterator[Chunk]:
    header = [name.strip().strip('"').casefold() for name in file.readline().rstrip("\n").split(",")]
    missing = [name for name in (*texts, *numbers) if name not in header]
    if missing:
        raise InvalidInput(
            f"Expected columns {', '.join((*texts, *numbers))}; {', '.join(missing)} missing in "
            f"{shortened(','.join(header), 200)}",
            where=f"{where}, line 1",
        )
    picked = _Picked(len(header), [header.index(n) for n in texts], [header.index(n) for n in numbers], list(numbers))
    line = 1
    while lines := list(islice(file, _CHUNK)):
        plain = _plain_columns(lines, len(header))
        if plain is not None and (chunk := _converted(plain, range(line + 1, line + 1 + len(lines)), picked)):
            yield chunk
        elif any('"' in text for text in lines):
            # A quoted field may go on in the next chunk, so from here on everything takes the slow way.
            yield from _slowly(chain(lines, file), line, where, picked, bad)
            return
        else:
            yield from _slowly(lines, line, where, picked, bad)
        line += len(lines)


class _Picked(NamedTuple):
    """Which fields of a row are wanted."""

    width: int
    texts: list[int]
    numbers: list[int]
    names: list[str]


def _plain_columns(lines: list[str], width: int) -> list[list[str]] | None:
    """The columns of lines that have no quotes and the right number of fields; else ``None``."""
    if any(line.count(",") != width - 1 for line in lines):
        return None
    # One split for all lines; every width-th field is of one column.
    text = "".join(lines).rstrip("\n")
    if '"' in text:
        return None
    fields = text.replace("\n", ",").split(",")
    return [fields[i::width] for i in range(width)]


def _converted(columns: Sequence[Sequence[str]], lines: Sequence[int], picked: _Picked) -> Chunk | None:
    """The wanted columns, or ``None`` if some number is none."""
    try:
        numbers = [np.array(list(map(float, columns[i])), np.float64) for i in picked.numbers]
    except ValueError:
        return None
    return Chunk(lines, [columns[i] for i in picked.texts], numbers)


def _slowly(lines: Iterable[str], before: int, where: str, picked: _Picked, bad: BadRows) -> Iterator[Chunk]:
    """Rows one by one, with all that CSV allows; ``before`` lines came earlier."""
    reader = csv.reader(lines)
    numbered = ((reader.line_num + before, row) for row in reader)
    try:
        while pairs := list(islice(numbered, _CHUNK)):
            good = [(line, row) for line, row in pairs if _is_good(line, row, picked, bad)]
            columns: list[tuple[str, ...]] = list(zip(*(row for _, row in good), strict=True))
            chunk = _converted(columns or [()] * picked.width, [line for line, _ in good], picked)
            assert chunk is not None
            yield chunk
    except csv.Error as error:
        raise InvalidInput(f"Expected CSV, got: {error}", where=f"{where}, line {reader.line_num + before}") from None


def _is_good(line: int, row: list[str], picked: _Picked, bad: BadRows) -> bool:
    if not row:  # an empty line is no row
        return False
    if len(row) != picked.width:
        bad.add(line, f"expected {picked.width} fields, got {len(row)}")
        return False
    for i, name in zip(picked.numbers, picked.names, strict=True):
        try:
            float(row[i])
        except ValueError:
            bad.add(line, f"expected a number as {name}, got {shortened(row[i])}")
            return False
    return True
