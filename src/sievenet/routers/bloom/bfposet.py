"""The bfposet: one poset of constraints per attribute, each with the bits of itself and of all that covers it.

    price:  (any p <= 100) 583,900 ── p in [10, 90] 583,900,2561,2800      a constraint has k bits of its own,
                                                                           and those of its predecessors

An event becomes bits by looking, attribute by attribute, for the narrowest constraints that its value satisfies: their
bits are those of every constraint it satisfies. A subscription's bits are the own bits of its constraints. So an event
that matches a subscription has all of its bits: unlike tags of values (`transport.bloom`), no precision is lost for
ranges, but events can only be encoded where the constraints are known. That is at the publisher's router, if every
router knows every subscription (*edge routing*: the bits then travel with the event), or else at each router.
"""

from __future__ import annotations

from hashlib import blake2b

from sievenet.content.event import Record
from sievenet.content.filter import Filter, Matchable
from sievenet.content.schema import Schema
from sievenet.content.valueset import Value, ValueSet
from sievenet.errors import InvalidInput
from sievenet.routers.poset import Poset

__all__ = ["BfPoset"]


class BfPoset:
    """Constraints of subscriptions; turns subscriptions and events into bits."""

    def __init__(self, schema: Schema | None, width: int = 1024, hashes: int = 2) -> None:
        if width < 8 or not 1 <= hashes <= 8:
            raise InvalidInput(expected="at least 8 bits and 1 to 8 hashes", got=(width, hashes))
        self._schema = schema
        self.width = width
        self._hashes = hashes
        self._posets: dict[str, Poset] = {}
        #: How many subscriptions have each constraint.
        self._counts: dict[tuple[str, ValueSet], int] = {}
        #: attribute → number → bits of the entry and of all above; made when needed.
        self._bits: dict[str, dict[int, int]] = {}

    def own(self, name: str, values: ValueSet) -> int:
        """The bits of one constraint."""
        bits = 0
        text = f"{name}|{values.cuts!r}".encode()
        for i in range(self._hashes):
            digest = blake2b(text, digest_size=8, salt=bytes((i,))).digest()
            bits |= 1 << int.from_bytes(digest, "big") % self.width
        return bits

    def add(self, wanted: Filter) -> int:
        """Make a subscription's constraints known; its bits."""
        bits = 0
        for name, values in wanted.constraints.items():
            bits |= self.own(name, values)
            count = self._counts.get((name, values), 0)
            self._counts[name, values] = count + 1
            if not count:
                self._posets.setdefault(name, Poset()).subscribe(Filter(self._schema, {name: values}), None)
                self._bits.pop(name, None)
        return bits

    def remove(self, wanted: Filter) -> int:
        """Forget a subscription's constraints, unless others have them; its bits."""
        bits = 0
        for name, values in wanted.constraints.items():
            bits |= self.own(name, values)
            self._counts[name, values] -= 1
            if not self._counts[name, values]:
                del self._counts[name, values]
                self._posets[name].unsubscribe(Filter(self._schema, {name: values}), None)
                self._bits.pop(name, None)
        return bits

    def event(self, event: Matchable | Record) -> int:
        """The bits of every known constraint that an event satisfies."""
        bits = 0
        for name in self._posets:
            bits |= self._satisfied(name, event.get(name))
        return bits

    def _satisfied(self, name: str, value: Value | None) -> int:
        """The bits of the constraints that a value satisfies: down from the widest, as far as they hold it."""
        poset = self._posets[name]
        all_bits = self._bits.setdefault(name, {})
        entries = poset.entries
        seen = set(poset.roots)
        waiting = list(seen)
        bits = 0
        while waiting:
            number = waiting.pop()
            entry = entries[number]
            if value not in entry.filter[name]:
                continue
            fresh = entry.succs - seen
            seen |= fresh
            waiting += fresh
            mine = all_bits.get(number)
            if mine is None:
                mine = all_bits[number] = self._accumulated(name, number)
            bits |= mine
        return bits

    def _accumulated(self, name: str, number: int) -> int:
        poset = self._posets[name]
        bits = 0
        for each in (number, *poset.above(number)):
            bits |= self.own(name, poset.entries[each].filter[name])
        return bits
