"""Which records match which streams: the exact filters of one category, many records at a time.

Streams with the same filter are asked about once. A filter that wants everything is not asked at all, and records are
then not even decoded. A record that is malformed matches nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from sievenet.cache.record import HEAD
from sievenet.client.edge import MANY, Edge
from sievenet.content.batch import EventBatch
from sievenet.content.codec import decode_event
from sievenet.content.columns import matching
from sievenet.content.filter import Filter, Subscription
from sievenet.content.layout import layout_of
from sievenet.content.schema import Schema
from sievenet.errors import CodecError

__all__ = ["SchemaFilters"]


class SchemaFilters:
    """The filters of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._layout = layout_of(schema)
        self._everything = Subscription([Filter(schema)], schema)
        self._streams: dict[Subscription, list[int]] = {}
        self._edge = Edge(schema)
        self._keys: dict[Subscription, int] = {}
        self._by_key: dict[int, Subscription] = {}

    def add(self, stream: int, wanted: Subscription) -> None:
        """Records that match are for a stream."""
        if wanted not in self._streams:
            self._keys[wanted] = stream
            self._by_key[stream] = wanted
            self._edge.add(stream, wanted)
        self._streams.setdefault(wanted, []).append(stream)

    def remove(self, stream: int) -> None:
        """No more."""
        for wanted, streams in self._streams.items():
            if stream in streams:
                streams.remove(stream)
                if not streams:
                    del self._streams[wanted]
                    key = self._keys.pop(wanted)
                    del self._by_key[key]
                    self._edge.remove(key)
                return

    def match(self, records: Sequence[bytes]) -> Iterator[tuple[int, Sequence[int]]]:
        """For each stream that matches some of these, which."""
        if len(self._streams) < MANY:
            for wanted, streams in self._streams.items():
                rows = self.rows(wanted, records)
                if rows:
                    for stream in streams:
                        yield stream, rows
            return
        batch, where = self._decoded(records)
        found: dict[int, list[int]] = {}
        for row, keys in zip(where, self._edge.match_batch(batch), strict=True):
            for key in keys:
                found.setdefault(key, []).append(row)
        for key, rows in found.items():
            for stream in self._streams[self._by_key[key]]:
                yield stream, rows

    def rows(self, wanted: Subscription, records: Sequence[bytes]) -> Sequence[int]:
        """Which of these match one filter."""
        if not records:
            return ()
        if wanted == self._everything:
            return range(len(records))
        batch, where = self._decoded(records)
        return [where[row] for row in np.flatnonzero(matching(wanted, batch)).tolist()]

    def _decoded(self, records: Sequence[bytes]) -> tuple[EventBatch, Sequence[int]]:
        """The events in these records, and where they were."""
        layout = self._layout
        if layout is not None and all(len(each) == HEAD + layout.size for each in records):
            rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), HEAD + layout.size)
            batch, good = layout.decode(rows[:, HEAD:])
            if len(batch) == len(records):
                return batch, range(len(records))
            return batch, np.flatnonzero(good).tolist()
        events, where = [], []
        for row, record in enumerate(records):
            try:
                events.append(decode_event(self.schema, record[HEAD:]))
            except CodecError:
                continue
            where.append(row)
        return EventBatch.from_events(self.schema, events), where

    def __len__(self) -> int:
        return len(list(chain.from_iterable(self._streams.values())))
