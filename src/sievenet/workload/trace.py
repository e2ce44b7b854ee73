"""Traces as they come: the rows of CSV and JSON files, whatever their separator, encoding or packing.

    bytes ──unpacked──▶ ──decoded──▶ text ──csv or json──▶ rows (column → text) and bad lines

    packing     gzip, bzip2, xz: by the first bytes, not by the name
    encoding    a byte order mark, or the zeros of UTF-16, else UTF-8, else Latin-1 (which is said)
    format      JSON if the text begins with { or [, else CSV; one object per line, or one array of objects
    separator   of comma, semicolon, tab and bar the one that divides the first lines most alike
    header      the first line, unless `columns` are given
    nesting     {"a": {"b": 1}} is a column a_b; `pairs` turns lists of names and values into columns (SenML)

`Reading` holds what the user said; the rest is found out.  `sievenet pub` and `sievenet pipeline ingest` both read
through here, so that a file means the same to both.  Values stay text: a schema decides what they are (`event_of`).
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sievenet.content import Event, Schema
from sievenet.content.schema import NAME
from sievenet.errors import EventError, InvalidInput, shortened

__all__ = [
    "BadLine",
    "Pairs",
    "Reading",
    "Row",
    "beginning",
    "clean",
    "decoded",
    "event_of",
    "is_plain",
    "named",
    "object_row",
    "row_of",
    "rows_of",
    "separator_of",
    "unpacked",
]

#: Bytes of a file after unpacking; more is refused.
MAX_BYTES: Final = 1 << 31
_SEPARATORS: Final = ",;\t|"
_LOOKED_AT: Final = 20
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}(\.0*)?")
_TRUE: Final = frozenset({"true", "t", "yes", "y", "1"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "0"})


class Pairs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A list of names and values inside an object, such as ``e[].n`` and ``e[].v`` in SenML."""

    list: str = "e"
    name: str = "n"
    #: The first of these that an entry has.
    values: tuple[str, ...] = ("v", "vs", "vb", "sv", "bv")


class Reading(msgspec.Struct, frozen=True):
    """What is said about files; what is not said is found out."""

    #: Names of the columns of a CSV file without a header.
    columns: tuple[str, ...] = ()
    separator: str | None = None
    encoding: str | None = None
    #: Column → another name.
    rename: dict[str, str] = {}
    #: The columns to keep, by their new names; none: all.
    select: tuple[str, ...] = ()
    pairs: Pairs | None = None
    form: str | None = None


class Row(NamedTuple):
    """A row: its line (or number, for JSON arrays) and its columns as text; what is not there is None."""

    line: int
    values: dict[str, str | None]


class BadLine(NamedTuple):
    """A line that is no row, and why."""

    line: int
    reason: str
    text: str


def unpacked(data: bytes, where: str = "input") -> bytes:
    """The bytes behind gzip, bzip2 or xz."""
    try:
        if data[:2] == b"\x1f\x8b":
            return gzip.decompress(data)
        if data[:3] == b"BZh":
            return bz2.decompress(data)
        if data[:6] == b"\xfd7zXZ\x00":
            return lzma.decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInput(f"Expected a whole compressed file; {error}", where=where) from None
    if data[:4] == b"\x28\xb5\x2f\xfd":
        raise InvalidInput("Expected gzip, bzip2, xz or plain text, got zstd; unpack it first", where=where)
    return data


def decoded(data: bytes, encoding: str | None = None, where: str = "input") -> tuple[str, str]:
    """The text of some bytes, and the encoding that it was taken to be in."""
    found = encoding
    if found is None:
        found = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if found is None:
        even, odd = data[0:400:2].count(0), data[1:400:2].count(0)
        half = min(len(data), 400) // 2
        if half > 3 and max(even, odd) > half * 0.6:
            found = "utf-16-le" if odd > even else "utf-16-be"
    try:
        return data.decode(found or "utf-8"), found or "utf-8"
    except LookupError:
        raise InvalidInput(expected="an encoding that Python knows", got=found, where=where) from None
    except UnicodeDecodeError as error:
        if found is not None:
            raise InvalidInput(f"Expected text in {found}; {error}", where=where) from None
    if b"\0" in data[:4096]:
        raise InvalidInput("Expected text, got bytes that are not text in any known encoding", where=where)
    return data.decode("latin-1"), "latin-1"


def separator_of(text: str) -> str:
    """The separator that divides the first lines most alike, and into most columns."""
    lines = [line for line in text[: 1 << 16].splitlines()[:_LOOKED_AT] if line.strip()]

    def quality(separator: str) -> tuple[float, int]:
        sizes = [len(row) for row in csv.reader(lines, delimiter=separator)]
        usual = max(set(sizes), key=sizes.count, default=1)
        return (sizes.count(usual) / max(1, len(sizes)) if usual > 1 else 0.0), usual

    return max(_SEPARATORS, key=quality) if lines else ","


def beginning(head: bytes) -> bytes:
    """The first bytes of a file, of which gzip has been undone as far as it goes."""
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        return zlib.decompressobj(31).decompress(head)
    except zlib.error:
        return b""  # whoever reads it says what is wrong with it


def is_plain(head: bytes, name: str, reading: Reading) -> bool:
    """Whether any reader of comma-separated text with a header, or of flat JSON lines, reads this beginning right."""
    if reading != Reading():
        return False
    if head[:2] == b"\x1f\x8b":
        if not name.endswith(".gz"):
            return False
        head = beginning(head)
    # The end may be in the middle of a character.
    cut = head.rfind(b"\n") + 1 or len(head)
    try:
        text = head[:cut].decode("utf-8")
    except UnicodeDecodeError:
        return False
    if text.startswith("\ufeff") or "\0" in text or head[:3] == b"BZh":
        return False
    start = text.lstrip()[:1]
    if start in ("{", "["):
        first = text.lstrip().splitlines()[0].rstrip()
        return start == "{" and first.endswith("}") and not re.search(r"[:\[]\s*[{\[]", first)
    header = next(csv.reader(text.splitlines()), [])
    if any(field != clean(field) for field in header):
        return False
    return ".tsv" in name or separator_of(text) == ","


