"""Filters in disguise: how they relate stays, what they say is hidden.

Covering and overlap depend on the order of cuts and on which attributes are the same, on nothing else. So attribute
names are replaced by keyed digests, and cuts by strings in the same order: kind, then a number's place among all floats
(exactly, whole numbers too) plus a secret, or a string's characters each plus a secret. Any strictly increasing map
would do; a client that sees many filters still learns their order and shape. It is an obfuscation, not encryption.
"""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b

from sievenet.content.filter import Filter
from sievenet.content.number import float_key
from sievenet.content.valueset import MAX_STRING, NUMBER, STRING, Cut, ValueSet
from sievenet.errors import FilterError

__all__ = ["Disguise"]

_DIGITS = 40


class Disguise:
    """A secret way to write filters."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shift = int.from_bytes(blake2b(b"numbers" + secret, digest_size=14).digest(), "big")
        self._step = int.from_bytes(blake2b(b"text" + secret, digest_size=3).digest(), "big")
        self._names: dict[str, str] = {}

    def filter(self, wanted: Filter) -> Filter:
        """The same filter, schemaless and disguised. Raises `FilterError` if a string grows too long."""
        return Filter(None, {self._name(n): self._values(v) for n, v in wanted.constraints.items()})

    def _name(self, name: str) -> str:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = blake2b(name.encode(), digest_size=8, key=self._secret[:64]).hexdigest()
        return found

    def _values(self, values: ValueSet) -> ValueSet:
        return ValueSet(tuple((STRING, self._text(cut)) for cut in values.cuts))

    def _text(self, cut: Cut) -> str:
        kind, *rest = cut
        if not rest:
            return f"{kind}"
        if kind == NUMBER:
            return f"{kind}{_place(rest[0]) + self._shift:0{_DIGITS}x}"
        if kind == STRING:
            text = f"{kind}" + "".join(f"{ord(c) + self._step:07x}" for c in rest[0])
            if len(text) > MAX_STRING:
                raise FilterError(expected=f"at most {MAX_STRING // 7 - 1} characters to disguise", got=len(rest[0]))
            return text
        return f"{kind}{rest[0]}"


def _place(value: float) -> int:
    """A number's place in the order of all numbers: that of the float below it, and what is left exactly."""
    if isinstance(value, int) and not -(1 << 53) <= value <= 1 << 53:
        near = float(value)
        # Whole numbers between two floats: at most 2**11 of them up to 64 bits.
        rest = int(Fraction(value) - Fraction(near))
        return (_ordinal(near) << 13) + rest + (1 << 12)
    return (_ordinal(float(value)) << 13) + (1 << 12)


def _ordinal(value: float) -> int:
    return float_key(value) + (1 << 63)
