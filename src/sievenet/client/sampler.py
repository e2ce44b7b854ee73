"""A small sample of what a node publishes, for a daemon that tunes its plans.

Of each schema a *reservoir*: of however many events since the last heartbeat, so many at random, each as likely as any
other (algorithm L: it draws how many to pass before the next that is kept, so most events cost a comparison). With
the heartbeat they go to the daemon without their payloads, and the reservoir begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import encode_batch
from sievenet.content.event import Event
from sievenet.content.schema import Schema

__all__ = ["MAX_SAMPLE", "Reservoir", "Sampler"]

#: Bytes of one sample on the wire; a larger one is halved until it fits.
MAX_SAMPLE: Final = 1 << 15


class Reservoir:
    """Of all events offered, ``size`` at random."""

    def __init__(self, size: int, random: Random) -> None:
        self.size, self._random = size, random
        self.seen = 0
        self.kept: list[Event] = []
        self._weight = 1.0
        #: The number of the next event that is kept.
        self._next = 0

    def offer(self, events: EventBatch | Sequence[Event]) -> None:
        """See events go by."""
        begin, self.seen = self.seen, self.seen + len(events)
        while self._next < self.seen:
            event = events[self._next - begin]
            if len(self.kept) < self.size:
                self.kept.append(event)
            else:
                self.kept[self._random.randrange(self.size)] = event
            self._next += 1
            if len(self.kept) == self.size:
                # 1 - random() is never 0, of which there is no logarithm.
                self._weight *= math.exp(math.log(1.0 - self._random.random()) / self.size)
                self._next += int(math.log(1.0 - self._random.random()) / math.log1p(-min(self._weight, 1 - 1e-12)))


class Sampler:
    """The reservoirs of a node; `size` 0 keeps nothing."""

    def __init__(self, seed: int | None = None) -> None:
        self.size = 0
        self._random = Random(seed)
        self._reservoirs: dict[Schema, Reservoir] = {}

    def offer(self, schema: Schema, events: EventBatch | Sequence[Event]) -> None:
        """Events of a schema were published."""
        if not self.size:
            return
        found = self._reservoirs.get(schema)
        if found is None:
            found = self._reservoirs[schema] = Reservoir(self.size, self._random)
        found.offer(events)

    def taken(self) -> Iterator[tuple[Schema, int, int, bytes]]:
        """Per schema how many events there were since the last time, and how many of them are in these bytes."""
        reservoirs, self._reservoirs = self._reservoirs, {}
        for schema, each in reservoirs.items():
            batch = EventBatch.from_events(schema, each.kept)
            columns = EventBatch(schema, batch.columns)
            while len(data := encode_batch(columns)) > MAX_SAMPLE and len(columns):
                columns = columns.take(slice(0, len(columns) // 2))
            yield schema, each.seen, len(columns), data
