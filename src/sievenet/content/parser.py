"""Text to filters, subscriptions and events.

    subscription = [ schema ":" ] filter { "or" [ schema ":" ] filter }
    filter       = condition { "and" condition }
    condition    = name union | "any" | "true" | "none" | "false"
    union        = term { "|" term }
    term         = ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
                 | "in" piece | piece
                 | "not" "in" piece { "|" piece }        everything behind it is excluded
                 | "not" ( "prefix" string | "exists" )
    piece        = "[" end "," end "]"  with "(" or ")" for an open end; "inf", "-inf" for none
                 | value ".." value | "{" value { "," value } "}" | "prefix" string
                 | "exists" | "absent" | "any" | "none" | "bool" | "number" | "string"

Conditions on one attribute intersect.  Every error is a `ParseError` that points at the
column; a value is checked against its attribute's type and domain where it stands.  The
language has no recursion, so length and number of terms bound all work.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from sievenet.content.filter import Filter, Subscription
from sievenet.content.lexer import number, shown, tokens, words
from sievenet.content.schema import MAX_STRING, RESERVED, Attribute, Schema
from sievenet.content.valueset import (
    ABSENT,
    ALL,
    BOOLS,
    EMPTY,
    NUMBERS,
    PRESENT,
    STRINGS,
    Value,
    ValueSet,
    kind_of,
)
from sievenet.errors import ParseError

__all__ = ["MAX_FILTERS", "MAX_TERMS", "nearest", "parse_filter", "parse_subscription"]

#: Most values and pieces in one text.
MAX_TERMS: Final = 4096
#: Most filters in one subscription.
MAX_FILTERS: Final = 1024

_COMPARISONS: Final = frozenset(("=", "==", "!=", "<", "<=", ">", ">="))
_KINDS: Final = {"bool": BOOLS, "number": NUMBERS, "string": STRINGS}
_WORDS: Final = {"exists": PRESENT, "absent": ABSENT, "any": ALL, "none": EMPTY}
_TYPES: Final = {"bool": "bool", "number": "int float", "string": "str"}
_DIGITS: Final = frozenset("0123456789")
_NUMERIC: Final = frozenset("0123456789+-.")
_INITIALS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
#: Numbers of fewer characters, without an exponent, are finite.
_SHORT: Final = 18
_TERM: Final = "a condition (= != < <= > >= in not prefix exists absent any)"
_PIECE: Final = "a set of values ([a, b] {a, b} a..b or prefix)"


def parse_filter(text: str, schema: Schema | None = None) -> Filter:
    """One filter; the schema's name in front is optional.

    >>> print(parse_filter('price > 420 and volume in [100, 500)'))
    price > 420 and volume in [100, 500)
    """
    parser = _Parser(text, schema)
    parser.prefix()
    found = parser.filter()
    hint = "this is a subscription of several filters" if parser.words[parser.at] == "or" else ""
    parser.end("`and` or the end", hint)
    return found


def parse_subscription(text: str, schemas: Schema | Mapping[str, Schema] | None = None) -> Subscription:
    """One or more filters joined by ``or``, of the schema that the text names.

    The name may be left out if only one schema is given; without any the filters are schemaless.
    """
    parser = _Parser(text, schemas)
    parser.prefix()
    filters = [parser.filter()]
    while parser.take("or"):
        if len(filters) == MAX_FILTERS:
            parser.fail(f"at most {MAX_FILTERS} filters", "more")
        parser.prefix(again=True)
        filters.append(parser.filter())
    parser.end("`and`, `or` or the end")
    return Subscription(filters, parser.schema)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint naming the known word that was probably meant, or an empty string."""
    names = list(known)
    lowered = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean {lowered[found[0]]}?" if found else ""


