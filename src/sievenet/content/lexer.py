"""The words of the filter language.

    text    price >= 420 and symbol in {"IBM", AAPL}
    kinds   name  op number word name word op string op name op end

A name is what a schema allows: a letter or ``_``, then letters, digits, ``_ . -``.  There is no
arithmetic, so ``a-1`` is one name and ``>-1`` an operator and a number.

`words` splits a text in one pass of one regular expression and nothing more, since most filters are short and
right.  Whatever is not a word of the language comes out as a word that no rule accepts; `tokens` then says
what is wrong and where.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NamedTuple, NoReturn

from sievenet.content.schema import RESERVED
from sievenet.content.valueset import MAX_STRING, Value
from sievenet.errors import ParseError, shortened

__all__ = ["MAX_TEXT", "Token", "number", "quoted", "shown", "tokens", "words"]

#: Longest text that is parsed, in characters.
MAX_TEXT: Final = 1 << 16

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<string> "(?:[^"\\]|\\.)*" )
      | (?P<number> [+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)? )
      | (?P<name>   [A-Za-z_][A-Za-z0-9_.-]* )
      | (?P<op>     -inf\b | \.\. | [<>!=]= | [<>=()\[\]{},|:] )
      | (?P<end>    $ )
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORD: Final = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*"|[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?|[A-Za-z_][A-Za-z0-9_.-]*"""
    r"""|-inf\b|\.\.|[<>!=]=|".*|\S""",
    re.DOTALL | re.ASCII,
)
#: What stands between words; other white space of Unicode is a character like any other.
_SPACE: Final = re.compile(r"\s*", re.ASCII)
#: Longest number: a whole number below 2**1024 has 309 digits, an exact float may have more.
_LONGEST_NUMBER: Final = 1100
_EXTRA_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class Token(NamedTuple):
    """A word with its kind (string number name word op end), value and column."""

    kind: str
    text: str
    value: Value | None
    column: int


def words(text: str) -> list[str]:
    """All words of a text, the last one empty; what is none is not refused but stands as it is."""
    if len(text) > MAX_TEXT:
        tokens(text)
    found: list[str] = _WORD.findall(text)
    found.append("")
    return found


def tokens(text: str) -> list[Token]:
    """All words of a text, the last of kind ``end``; `ParseError` at the first that is none."""
    if len(text) > MAX_TEXT:
        raise ParseError(text, MAX_TEXT, expected=f"at most {MAX_TEXT} characters", got=str(len(text)))
    found: list[Token] = []
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse(text, at)
        kind = match.lastgroup or ""
        word, column = match[kind], match.start(kind)
        value: Value | None = None
        if kind == "string":
            value = quoted(text, column, word)
        elif kind == "number":
            value = number(text, column, word)
        elif kind == "name" and word in RESERVED:
            kind = "word"
        found.append(Token(kind, word, value, column))
        if kind == "end":
            return found
        at = match.end()


def _refuse(text: str, at: int) -> NoReturn:
    space = _SPACE.match(text, at)
    column = at if space is None else space.end()
    if text[column] == '"':
        raise ParseError(text, len(text), expected="a closing quote", got="the end")
    hint = 'strings are in double quotes: "…"' if text[column] == "'" else ""
    raise ParseError(text, column, expected="a name, value or operator", got=shortened(text[column]), hint=hint)


def number(text: str, column: int, word: str) -> int | float:
    """The number a word means: whole without point and exponent, else a float."""
    value: int | float = math.inf
    if len(word) <= _LONGEST_NUMBER:
        value = int(word) if word.lstrip("+-").isdigit() else float(word)
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite:
        raise ParseError(text, column, expected="a number that fits 64-bit floats", got=shown(word))
    return value


def quoted(text: str, column: int, word: str) -> str:
    r"""The string a word in quotes means: JSON's escapes, and ``\0``."""
    try:
        value = json.loads(_EXTRA_ESCAPE.sub(_extra_escape, word), strict=False)
        size = len(value.encode())
    except json.JSONDecodeError:
        at = _bad_escape(word)
        raise ParseError(
            text, column + at, expected=r"an escape such as \n \" \\ \u00e9 \0", got=shown(word[at : at + 2])
        ) from None
    except UnicodeEncodeError:
        raise ParseError(text, column, expected="text that UTF-8 can encode", got=shown(ascii(word))) from None
    if size > MAX_STRING:
        raise ParseError(text, column, expected=f"at most {MAX_STRING} bytes of text", got=str(size))
    return str(value)


def _extra_escape(match: re.Match[str]) -> str:
    return r"\u0000" if match[1] == "0" else match[0]


def _bad_escape(word: str) -> int:
    """Where the first escape is that JSON does not know."""
    for match in _EXTRA_ESCAPE.finditer(word):
        good = match[1] in '"\\/bfnrt0' or re.match(r"\\u[0-9A-Fa-f]{4}", word[match.start() :])
        if not good:
            return match.start()
    return 0


def shown(word: str) -> str:
    """A word for an error message, cut if it is long."""
    return word if len(word) <= 60 else f"{word[:59]}…"
