"""Tracing one event: which switch, which flow, which ports, who gets it.

Works on any tables, so on any data plane: give it the topology, the tables and where the
event comes in.

    s7 in 3
      1:0110 → 1,1002
      1 → s3    1002 → carol
      s3 in 4
        no flow: dropped
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sievenet.network.flow import Flow
from sievenet.network.table import FlowTable
from sievenet.network.topology import Attachment, Topology

__all__ = ["Hop", "Out", "Trace", "trace"]


class Out(msgspec.Struct, frozen=True):
    """One port by which the event leaves a switch."""

    port: int
    #: The switch, host or client there; None if nobody is.
    to: str | None
    #: Why it does not get further, if it does not.
    stopped: str | None = None


class Hop(msgspec.Struct, frozen=True):
    """The event at one switch."""

    switch: str
    in_port: int
    depth: int
    #: The flows that decide; none means that it is dropped here.
    flows: tuple[Flow, ...]
    outs: tuple[Out, ...]


class Trace(msgspec.Struct, frozen=True):
    """An event's way through the network."""

    category: int
    code: int
    hops: tuple[Hop, ...]
    #: Hosts and clients that get it.
    reached: tuple[str, ...]

    def __str__(self) -> str:
        lines = []
        for hop in self.hops:
            pad = "  " * hop.depth
            lines.append(f"{pad}{hop.switch} in {hop.in_port}")
            if not hop.flows:
                lines.append(f"{pad}  no flow: dropped")
            lines.extend(f"{pad}  {flow}" for flow in hop.flows)
            if hop.outs:
                lines.append(f"{pad}  " + "    ".join(_said(out) for out in hop.outs))
        lines.append(f"reached: {', '.join(self.reached) or 'nobody'}")
        return "\n".join(lines)


def _said(out: Out) -> str:
    said = f"{out.port} → {out.to or 'nobody'}"
    return f"{said} ({out.stopped})" if out.stopped else said


def trace(
    topology: Topology,
    table: Callable[[str], FlowTable] | Mapping[str, FlowTable],
    clients: Mapping[Attachment, str],
    start: Attachment,
    category: int,
    code: int,
    *,
    down_switches: frozenset[str] = frozenset(),
    down_links: frozenset[tuple[str, str]] = frozenset(),
) -> Trace:
    """Follow an event from where it comes in; `clients` says who is at the ports that the topology does not know."""
    look = table if callable(table) else table.__getitem__
    hops: list[Hop] = []
    reached: list[str] = []
    seen = {start}
    stack = [(start, 0)]
    while stack:
        here, depth = stack.pop()
        switch, in_port = here
        if switch in down_switches:
            continue
        flows = look(switch).decide(category, code, in_port)
        outs: list[Out] = []
        onward: list[tuple[Attachment, int]] = []
        for port in sorted(frozenset[int]().union(*(flow.ports for flow in flows)) - {in_port}):
            peer = topology.ports(switch).get(port)
            to = peer if peer is not None else clients.get(Attachment(switch, port))
            stopped = None
            if peer is not None and topology.link(switch, peer).id in down_links:
                stopped = "link down"
            elif to is None:
                stopped = "nobody there"
            elif peer is not None and peer in down_switches:
                stopped = "switch down"
            elif peer is not None and topology.is_switch(peer):
                far = Attachment(*topology.peer_port(switch, port))
                if far in seen:
                    stopped = "a circle"
                else:
                    seen.add(far)
                    onward.append((far, depth + 1))
            else:
                reached.append(to)
            outs.append(Out(port, to, stopped))
        hops.append(Hop(switch, in_port, depth, flows, tuple(outs)))
        stack.extend(reversed(onward))
    return Trace(category, code, tuple(hops), tuple(reached))
