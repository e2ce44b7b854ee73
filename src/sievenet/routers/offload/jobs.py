"""The values of routing table offloading: settings, questions, a batch under way, counts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from sievenet.content.filter import Filter
from sievenet.routers.offload.messages import Compute

__all__ = ["Ask", "Counts", "Job", "RtoSettings"]


@dataclass(frozen=True, slots=True)
class RtoSettings:
    """How to offload."""

    #: Filters placed together, and seconds after which fewer are not waited for.
    batch: int = 10
    wait: float = 0.05
    #: Filters in a vector, and clients asked about each.
    vector: int = 100
    copies: int = 3
    #: Seconds after which answers are not waited for.
    timeout: float = 1.0
    #: Test every link before it is made.
    check: bool = False
    #: "auto" offloads when it costs the router less than searching.
    mode: Literal["auto", "always", "never"] = "auto"
    #: Hides what filters say from clients.
    secret: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for a client."""

    client: str
    request: Compute


@dataclass(slots=True)
class Job:
    """A batch under way."""

    number: int
    inputs: list[tuple[Filter, Hashable]]
    until: float
    #: Vector → clients asked; client → all its answers are in.
    asked: dict[int, tuple[str, ...]]
    waiting: set[str]
    answers: dict[int, dict[str, bytes]] = field(default_factory=dict)
    pairs: dict[str, bytes] = field(default_factory=dict)
    spent: float = 0.0


@dataclass(slots=True)
class Counts:
    """What became of filters and answers."""

    offloaded: int = 0
    searched: int = 0
    local_vectors: int = 0
    failed_checks: int = 0
    late: int = 0
    malformed: int = 0