class _Parser:
    """Goes through the words of a text; where a word stands is found out only if something is wrong."""

    __slots__ = ("at", "known", "schema", "terms", "text", "words")

    def __init__(self, text: str, schemas: Schema | Mapping[str, Schema] | None) -> None:
        self.text = text
        self.words = words(text)
        self.at = 0
        self.terms = 0
        self.known = {schemas.name: schemas} if isinstance(schemas, Schema) else schemas
        self.schema: Schema | None = None

    # -- words ------------------------------------------------------------------------------

    def take(self, word: str) -> bool:
        """Whether the next word is this operator or reserved word, which then is behind us."""
        if self.words[self.at] != word:
            return False
        self.at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.take(word):
            self.fail(f"`{word}`")

    def end(self, expected: str, hint: str = "") -> None:
        word = self.words[self.at]
        if word:
            if not hint and word.lower() in ("and", "or"):
                hint = f"did you mean {word.lower()}?"
            self.fail(expected, hint=hint)

    def fail(self, expected: str, got: str = "", hint: str = "", at: int | None = None) -> NoReturn:
        token = tokens(self.text)[self.at if at is None else at]  # a word that is none is told first
        got = got or ("the end" if token.kind == "end" else shown(token.text))
        raise ParseError(self.text, token.column, expected=expected, got=got, hint=hint)

    def count(self) -> None:
        self.terms += 1
        if self.terms > MAX_TERMS:
            self.fail(f"at most {MAX_TERMS} values", "more")

    # -- the grammar ------------------------------------------------------------------------

    def prefix(self, again: bool = False) -> None:
        """The schema's name and colon, or the only schema there is."""
        at, word = self.at, self.words[self.at]
        if word and self.words[at + 1] == ":" and _is_name(word):
            self.at += 2
            if self.known is None:
                self.fail("a schemaless filter", f"schema {shown(word)}", at=at)
            found = self.known.get(word)
            if found is None:
                names = ", ".join(self.known)
                self.fail(f"a schema ({names})", hint=nearest(word, self.known), at=at)
            if again and found is not self.schema:
                self.fail(f"the same schema ({self.schema.name if self.schema else ''})", at=at)
            self.schema = found
        elif self.known is not None and not again:
            if len(self.known) != 1:
                self.fail(f"a schema's name and a colon ({', '.join(self.known)})")
            self.schema = next(iter(self.known.values()))

    def filter(self) -> Filter:
        constraints: dict[str, ValueSet] = {}
        nothing = False
        while True:
            word = self.words[self.at]
            if word in ("none", "false"):
                self.at += 1
                nothing = True
            elif word in ("any", "true"):
                self.at += 1
            else:
                name, values = self.condition(word)
                constraints[name] = constraints[name] & values if name in constraints else values
            if self.words[self.at] != "and":
                return Filter.nothing(self.schema) if nothing else Filter(self.schema, constraints)
            self.at += 1

    def condition(self, word: str) -> tuple[str, ValueSet]:
        schema, attribute = self.schema, None
        if schema is not None:
            position = schema.positions.get(word)
            if position is None:
                hint = _parenthesis(word) or nearest(word, schema.positions)
                self.fail(f"an attribute of {schema.name} ({', '.join(schema.positions)})", hint=hint)
            name, attribute = word, schema.attributes[position]
        elif word[:1] == '"':
            name = self.string(word)
        elif _is_name(word):
            name = word
        else:
            self.fail("an attribute's name", hint=_parenthesis(word))
        self.at += 1
        values = self.term(attribute)
        if self.words[self.at] != "|":
            return name, values
        union = [values]
        while self.take("|"):
            union.append(self.term(attribute))
        return name, ValueSet.union_of(union)

    def term(self, attribute: Attribute | None) -> ValueSet:
        word = self.words[self.at]
        if word in _COMPARISONS:
            self.at += 1
            return _compared(word, self.value(attribute, word[0] in "<>"))
        if word == "in":
            self.at += 1
            return self.piece(attribute, _PIECE)
        if word == "not":
            self.at += 1
            return self.negated(attribute)
        return self.piece(attribute, _TERM)

    def negated(self, attribute: Attribute | None) -> ValueSet:
        if self.take("in"):
            excluded = [self.piece(attribute, _PIECE)]
            while self.take("|"):
                excluded.append(self.piece(attribute, _PIECE))
            return PRESENT - ValueSet.union_of(excluded)
        if self.take("exists"):
            return ABSENT
        if self.words[self.at] != "prefix":
            self.fail("`in`, `prefix` or `exists`")
        return PRESENT - self.piece(attribute, _PIECE)

    def piece(self, attribute: Attribute | None, expected: str) -> ValueSet:
        self.count()
        start, word = self.at, self.words[self.at]
        if word in ("[", "("):
            self.at += 1
            return self.interval(attribute, start)
        if word == "{":
            self.at += 1
            values = [self.value(attribute)]
            while self.take(","):
                values.append(self.value(attribute))
            self.expect("}")
            return ValueSet.of(*values)
        if word == "prefix":
            self.at += 1
            self.check_type(attribute, "string", start)
            text = self.words[self.at]
            if text[:1] != '"':
                self.fail("a string in quotes")
            found = self.string(text)
            self.at += 1
            return ValueSet.prefix(found)
        if word in _WORDS:
            self.at += 1
            return _WORDS[word]
        if word in _KINDS:
            self.at += 1
            self.check_type(attribute, word, start)
            return _KINDS[word]
        if word[:1] != '"' and self.number(word) is None:
            self.fail(expected, hint=nearest(word, _WORDS) if _is_name(word) else "")
        return self.range(attribute, expected)

    def interval(self, attribute: Attribute | None, start: int) -> ValueSet:
        first = self.at
        lo = None if self.take("-inf") else self.value(attribute, ordered=True)
        self.expect(",")
        second = self.at
        hi = None if self.take("inf") else self.value(attribute, ordered=True)
        closing = self.words[self.at]
        if closing not in ("]", ")"):
            self.fail("`]` or `)`")
        self.at += 1
        if lo is None and hi is None:
            self.fail("an interval with at least one end", at=first)
        if lo is not None and hi is not None and kind_of(lo) != kind_of(hi):
            self.fail(f"{_kind(lo)}, like the other end", at=second)
        found = ValueSet.interval(lo, hi, open_lo=self.words[start] == "(", open_hi=closing == ")")
        if not found:
            every = tokens(self.text)
            whole = self.text[every[start].column : every[self.at - 1].column + 1]
            self.fail("an interval from low to high that holds a value", shown(whole), at=start)
        return found

    def range(self, attribute: Attribute | None, expected: str) -> ValueSet:
        """``lo..hi``, both ends included."""
        start = self.at
        if self.words[start + 1] != "..":
            self.fail(expected)
        lo = self.value(attribute, ordered=True)
        self.expect("..")
        second = self.at
        hi = self.value(attribute, ordered=True)
        if kind_of(lo) != kind_of(hi):
            self.fail(f"{_kind(lo)}, like the other end", at=second)
        found = ValueSet.interval(lo, hi)
        if not found:
            self.fail("a range from low to high", f"{self.words[start]}..{self.words[second]}", at=start)
        return found

    # -- values -----------------------------------------------------------------------------

    def value(self, attribute: Attribute | None, ordered: bool = False) -> Value:
        """A value that the attribute can have; for an order comparison, one of its type."""
        self.terms += 1
        if self.terms > MAX_TERMS:
            self.fail(f"at most {MAX_TERMS} values", "more")
        at = self.at
        word = self.words[at]
        found: Value | None
        if word[:1] == '"':
            found = self.string(word)
        elif word in ("true", "false"):
            found = word == "true"
        else:
            found = self.number(word)
        if word:
            self.at = at + 1
        if attribute is None:
            if found is None:
                self.fail('a value (a number, "string", true or false)', at=at)
            return found
        if attribute.values is not None and _is_name(word):
            found = word  # members of an enumeration need no quotes
        if attribute.type == "int" and type(found) is float and found.is_integer():
            found = int(found)
        if found is None or not _fits(attribute, found, ordered):
            hint = ""
            if attribute.values is not None and isinstance(found, str):
                hint = nearest(found, attribute.values)
            elif _is_name(word) and attribute.type == "str":
                hint = f'strings are in quotes: "{shown(word)}"'
            self.fail(f"{attribute.describes} for {attribute.name}", hint=hint, at=at)
        return found

    def check_type(self, attribute: Attribute | None, word: str, at: int) -> None:
        if attribute is not None and attribute.type not in _TYPES[word]:
            self.fail(f"{attribute.describes} for {attribute.name}", at=at)

    def number(self, word: str) -> int | float | None:
        """The number that a word means, if it does."""
        if word[-1:] not in _DIGITS or word[0] not in _NUMERIC:
            return None
        if len(word) < _SHORT and word.isdigit():
            return int(word)
        return number(self.text, -1, word) if len(word) < _SHORT and "e" not in word.lower() else self.exactly(word)

    def string(self, word: str) -> str:
        """The string that the next word, in quotes, means."""
        if "\\" not in word and word.isascii() and len(word) <= MAX_STRING and word[-1:] == '"' and len(word) > 1:
            return word[1:-1]
        return str(self.exactly(word))

    def exactly(self, word: str) -> Any:
        """The value of the next word, checked for everything that can be wrong with it."""
        return tokens(self.text)[self.at].value


