"""What can be set: one frozen object per part, every default with its unit. A part that is ``None`` is off."""

from __future__ import annotations

from math import isfinite
from typing import Literal

import msgspec

from sievenet.errors import InvalidInput
from sievenet.transport.bloom import MAX_WIDTH
from sievenet.transport.codec import MAX_RECORD
from sievenet.transport.stream import Limits

__all__ = ["Order", "Publishing", "RateControl", "Recover"]


def _check(ok: bool, expected: str, got: object, where: str) -> None:
    if not ok:
        raise InvalidInput(expected=expected, got=got, where=where)


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FIFO order per publisher."""

    #: P_t: chance that a message which is waited for comes after the wait.
    p_late: float = 0.0005
    #: Differences of delay that are remembered per publisher.
    samples: int = 25
    #: What happens to a message that comes after a later one was delivered.
    late: Literal["deliver", "drop"] = "deliver"
    #: With recovery: hold later messages until a lost one is repaired or given up.
    hold_for_repair: bool = True
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        _check(0 < self.p_late <= 0.5, "a probability in (0, 0.5]", self.p_late, "order.p_late")
        _check(1 <= self.samples <= 10_000, "1..10000 samples", self.samples, "order.samples")


class Recover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Recovery of lost messages from peers and from the publisher."""

    #: Keep messages for others, and answer requests.
    volunteer: bool = True
    #: Smallest and largest cache per publisher, in messages; it adapts in between.
    cache_min: int = 5
    cache_max: int = 300
    #: Seconds' worth of messages kept before anybody has asked.
    horizon: float = 1.0
    #: Hit ratio that the cache aims at.
    hit_ratio: float = 1.0
    #: Requests per message before it is given up.
    attempts: int = 10
    #: Ask publishers what they sent where a gap is longer than the record.
    inquire: bool = True
    #: Messages asked for at a time; what is lost beyond that is given up at once.
    wanted: int = 4096
    #: Distance from a publisher until it is known, in seconds.
    distance: float = 0.05
    #: Re-publish a repair for all, send it to the one who asked, or choose by how many asked.
    repair: Literal["auto", "republish", "unicast"] = "republish"

    def __post_init__(self) -> None:
        sizes = (self.cache_min, self.cache_max)
        _check(0 < self.cache_min <= self.cache_max, "0 < min <= max", sizes, "recover.cache")
        _check(1 <= self.attempts <= 64, "1..64 attempts", self.attempts, "recover.attempts")
        _check(self.wanted >= 1, "at least 1 message", self.wanted, "recover.wanted")
        _check(0 < self.distance < 60, "seconds in (0, 60)", self.distance, "recover.distance")


class RateControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Congestion control at a receiver."""

    #: Largest increase per step, as a share of the reception rate.
    alpha: float = 0.5
    #: Shortest time between steps, in seconds (otherwise a round trip).
    interval: float = 0.05
    #: Round trip until it is known, in seconds.
    round_trip: float = 0.1
    #: Segments by which the window grows per round trip: a TCP's is 1. Where no TCP shares the links, less loses fewer
    #: messages, nearly in proportion; by its law it adapts more slowly, and beside a TCP it would yield.
    growth: float = 1.0
    #: Size of a TCP segment that the rate is meant to be fair to, in bytes; messages may be smaller.
    segment: int = 1460
    #: Bytes around a message on the wire: IP, UDP and the plane's own header.
    overhead: int = 48
    #: Never ask for less, in messages per second.
    slowest: float = 1.0

    def __post_init__(self) -> None:
        _check(0 < self.alpha <= 1, "a share in (0, 1]", self.alpha, "rate_control.alpha")
        _check(0 < self.interval < 60, "seconds in (0, 60)", self.interval, "rate_control.interval")
        _check(0 < self.round_trip < 60, "seconds in (0, 60)", self.round_trip, "rate_control.round_trip")
        _check(0 < self.growth <= 1, "segments in (0, 1]", self.growth, "rate_control.growth")
        _check(self.segment >= 1, "bytes", self.segment, "rate_control.segment")
        _check(1 <= self.overhead <= 65535, "bytes", self.overhead, "rate_control.overhead")
        _check(isfinite(self.slowest) and self.slowest > 0, "messages/s above 0", self.slowest, "rate_control.slowest")


class Publishing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a publisher does for those who order, recover or control the rate."""

    #: Previous messages described in front of each message.
    record: int = 5
    #: Width of their Bloom filters, in bits.
    width: int = 128
    #: Seconds between digests while something is published (at most 5, or this, while not); None: a quarter with a
    #: log, which would be of little use without, and no digests otherwise.
    digest: float | None = None
    #: Messages and bytes that the publisher keeps to repair losses; 0: none.
    log: int = 0
    log_bytes: int = 16 << 20
    #: Obey receivers' rate control.
    rate_control: bool = False
    #: Messages that may wait for their flow's turn.
    queue: int = 1000
    #: `publish` waits for room in the queue, or refuses.
    when_full: Literal["wait", "error"] = "wait"
    #: Seconds without feedback after which a flow is free again.
    flow_timeout: float = 10.0
    #: Flows kept at most.
    flows: int = 1024
    #: Seconds that a closing node takes at most to send what waits; what is left then is an error.
    drain: float = 30.0
    #: Seconds that a closing node with a log stays after that, to answer for what it sent.
    linger: float = 0.0

    def __post_init__(self) -> None:
        _check(0 <= self.record <= MAX_RECORD, f"0..{MAX_RECORD} messages", self.record, "publishing.record")
        if self.digest is None and self.log:
            msgspec.structs.force_setattr(self, "digest", 0.25)
        width = self.width
        _check(8 <= width <= MAX_WIDTH and width % 8 == 0, f"8..{MAX_WIDTH} bits in bytes", width, "publishing.width")
        _check(self.digest is None or 0 < self.digest < 3600, "seconds above 0", self.digest, "publishing.digest")
        _check(self.log >= 0 and self.log_bytes >= 0, "0 or more", (self.log, self.log_bytes), "publishing.log")
        _check(self.queue >= 1, "at least 1 message", self.queue, "publishing.queue")
        _check(0 < self.flow_timeout < 3600, "seconds above 0", self.flow_timeout, "publishing.flow_timeout")
        _check(1 <= self.flows <= 65536, "1..65536 flows", self.flows, "publishing.flows")
        _check(0 <= self.drain <= 86_400, "seconds in [0, 86400]", self.drain, "publishing.drain")
        _check(0 <= self.linger <= 3600, "seconds in [0, 3600]", self.linger, "publishing.linger")
