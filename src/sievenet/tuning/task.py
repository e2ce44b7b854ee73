"""A task: one search, as bytes for another process and back.

    daemon ── Task ──▶ python -m sievenet.tuning.worker ── Outcome ──▶ daemon

The sample comes as publishers sent it: small batches, each with how many events it stands for. Three quarters of
the events, drawn by those weights, are for the search; the others judge what it found against the plan in use, so that
a plan cannot win by having learnt its sample by heart.

Plans that carry about as little (the governor would not change between them) differ much in what hosts receive: of
these the one is taken that bothers hosts least.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from sievenet.content import EventBatch, Schema, decode_batch, decode_subscription
from sievenet.errors import CodecError, InvalidInput
from sievenet.index import Plan
from sievenet.network import SpanningTree
from sievenet.network.files import load_topology
from sievenet.tuning.clusters import local_clustering
from sievenet.tuning.cost import Cost
from sievenet.tuning.covers import Interests
from sievenet.tuning.judge import LocalJudge
from sievenet.tuning.profile import profile_batches
from sievenet.tuning.search import Findings, Tried, search
from sievenet.tuning.sites import Sites

__all__ = ["Outcome", "Piece", "Task", "Tree", "drawn", "kindest", "solve"]

#: Events that the search looks at and that judge what it found, in all, and the part of the former.
EVENTS: Final = 6000
_LEARNT: Final = 0.75
#: What is tried, the most promising first: little time is given.
METHODS: Final = ("RI", "EVS", "EMCS", "CS", "GS", "SI1", "SI", "ASI", "GB")
_I64 = npt.NDArray[np.int64]


class Piece(msgspec.Struct, frozen=True):
    """Events that one publisher sampled, in the codec's bytes, and how many they stand for."""

    publisher: str
    seen: int
    events: bytes


class Tree(msgspec.Struct, frozen=True):
    """A spanning tree: its root, and the next switch toward it of every other."""

    root: str
    parent: dict[str, str | None]


class Task(msgspec.Struct, frozen=True):
    """Everything that a search needs."""

    schema: Schema
    pieces: list[Piece]
    #: Subscriptions in the codec's bytes, and the client of each.
    wanted: list[bytes]
    clients: list[str]
    #: Every client's host.
    hosts: dict[str, str]
    topology: bytes
    trees: list[Tree]
    #: The plan in use as JSON, the bits of a new one, and entries per subscription.
    plan: bytes
    bits: int
    budget: int
    #: Seconds of processor that the search may take.
    seconds: float
    #: Part of the transmissions by which plans must differ, or they are about as good.
    margin: float = 0.05
    seed: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What a search found: the best plan as JSON, and what either plan costs on events that it did not see."""

    plan: bytes
    name: str
    why: str
    tried: int
    events: int
    subscriptions: int
    #: Transmissions per event, and unnecessary packets per host, with the plan in use and with this one.
    before: float
    after: float
    rate_before: float
    rate_after: float
    #: Seconds of processor, all in all.
    cost: float
    #: Pieces of the sample that could not be read.
    unreadable: int = 0


def solve(task: Task, clock: Callable[[], float] = time.process_time) -> Outcome:
    """Search, and judge the best plan on other events."""
    batch, who, unreadable = drawn(task.schema, task.pieces, EVENTS, task.seed)
    learnt = int(_LEARNT * len(batch))
    if not learnt or not task.wanted:
        raise InvalidInput("Expected events and subscriptions to search a plan for", where=task.schema.name)
    wanted = [decode_subscription(task.schema, each) for each in task.wanted]
    interests = Interests.of(task.schema, wanted)
    sites = _sites(task)
    present = Plan.from_json(task.plan)

    def judge(rows: slice) -> LocalJudge:
        return LocalJudge(batch.take(rows), interests, task.budget, sites, sites.located(who[rows]))

    learning, judging = judge(slice(0, learnt)), judge(slice(learnt, None))
    found = search(
        learning,
        profile_batches([learning.batch], task.schema, wanted),
        local_clustering(task.schema, wanted, task.seed, sample=learning.batch),
        task.bits,
        seconds=task.seconds,
        methods=METHODS,
        brief=True,
        version=present.version + 1,
        present=present,
        clock=clock,
    )
    best = kindest(found, task.margin)
    before, after = judging.costs([present, best.plan])
    return Outcome(
        best.plan.to_json(),
        best.name,
        found.why,
        len(found.tried),
        len(batch),
        len(wanted),
        _each(before),
        _each(after),
        before.per_host,
        after.per_host,
        clock(),
        unreadable,
    )


def kindest(found: Findings, margin: float) -> Tried:
    """Of the plans that carry about as little as the best one, that which bothers hosts least.

    One that the governor would take is not given up for one that it would not: neither for one that does not save the
    margin, nor for one that carries more than the plan in use.
    """
    least = found.best.score
    present = next((each.score for each in found.tried if each.name == "present"), math.inf)
    saving = (1.0 - margin) * present
    most = min((1.0 + margin) * least, saving if least <= saving else present)
    near = [each for each in found.tried if each.score <= most]
    return min(near, key=lambda each: (each.cost.received, each.score, each.name != "present"))


def _each(cost: Cost) -> float:
    return cost.transmissions / max(cost.events, 1)


def drawn(schema: Schema, pieces: Iterable[Piece], most: int, seed: int = 0) -> tuple[EventBatch, list[str], int]:
    """Events of a sample, drawn by what they stand for, who published each, and how many pieces were not readable."""
    batches, who, weights, unreadable = [], [], [], 0
    for piece in pieces:
        try:
            batch = decode_batch(schema, piece.events)
        except CodecError:
            unreadable += 1
            continue
        if len(batch):
            batches.append(batch)
            who += [piece.publisher] * len(batch)
            weights += [max(piece.seen, len(batch)) / len(batch)] * len(batch)
    if not batches:
        return EventBatch.from_events(schema, []), [], unreadable
    every, rng = EventBatch.concat(batches), np.random.default_rng(seed)
    count = min(most, len(every))
    share = np.array(weights) / sum(weights)
    rows: _I64 = rng.choice(len(every), count, replace=False, p=share)
    return every.take(rows), [who[i] for i in rows.tolist()], unreadable


def _sites(task: Task) -> Sites:
    topology = load_topology(task.topology)
    trees = [SpanningTree(topology, tree.root, tree.parent) for tree in task.trees]
    return Sites.of(topology, trees, task.hosts, task.clients)
