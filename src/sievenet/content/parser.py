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
from typing import Final, NoReturn

from sievenet.content.filter import Filter, Subscription
from sievenet.content.lexer import Token, shown, tokens
from sievenet.content.schema import Attribute, Schema
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
)
from sievenet.errors import ParseError

__all__ = ["MAX_FILTERS", "MAX_TERMS", "nearest", "parse_filter", "parse_subscription"]

#: Most values and pieces in one text.
MAX_TERMS: Final = 4096
#: Most filters in one subscription.
MAX_FILTERS: Final = 1024

_COMPARISONS: Final = ("=", "==", "!=", "<", "<=", ">", ">=")
_KINDS: Final = {"bool": BOOLS, "number": NUMBERS, "string": STRINGS}
_WORDS: Final = {"exists": PRESENT, "absent": ABSENT, "any": ALL, "none": EMPTY}
_TYPES: Final = {"bool": "bool", "number": "int float", "string": "str"}
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
    hint = "this is a subscription of several filters" if parser.token.text == "or" else ""
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
    def __init__(self, text: str, schemas: Schema | Mapping[str, Schema] | None) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.terms = 0
        self.known = {schemas.name: schemas} if isinstance(schemas, Schema) else schemas
        self.schema: Schema | None = None

    # -- words ------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def take(self, *texts: str) -> str:
        """The next word if it is one of these operators or reserved words."""
        token = self.token
        if token.kind in ("op", "word") and token.text in texts:
            self.at += 1
            return token.text
        return ""

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"`{text}`")

    def end(self, expected: str, hint: str = "") -> None:
        if self.token.kind != "end":
            if not hint and self.token.text.lower() in ("and", "or"):
                hint = f"did you mean {self.token.text.lower()}?"
            self.fail(expected, hint=hint)

    def fail(self, expected: str, got: str = "", hint: str = "", token: Token | None = None) -> NoReturn:
        token = token or self.token
        got = got or ("the end" if token.kind == "end" else shown(token.text))
        raise ParseError(self.text, token.column, expected=expected, got=got, hint=hint)

    def count(self) -> None:
        self.terms += 1
        if self.terms > MAX_TERMS:
            self.fail(f"at most {MAX_TERMS} values", "more")

    # -- the grammar ------------------------------------------------------------------------

    def prefix(self, again: bool = False) -> None:
        """The schema's name and colon, or the only schema there is."""
        token = self.token
        named = token.kind == "name" and self.tokens[self.at + 1].text == ":"
        if named:
            self.at += 2
            if self.known is None:
                self.fail("a schemaless filter", f"schema {shown(token.text)}", token=token)
            found = self.known.get(token.text)
            if found is None:
                names = ", ".join(self.known)
                self.fail(f"a schema ({names})", hint=nearest(token.text, self.known), token=token)
            if again and found is not self.schema:
                self.fail(f"the same schema ({self.schema.name if self.schema else ''})", token=token)
            self.schema = found
        elif self.known is not None and not again:
            if len(self.known) != 1:
                self.fail(f"a schema's name and a colon ({', '.join(self.known)})")
            self.schema = next(iter(self.known.values()))

    def filter(self) -> Filter:
        constraints: dict[str, ValueSet] = {}
        nothing = False
        while True:
            if self.take("none", "false"):
                nothing = True
            elif not self.take("any", "true"):
                name, values = self.condition()
                constraints[name] = constraints[name] & values if name in constraints else values
            if not self.take("and"):
                return Filter.nothing(self.schema) if nothing else Filter(self.schema, constraints)

    def condition(self) -> tuple[str, ValueSet]:
        token = self.token
        if self.schema is not None:
            if token.kind != "name" or token.text not in self.schema:
                names = ", ".join(self.schema.positions)
                hint = _parenthesis(token) or nearest(token.text, self.schema.positions)
                self.fail(f"an attribute of {self.schema.name} ({names})", hint=hint)
            name, attribute = token.text, self.schema[token.text]
        elif token.kind in ("name", "string"):
            name, attribute = str(token.value) if token.kind == "string" else token.text, None
        else:
            self.fail("an attribute's name", hint=_parenthesis(token))
        self.next()
        union = [self.term(attribute)]
        while self.take("|"):
            union.append(self.term(attribute))
        return name, ValueSet.union_of(union)

    def term(self, attribute: Attribute | None) -> ValueSet:
        operator = self.take(*_COMPARISONS)
        if operator:
            return self.comparison(operator, attribute)
        if self.take("not"):
            return self.negated(attribute)
        if self.take("in"):
            return self.piece(attribute, _PIECE)
        return self.piece(attribute, _TERM)

    def comparison(self, operator: str, attribute: Attribute | None) -> ValueSet:
        value = self.value(attribute, ordered=operator[0] in "<>")
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

    def negated(self, attribute: Attribute | None) -> ValueSet:
        if self.take("in"):
            excluded = [self.piece(attribute, _PIECE)]
            while self.take("|"):
                excluded.append(self.piece(attribute, _PIECE))
            return PRESENT - ValueSet.union_of(excluded)
        if self.take("exists"):
            return ABSENT
        if self.token.text != "prefix":
            self.fail("`in`, `prefix` or `exists`")
        return PRESENT - self.piece(attribute, _PIECE)

    def piece(self, attribute: Attribute | None, expected: str) -> ValueSet:
        self.count()
        start = self.token
        if self.take("[", "("):
            return self.interval(attribute, start)
        if self.take("{"):
            values = [self.value(attribute)]
            while self.take(","):
                values.append(self.value(attribute))
            self.expect("}")
            return ValueSet.of(*values)
        if self.take("prefix"):
            self.check_type(attribute, "string", start)
            if self.token.kind != "string":
                self.fail("a string in quotes")
            return ValueSet.prefix(str(self.next().value))
        word = self.take(*_WORDS, *_KINDS)
        if word:
            if word in _KINDS:
                self.check_type(attribute, word, start)
            return _WORDS[word] if word in _WORDS else _KINDS[word]
        if start.kind not in ("number", "string"):
            self.fail(expected, hint=nearest(start.text, _WORDS) if start.kind == "name" else "")
        return self.range(attribute, expected)

    def interval(self, attribute: Attribute | None, start: Token) -> ValueSet:
        first = self.token
        lo = None if self.take("-inf") else self.value(attribute, ordered=True)
        self.expect(",")
        second = self.token
        hi = None if self.take("inf") else self.value(attribute, ordered=True)
        closing = self.token
        if not self.take("]", ")"):
            self.fail("`]` or `)`")
        if lo is None and hi is None:
            self.fail("an interval with at least one end", token=first)
        if lo is not None and hi is not None and _kind(lo) != _kind(hi):
            self.fail(f"{_kind(lo)}, like the other end", token=second)
        found = ValueSet.interval(lo, hi, open_lo=start.text == "(", open_hi=closing.text == ")")
        if not found:
            whole = self.text[start.column : closing.column + 1]
            self.fail("an interval from low to high that holds a value", shown(whole), token=start)
        return found

    def range(self, attribute: Attribute | None, expected: str) -> ValueSet:
        """``lo..hi``, both ends included."""
        start = self.token
        if self.tokens[self.at + 1].text != "..":
            self.fail(expected)
        lo = self.value(attribute, ordered=True)
        self.expect("..")
        second = self.token
        hi = self.value(attribute, ordered=True)
        if _kind(lo) != _kind(hi):
            self.fail(f"{_kind(lo)}, like the other end", token=second)
        found = ValueSet.interval(lo, hi)
        if not found:
            self.fail("a range from low to high", f"{start.text}..{second.text}", token=start)
        return found

    # -- values -----------------------------------------------------------------------------

    def value(self, attribute: Attribute | None, ordered: bool = False) -> Value:
        """A value that the attribute can have; for an order comparison, one of its type."""
        self.count()
        token = self.next()
        found: Value | None = token.value
        if token.kind == "word" and token.text in ("true", "false"):
            found = token.text == "true"
        if attribute is None:
            if found is None:
                self.fail('a value (a number, "string", true or false)', token=token)
            return found
        if token.kind == "name" and attribute.values is not None:
            found = token.text  # members of an enumeration need no quotes
        if attribute.type == "int" and isinstance(found, float) and found.is_integer():
            found = int(found)
        if found is None or not _fits(attribute, found, ordered):
            hint = ""
            if attribute.values is not None and isinstance(found, str):
                hint = nearest(found, attribute.values)
            elif token.kind == "name" and attribute.type == "str":
                hint = f'strings are in quotes: "{shown(token.text)}"'
            self.fail(f"{attribute.describes} for {attribute.name}", hint=hint, token=token)
        return found

    def check_type(self, attribute: Attribute | None, word: str, token: Token) -> None:
        if attribute is not None and attribute.type not in _TYPES[word]:
            self.fail(f"{attribute.describes} for {attribute.name}", token=token)


def _fits(attribute: Attribute, value: Value, ordered: bool) -> bool:
    if isinstance(value, bool) or attribute.type == "bool":
        return isinstance(value, bool) and attribute.type == "bool"
    if isinstance(value, str):
        return attribute.type == "str" and (ordered or attribute.values is None or value in attribute.ordinals)
    if attribute.type not in ("int", "float"):
        return False
    return isinstance(value, int if attribute.type == "int" else int | float) and value in attribute.domain


def _kind(value: Value) -> str:
    return "a bool" if isinstance(value, bool) else "a string" if isinstance(value, str) else "a number"


def _parenthesis(token: Token) -> str:
    return "filters have no parentheses: write `a and b or a and c`" if token.text == "(" else ""
