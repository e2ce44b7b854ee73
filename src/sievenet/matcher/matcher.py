"""`Matcher`: exact matching of events against very many subscriptions, which come and go.

    add ──► pending ──(more than a few hundred)──► level ──► … ──► level
            walked over                            four of a size become one of the next

It is a log-structured set.  Filters are added to an unstructured store; when a match finds it too long, it becomes a
level (`level` tells how one is built), and whenever there are four levels of about one size, they become one.  A filter
thus takes part in O(log n) merges, and an event looks at O(log n) levels; after enough events, at one only.  Removing
marks the record; a level of which half is gone is built anew.  Nothing is done in the background: matching pays for
what was changed before, and its first call after many changes takes longer.

Every answer is exact: a key is reported if and only if ``matches`` of its filter or subscription says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Event, EventBatch, Filter, Record, Schema, Subscription
from sievenet.errors import InvalidInput
from sievenet.matcher import blocks, records, scan
from sievenet.matcher.keytable import KeyTable
from sievenet.matcher.level import Level
from sievenet.matcher.matches import LevelStatistics, Matches, Statistics
from sievenet.matcher.reader import Columns, Reader, RecordReader, SchemaReader
from sievenet.matcher.room import Room, Scratch
from sievenet.matcher.store import Pending, merge

__all__ = ["Matcher"]

Ints = npt.NDArray[np.int64]

#: Pending filters that matching walks over before it merges them.
_WALKED: Final = 256
#: Steps of such walks after which that many or more are merged though they are fewer: a level would have paid by then.
_STEPS: Final = 1 << 18
_WORTHWHILE: Final = 64
#: Levels of about one size (within a factor of four) that become one.
_FAN: Final = 4
#: Additional levels that may be visited, per filter, before all become one.
_PATIENCE: Final = 10
#: What a single event costs in terms of events of a batch.
_SINGLE: Final = 8
_UNREADY: Final = (-1, ())
#: Events handled at a time: their keys and one group of filters fit the cache together.
_CHUNK: Final = 32768
#: Bits of a record's number in `_where`.
_NUMBER_BITS: Final = 40
_NUMBER: Final = (1 << _NUMBER_BITS) - 1


class Matcher:
    """Subscriptions by key, asked which of them match an event.

    ``schema`` is that of all filters and events, ``None`` for schemaless filters and records.  Keys are 64-bit
    integers of the caller's choice.  One thread at a time may use a matcher.
    """

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self._reader: Reader = RecordReader() if schema is None else SchemaReader(schema)
        #: The row of each key; rows of keys with one filter name a record, those of others are in `_many`.
        self._rows = KeyTable()
        #: The rows of the records of a key that has none or several.
        self._many: dict[int, tuple[int, ...]] = {}
        #: Where the record of each row is: store, and number in the store.
        self._where: Ints = np.zeros(1024, np.int64)
        self._free_rows: list[int] = []
        self._next_row = 0
        self._pending = Pending(self._reader.attributes)
        #: Levels by number, from 1; store 0 is `_pending`.
        self._levels: dict[int, Level] = {}
        #: Visits to additional levels since there was one level only.
        self._debt = 0
        #: Steps of walks over pending filters since they were merged.
        self._steps = 0
        self._scratch = Scratch()
        self._room = Room()
        #: What `sole` gave last, and for how many events it will do: none since something has changed.
        self._ready: tuple[int, tuple[Any, ...]] = _UNREADY

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return (
            isinstance(key, int | np.integer)
            and records.MIN <= int(key) <= records.MAX
            and self._rows.find(int(key)) >= 0
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    # -- changing ---------------------------------------------------------------------------

    def add(self, key: int, what: Filter | Subscription) -> None:
        """Match ``what`` under a key from now on; what the key stood for before is replaced."""
        if not isinstance(what, Filter) or what.empty:
            self.add_many((key,), (what,))
            return
        key, row = _checked(key), self._new_row()
        try:
            words = self._reader.record(what, key, row, self._pending.numbers)
        except Exception:
            self._free_rows.append(row)
            raise
        if row >= len(self._where):
            self._where = np.resize(self._where, 2 * len(self._where))
        self._where[row] = self._pending.append(words, 1)
        self._ready = _UNREADY
        old = self._rows.put(key, row)
        if old >= 0:
            self._drop(old)

    def add_many(self, keys: Iterable[int], what: Iterable[Filter | Subscription]) -> None:
        """Add many; all or, if one of them does not fit, none."""
        numbers, record = self._pending.numbers, self._reader.record
        words: list[int] = []
        new: dict[int, int] = {}
        many: dict[int, tuple[int, ...]] = {}
        filed: list[int] = []
        taken: list[int] = []
        try:
            for given, each in zip(keys, what, strict=True):
                key = given if given.__class__ is int and records.MIN <= given <= records.MAX else _checked(given)
                if key in new:
                    raise InvalidInput(expected="each key once", got=key)
                row = self._new_row()
                taken.append(row)
                new[key] = row
                if isinstance(each, Filter) and not each.empty:
                    words += record(each, key, row, numbers)
                    filed.append(row)
                    continue
                mine = []
                for wanted in _filters(each):
                    mine.append(self._new_row())
                    taken.append(mine[-1])
                    words += record(wanted, key, mine[-1], numbers)
                many[row] = tuple(mine)
                filed += mine
        except Exception:
            self._free_rows += taken
            raise
        first = self._pending.append(words, len(filed))
        self._ready = _UNREADY
        if self._next_row > len(self._where):
            self._where = np.resize(self._where, max(self._next_row, 2 * len(self._where)))
        self._where[filed] = np.arange(first, first + len(filed))
        self._many.update(many)
        old = self._rows.put_many(np.array(list(new), np.int64), np.array(list(new.values()), np.int64))
        for row in old[old >= 0].tolist():
            self._drop(row)

    def _new_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self._next_row += 1
        return self._next_row - 1

    def remove(self, key: int) -> None:
        """Forget a key."""
        row = self._rows.take(_checked(key))
        if row < 0:
            raise InvalidInput(expected="a key that was added", got=key)
        self._drop(row)

    def _drop(self, row: int) -> None:
        """Forget what a key's row stood for."""
        self._free_rows.append(row)
        if row not in self._many:
            self._kill(row)
            return
        for each in self._many.pop(row):
            self._free_rows.append(each)
            self._kill(each)

    def _kill(self, row: int) -> None:
        where = int(self._where[row])
        self._ready = _UNREADY
        if where <= _NUMBER:
            self._pending.kill(where)
        else:
            level = self._levels[where >> _NUMBER_BITS]
            level.alive[where & _NUMBER] = 0
            level.live -= 1

    def remove_many(self, keys: Iterable[int]) -> None:
        """Forget many keys, each given once; all or, if one of them is unknown, none."""
        wanted = list(keys)
        for key in wanted:
            if key not in self:
                raise InvalidInput(expected="a key that was added", got=key)
        if len(set(wanted)) < len(wanted):
            raise InvalidInput("Expected each key once")
        for key in wanted:
            self.remove(key)

    def _settle(self, events: int) -> list[Level]:
        """Merge what should be merged before so many events are matched; the levels to look at."""
        pending = self._pending
        if not pending.built and len(self._levels) == 1 and self._scratch.attributes == self._reader.attributes:
            # The common case, in few steps: it is what a single event passes in a process that has just woken up.
            (level,) = self._levels.values()
            if 2 * level.live >= level.built:
                return [level]
        self._steps += events * pending.built
        if pending.built > _WALKED or (self._steps > _STEPS and pending.built >= _WORTHWHILE):
            self._merge(self._due(pending.live))
        for number, level in list(self._levels.items()):
            if 2 * level.live < level.built:
                self._unite([self._levels.pop(number)])
        # Several levels cost each event something; when that has come to what one level would cost, make it one.
        self._debt += events * (len(self._levels) - 1)
        if self._debt > _PATIENCE * len(self._rows) and len(self._levels) > 1:
            self._merge(list(self._levels))
        levels = list(self._levels.values())
        if self._pending.live:
            levels.append(self._pending.level(self._reader.attributes))
        if self._scratch.attributes != self._reader.attributes:
            self._scratch.fit(self._reader)
        return levels

    def compact(self) -> None:
        """Make one level of all there is, if it is not: takes a moment, and every event after it takes less time."""
        if self._pending.live or len(self._levels) > 1:
            self._merge(list(self._levels))

    def _due(self, size: int) -> list[int]:
        """The levels that so many new filters should be merged with: all up to a tier that is full."""
        due: list[int] = []
        while True:
            tier = size.bit_length() // 2
            lower = [n for n, level in self._levels.items() if level.live.bit_length() // 2 <= tier and n not in due]
            if sum(self._levels[n].live.bit_length() // 2 == tier for n in lower) < _FAN - 1:
                return due
            due += lower
            size += sum(self._levels[n].live for n in lower)

    def _merge(self, due: list[int]) -> None:
        self._unite([self._pending, *(self._levels.pop(n) for n in due)])
        self._pending = Pending(self._reader.attributes)
        self._steps = 0
        if len(self._levels) <= 1:
            self._debt = 0

    def _unite(self, stores: list[Pending | Level]) -> None:
        if any(store.live for store in stores):
            self._put(merge(stores, self._reader.attributes))

    def _put(self, level: Level) -> None:
        slot = next(i for i in range(1, len(self._levels) + 2) if i not in self._levels)
        self._levels[slot] = level
        self._ready = _UNREADY
        records.rows_of(level.words, self._where, slot << _NUMBER_BITS)

    # -- matching ---------------------------------------------------------------------------

    def match(self, event: Event | Record) -> list[int]:
        """The keys of all subscriptions that match an event, ascending."""
        levels = self._settle(_SINGLE)
        scratch, reader = self._scratch, self._reader
        values = reader.one(event, scratch.raw)
        count = 0
        for level in levels:
            reader.rank(values, level, scratch.raw)
            while True:
                # The type checker cannot count bundles of arrays.
                found = scan.match_one(  # type: ignore[call-arg]
                    *scratch.one, level.edges, *level.arrays, *scratch.found, count
                )
                if found <= len(scratch.found[1]):
                    break
                scratch.grow(found)
            count = found
        keys: list[int] = scratch.found[1][:count].tolist()
        return sorted(set(keys)) if count > 1 else keys

    def match_batch(self, events: EventBatch | Sequence[Event] | Sequence[Record]) -> Matches:
        """The keys that each event of a batch matches."""
        columns = self._reader.columns(events)
        offsets = np.zeros(len(columns) + 1, np.int64)
        parts = []
        total = 0
        for lo, starts, keys in self._chunks(columns):
            offsets[lo + 1 : lo + len(starts)] = starts[1:] + total
            total += len(keys)
            parts.append(keys)
        return Matches(offsets, np.concatenate(parts) if parts else np.empty(0, np.int64))

    def counts_batch(self, events: EventBatch | Sequence[Event] | Sequence[Record]) -> Ints:
        """How many keys each event of a batch matches."""
        columns = self._reader.columns(events)
        counts = np.zeros(len(columns), np.int64)
        for lo, starts, _ in self._chunks(columns):
            counts[lo : lo + len(starts) - 1] = np.diff(starts)
        return counts

    def sole(self, count: int) -> tuple[Any, ...] | None:
        """What `scan.match_level` takes to match so many events, but for their keys; None unless there is one level."""
        if count <= self._ready[0]:  # putting it together takes longer than matching some events
            return self._ready[1]
        levels, room = self._settle(count), self._room
        if len(levels) != 1:
            return None
        room.fit(count, self._reader.attributes)
        found = room.buckets, levels[0].edges, *levels[0].arrays, room.events, room.keys, room.starts, room.out
        if not self._pending.built:  # walks over pending filters are counted
            self._ready = len(room.buckets), found
        return found

    def match_keys(self, xs: Ints, count: int) -> Matches:
        """The keys that each of so many events matches, which are given as rows of keys on their lines.

        For schemas without free strings, where an event's keys are the same for all filters (`content.line`). What
        comes back is valid until the next call.
        """
        levels, room = self._settle(count), self._room
        room.fit(count, self._reader.attributes)
        found = 0
        for level in levels:
            found = room.found(xs, count, level, found)
        if not levels:
            room.empty(count)
        return Matches(room.starts[: count + 1], room.out[: room.kept])

    def _chunks(self, columns: Columns) -> Iterator[tuple[int, Ints, Ints]]:
        """Offsets and keys, chunk by chunk."""
        levels = self._settle(len(columns))
        attributes = self._reader.attributes
        chunk = min(_CHUNK, len(columns))
        room = Room()
        room.fit(chunk, attributes)
        xs = np.empty((chunk, attributes), np.int64)
        for lo in range(0, len(columns), _CHUNK):
            hi = min(lo + _CHUNK, len(columns))
            columns.fixed(xs, lo, hi)
            count = 0
            for level in levels:
                columns.ranked(xs, lo, hi, level)
                count = room.found(xs, hi - lo, level, count)
            if not levels:
                room.empty(hi - lo)
            yield lo, room.starts[: hi - lo + 1], room.out[: room.kept].copy()

    # -- telling ----------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """What the matcher holds, and in how many bytes."""
        levels = tuple(
            LevelStatistics(
                filters=level.built,
                removed=level.built - level.live,
                blocks=len(level.blocks),
                unclustered=int(np.count_nonzero(level.blocks[:, blocks.ATTR] < 0)),
                slots=int(level.blocks[:, blocks.FILLED].sum()),
                bytes=level.nbytes + _cut_bytes(level.cuts),
            )
            for level in self._levels.values()
        )
        index = self._rows.nbytes + self._where.nbytes + sys.getsizeof(self._free_rows)
        # An entry of the dictionary refers to a row, a tuple and its rows.
        index += sys.getsizeof(self._many) + sum(
            32 + sys.getsizeof(each) + 32 * len(each) for each in self._many.values()
        )
        pending = self._pending.nbytes + _cut_bytes(self._pending.numbers)
        return Statistics(
            subscriptions=len(self._rows),
            filters=self._pending.live + sum(level.live for level in self._levels.values()),
            pending=self._pending.live,
            bytes=index + pending + sum(each.bytes for each in levels),
            levels=levels,
        )


def _filters(what: Any) -> tuple[Filter, ...]:
    if isinstance(what, Subscription):
        return what.filters
    if isinstance(what, Filter):
        return ()  # the empty one
    raise InvalidInput(expected="a Filter or a Subscription", got=what)


def _cut_bytes(cuts: Iterable[Any]) -> int:
    return sum(sys.getsizeof(each) + sum(map(sys.getsizeof, each)) for each in cuts if each)


def _checked(key: Any) -> int:
    if key.__class__ is not int and not isinstance(key, np.integer):
        raise InvalidInput(expected="a whole number as key", got=key)
    number = int(key)
    if not records.MIN <= number <= records.MAX:
        raise InvalidInput(expected="a 64-bit key", got=key)
    return number
