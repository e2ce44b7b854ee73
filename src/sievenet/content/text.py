"""Filters, subscriptions and values as people write them.

What is printed parses back to an equal value (`sievenet.content.parser`), and is the
shortest of a few natural ways to say a set of values *relative to its domain*:

    one-sided at the domain's end     price > 420           not  price in (420, 1000]
    few exceptions                    symbol != "IBM"       not  symbol in {"AAPL", "MSFT", …}
    a prefix                          name prefix "ab"      not  name in ["ab", "ac")
    otherwise a union of pieces       price in [1, 5) | {7} | (9, 12]

A set is first cut into *pieces* that lie within one kind (bools, numbers, strings), then each
piece is recognised as a value, a prefix, a whole kind or an interval.  An end between two
neighbouring numbers can be said by either: the one with the shorter text is taken, so what
begins at 420.00000000000006 is printed as ``> 420``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from sievenet.content.number import previous_number
from sievenet.content.schema import NAME, RESERVED, Attribute
from sievenet.content.valueset import (
    ABSENT,
    ALL,
    BOOL,
    EMPTY,
    NUMBER,
    PRESENT,
    STRING,
    Cut,
    Value,
    ValueSet,
    behind_prefix,
)

if TYPE_CHECKING:
    from sievenet.content.filter import Filter, Subscription

__all__ = ["filter_text", "literal", "name_text", "subscription_text", "values_text"]

_KIND_WORDS: Final = {BOOL: "bool", NUMBER: "number", STRING: "string"}
#: A run of more members of an enumeration than this is printed as an interval.
_LONGEST_LIST: Final = 12


def literal(value: Value) -> str:
    """A value as the filter language writes it.

    >>> print(literal("a\\tb"), literal(1.5), literal(True))
    "a\\tb" 1.5 true
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def name_text(name: str) -> str:
    """An attribute's name, in quotes if it would not be read as one word."""
    return name if NAME.fullmatch(name) and name not in RESERVED else json.dumps(name, ensure_ascii=False)


def filter_text(each: Filter) -> str:
    """A filter with its schema's name, such as ``stock: price > 420 and symbol = "IBM"``."""
    return _prefixed(each.schema.name if each.schema else "", _body(each))


def subscription_text(each: Subscription) -> str:
    """A subscription: its filters joined by ``or`` behind one schema name."""
    body = " or ".join(map(_body, each.filters)) or "none"
    return _prefixed(each.schema.name if each.schema else "", body)


def constraint_text(name: str, values: ValueSet, attribute: Attribute | None = None) -> str:
    """One constraint, such as ``price > 420``."""
    return f"{name_text(name)} {values_text(values, attribute)}"


def values_text(values: ValueSet, attribute: Attribute | None = None) -> str:
    """A set of values as the part of a constraint behind the name, such as ``> 420``.

    >>> values_text(ValueSet.interval(1, 5, open_hi=True) | ValueSet.of(7))
    'in [1, 5) | {7}'
    """
    if attribute is not None:
        values = attribute.canonical(values)
        if not values:
            return "none"
        if values == attribute.domain:
            return "any"
        if attribute.values is not None:
            return _enumerated(values, attribute.values)
        return _sentence(values, _Space(attribute.domain, _PREVIOUS[attribute.type], attribute.type == "int"))
    if values in _WORDS:
        return _WORDS[values]
    if not ABSENT.overlaps(values):
        return _sentence(values, _ANYTHING)
    rest = _sentence(values & PRESENT, _ANYTHING)
    return f"absent | {rest}"


class _Space(NamedTuple):
    """What a set of values is said relative to."""

    domain: ValueSet
    #: The number before another; of whole numbers only closed ends are printed.
    previous: Callable[[float], float]
    whole: bool = False


def _previous_whole(value: float) -> float:
    return value - 1


def _previous_float(value: float) -> float:
    return math.nextafter(value, -math.inf)


_PREVIOUS: Final = {"int": _previous_whole, "float": _previous_float, "str": previous_number, "bool": previous_number}
_ANYTHING: Final = _Space(PRESENT, previous_number)
_WORDS: Final = {EMPTY: "none", ALL: "any", PRESENT: "exists", ABSENT: "absent"}


def _prefixed(schema: str, body: str) -> str:
    return f"{schema}: {body}" if schema else body


def _body(each: Filter) -> str:
    if each.empty:
        return "none"
    schema = each.schema
    texts = (constraint_text(n, v, schema[n] if schema else None) for n, v in each.constraints.items())
    return " and ".join(texts) or "any"


# -- pieces -----------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A stretch within one kind; an end that is the domain's own is None."""

    kind: int
    start: Cut | None
    stop: Cut | None


def _pieces(values: ValueSet, domain: ValueSet) -> list[_Piece]:
    first, last = domain.cuts[0], domain.cuts[-1]
    found = []
    for start, stop in values.stretches():
        for kind in _KIND_WORDS:
            lo, hi = max(start, (kind,)), min(stop, (kind + 1,))
            if lo < hi:
                at_start = lo == (kind,) or lo == first
                at_stop = hi == (kind + 1,) or hi == last
                found.append(_Piece(kind, None if at_start else lo, None if at_stop else hi))
    return found


