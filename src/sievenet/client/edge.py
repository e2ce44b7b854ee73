"""The exact filter at the edge: which subscriptions of this node does an event match, and who drew in the rest?

The network delivers what lies in the *cells* of a node's subscriptions, which enclose their filters. The edge decides
exactly. Single events are matched along one attribute (`segments`), once as many of them have come as that is worth.
Before that, and where it is not worth it, a handful of subscriptions are asked one by one, which loads no compiler;
from `MANY` on the `Matcher` takes over, whose cost hardly grows with their number.

An event that matches none of the node's subscriptions is a false positive. Which subscriptions drew it in is answered
by the plan: those with a cell that holds the packet's code. `Bitmaps` find them, however many masks the cells have. It
is asked only about events that nobody wanted, and prepared only when first asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sievenet.client.segments import Segments
from sievenet.content.batch import EventBatch
from sievenet.content.columns import matching
from sievenet.content.event import Event
from sievenet.content.filter import Subscription
from sievenet.content.layout import Bytes, layout_of
from sievenet.content.schema import Schema
from sievenet.control.directed import twin_schema
from sievenet.dataplane.packet import PACKET_HEADER

if TYPE_CHECKING:
    from sievenet.client.catalog import Category
    from sievenet.index.bitmaps import Bitmaps
    from sievenet.index.plan import Plan
    from sievenet.matcher import Matcher, Matches
    from sievenet.matcher.decoder import Decoder

__all__ = ["MANY", "Edge", "Edges", "Keys", "Wanted", "each_of"]

#: From this many subscriptions on the matcher is used.
MANY: Final = 24
#: Making segments takes about as long, per subscription, as they save at a quarter of an event.
_SOON: Final = 4
#: Cells of subscriptions that are gone, beyond as many as are used, after which all are worked out anew.
_DEAD: Final = 4096


#: The keys of each event; or the key of each, if all have one.
Keys = list[list[int]] | list[int]


class Wanted(NamedTuple):
    """What somebody wants of packets that came, given as rows of bytes."""

    #: The rows with sound events, and which of those are wanted.
    sound: npt.NDArray[np.int64]
    which: npt.NDArray[np.int64]
    #: The wanted events, and the keys of the subscriptions that each of them matches.
    events: EventBatch
    keys: Keys


class Edge:
    """The subscriptions of one node in one category."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        #: How events lie in bytes, if they are all equally long.
        self.layout = layout_of(schema)
        self.subscriptions: dict[int, Subscription] = {}
        self._matcher: Matcher | None = None
        #: Reads rows of bytes for the matcher, into keys, of so many rows.
        self._decoder: Decoder | None = None
        self._xs, self._sound = np.empty((0, 0), np.int64), np.empty(0, np.int64)
        #: For single events; None if not made, or not good: then `match`. How many more it is worth making after.
        self.segments: Segments | None = None
        self._patience = 0
        self._plan: Callable[[], Plan] | None = None
        self._budget = 0
        #: All cells, ``None`` until they are needed; the number of each, and the keys of the subscriptions with it.
        self._cells: Bitmaps | None = None
        self._numbers: dict[tuple[int, int], int] = {}
        self._keys: list[set[int]] = []
        #: The cells of each subscription, by their numbers, how many that are, and whose are not worked out yet.
        self._members: dict[int, list[int]] = {}
        self._living = 0
        self._unknown: dict[int, Subscription] = {}

    def __len__(self) -> int:
        return len(self.subscriptions)

    @cached_property
    def twin(self) -> str:
        """The twin in which components send events of this category."""
        return twin_schema(self.schema.name).name

    def add(self, key: int, wanted: Subscription) -> None:
        """Begin to match a subscription."""
        self.subscriptions[key] = wanted
        self.segments, self._patience = None, -(-len(self.subscriptions) // _SOON)
        if self._matcher is not None:
            self._matcher.add(key, wanted)
        elif len(self.subscriptions) >= MANY:
            from sievenet.matcher import Matcher

            self._matcher = Matcher(self.schema)
            for each, subscription in self.subscriptions.items():
                self._matcher.add(each, subscription)
        if self._cells is not None:
            self._unknown[key] = wanted

    def remove(self, key: int) -> None:
        """Match it no more."""
        if self.subscriptions.pop(key, None) is None:
            return
        self._unknown.pop(key, None)
        members = self._members.pop(key, ())
        for number in members:
            self._keys[number].discard(key)
        self._living -= len(members)
        if len(self._keys) > 2 * self._living + _DEAD:
            self._cells = None  # mostly of those that are gone: begin anew
        self.segments, self._patience = None, -(-len(self.subscriptions) // _SOON)
        if self._matcher is not None:
            if self.subscriptions:
                self._matcher.remove(key)
            else:
                self._matcher = None

    def adopt(self, plan: Callable[[], Plan], budget: int) -> None:
        """The plan by which the network now filters; it is asked for only when first needed."""
        self._plan, self._budget, self._cells = plan, budget, None

    def match(self, event: Event) -> Sequence[int]:
        """The keys of the subscriptions that match."""
        if self.segments is not None:
            return self.segments.match(event)
        if self._patience:
            self._patience -= 1
            if not self._patience:
                self.segments = Segments.of(self.schema, self.subscriptions)
        if self._matcher is not None:
            return self._matcher.match(event)
        return [key for key, wanted in self.subscriptions.items() if wanted.matches(event)]

    def match_batch(self, batch: EventBatch) -> list[list[int]]:
        """The keys of the subscriptions that match, for each event."""
        rows, keys = self.matched(batch)
        own_keys = each_of(keys)
        if len(rows) == len(batch):
            return own_keys
        several: list[list[int]] = [[] for _ in range(len(batch))]
        for row, own in zip(rows.tolist(), own_keys, strict=True):
            several[row] = own
        return several

    def matched(self, batch: EventBatch) -> tuple[npt.NDArray[np.int64], Keys]:
        """The events that a subscription matches, and for each of them the keys of those that do."""
        if self._matcher is None:
            several: dict[int, list[int]] = {}
            for key, wanted in self.subscriptions.items():
                for row in np.flatnonzero(matching(wanted, batch)).tolist():
                    several.setdefault(row, []).append(key)
            rows = sorted(several)
            return np.array(rows, np.int64), [several[row] for row in rows]
        return _keys_of(self._matcher.match_batch(batch))

    def wanted(self, rows: Bytes, fresh: npt.NDArray[np.bool_]) -> Wanted:
        """What subscriptions want of packets as rows of bytes, of which only some are to be looked at.

        With a matcher events are matched as they travel, and only those that are wanted are taken apart.
        """
        assert self.layout is not None
        if self._matcher is None or not self._readable():
            picked = np.flatnonzero(fresh)
            batch, good = self.layout.decode(rows[picked, PACKET_HEADER:])
            which, keys = self.matched(batch)
            return Wanted(picked[good], which, batch if len(which) == len(batch) else batch.take(which), keys)
        assert self._decoder is not None
        if len(rows) > len(self._xs):
            self._xs = np.empty((len(rows), self._decoder.attributes), np.int64)
            self._sound = np.empty(len(rows), np.int64)
        count = self._decoder.read(rows, PACKET_HEADER, fresh, self._xs, self._sound)
        sound = self._sound[:count].copy()
        which, keys = _keys_of(self._matcher.match_keys(self._xs, count))
        return Wanted(sound, which, self.layout.decode(rows[sound[which], PACKET_HEADER:])[0], keys)

    def _readable(self) -> bool:
        """Whether rows of bytes can be read for the matcher."""
        if self._decoder is None:
            from sievenet.matcher.decoder import Decoder

            self._decoder = Decoder(self.schema)
        return self._decoder.possible

    def learn(self, count: int) -> bool:
        """Work out the cells of so many subscriptions more; whether those of all are known, and `blame` can answer."""
        if self._cells is None:
            from sievenet.index.bitmaps import Bitmaps

            self._cells, self._numbers, self._keys = Bitmaps("covers", codes=True), {}, []
            self._members, self._living, self._unknown = {}, 0, dict(self.subscriptions)
        while self._unknown and count > 0:
            key = next(iter(self._unknown))
            self._enter(self._cells, key, self._unknown.pop(key))
            count -= 1
        return not self._unknown

    def blame(self, code: int) -> set[int]:
        """The keys of the subscriptions whose cells hold this code (left-aligned in 128 bits), of those known."""
        if self._cells is None:
            return set()
        return {key for number in self._cells.holding(code).tolist() for key in self._keys[number]}

    def _enter(self, cells: Bitmaps, key: int, wanted: Subscription) -> None:
        if self._plan is None:
            return
        plan, members = self._plan(), self._members.setdefault(key, [])
        for member in plan.cover(wanted, budget=self._budget) if self._budget else plan.cover(wanted):
            number = self._numbers.get(member.masked)
            if number is None:
                number = self._numbers[member.masked] = cells.put(*member.masked)
                self._keys.append(set())
            self._keys[number].add(key)
            members.append(number)
        self._living += len(members)


def each_of(keys: Keys) -> list[list[int]]:
    """The keys of each event as a list."""
    return [each if isinstance(each, list) else [each] for each in keys]


def _keys_of(found: Matches) -> tuple[npt.NDArray[np.int64], Keys]:
    """The events that matched something, and their keys."""
    matched = np.flatnonzero(found.offsets[1:] != found.offsets[:-1])
    keys: list[int] = found.keys.tolist()
    if len(keys) == len(matched):
        return matched, keys
    offsets = found.offsets.tolist()
    return matched, [keys[offsets[row] : offsets[row + 1]] for row in matched.tolist()]


class Edges:
    """The edges of one node, by their schemas."""

    def __init__(self) -> None:
        self._edges: dict[Schema, Edge] = {}

    def add(self, category: Category, key: int, wanted: Subscription) -> Edge:
        """Begin to match a subscription."""
        edge = self._edges.get(category.schema)
        if edge is None:
            edge = self._edges[category.schema] = Edge(category.schema)
            edge.adopt(lambda: category.plan, category.budget)
        edge.add(key, wanted)
        return edge

    def adopt(self, category: Category) -> Edge | None:
        """The category has another plan; its edge, if there is one."""
        edge = self._edges.get(category.schema)
        if edge is not None:
            edge.adopt(lambda: category.plan, category.budget)
        return edge

    def match(self, event: Event) -> Sequence[int]:
        """The keys of the subscriptions that match an event of a schema known here."""
        edge = self._edges.get(event.schema)
        return () if edge is None else edge.match(event)

    def remove(self, schema: Schema | None, key: int) -> None:
        """A subscription ends."""
        if schema is not None and (edge := self._edges.get(schema)) is not None:
            edge.remove(key)
