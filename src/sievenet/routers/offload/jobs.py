"""The values of routing table offloading: settings, questions, a batch under way, counts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Final, Literal

import msgspec

from sievenet.content.filter import Filter
from sievenet.errors import InvalidInput
from sievenet.routers.offload.messages import Compute

__all__ = ["Ask", "Counts", "FixedSettings", "Job", "Offloading", "Pending", "RtoSettings", "parse_offloading"]


@dataclass(frozen=True, slots=True)
class RtoSettings:
    """How to offload table work (RTO)."""

    #: Filters placed together, and seconds after which fewer are not waited for.
    batch: int = 10
    wait: float = 0.05
    #: Filters in a vector, and clients asked about each.
    vector: int = 100
    copies: int = 3
    #: Seconds after which answers are not waited for.
    timeout: float = 1.0
    #: Test every link before it is made: then no lie can lose an event.
    check: bool = True
    #: "auto" offloads when it costs the router less than searching.
    mode: Literal["auto", "always", "never"] = "auto"
    #: Hides what filters say from clients.
    secret: bytes | None = None
    #: Share of filters that the router places itself too, to find out a majority that lies together.
    audit: float = 0.0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.vector < 1 or self.copies < 1:
            got = (self.batch, self.vector, self.copies)
            raise InvalidInput(expected="batches, vectors and copies of at least 1", got=got, where="offloading")
        if not (self.wait >= 0 and self.timeout > 0 and 0 <= self.audit <= 1):
            times = (self.wait, self.timeout, self.audit)
            raise InvalidInput(expected="times of more than 0 s, and audits in [0, 1]", got=times, where="offloading")


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """How clients place their own filters (FF)."""

    #: Filters in the fixed set.
    size: int = 256
    #: Share of the claims that are compared with the whole set, to find out who leaves something out.
    audit: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.audit <= 1:
            raise InvalidInput(expected="audits in [0, 1]", got=self.audit, where="offloading")
        if not 1 <= self.size <= 4096:
            raise InvalidInput(expected="a fixed set of 1 to 4096 filters", got=self.size, where="offloading")


#: What a router's clients do for it.
Offloading = RtoSettings | FixedSettings
_WAYS: Final = {"rto": RtoSettings, "ff": FixedSettings}


def parse_offloading(text: str) -> Offloading:
    """Settings from text: the way, and what is not as usual.

    >>> parse_offloading("rto,batch=5,check=true").batch
    5
    """
    way, *options = (each.strip() for each in text.split(","))
    if way not in _WAYS:
        raise InvalidInput(expected="rto or ff, and options such as batch=5", got=text, where="offload")
    kind = _WAYS[way]
    names = {each.name for each in fields(kind)}
    given: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name not in names:
            raise InvalidInput(expected=f"NAME=VALUE with a name of {', '.join(sorted(names))}", got=option, where=way)
        given[name] = value.encode() if name == "secret" else value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(expected="values that fit", got=str(error), where=way) from None


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for a client."""

    client: str
    request: Compute


@dataclass(slots=True)
class Pending:
    """A filter that waits for a batch. One that is taken back keeps its place, so that filters enter in order."""

    wanted: Filter
    interface: Hashable
    withdrawn: bool = False


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
    #: What was taken back meanwhile.
    withdrawn: set[tuple[Filter, Hashable]] = field(default_factory=set)
    #: Filters that went from one vector to another meanwhile: no answer about a vector is sure to tell of them.
    moved: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Counts:
    """What became of filters and answers."""

    offloaded: int = 0
    searched: int = 0
    local_vectors: int = 0
    failed_checks: int = 0
    audited: int = 0
    failed_audits: int = 0
    late: int = 0
    malformed: int = 0