def _sentence(values: ValueSet, space: _Space) -> str:
    """A non-empty set, not the whole domain, in the shortest way."""
    pieces = _pieces(values, space.domain)
    if len(pieces) == 1:
        return _alone(pieces[0], values, space)
    outside = space.domain - values
    exceptions = _pieces(outside, space.domain)
    if len(exceptions) < len(pieces):
        points = [_point(p, outside, space) for p in exceptions]
        if len(points) == 1 and points[0] is not None:
            return f"!= {points[0]}"
        if all(p is not None for p in points):
            return f"not in {{{', '.join(filter(None, points))}}}"
        if len(exceptions) == 1 and (text := _prefix(exceptions[0])) is not None:
            return f"not prefix {text}"
    return f"in {_union(pieces, values, space)}"


def _alone(piece: _Piece, values: ValueSet, space: _Space) -> str:
    """A set of one piece."""
    value, prefix = _point(piece, values, space), _prefix(piece)
    if value is not None:
        return f"= {value}"
    if prefix is not None:
        return f"prefix {prefix}"
    if piece.start is None and piece.stop is None:
        return _KIND_WORDS[piece.kind]
    if piece.stop is None:
        bracket, end = _entering(piece.start, space)
        return f"{'>' if bracket == '(' else '>='} {end}"
    if piece.start is None:
        end, bracket = _leaving(piece.stop, space)
        return f"{'<' if bracket == ')' else '<='} {end}"
    return f"in {_interval(piece, space)}"


def _union(pieces: list[_Piece], values: ValueSet, space: _Space) -> str:
    """Pieces joined by ``|``, neighbouring single values gathered in braces."""
    parts: list[str] = []
    points: list[str] = []
    for piece in pieces:
        value = _point(piece, values, space)
        if value is not None:
            points.append(value)
            continue
        prefix = _prefix(piece)
        if points:
            parts.append(f"{{{', '.join(points)}}}")
            points = []
        if prefix is not None:
            parts.append(f"prefix {prefix}")
        elif piece.start is None and piece.stop is None:
            parts.append(_KIND_WORDS[piece.kind])
        else:
            parts.append(_interval(piece, space))
    if points:
        parts.append(f"{{{', '.join(points)}}}")
    return " | ".join(parts)


def _point(piece: _Piece, values: ValueSet, space: _Space) -> str | None:
    """The text of the single value a piece consists of, if it does."""
    kind, start, stop = piece
    if kind == BOOL:
        if start is None and stop is None:
            return None
        return "false" if start is None else "true"
    if kind == STRING:
        lower = start[1] if start else ""
        return literal(lower) if stop == (STRING, lower + "\0") else None
    lo = start or space.domain.cuts[0]
    hi = stop or space.domain.cuts[-1]
    if len(lo) == 1 or len(hi) == 1:
        return None
    return _number(lo[1]) if space.previous(hi[1]) == lo[1] else None


def _prefix(piece: _Piece) -> str | None:
    """The prefix a piece of strings is the set of, if it is."""
    if piece.kind != STRING or piece.start is None:
        return None
    text: str = piece.start[1]
    return literal(text) if (piece.stop or (STRING + 1,)) == behind_prefix(text) else None


def _interval(piece: _Piece, space: _Space) -> str:
    opening, lo = _entering(piece.start, space)
    hi, closing = _leaving(piece.stop, space)
    return f"{opening}{lo}, {hi}{closing}"


def _entering(cut: Cut | None, space: _Space) -> tuple[str, str]:
    if cut is None:
        return "(", "-inf"
    if cut[0] == NUMBER:
        first = _number(cut[1])
        if not space.whole and len(before := _number(space.previous(cut[1]))) < len(first):
            return "(", before
        return "[", first
    text = cut[1]
    return ("(", literal(text[:-1])) if text.endswith("\0") else ("[", literal(text))


def _leaving(cut: Cut | None, space: _Space) -> tuple[str, str]:
    if cut is None:
        return "inf", ")"
    if cut[0] == NUMBER:
        last = _number(space.previous(cut[1]))
        if not space.whole and len(behind := _number(cut[1])) < len(last):
            return behind, ")"
        return last, "]"
    text = cut[1]
    return (literal(text[:-1]), "]") if text.endswith("\0") else (literal(text), ")")


def _number(value: float) -> str:
    """A number without a needless ``.0``: to a set 420 and 420.0 are one."""
    if type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        value = int(value)
    return repr(value)


def _enumerated(values: ValueSet, members: tuple[str, ...]) -> str:
    """A proper, non-empty subset of an enumeration."""
    inside = [m for m in members if m in values]
    outside = [m for m in members if m not in values]
    if len(inside) == 1:
        return f"= {literal(inside[0])}"
    if len(outside) == 1 and len(inside) > 2:
        return f"!= {literal(outside[0])}"
    if min(len(inside), len(outside)) <= _LONGEST_LIST:
        fewer, word = (inside, "in") if len(inside) <= max(2, len(outside)) else (outside, "not in")
        return f"{word} {{{', '.join(map(literal, fewer))}}}"
    runs = [_Piece(STRING, start, stop) for start, stop in values.stretches()]
    return f"in {_union(runs, values, _ANYTHING)}"