def rows_of(data: bytes, reading: Reading | None = None, where: str = "input") -> Iterator[Row | BadLine]:
    """The rows of a file."""
    said = reading or Reading()
    plain = unpacked(data, where)
    if len(plain) > MAX_BYTES:
        raise InvalidInput(f"Expected at most {MAX_BYTES} bytes of text, got {len(plain)}", where=where)
    text, _ = decoded(plain, said.encoding, where)
    form = said.form or ("json" if text.lstrip()[:1] in ("{", "[") else "csv")
    found = _objects(text, said) if form == "json" else _lines(text, said)
    for each in found:
        yield named(each, said)


def named(row: Row | BadLine, said: Reading) -> Row | BadLine:
    """A row with its columns renamed and chosen as the user said."""
    if isinstance(row, BadLine):
        return row
    values = {said.rename.get(name, name): value for name, value in row.values.items()}
    return Row(row.line, {n: v for n, v in values.items() if n in said.select} if said.select else values)


#: Letters that are no others with an accent.
_LETTERS: Final = str.maketrans({"µ": "u", "μ": "u", "ß": "ss", "æ": "ae", "ø": "o", "ł": "l", "Ł": "L", "Ø": "O"})


def clean(name: str) -> str:
    """A column's name as an attribute's: letters without accents, digits and underscores; µs is us."""
    plain = name.strip().lstrip("\ufeff")
    if NAME.fullmatch(plain):
        return plain
    bare = unicodedata.normalize("NFKD", plain.translate(_LETTERS))
    letters = "".join(c for c in bare if not unicodedata.combining(c))
    found = re.sub(r"[^A-Za-z0-9_]+", "_", letters).strip("_")
    return f"c_{found}" if found[:1].isdigit() or not found else found


def _lines(text: str, said: Reading) -> Iterator[Row | BadLine]:
    separator = {"tab": "\t", "\\t": "\t"}.get(said.separator or "", said.separator) or separator_of(text)
    if len(separator) != 1:
        raise InvalidInput(expected="one character as separator, or `tab`", got=said.separator)
    rows = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    names: Sequence[str] = said.columns
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadLine(rows.line_num, f"expected a row of CSV, got {error}", "")
            continue
        if not row or all(not field.strip() for field in row):
            continue
        if not names:
            names = row
            continue
        yield row_of(rows.line_num, names, row, said)


def row_of(number: int, names: Sequence[str], row: Sequence[str], said: Reading) -> Row | BadLine:
    """Fields of a line under the names of a header."""
    if len(row) != len(names):
        return BadLine(number, f"expected {len(names)} fields, got {len(row)}", shortened(",".join(row)))
    columns = (name.strip() if name.strip() in said.rename else clean(name) for name in names)
    return Row(number, {n: v.strip() or None for n, v in zip(columns, row, strict=True)})


def _objects(text: str, said: Reading) -> Iterator[Row | BadLine]:
    if text.lstrip().startswith("["):
        try:
            every = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"Expected an array of JSON objects; {error}") from None
        for number, each in enumerate(every, 1):
            yield _object(number, each, said, "")
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield object_row(number, line, said)


def object_row(number: int, line: str, said: Reading) -> Row | BadLine:
    """A line of JSON as a row, columns not yet renamed."""
    try:
        each = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return BadLine(number, f"expected a JSON object, got something else: {error}", shortened(line))
    return _object(number, each, said, line)


def _object(number: int, each: Any, said: Reading, line: str) -> Row | BadLine:
    if not isinstance(each, dict):
        return BadLine(number, f"expected a JSON object, got {type(each).__name__}", shortened(line))
    values: dict[str, str | None] = {}
    _flattened(each, "", values, said.pairs)
    return Row(number, values)


def _flattened(each: Mapping[str, Any], prefix: str, values: dict[str, str | None], pairs: Pairs | None) -> None:
    for name, value in each.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            _flattened(value, f"{key}_", values, pairs)
        elif pairs is not None and name == pairs.list and isinstance(value, list):
            for entry in value:
                if isinstance(entry, dict) and pairs.name in entry:
                    found = next((entry[v] for v in pairs.values if v in entry), None)
                    values[clean(str(entry[pairs.name]))] = _text(found)
        else:
            values[key] = _text(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else repr(value)


def event_of(schema: Schema, values: Mapping[str, str | None]) -> Event:
    """A row as an event: columns that are no attributes do no harm, 140.0 is a whole number, yes is true."""
    found = {}
    for attribute in schema.attributes:
        given = values.get(attribute.name)
        if given is not None:
            found[attribute.name] = _value(schema, attribute.name, given)
    return schema.event_of(found)


def _value(schema: Schema, name: str, text: str) -> Any:
    kind, plain = schema[name].type, text.strip()
    if kind == "int" and _WHOLE.fullmatch(plain):
        return int(plain.split(".")[0])
    if kind == "float" and "_" not in plain:  # Python reads 1_0 as 10, and nobody else does
        try:
            return float(plain)
        except ValueError:
            pass
    if kind == "bool" and plain.lower() in _TRUE | _FALSE:
        return plain.lower() in _TRUE
    if kind == "str":
        return text
    raise EventError(expected=kind, got=text, where=f"{schema.name}.{name}")
