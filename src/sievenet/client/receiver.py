"""The receive path: a short chain from packets to queues, without I/O.

    packet ─▶ dedupe ─▶ decode ─▶ match exactly ─▶ feed.accept ─▶ queue
                │         │           │                 │
            duplicate  malformed  false positive    full under `wait`: hold, and read no more

Each stage counts what it takes out. When a feed must wait, the rest is held and no more is read (`blocked`). `resume`
goes on where it stopped: nothing is lost or delivered twice.

Events that a component sends to this node by directed delivery come as packets inside packets of a twin category. What
is inside goes the same way as if it had come by content, so that both ways are one stream without duplicates. While
events change from one way to the other, some are held (`handover`). Most single events take a shorter way (`express`).
Whose cells drew a false positive in is a question for compiled code, which loads first: it waits until ``ready``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.client.arrival import Arrival
from sievenet.client.delivery import Delivery, Sink, Straight
from sievenet.client.directed import Begin, Cached, End, alone, marker_of, several, unwrapped, unwrapped_many
from sievenet.client.edge import Edge, each_of
from sievenet.client.entitlement import Entitlements
from sievenet.client.handover import Handovers
from sievenet.client.latency import Latency
from sievenet.client.observation import Observations
from sievenet.client.ports.burst import Arrivals, uniform
from sievenet.client.statistics import ReceiverStatistics
from sievenet.client.transport.shim import MARK, unstamped
from sievenet.content.codec import decode_event
from sievenet.content.event import Event
from sievenet.content.layout import Bytes
from sievenet.content.schema import Schema
from sievenet.dataplane.packet import Packet
from sievenet.errors import CodecError
from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Receiver", "ReceiverStatistics", "Sink", "Straight"]

#: Numbers of each source that are remembered once events may be sent again for a component that died.
_WIDE: Final = 1 << 17
#: False positives that wait to be explained; of more, the oldest stay unexplained.
PUZZLES: Final = 1 << 16
#: Subscriptions whose cells are worked out when somebody asks, and with each false positive: nothing waits for long.
_COVERS, _FEW = 128, 2


class Receiver:
    """Everything between the data port and the feeds of one node."""

    def __init__(
        self,
        decode: Callable[[Schema, bytes], Event] = decode_event,
        window: DuplicateWindow | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._decode = decode
        self.window = window or DuplicateWindow()
        self._ready = ready
        #: False positives that are counted but not explained yet.
        self._puzzles: deque[tuple[Edge, int]] = deque()
        self.edges: dict[int, Edge] = {}
        #: What `express` knows of edges, by what datagrams begin with.
        self.lanes: dict[bytes, Any] = {}
        #: The twin categories by their numbers.
        self.directs: dict[int, str] = {}
        self.handovers = Handovers()
        #: The number of this node as a publisher: its own events reach it otherwise, not by way of components.
        self.own = 0
        self.cached: Callable[[Packet, int], bool] = lambda packet, now: True
        self.sinks: dict[int, Sink] = {}
        self.entitlements = Entitlements()
        self.told = self.entitlements.told
        self._held: deque[Arrival] = deque()
        #: Matched together, to be handed out one by one before what is held.
        self._ready_ones: deque[tuple[Delivery, list[int]]] = deque()
        #: A delivery that some sinks could not take yet.
        self.stuck: tuple[Delivery, list[int]] | None = None
        #: Of the events that matched, since the last report.
        self.recent = Latency()
        #: What came where; None unless the daemon wants to know.
        self.observations: Observations | None = None
        self.received = self.matched = self.false_positives = 0
        self.unexplained = self.malformed = self.strangers = self.directed = self.companions = 0

    # -- subscriptions --------------------------------------------------------------------

    def enter(self, number: int, edge: Edge) -> None:
        """Events of this category number are for this edge."""
        self.edges[number] = edge
        self.lanes.clear()

    def forget(self) -> None:
        """Forget the numbers of all categories: a new daemon may count otherwise."""
        for each in (self.edges, self.lanes, self.directs):
            each.clear()

    def direct(self, number: int, name: str) -> None:
        """Packets of this category number are those of a twin, with packets inside."""
        self.directs[number] = name
        self.window.widen(_WIDE)

    def connect(self, key: int, sink: Sink) -> None:
        """Deliveries of this subscription go there."""
        self.sinks[key] = sink

    def disconnect(self, key: int) -> None:
        """Deliveries of this subscription go nowhere."""
        self.sinks.pop(key, None)
        self.entitlements.drop(key)

    # -- packets --------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether a queue is full that wants the network to wait."""
        return self.stuck is not None

    def take(self, packets: Iterable[Arrival], now: int) -> None:
        """Deliver packets that arrived at ``now`` (nanoseconds since the epoch)."""
        if self.stuck is not None:
            self._held.extend(packets)
            return
        if isinstance(packets, Arrivals) and not self.handovers.open:
            twin = packets.category in self.directs
            inside = self._inside(packets.bodies, packets.category) if twin else packets
            if inside is not None and self._take_many(inside, now, inside is not packets):
                self.directed += len(inside) if inside is not packets else 0
                return
        if type(packets) is list and len(packets) == 1 and not (self.directs or self.handovers.open):
            self.received += 1
            self._pass(packets[0], now)
            return
        waiting = iter(packets)
        for packet in waiting:
            self.received += 1
            deliver = self._deliver if self.directs or self.handovers.open else self._pass
            if not deliver(packet, now):
                self._held.extend(waiting)
                return

    def _inside(self, bodies: Bytes, twin: int) -> Arrivals | None:
        """The packets inside those of a twin; None if they have to be taken one by one."""
        found = None if (matrix := unwrapped_many(bodies)) is None else uniform(matrix)
        if found is None or found.heads["flags"][0] or not self._belongs(found.category, twin):
            return None
        return None if (found.heads["publisher"] == np.uint64(self.own)).any() else found

    def _belongs(self, category: int, twin: int) -> bool:
        edge = self.edges.get(category)
        return edge is not None and edge.twin == self.directs[twin]

    def _take_many(self, arrivals: Arrivals, now: int, directed: bool) -> bool:
        """The whole chain for many packets at once; False if they have to go one by one."""
        edge = self.edges.get(arrivals.category)
        if edge is None or not len(edge) or edge.layout is None or edge.layout.size != arrivals.bodies.shape[1]:
            return False
        self.received += len(arrivals)
        heads = arrivals.heads
        fresh = self.window.fresh_many(heads["publisher"], heads["incarnation"], heads["sequence"])
        # What nobody wants is not even made an event.
        sound, which, batch, keys = edge.wanted(arrivals.matrix, fresh)
        self.malformed += int(np.count_nonzero(fresh)) - len(sound)
        if self.entitlements.first:
            some = heads[sound[which]]
            sources = zip(some["publisher"].tolist(), some["incarnation"].tolist(), strict=True)
            own_keys = self.entitlements.due_many(each_of(keys), sources, some["sequence"].tolist())
            due = np.array([bool(own) for own in own_keys], np.bool_)
            which, batch, keys = which[due], batch.take(due), [own for own in own_keys if own]
        wanted = sound[which]
        departures = heads["departure"][wanted].astype(np.int64)
        columns = (heads[name][wanted].tolist() for name in ("publisher", "sequence", "incarnation"))
        rows = zip(batch, keys, departures.tolist(), *columns, strict=True)
        sinks = self.sinks
        for event, own, departure, publisher, sequence, life in rows:
            delivery = Delivery(event, publisher, sequence, departure, now, None, False, False, life)
            if type(own) is int:
                sink = sinks.get(own)
                if sink is None or sink.accept(delivery):
                    continue
                self.stuck = (delivery, [own])
            elif self.offer(delivery, own):
                continue
            rest = ((Delivery(e, p, s, d, now, incarnation=i), some) for e, some, d, p, s, i in rows)
            self._ready_ones.extend((each, some if isinstance(some, list) else [some]) for each, some in rest)
            break
        latencies = (now - departures) / 1e9
        self.matched += len(wanted)
        self.recent.add_many(latencies)
        if self.observations is not None:
            self.observations.took(directed, len(wanted), float(latencies.sum()))
            if not directed:
                self.observations.many(arrivals.category, heads[wanted], np.ones(len(wanted), np.bool_))
        if len(wanted) < len(sound):
            self._unwanted(edge, arrivals, np.delete(sound, which), directed)
        return True

    def _unwanted(self, edge: Edge, arrivals: Arrivals, rows: npt.NDArray[np.int64], directed: bool) -> None:
        """Count those that came and that nobody wanted."""
        if arrivals.mixed:
            self.companions += len(rows)
            return
        heads = arrivals.heads[rows]
        if self.observations is not None and not directed:
            self.observations.many(arrivals.category, heads, np.zeros(len(heads), np.bool_))
        for hi, lo in zip(heads["hi"].tolist(), heads["lo"].tolist(), strict=True):
            self.blame(edge, hi << 64 | lo)

    def _hand_out(self) -> bool:
        while self._ready_ones:
            if not self.offer(*self._ready_ones.popleft()):
                return False
        return True

    def resume(self, now: int) -> bool:
        """Go on after a full queue has room; True if everything that was held is delivered."""
        if self.stuck is not None:
            (delivery, keys), self.stuck = self.stuck, None
            if not self.offer(delivery, keys):
                return False
        if not self._hand_out():
            return False
        while self._held:
            self.received += 1
            if not self._deliver(self._held.popleft(), now):
                return False
        return True

    def expire(self, now: int) -> None:
        """Deliver what was held for long enough."""
        self._release(self.handovers.expired(now), now)

    def _release(self, packets: Iterable[Packet], now: int) -> bool:
        """Deliver what was held; False if a queue is full, and the rest waits in front of all else."""
        waiting = iter(packets)
        while self.stuck is None:
            if (packet := next(waiting, None)) is None:
                return True
            self._pass(packet, now)
        rest = list(waiting)
        self.received -= len(rest)
        self._held.extendleft(reversed(rest))
        return False

    def _deliver(self, packet: Arrival, now: int) -> bool:
        if packet.category in self.directs:
            return self._deliver_inside(packet, now)
        if self.handovers.open and isinstance(packet, Packet) and self.handovers.holds(packet):
            return self._release(self.handovers.excess(), now)
        return self._pass(packet, now)

    def _deliver_inside(self, outer: Arrival, now: int) -> bool:
        try:
            packet = unwrapped(outer.body)
            marker = marker_of(packet) if packet.flags else None
        except CodecError:
            return self._deliver_several(outer, now)
        if not self._belongs(packet.category, outer.category):
            self.strangers += 1
            return True
        match marker:
            case Begin():
                return self._release(self.handovers.begin(marker, now), now)
            case End():
                return self._release(self.handovers.end(marker), now)
            case Cached():
                return self.cached(packet, now)
        return self._deliver_directed(outer.publisher, packet, now)

    def _deliver_directed(self, component: int, packet: Packet, now: int) -> bool:
        self.directed += 1
        if packet.publisher == self.own:
            return True
        self._pass(packet, now, directed=True)
        return self._release(self.handovers.directed(component, packet), now)

    def _deliver_several(self, outer: Arrival, now: int) -> bool:
        """Several packets that came as one: events, or packets of a cache's stream."""
        if not self.handovers.open:
            inside = self._inside(np.frombuffer(outer.body, np.uint8).reshape(1, -1), outer.category)
            if inside is not None and self._take_many(inside, now, True):
                self.received -= 1
                self.directed += len(inside)
                return self.stuck is None
        try:
            packets = several(outer.body)
        except CodecError:
            self.malformed += 1
            return True
        self.received += len(packets) - 1
        if not self._belongs(packets[0].category, outer.category):
            self.strangers += len(packets)
            return True
        for i, packet in enumerate(packets):
            if packet.flags:
                self.cached(packet, now)
            elif not self._deliver_directed(outer.publisher, packet, now):
                rest = [alone(outer, each) for each in packets[i + 1 :]]
                self.received -= len(rest)
                self._held.extendleft(reversed(rest))  # in front of all else, as if each had come singly
                return False
        return True

    def _pass(self, packet: Arrival, now: int, directed: bool = False) -> bool:
        if not self.window.fresh(packet.publisher, packet.incarnation, packet.sequence):
            return True
        edge = self.edges.get(packet.category)
        if edge is None or not edge.subscriptions:
            self.strangers += 1
            return True
        try:
            event = None if edge.layout is None else edge.layout.decode_one(packet.body)
            if event is None:
                event = self._decode(edge.schema, packet.body)
        except CodecError:
            self.malformed += 1
            return True
        keys = (edge.segments or edge).match(event)
        if self.entitlements.first:
            keys = self.entitlements.due(keys, (packet.publisher, packet.incarnation), packet.sequence)
        if (seen := self.observations) is not None:
            took = now - packet.departure if len(keys) else None
            if not directed:
                seen.single(packet.category, packet.code, packet.publisher, took)
            elif took is not None:
                seen.took(True, 1, took / 1e9)
        if not len(keys):
            self.blame(edge, packet.code)
            return True
        stamp = None
        if event.payload and event.payload.startswith(MARK):
            try:
                event, stamp = unstamped(event)
            except CodecError:
                self.malformed += 1
                return True
        self.matched += 1
        delivery = Delivery(
            event, packet.publisher, packet.sequence, packet.departure, now, stamp, incarnation=packet.incarnation
        )
        if len(keys) == 1:
            # As `offer` does, for the common case.
            sink = self.sinks.get(keys[0])
            taken = sink is None or sink.accept(delivery)
            if not taken:
                self.stuck = (delivery, [keys[0]])
        else:
            taken = self.offer(delivery, keys)
        self.recent.add((now - packet.departure) / 1e9)
        return taken

    def offer(self, delivery: Delivery, keys: Iterable[int]) -> bool:
        """Offer a delivery to the sinks of these keys; False if some could not take it, and it waits for them."""
        stuck = [key for key in keys if (sink := self.sinks.get(key)) is not None and not sink.accept(delivery)]
        if stuck:
            self.stuck = (delivery, stuck)
        return not stuck

    def blame(self, edge: Edge, code: int) -> None:
        """Nobody wanted an event of this code."""
        self.false_positives += 1
        if len(self._puzzles) == PUZZLES:
            self._puzzles.popleft()
            self.unexplained += 1
        self._puzzles.append((edge, code))
        if self._ready() and edge.learn(_FEW):
            self.explain()

    def explain(self) -> None:
        """Say of every false positive that waits whose cells drew it in, as far as cells are known, or soon found."""
        while self._puzzles and self._puzzles[0][0].learn(_COVERS):
            edge, code = self._puzzles.popleft()
            keys = edge.blame(code)
            if not keys:
                self.unexplained += 1
            for key in keys:
                if (sink := self.sinks.get(key)) is not None:
                    sink.false_positives += 1

    def statistics(self) -> ReceiverStatistics:
        """Counts since the node began."""
        return ReceiverStatistics(
            self.received,
            self.matched,
            self.false_positives,
            self.unexplained,
            self.window.duplicates,
            self.window.late,
            self.malformed,
            self.strangers,
            directed=self.directed,
            hasty=self.handovers.hasty,
            companions=self.companions,
        )
