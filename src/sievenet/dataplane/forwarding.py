"""Carrying packets from switch to switch.

Pure forwarding over switches, pipes and ports; when a packet has to wait, a scheduler
calls back.  What makes it fast is that most packets do not wait: across perfect pipes a
packet *walks* the whole tree in one go, and walks are remembered.

    ingress port, category, code  ──▶  Walk: flows hit, ports passed, clients reached,
                                             pipes that take time

Codes differ from event to event, so walks are remembered not by code but by *class*: all
boundaries of all flows of a category, over all switches, cut the code space into intervals
within which every packet fares alike.  The class of a code is one binary search.  A change
of a flow adds at most two boundaries and makes the network forget the walks of the classes
between them, no others, so that subscribing does not slow down what it does not concern.
Boundaries that are no longer needed only make classes finer than necessary and are swept when
they prevail.  Where flows have masks, the class of a code is the list of flows that decide it (`signatures`).

Counters cost one addition per packet: a walk counts for all flows and ports it touches, and
passes the sum on when somebody looks or when it goes stale.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

from sievenet.dataplane.classes import Classes
from sievenet.dataplane.classifier import Entry
from sievenet.dataplane.plane import PortCount
from sievenet.dataplane.signatures import Route, Signatures
from sievenet.dataplane.switch import Switch
from sievenet.dataplane.walks import Decide, Port, Walk, follow
from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS
from sievenet.network.flow import Delete, FlowChange
from sievenet.network.topology import Topology
from sievenet.simulation import Pipe, Scheduler

__all__ = ["Forwarding"]

#: Walks remembered per ingress port before all of them are forgotten.
_MAX_WALKS: Final = 1 << 16
#: A change that concerns more classes than this makes the network forget all walks.
_MANY_CLASSES: Final = 64
#: Packets under way on slow pipes at most; more are dropped and counted.
MAX_IN_FLIGHT: Final = 1 << 20
#: And their bytes.
MAX_BYTES: Final = 256 << 20
_END: Final = 1 << CODE_BITS


class Forwarding:
    """Switches joined by pipes."""

    def __init__(self, topology: Topology, scheduler: Scheduler, *, seed: int = 0, capacity: int | None = None) -> None:
        self.topology: Final = topology
        self.scheduler: Final = scheduler
        self.switches: Final = {name: Switch(name, capacity) for name in topology.switches}
        self.down_switches: Final[set[str]] = set()
        self.down_links: Final[set[tuple[str, str]]] = set()
        #: Packets dropped because too many were under way, and those cut off in a circle.
        self.overflowed = 0
        self.looped = 0
        self.in_flight = self.in_flight_bytes = 0
        #: Who else has counts to pass on when somebody looks.
        self.settlers: Final[list[Callable[[], None]]] = []
        #: Counts changes of client ports.
        self.attachments = 0
        #: What clients' ports that are gone have counted, by switch.
        self.departed: dict[str, PortCount] = {}
        self._rng = random.Random(seed)
        #: Ports that remember walks.
        self._walking: set[Port] = set()
        self._classes: dict[int, Classes | Signatures] = {}
        self._pipes: dict[tuple[str, str], Pipe] = {}
        for link in topology.links:
            for ends in ((link.a, link.b), (link.b, link.a)):
                self._pipes[ends] = Pipe.of(link.settings, scheduler, self._rng)
        self.ports: Final[dict[tuple[str, int], Port]] = {}
        for switch in topology.switches:
            for number, peer in topology.ports(switch).items():
                self.ports[switch, number] = self._port(switch, number, peer)
        for (switch, number), port in self.ports.items():
            peer, far = topology.peer_port(switch, number)
            port.far = self.ports.get((peer, far))

    def _port(self, switch: str, number: int, peer: str) -> Port:
        return Port(self.switches[switch], number, self._pipes[switch, peer], self._pipes[peer, switch])

    # -- what it consists of -------------------------------------------------------------------

    def add_port(self, switch: str, number: int, host: str) -> Port:
        """A client's port: it shares the pipes of its host's link."""
        port = self.ports[switch, number] = self._port(switch, number, host)
        self.attachments += 1
        self._forget()
        return port

    def remove_port(self, port: Port) -> None:
        """Take a client's port away."""
        self.settle()
        self._forget()
        name = port.switch.name
        self.departed[name] = self.departed.get(name, PortCount()) + port.counters()
        del self.ports[name, port.number]
        self.attachments += 1
        self._forget()

    def install(self, switch: str, changes: Sequence[FlowChange]) -> None:
        """Carry out changes on a switch; `Rejected` and none of them if they do not fit."""
        target = self.switches[switch]
        target.apply(changes)
        for change in changes:
            match = change.flow.match
            classes = self._classes.get(match.category)
            if classes is None:
                classes = self._classes[match.category] = Classes()
            if isinstance(classes, Signatures):
                self._note(classes, target, change)
                continue
            value, mask = match.bits
            if match.is_prefix:
                classes.note(value, mask)
                if self._walking:
                    self._forget_between(match.category, classes, value, value + (_END - mask))
            else:
                self._sweep(match.category)  # signatures, from now on
            if len(classes.known) > classes.sweep_at:
                self._sweep(match.category)

    def _note(self, classes: Signatures, target: Switch, change: FlowChange) -> None:
        """A flow among those under masks has changed."""
        flow = change.flow
        classifier = target.classifier(flow.match.category)
        classes.note(target.name, flow, None if classifier is None else classifier.get(flow))
        if classes.picky:
            self._forget()
        gone = isinstance(change, Delete) and not flow.match.is_prefix
        if classes.stale or (gone and not self._irregular(flow.match.category)):  # dz alone, from now on
            self._sweep(flow.match.category)

    def _forget(self) -> None:
        """All walks may be wrong now."""
        for port in self._walking:
            for walk in port.walks.values():
                walk.settle()
            port.walks.clear()
        self._walking.clear()
        for classes in self._classes.values():
            if isinstance(classes, Signatures):
                classes.routes.clear()

    @staticmethod
    def _forget_walk(port: Port, key: int | bytes) -> None:
        walk = port.walks.pop(key, None)
        if walk is not None:
            walk.settle()

    def _irregular(self, category: int) -> bool:
        """Whether any flow of a category has a mask with holes."""
        found = (switch.classifier(category) for switch in self.switches.values())
        return any(classifier is not None and classifier.irregular for classifier in found)

    def _forget_between(self, category: int, classes: Classes, start: int, end: int) -> None:
        """The walks of codes in [start, end), both of which are boundaries, may be wrong now."""
        starts = classes.merge()
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        if last - first > _MANY_CLASSES:
            self._forget()
            return
        for boundary in starts[first:last]:
            key = boundary | category << CODE_BITS
            for port in self._walking:
                self._forget_walk(port, key)

    def signatures(self, category: int) -> Signatures | None:
        """The classes of a category whose flows have masks."""
        classes = self._classes.get(category)
        return classes if isinstance(classes, Signatures) else None

    def set_switch(self, name: str, up: bool, keep_table: bool = False) -> bool:
        """Take a switch down (it forgets its table unless told otherwise) or up; whether that is news."""
        if name not in self.switches:
            raise InvalidInput(expected="a switch", got=name, where="data plane")
        if up != (name in self.down_switches):
            return False
        self._forget()
        if up:
            self.down_switches.discard(name)
        else:
            self.down_switches.add(name)
            if not keep_table:
                self.switches[name].clear()
                for category, classes in list(self._classes.items()):
                    if isinstance(classes, Signatures):
                        self._sweep(category)
        return True

    def set_link(self, a: str, b: str, up: bool) -> bool:
        """Take a link down or up; whether that is news."""
        ends = self.topology.link(a, b).id
        if up != (ends in self.down_links):
            return False
        self._forget()
        (self.down_links.discard if up else self.down_links.add)(ends)
        for pipe in (self._pipes[a, b], self._pipes[b, a]):
            pipe.up = up
            pipe.reset()
        return True

    @property
    def immediate(self) -> bool:
        """Whether a packet is through the network in the turn in which it came: no link takes time."""
        return all(pipe.perfect for pipe in self._pipes.values())

    def link_pipes(self, a: str, b: str) -> tuple[Pipe, Pipe]:
        """Both directions of a link, from a to b first."""
        self.topology.link(a, b)
        return self._pipes[a, b], self._pipes[b, a]

    # -- carrying packets ------------------------------------------------------------------------

    def inject(self, port: Port, category: int, code: int, item: Any, size: int) -> None:
        """A host or client sends a packet into its port."""
        pipe = port.pipe_in
        if pipe.perfect and pipe.up:
            self.accept(port, category, code, item, size)
        else:
            self._cross(pipe, None, port, category, code, item, size, 0)

    def accept(self, port: Port, category: int, code: int, item: Any, size: int, hops: int = 0) -> None:
        """A packet has come in by a port."""
        classes = self._classes.get(category)
        key: int | bytes
        if classes is None:
            key = category << CODE_BITS  # no flows anywhere: all codes fare alike
        elif isinstance(classes, Signatures):
            key = classes.key(code)
        else:
            starts = classes.merge() if classes.pending else classes.starts
            key = starts[bisect_right(starts, code) - 1] | category << CODE_BITS
        walk = port.walks.get(key)
        if walk is None:
            walk = self._remember(port, key, category, code)
        walk.packets += 1
        walk.bytes += size
        for out in walk.outputs:
            listener = out.listener
            if listener is not None:
                listener(item, size)
            else:
                out.dropped += 1
        if walk.crossings:
            if hops >= len(self.switches):
                self.looped += 1
                return
            for out in walk.crossings:
                self._cross(out.pipe_out, out, out.far, category, code, item, size, hops + 1)

    def _remember(self, port: Port, key: int | bytes, category: int, code: int) -> Walk:
        if len(port.walks) >= _MAX_WALKS:
            self._forget()
        self._walking.add(port)
        classes = self._classes.get(category)
        if isinstance(classes, Signatures) and not classes.picky:
            assert isinstance(key, bytes)
            walk = self._followed(port, classes, key)
        else:
            walk = self.walk(port, category, code)
        port.walks[key] = walk
        return walk

    def _sweep(self, category: int) -> None:
        """Forget the boundaries, or cells, of flows that are gone."""
        self._forget()
        known = [(s.name, c.entries()) for s in self.switches.values() if (c := s.classifier(category)) is not None]
        fresh: Classes | Signatures
        if self._irregular(category):
            fresh = Signatures(category)
            for name, entries in known:
                for entry in entries:
                    fresh.note(name, entry.flow, entry)
            fresh.sweep_at = max(fresh.sweep_at, 2 * sum(len(entries) for _, entries in known))
        else:
            fresh = Classes()
            for match in {entry.flow.match for _, entries in known for entry in entries}:
                fresh.note(*match.bits)
            fresh.sweep_at = max(fresh.sweep_at, 2 * len(fresh.known))
        self._classes[category] = fresh

    def _followed(self, port: Port, classes: Signatures, key: bytes) -> Walk:
        """Where packets of a signature go at once: most often as others went before."""
        deciding, effects = classes.deciding(key)
        route = classes.routes.get((port, effects))
        if route is None:
            at: dict[str, list[Entry]] = {}
            for name, entry in deciding:
                at.setdefault(name, []).append(entry)
            walk = self._walk(port, lambda came: at.get(came.switch.name, ()))
            came_to = {port.switch.name, *(out.far.switch.name for out in walk.passed if out.far is not None)}
            classes.remember(port, effects, Route(walk, frozenset(came_to)))
            return walk
        walk, model = Walk(port), route.walk
        walk.alive, walk.unmatched, walk.passed = model.alive, model.unmatched, model.passed
        walk.outputs, walk.crossings, walk.dead = model.outputs, model.crossings, model.dead
        walk.hits = [entry for name, entry in deciding if name in route.switches]
        return walk

    def walk(self, port: Port, category: int, code: int) -> Walk:
        """Where a packet goes at once.  Counts nothing."""
        classes = self._classes.get(category)
        if isinstance(classes, Signatures) and classes.picky:
            cells = classes.cells(classes.key(code))
            return self._walk(port, lambda came: came.switch.decide(category, cells, came.number))
        return self._walk(port, lambda came: came.switch.lookup(category, code, came.number))

    def _walk(self, port: Port, decide: Decide) -> Walk:
        return follow(port, decide, self.ports, self.down_switches)

    def _cross(
        self,
        pipe: Pipe,
        out: Port | None,
        into: Port | None,
        category: int,
        code: int,
        item: Any,
        size: int,
        hops: int,
    ) -> None:
        """Send a packet over a pipe that takes time or chances."""
        scheduler = self.scheduler
        arrival = pipe.offer(size) if pipe.up else None
        if arrival is None or self.in_flight >= MAX_IN_FLIGHT or self.in_flight_bytes + size > MAX_BYTES:
            self.overflowed += arrival is not None
            blamed = out if out is not None else into
            if blamed is not None:
                blamed.dropped += 1
            return
        if out is not None:
            out.sent += 1
            out.sent_bytes += size
        self.in_flight += 1
        self.in_flight_bytes += size
        scheduler.call_at(arrival, self._arrive, pipe, out, into, category, code, item, size, hops)

    def _arrive(
        self,
        pipe: Pipe,
        out: Port | None,
        into: Port | None,
        category: int,
        code: int,
        item: Any,
        size: int,
        hops: int,
    ) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= size
        if not pipe.up:
            pipe.lost += 1
        elif into is not None:
            if self.ports.get((into.switch.name, into.number)) is not into:
                return  # a client sent this and left
            self.accept(into, category, code, item, size, hops)
        elif out is not None and out.listener is not None:
            out.listener(item, size)
        elif out is not None:
            out.dropped += 1

    # -- counters ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring all counters up to date."""
        for settler in self.settlers:
            settler()
        for port in self._walking:
            for walk in port.walks.values():
                if walk.packets:
                    walk.settle()

    def port_counters(self, switch: str) -> dict[int, PortCount]:
        """What the ports of a switch have counted."""
        self.settle()
        return {number: port.counters() for (name, number), port in self.ports.items() if name == switch}
