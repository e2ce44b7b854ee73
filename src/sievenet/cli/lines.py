"""Lines of a file or pipe as `pub` takes them: rows of CSV and JSON as ingest reads them, and events as text.

A file is read as a whole, so that its encoding, packing and separator can be found out.  A pipe is read line by line,
for the next line may be long in coming; what it holds is told by its first line.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import itertools
import os
import queue
import re
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any, Final, Literal

import msgspec

from sievenet.workload.trace import (
    BadLine,
    Reading,
    Row,
    decoded,
    named,
    object_row,
    row_of,
    rows_of,
    separator_of,
    unpacked,
)

__all__ = ["Form", "Item", "apart", "chunks", "is_regular", "lines_of"]

Form = Literal["text", "json", "csv"]
Item = Row | BadLine | str
#: How an event begins that is written as text.
_EVENT: Final = re.compile(r"\s*[A-Za-z_]\w*\s*:")
_TABLES: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def lines_of(file: IO[bytes], form: Form | None, reading: Reading) -> Iterator[tuple[int, Item]]:
    """Line numbers with rows, unreadable lines, or events as text."""
    name = str(getattr(file, "name", ""))
    if not is_regular(file):
        yield from _streamed(io.TextIOWrapper(file, "utf-8-sig"), form, reading)
        return
    data = unpacked(file.read(), name)
    text, _ = decoded(data, reading.encoding, name)
    kind = form or ("csv" if name.lower().endswith(_TABLES) else _guessed(text, reading))
    if kind == "csv" or text.lstrip().startswith("["):
        said = msgspec.structs.replace(reading, form="csv" if kind == "csv" else "json")
        for each in rows_of(data, said, name):
            yield each.line, each
        return
    yield from _written(enumerate(text.splitlines(), 1), form, reading)


async def chunks(items: Iterator[tuple[int, Item]], size: int) -> AsyncIterator[list[tuple[int, Item]]]:
    """The items in pieces, read in a thread that nobody waits for: a pipe may stay silent when it is time to go."""
    loop, wanted = asyncio.get_running_loop(), queue.SimpleQueue[asyncio.Future[list[tuple[int, Item]]] | None]()

    def give(future: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
        if not future.done():
            future.set_result(found) if error is None else future.set_exception(error)

    def read() -> None:
        while (future := wanted.get()) is not None:
            found, failed = None, None
            try:
                found = list(itertools.islice(items, size))
            except Exception as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(give, future, found, failed)

    threading.Thread(target=read, name="lines", daemon=True).start()
    try:
        while True:
            future: asyncio.Future[list[tuple[int, Item]]] = loop.create_future()
            wanted.put(future)
            if not (found := await future):
                return
            yield found
    finally:
        wanted.put(None)


def apart(file: IO[bytes]) -> IO[bytes]:
    """Standard input apart from `sys.stdin`: the process can then end while a thread reads it."""
    try:
        return os.fdopen(os.dup(0), "rb") if file.fileno() == 0 else file
    except OSError:
        return file


def is_regular(file: IO[bytes]) -> bool:
    """Whether it is a file, not a pipe or terminal."""
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


def _guessed(text: str, reading: Reading) -> Form:
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lstrip()[:1] in ("{", "["):
        return "json"
    if not reading.columns and _EVENT.match(first):
        return "text"
    return "csv" if reading.columns or any(s in first for s in ",;\t|") else "text"


def _written(lines: Iterator[tuple[int, str]], form: Form | None, reading: Reading) -> Iterator[tuple[int, Item]]:
    """Objects and events, one per line, in any order, unless the form is said."""
    for number, line in lines:
        if line.lstrip().startswith("{") or (form == "json" and line.strip()):
            yield number, named(object_row(number, line, reading), reading)
        elif line.strip():
            yield number, line


def _streamed(file: IO[str], form: Form | None, reading: Reading) -> Iterator[tuple[int, Item]]:
    first = file.readline()
    while first and not first.strip():
        first = file.readline()
    kind = form or _guessed(first, reading)
    lines = itertools.chain([first], iter(file.readline, ""))
    if kind != "csv":
        yield from _written(enumerate(lines, 1), form, reading)
        return
    rows = csv.reader(lines, delimiter=reading.separator or separator_of(first), skipinitialspace=True)
    names = list(reading.columns)
    for row in rows:
        if not names:
            names = row
        elif row:
            found = row_of(rows.line_num, names, row, reading)
            yield rows.line_num, named(found, reading)
