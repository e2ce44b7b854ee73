"""The way of an event that comes alone: all that packets, duplicates, events and filters ask of it, in one function.

    datagram ─▶ head known? ─▶ numbers, values sound? ─▶ who wants it? ─▶ new? ─▶ sink
                     │                    │
                     └────────────────────┴───────────▶ the ordinary way, as if nothing had been

A process that sleeps between events pays for memory more than for work: each function and each object that an event
passes is memory that the processor fetches anew. Here it passes few. A datagram begins with what is the same in all
single events of a schema, so that comparing it checks most of what there is to check, and what comes behind it stands
at fixed places.

**Invariant.** What passes here is sound, and nothing special is under way (caches, twins, handovers, young
subscriptions, observations). All else goes the ordinary way, which counts it and says what is wrong; nothing has been
noted before that is known. So deliveries and counts are the same by both ways.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sized
from time import time_ns
from typing import Final, NamedTuple

from sievenet.client.delivery import Delivery
from sievenet.client.edge import Edge
from sievenet.client.receiver import Receiver
from sievenet.content.layout import Layout
from sievenet.dataplane.packet import DATAGRAM_HEADER, FRONT, KIND, MAX_NUMBER, PACKET_HEADER

__all__ = ["Express"]

#: Bytes that are the same in all single events of a schema.
_HEAD: Final = DATAGRAM_HEADER + KIND.size
#: Where the code ends, which comes next; and behind it publisher, incarnation, sequence and departure.
_CODE: Final = _HEAD + 16
_NUMBERS: Final = struct.Struct(">16xQQQQ")
_BODY: Final = DATAGRAM_HEADER + PACKET_HEADER
assert _HEAD + _NUMBERS.size == _BODY


class _Lane(NamedTuple):
    """Single events of one category."""

    layout: Layout
    edge: Edge


class Express:
    """Delivers events that come alone, for a receiver."""

    __slots__ = ("_cached", "_directs", "_first", "_full", "_lanes", "_open", "_receiver")

    def __init__(self, receiver: Receiver, cached: Sized, full: Callable[[], None]) -> None:
        self._receiver = receiver
        self._lanes: dict[bytes, _Lane] = receiver.lanes
        #: Empty as a rule: caches, twins, handovers, young subscriptions.
        self._cached, self._directs = cached, receiver.directs
        self._open, self._first = receiver.handovers.open, receiver.entitlements.first
        #: Told that a sink could not take an event.
        self._full = full

    def take(self, data: bytes, owner: int) -> bool:
        """Deliver the event of a datagram that came from a publisher; False if it has to go the ordinary way."""
        now = time_ns()
        lane = self._lanes.get(data[:_HEAD]) or self._lane(data)
        if lane is None:
            return False
        layout, edge = lane
        if len(data) != _BODY + layout.size:
            return False
        receiver, segments = self._receiver, edge.segments
        if segments is None or receiver.stuck is not None or receiver.observations is not None:
            return False
        if self._cached or self._directs or self._open or self._first:
            return False
        publisher, incarnation, sequence, departure = _NUMBERS.unpack_from(data, _HEAD)
        if publisher != owner or (sequence | departure) > MAX_NUMBER:
            return False
        event = layout.decode_one(data, _BODY)
        if event is None:
            return False
        keys = segments.match(event)
        receiver.received += 1
        if not receiver.window.fresh(publisher, incarnation, sequence):
            return True
        if not keys:
            receiver.blame(edge, int.from_bytes(data[_HEAD:_CODE], "big"))
            return True
        receiver.matched += 1
        delivery = Delivery(event, publisher, sequence, departure, now, None, False, False, incarnation)
        if len(keys) == 1:
            # As `Receiver.offer` does, for the common case.
            sink = receiver.sinks.get(keys[0])
            if sink is not None and not sink.accept(delivery):
                receiver.stuck = (delivery, [keys[0]])
        else:
            receiver.offer(delivery, keys)
        receiver.recent.add((now - departure) / 1e9)
        if receiver.stuck is not None:
            self._full()
        return True

    def _lane(self, data: bytes) -> _Lane | None:
        """The lane of a datagram, if it may have one."""
        if len(data) < _BODY or not data.startswith(FRONT):
            return None
        length, category, flags, zero = KIND.unpack_from(data, DATAGRAM_HEADER)
        edge = self._receiver.edges.get(category)
        if edge is None or edge.layout is None or flags or zero or length != edge.layout.size:
            return None
        lane = self._lanes[data[:_HEAD]] = _Lane(edge.layout, edge)
        return lane
