"""A receiver that keeps messages for others, and answers their requests."""

from __future__ import annotations

from random import Random

from sievenet.transport.actions import Action, Channel, Send
from sievenet.transport.bloom import Bits
from sievenet.transport.cache import Cache
from sievenet.transport.codec import decode_header
from sievenet.transport.control import Repair, Request, encode
from sievenet.transport.options import Recover
from sievenet.transport.repairs import Repairs
from sievenet.transport.requests import Key

__all__ = ["Volunteer"]


class Volunteer:
    """What one receiver does for its peers."""

    def __init__(self, me: int, options: Recover, rng: Random) -> None:
        self.cache = Cache(options)
        self.repairs = Repairs(me, rng, style=options.repair)

    def asked(self, request: Request, now: float, *, missing: bool) -> None:
        """A peer misses a message; ``missing``: so does this receiver."""
        kept = self.cache.get(request.publisher, request.epoch, request.sequence)
        if not missing:
            self.cache.asked(request.publisher, request.wait, request.distance, kept is not None)
        if kept:
            self.repairs.asked(request, kept, now)

    def heard(self, key: Key, now: float) -> None:
        """Another has repaired a message."""
        self.repairs.heard(key, now)
        self.cache.repaired(key[0], mine=False)

    def expire(self, now: float) -> list[Action]:
        """Repairs that are due."""
        return [self._send(repair, bits) for repair, bits in self.repairs.expire(now)]

    def _send(self, repair: Repair, bits: Bits) -> Action:
        header, _ = decode_header(repair.message)
        self.cache.repaired(header.publisher, mine=True)
        channel = Channel.NODE if repair.requester else Channel.PEERS
        return Send(channel, repair.requester or header.publisher, bits, encode(repair), header.record.width)
