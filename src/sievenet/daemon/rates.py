"""The rates of a running fabric (docs/reference/rates.md), from a sample of what was published.

What a link carries, its switches count; what of it somebody behind the link wanted, no part of a network sees. It takes
the events, who wants what, and where they are:

    newest events ────────────┐    of the tap, else what publishers sampled for the tuner
    registrations, hosts ─────┼─▶ `tuning` ─▶ transmissions, received, delivered, and the three rates, by category
    trees, plan, budget ──────┘

It is the same calculation as that of `sievenet pipeline evaluate`, so both print the same figures for the same events.
Looking takes a small share of the time (`_REST`), in a thread, and only when there are new events or registrations.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sievenet.content.batch import EventBatch
from sievenet.content.batch_codec import encode_batch
from sievenet.content.filter import Subscription
from sievenet.content.schema import Schema
from sievenet.control.plane import ControlPlane
from sievenet.control.state import Category
from sievenet.daemon.samples import Samples
from sievenet.errors import SievenetError
from sievenet.network.topology import Topology
from sievenet.network.tree import SpanningTree
from sievenet.session.lifetime import ended
from sievenet.tap import SUFFIX, Segment, read_segment
from sievenet.tuning.task import Piece, drawn

if TYPE_CHECKING:
    from sievenet.tuning.cost import Cost

__all__ = ["Rates", "newest", "sum_costs"]

#: Events of a category that are looked at, and bytes of segments that are read for them.
_EVENTS: Final = 2_000
_BYTES: Final = 64 << 20
#: Subscriptions of a category that are looked at; of more, every so manieth.
_SUBSCRIPTIONS: Final = 5_000
#: A result is used again for so many times as long as it took; not the first, which may have waited for the compiler.
_REST: Final = 20.0
#: Seconds that a question waits for a look.
_PATIENCE: Final = 0.5
#: Registrations after which others get their turn.
_TURN: Final = 200


@dataclass(frozen=True, slots=True)
class Deployed:
    """A category as it is deployed."""

    category: Category
    wanted: Sequence[Subscription]
    #: The client that each of them belongs to.
    clients: Sequence[str]
    hosts: Mapping[str, str]
    topology: Topology
    trees: tuple[SpanningTree, ...]


class Rates:
    """Looks at the newest events of a tap, or of the tuner's samples."""

    def __init__(self, control: ControlPlane, samples: Samples, tap: Path | None = None) -> None:
        self._control = control
        self._samples, self._tap = samples, tap
        self._found: dict[int, Cost] = {}
        self._seen: tuple[object, ...] = ()
        self._next = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def latest(self, topology: Topology) -> Mapping[int, Cost]:
        """What the newest events cost, by the number of their category; of none, nothing.

        A look that takes long, such as the first on a new machine, is not waited for: what was found before is given.
        """
        if self._looking is None and time.monotonic() >= self._next:
            self._looking = asyncio.create_task(self._look(topology))
        if self._looking is not None:
            await asyncio.wait((self._looking,), timeout=_PATIENCE)
        return self._found

    async def close(self) -> None:
        """Look no more."""
        await ended(self._looking)

    async def _look(self, topology: Topology) -> None:
        begin, before = time.monotonic(), self._found
        try:
            with contextlib.suppress(SievenetError):
                self._found = await self._costs(topology)
        finally:
            rest = 0.0 if self._found and not before else _REST * (time.monotonic() - begin)
            self._next, self._looking = begin + rest, None

    async def _costs(self, topology: Topology) -> dict[int, Cost]:
        tapped = {} if self._tap is None else await asyncio.to_thread(newest, self._tap)
        pieces = {
            category.number: [_piece(each) for each in tapped.get(category.schema, ())]
            or self._samples.pieces(category.number)
            for category in self._control.categories()
        }
        seen = (self._control.status().answered, pieces)
        if seen == self._seen:
            return self._found
        concerned = [category for category in self._control.categories() if pieces[category.number]]
        found = {}
        for each in await self._deployed(concerned, topology):
            found[each.category.number] = await asyncio.to_thread(_cost, each, pieces[each.category.number])
        self._seen = seen
        return found

    async def _deployed(self, categories: Sequence[Category], topology: Topology) -> list[Deployed]:
        """Who wants what, and where."""
        hosts = {m.client: m.host for m in self._control.members() if m.host in topology.hosts}
        wanted: dict[Schema, list[tuple[Subscription, str]]] = {category.schema: [] for category in categories}
        for i, (client, kind, _, _, content) in enumerate(self._control.registrations(), 1):
            if kind == "subscription" and client in hosts and content.schema in wanted:
                wanted[content.schema].append((content, client))
            if i % _TURN == 0:
                await asyncio.sleep(0)
        found = []
        for category in categories:
            every = wanted[category.schema]
            some = every[:: -(-len(every) // _SUBSCRIPTIONS) or 1]
            subscriptions, clients = [each for each, _ in some], [client for _, client in some]
            trees = self._control.trees(category.number)
            found.append(Deployed(category, subscriptions, clients, hosts, topology, trees))
        return found


def sum_costs(costs: Iterable[Cost]) -> Cost | None:
    """All categories together; None if there are none."""
    found = list(costs)
    return sum(found[1:], found[0]) if found else None


def _listed(tap: Path) -> list[tuple[str, int]]:
    """The newest segments of a folder, newest first, with their sizes."""
    found = []
    with contextlib.suppress(OSError):
        for path in tap.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, str(path), status.st_size))
    return [(path, size) for _, path, size in sorted(found, reverse=True)[:1000]]


def newest(tap: Path, count: int = _EVENTS) -> dict[Schema, list[Segment]]:
    """Segments with at least so many of the newest events of each schema, if there are as many."""
    found: dict[Schema, list[Segment]] = {}
    have: dict[Schema, int] = {}
    read = 0
    for path, size in _listed(tap):
        read += size
        if read > _BYTES:
            break
        with contextlib.suppress(SievenetError, OSError):
            segment = read_segment(Path(path).read_bytes())
            if have.get(segment.schema, 0) < count:
                found.setdefault(segment.schema, []).append(segment)
                have[segment.schema] = have.get(segment.schema, 0) + len(segment)
    return found


def _piece(segment: Segment) -> Piece:
    batch = EventBatch.concat([part.batch for part in segment.parts])
    return Piece(segment.publisher, segment.factor * len(batch), encode_batch(batch))


def _cost(deployed: Deployed, pieces: Sequence[Piece]) -> Cost:
    """What the newest events cost."""
    from sievenet.tuning.covers import Interests
    from sievenet.tuning.judge import LocalJudge
    from sievenet.tuning.sites import Sites

    schema, budget = deployed.category.schema, deployed.category.budget
    sites = Sites.of(deployed.topology, deployed.trees, deployed.hosts, deployed.clients)
    sample, who, _ = drawn(schema, pieces, _EVENTS)
    judge = LocalJudge(sample, Interests.of(schema, deployed.wanted), budget, sites, sites.located(who))
    return judge.costs([deployed.category.plan])[0]
