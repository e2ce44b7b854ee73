"""Ports, and the walks that they remember.

A walk is what happens to all packets of one class that come in by one port, as far as no pipe
takes time: see `forwarding`.  Counting costs one addition per packet, because a walk counts for
all flows and ports it touches, and passes the sums on when somebody looks (`settle`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sievenet.dataplane.classifier import Entry
from sievenet.dataplane.plane import Count, PortCount
from sievenet.dataplane.switch import Switch
from sievenet.simulation import Pipe

__all__ = ["Decide", "Port", "Walk", "follow"]


class Port:
    """A port of a switch, and what hangs on it."""

    __slots__ = (
        "dropped",
        "far",
        "listener",
        "number",
        "pipe_in",
        "pipe_out",
        "received",
        "received_bytes",
        "sent",
        "sent_bytes",
        "switch",
        "walks",
    )

    def __init__(self, switch: Switch, number: int, pipe_out: Pipe, pipe_in: Pipe) -> None:
        self.switch: Final = switch
        self.number: Final = number
        self.pipe_out: Final = pipe_out
        self.pipe_in: Final = pipe_in
        #: The port at the other end; None if a host or client is there.
        self.far: Port | None = None
        #: Who takes packets that leave here, if it is a host or client.
        self.listener: Callable[[Any, int], None] | None = None
        self.walks: Final[dict[int | bytes, Walk]] = {}
        self.received = self.received_bytes = self.sent = self.sent_bytes = self.dropped = 0

    def counters(self) -> PortCount:
        """What it has counted."""
        return PortCount(Count(self.received, self.received_bytes), Count(self.sent, self.sent_bytes), self.dropped)


class Walk:
    """What happens to the packets of one class that come in by one port, as far as no pipe takes time."""

    __slots__ = ("alive", "bytes", "came", "crossings", "dead", "hits", "outputs", "packets", "passed", "unmatched")

    def __init__(self, came: Port) -> None:
        #: The port it came in by, and whether its switch is up.
        self.came: Final = came
        self.alive = True
        self.packets = 0
        self.bytes = 0
        #: Flows that decided on the way.
        self.hits: list[Entry] = []
        #: Switches without a flow for it.
        self.unmatched: list[Switch] = []
        #: Ports by which it left for another switch, at once.
        self.passed: list[Port] = []
        #: Ports by which it reached a host or client, at once.
        self.outputs: list[Port] = []
        #: Ports whose pipe takes time or chances.
        self.crossings: list[Port] = []
        #: Ports whose pipe or far switch is down, or where it would have gone round in a circle.
        self.dead: list[Port] = []

    def settle(self) -> None:
        """Pass the counts on to flows and ports."""
        packets, size = self.packets, self.bytes
        if not packets:
            return
        self.packets = self.bytes = 0
        if not self.alive:
            self.came.dropped += packets
            return
        self.came.received += packets
        self.came.received_bytes += size
        for entry in self.hits:
            entry.packets += packets
            entry.bytes += size
        for switch in self.unmatched:
            switch.unmatched += packets
        for port in self.passed:
            port.sent += packets
            port.sent_bytes += size
            if port.far is not None:
                port.far.received += packets
                port.far.received_bytes += size
        for port in self.outputs:
            port.sent += packets
            port.sent_bytes += size
        for port in self.dead:
            port.dropped += packets


#: The entries that decide a packet that has come in by a port.
Decide: TypeAlias = Callable[[Port], Sequence[Entry]]


def follow(port: Port, decide: Decide, ports: Mapping[tuple[str, int], Port], down: Collection[str]) -> Walk:
    """Where a packet goes at once that comes in by a port; ``down`` are switches.  Counts nothing."""
    walk = Walk(port)
    if port.switch.name in down:
        walk.alive = False
        return walk
    stack = [port]
    seen = {port}
    while stack:
        came = stack.pop()
        switch = came.switch
        decision = decide(came)
        if not decision:
            walk.unmatched.append(switch)
            continue
        walk.hits += decision
        numbers = decision[0].flow.ports
        if len(decision) > 1:
            numbers = numbers.union(*(entry.flow.ports for entry in decision[1:]))
        for number in sorted(numbers):
            if number == came.number:
                continue
            out = ports.get((switch.name, number))
            if out is None:
                continue  # the client has left; its flows will follow
            far = out.far
            if not out.pipe_out.up or (far is not None and far.switch.name in down):
                walk.dead.append(out)
            elif not out.pipe_out.perfect:
                walk.crossings.append(out)
            elif far is None:
                walk.outputs.append(out)
            elif far in seen:
                walk.dead.append(out)
            else:
                walk.passed.append(out)
                seen.add(far)
                stack.append(far)
    return walk
