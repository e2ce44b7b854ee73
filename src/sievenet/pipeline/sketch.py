"""A sketch of a network: switches in rows, hosts below, links as thick as the packets that they carry.

    row 2           [s1]              far from hosts: the core
                    ┃  │
    row 1        [s2]  [s3]
                  ┃      │
    row 0        [s4]  [s5] …         access switches; hosts are dots below them

A switch's row is its distance to the nearest switch with hosts.  Both directions of a link are one line, and so are all
clients of a host; the pointer shows each direction.  Several sketches of one network share a scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from sievenet.network import Topology
from sievenet.network.link import natural
from sievenet.pipeline.chart import COLOURS, WIDTH, document, number, text

__all__ = ["Packets", "carried", "sketch"]

#: Packets per direction of a link between two nodes of a topology.
Packets = Mapping[tuple[str, str], int]
_ROW: Final = 78.0
_THICK: Final = 14.0


def carried(links: Packets, hosts: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """The same with clients (and publishers) replaced by their hosts."""
    found: dict[tuple[str, str], int] = {}
    for (a, b), packets in links.items():
        ends = (hosts.get(a, a), hosts.get(b, b))
        found[ends] = found.get(ends, 0) + packets
    return found


def sketch(
    topology: Topology, links: Packets, most: int | None = None, shades: Mapping[str, float] | None = None
) -> str:
    """The network; ``most`` packets of a link are drawn thickest, and switches are green as ``shades`` say (0 to 1)."""
    rows = _rows(topology)
    places = _places(topology, rows)
    both = {(k.a, k.b): links.get((k.a, k.b), 0) + links.get((k.b, k.a), 0) for k in topology.links}
    top = most or max(both.values(), default=0) or 1
    parts: list[str] = []
    for (a, b), packets in sorted(both.items(), key=lambda item: item[1]):
        (ax, ay), (bx, by) = places[a], places[b]
        wide = 1.0 + (_THICK - 1.0) * math.sqrt(packets / top) if packets else 0.6
        ways = [f"{x} → {y}: {number(links.get((x, y), 0))}" for x, y in ((a, b), (b, a))]
        parts.append(
            f"<line x1='{ax:.1f}' y1='{ay:.1f}' x2='{bx:.1f}' y2='{by:.1f}' stroke='{COLOURS[1 if packets else 0]}' "
            f"stroke-opacity='{0.35 + 0.5 * packets / top:.2f}' stroke-width='{wide:.1f}' stroke-linecap='round'>"
            f"<title>{'&#10;'.join(ways)}</title></line>"
        )
    many = len(topology.hosts) > 40
    for name, (x, y) in places.items():
        if topology.is_switch(name):
            half = 8 + 3.2 * len(name)
            share = (shades or {}).get(name)
            fill = "#fff" if share is None else COLOURS[2]
            shade = "" if share is None else f" fill-opacity='{0.08 + 0.85 * share:.2f}'"
            parts.append(
                f"<rect x='{x - half:.1f}' y='{y - 11:.1f}' width='{2 * half:.1f}' height='22' rx='5' "
                f"fill='{fill}'{shade} stroke='#555'/>"
                f"<text x='{x:.1f}' y='{y + 4:.1f}' text-anchor='middle' style='fill:#222'>{name}</text>"
            )
        else:
            parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{COLOURS[3]}'><title>{name}</title></circle>")
            if not many:
                parts.append(text(x, y + 17, name, "middle", 10))
    return document((max(rows.values(), default=0) + 2) * _ROW, parts)


def _rows(topology: Topology) -> dict[str, int]:
    """The distance of each switch to the nearest one with hosts."""
    rows = {topology.attachment(host).switch: 0 for host in topology.hosts} or dict.fromkeys(topology.switches, 0)
    waiting = list(rows)
    for switch in waiting:
        for other in topology.neighbours(switch):
            if other not in rows:
                rows[other] = rows[switch] + 1
                waiting.append(other)
    return {switch: rows.get(switch, 0) for switch in topology.switches}


def _places(topology: Topology, rows: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    highest = max(rows.values(), default=0)
    found: dict[str, tuple[float, float]] = {}
    for row in range(highest + 1):
        here = sorted((s for s in topology.switches if rows[s] == row), key=natural)
        for at, switch in enumerate(here):
            found[switch] = ((at + 0.5) * WIDTH / len(here), 24 + (highest - row) * _ROW)
    hosts: dict[str, list[str]] = {}
    for host in sorted(topology.hosts, key=natural):
        hosts.setdefault(topology.attachment(host).switch, []).append(host)
    crowd = max((sum(rows[s] == 0 for s in topology.switches), 1))
    for switch, own in hosts.items():
        x, _ = found[switch]
        room = min(34.0, WIDTH / crowd / max(1, len(own)))
        for at, host in enumerate(own):
            found[host] = (x + (at - (len(own) - 1) / 2) * room, 24 + (highest + 0.9) * _ROW)
    return found