def _is_name(word: str) -> bool:
    return word[:1] in _INITIALS and word not in RESERVED and word != ""


def _compared(operator: str, value: Value) -> ValueSet:
    match operator:
        case "<":
            return ValueSet.interval(None, value, open_hi=True)
        case "<=":
            return ValueSet.interval(None, value)
        case ">":
            return ValueSet.interval(value, None, open_lo=True)
        case ">=":
            return ValueSet.interval(value, None)
        case "!=":
            return PRESENT - ValueSet.of(value)
        case _:
            return ValueSet.of(value)


def _fits(attribute: Attribute, value: Value, ordered: bool) -> bool:
    kind = type(value)
    match attribute.type:
        case "float":
            return (kind is float or kind is int) and attribute.lo <= value <= attribute.hi  # type: ignore[operator]
        case "int":
            return kind is int and attribute.lo <= value <= attribute.hi  # type: ignore[operator]
        case "bool":
            return kind is bool
        case _:
            return kind is str and (ordered or attribute.values is None or value in attribute.ordinals)


def _kind(value: Value) -> str:
    return "a bool" if isinstance(value, bool) else "a string" if isinstance(value, str) else "a number"


def _parenthesis(word: str) -> str:
    return "filters have no parentheses: write `a and b or a and c`" if word == "(" else ""
