"""Placement of caches on Spark: many host states, scored in parts.

    chunks (seed, states) ──▶ each executor: draw the states, score every switch (`cache.placement`) ──▶ sums

A score is a mean over states, so parts are added; a chunk's states follow from its number and the seed, so the result
does not depend on who computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sievenet.cache.placement import METRICS, Placement, Scores, random_states
from sievenet.network.link import Link
from sievenet.network.topology import Topology
from sievenet.pipeline.broadcast import Shared
from sievenet.pipeline.report import Report
from sievenet.pipeline.sketch import sketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["place", "place_alone", "placement_report"]

#: States of a chunk.
CHUNK: Final = 250
_ROWS: Final = pa.schema([("states", pa.int64()), ("sums", pa.binary())])
_DDL: Final = "states long, sums binary"


def place_alone(topology: Topology, states: int, seed: int, rate: float, link_rate: float) -> Scores:
    """The scores of all switches, in this process."""
    placement = Placement(topology, link_rate)
    return reduce(add, (_chunk(placement, seed, number, size, rate) for number, size in _chunks(states)))


def place(spark: SparkSession, topology: Topology, states: int, seed: int, rate: float, link_rate: float) -> Scores:
    """The same on Spark."""
    shared = Shared(spark, _placement, topology.switches, topology.hosts, topology.links, link_rate)

    def work(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placement = shared.get()
        for part in parts:
            for row in part.to_pylist():
                found = _chunk(placement, seed, row["number"], row["size"], rate)
                data = np.concatenate([found.sums.ravel(), found.traffic.ravel()]).tobytes()
                yield pa.RecordBatch.from_arrays([pa.array([found.states]), pa.array([data])], schema=_ROWS)

    chunks = spark.createDataFrame(_chunks(states), "number long, size long").repartition(
        max(1, min(len(_chunks(states)), spark.sparkContext.defaultParallelism * 2))
    )
    rows = chunks.mapInArrow(work, _DDL).collect()
    count = len(topology.switches)
    parts = [(row["states"], np.frombuffer(bytes(row["sums"]), np.float64)) for row in rows]
    split = count * len(METRICS)
    found = [
        Scores(data[:split].reshape(count, len(METRICS)), data[split:].reshape(count, 2), states)
        for states, data in parts
    ]
    shared.release()
    return reduce(add, found)


def _placement(
    switches: tuple[str, ...], hosts: tuple[str, ...], links: tuple[Link, ...], link_rate: float
) -> Placement:
    # A topology that was used has views in it, which do not travel; its parts do.
    return Placement(Topology(switches, hosts, links), link_rate)


def _chunks(states: int) -> list[tuple[int, int]]:
    return [(at // CHUNK, min(CHUNK, states - at)) for at in range(0, states, CHUNK)]


def _chunk(placement: Placement, seed: int, number: int, size: int, rate: float) -> Scores:
    hosts = len(placement.topology.hosts)
    return placement.scores(
        random_states(hosts, size, int(np.random.SeedSequence([seed, number]).generate_state(1)[0]), rate)
    )


def placement_report(topology: Topology, scores: Scores, weights: list[float] | None, of: str) -> Report:
    """A page with the best positions, the network and what each score consists of."""
    placement = Placement(topology)
    ranked = placement.ranked(scores, weights)
    index = {switch: i for i, switch in enumerate(topology.switches)}
    means = scores.sums / max(1, scores.states)
    report = Report("Where to put event caches")
    report.tiles({"best switch": ranked[0][0], "its score": f"{ranked[0][1]:.3f}", "host states": f"{scores.states:,}"})
    report.text(f"Scores from 0 (the worst position of a state) to 1 (the best), averaged over {of}.")
    shown = ranked[:40]
    report.bars("scores", [name for name, _ in shown], {"score": [value for _, value in shown]})
    low, high = ranked[-1][1], ranked[0][1]
    shades = {name: (value - low) / ((high - low) or 1.0) for name, value in ranked}
    report.chart("network", sketch(topology, {}, shades=shades), "The better a switch, the greener.")
    rows = [(name, value, *means[index[name]].tolist()) for name, value in ranked]
    report.table("Positions, best first", ["switch", "score", *METRICS], rows)
    traffic = scores.traffic / max(1, scores.states)
    report.figures["positions"] = [
        {
            "switch": name,
            "score": value,
            **dict(zip(METRICS, means[index[name]].tolist(), strict=True)),
            "published_per_s": float(traffic[index[name], 0]),
            "cached_per_s": float(traffic[index[name], 1]),
        }
        for name, value in ranked
    ]
    report.figures["states"] = scores.states
    return report
