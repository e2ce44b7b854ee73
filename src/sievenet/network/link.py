"""Links and what they do to packets.

A link joins two nodes, each at a port of its own, and carries packets both ways.
Its settings say how well:

    offered ──▶ [queue ≤ `queue` packets] ──▶ `bandwidth` bits/s ──▶ `delay` + U(0, `jitter`) ──▶ arrives
                  full: dropped                                        `loss`: vanishes
                                                                       `reorder`: overtaken by later ones

The defaults describe a perfect wire, and a perfect wire costs nothing: both drivers
of the data plane walk straight across it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sievenet.errors import InvalidInput

__all__ = ["PERFECT", "Link", "LinkSettings", "link_id", "natural"]

_DIGITS: Final = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """A sort key under which ``s2`` comes before ``s10``."""
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _DIGITS.split(name))


def link_id(a: str, b: str) -> tuple[str, str]:
    """The name of the link between two nodes, the same from both ends."""
    return (a, b) if natural(a) <= natural(b) else (b, a)


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a link does to packets, alike in both directions."""

    #: Propagation delay in seconds.
    delay: float = 0.0
    #: Bits per second; None means that sending takes no time.
    bandwidth: float | None = None
    #: Packets that may wait for the wire, the one being sent included; None means any number.
    queue: int | None = None
    #: Probability that a packet vanishes.
    loss: float = 0.0
    #: Longest extra delay in seconds, uniformly drawn; order is kept.
    jitter: float = 0.0
    #: Probability that a packet is held back by up to max(delay + jitter, 1 ms), so that later ones overtake it.
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name in ("delay", "jitter"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 3600.0):
                raise InvalidInput(expected="seconds in [0, 3600]", got=value, where=f"link.{name}")
        for name in ("loss", "reorder"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise InvalidInput(expected="a probability in [0, 1]", got=value, where=f"link.{name}")
        if self.bandwidth is not None and not (math.isfinite(self.bandwidth) and self.bandwidth >= 1.0):
            raise InvalidInput(expected="bits/s of at least 1", got=self.bandwidth, where="link.bandwidth")
        if self.queue is not None and self.queue < 1:
            raise InvalidInput(expected="at least 1 packet", got=self.queue, where="link.queue")

    @property
    def perfect(self) -> bool:
        """Whether packets cross at once and untouched."""
        return self == PERFECT

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "link") -> LinkSettings:
        """Settings from text or JSON values; an unknown name is an error."""
        try:
            return msgspec.convert(dict(values), cls, strict=False)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, InvalidInput):
                raise error.__cause__ from None
            raise InvalidInput(str(error), where=where) from None


#: A wire without delay, limit or loss.
PERFECT: Final = LinkSettings()


class Link(msgspec.Struct, frozen=True):
    """A wire between port `a_port` of `a` and port `b_port` of `b`."""

    a: str
    a_port: int
    b: str
    b_port: int
    settings: LinkSettings = PERFECT

    @property
    def id(self) -> tuple[str, str]:
        """Its name, the same from both ends."""
        return link_id(self.a, self.b)

    def __str__(self) -> str:
        return f"{self.a}:{self.a_port}-{self.b_port}:{self.b}"
