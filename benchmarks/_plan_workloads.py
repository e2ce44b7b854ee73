"""Workloads of other kinds than markets, for the benchmark of plans: trips, price bands, sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute, EventBatch, Filter, Schema, StringColumn, ValueSet

__all__ = ["Made", "bands", "sensors", "trips"]


@dataclass(frozen=True)
class Made:
    """Events and subscriptions of one kind."""

    schema: Schema
    batch: EventBatch
    wanted: Sequence[Filter]


def trips(events: int, count: int, seed: int = 1) -> Made:
    """Trips in a city whose places are skewed: subscribers ask for boxes around a place, some for long trips."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        "trip",
        (
            Attribute("x", "float", lo=0, hi=100),
            Attribute("y", "float", lo=0, hi=100),
            Attribute("distance", "float", lo=0, hi=200),
            Attribute("fare", "float", lo=0, hi=1000),
        ),
    )
    centres = rng.uniform(10, 90, (6, 2))
    weights = np.array([0.5, 0.2, 0.12, 0.08, 0.06, 0.04])

    def places(n: int) -> npt.NDArray[np.float64]:
        return np.clip(centres[rng.choice(6, n, p=weights)] + rng.normal(0, 3, (n, 2)), 0, 100)

    at = places(events)
    distance = np.clip(rng.lognormal(1.0, 0.8, events), 0.1, 200)
    fare = np.clip(3 + 2.5 * distance + rng.normal(0, 1, events), 0, 1000)
    batch = EventBatch.of(schema, {"x": at[:, 0], "y": at[:, 1], "distance": distance, "fare": fare})
    wanted = []
    for x, y in places(count).tolist():
        half = rng.uniform(0.3, 2.0)
        box = {"x": ValueSet.interval(x - half, x + half), "y": ValueSet.interval(y - half, y + half)}
        if rng.random() < 0.3:
            box["distance"] = ValueSet.interval(float(rng.uniform(2, 8)), 200.0)
        wanted.append(Filter(schema, box))
    return Made(schema, batch, wanted)


def bands(events: int, count: int, seed: int = 2) -> Made:
    """Minute bars of a price that wanders in a small part of its domain: subscribers ask for narrow bands of it."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        "bar",
        (
            Attribute("open", "float", lo=0, hi=10_000),
            Attribute("close", "float", lo=0, hi=10_000),
            Attribute("volume", "int", lo=0, hi=1_000_000),
        ),
    )
    close = 1900 + np.cumsum(rng.normal(0, 0.8, events))
    opened = np.concatenate([[1900.0], close[:-1]])
    volume = np.clip(rng.lognormal(6, 1, events), 0, 1_000_000).astype(np.int64)
    batch = EventBatch.of(schema, {"open": opened, "close": close, "volume": volume})
    wanted = []
    for price in rng.choice(close, count).tolist():
        band = {"close": ValueSet.interval(price - float(rng.uniform(0.5, 3)), price + float(rng.uniform(0.5, 3)))}
        if rng.random() < 0.4:
            band["volume"] = ValueSet.interval(int(rng.integers(300, 1500)), 1_000_000)
        wanted.append(Filter(schema, band))
    return Made(schema, batch, wanted)


def sensors(events: int, count: int, seed: int = 3) -> Made:
    """Sensors of a city: subscribers ask for sets of stations, a kind of measurement, and values beyond a limit."""
    rng = np.random.default_rng(seed)
    stations = tuple(f"s{i:03}" for i in range(200))
    kinds = ("humidity", "noise", "pm10", "pm25", "temperature")
    schema = Schema(
        "sensor",
        (
            Attribute("station", "str", values=stations),
            Attribute("kind", "str", values=kinds),
            Attribute("value", "float", lo=-50, hi=1000),
        ),
    )
    popular = 1 / np.arange(1, 201) ** 0.8
    popular = rng.permutation(popular / popular.sum())
    which = rng.choice(200, events, p=popular).astype(np.int32)
    kind = rng.integers(0, 5, events).astype(np.int32)
    value = np.clip(rng.gamma(2.0, 12.0, events) - 5, -50, 1000)
    batch = EventBatch.of(
        schema, {"station": StringColumn(which, stations), "kind": StringColumn(kind, kinds), "value": value}
    )
    wanted = []
    for _ in range(count):
        some = rng.choice(200, int(rng.integers(1, 6)), replace=False, p=popular)
        box = {"station": ValueSet.of(*(stations[i] for i in some)), "kind": ValueSet.of(kinds[int(rng.integers(5))])}
        if rng.random() < 0.6:
            box["value"] = ValueSet.interval(float(rng.uniform(10, 60)), 1000.0)
        wanted.append(Filter(schema, box))
    return Made(schema, batch, wanted)
