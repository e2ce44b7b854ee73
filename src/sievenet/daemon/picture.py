"""A picture of the network, as plain data: switches, hosts, links with what they carried, who is attached where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from sievenet.daemon.planes import AnyPlane
from sievenet.dataplane.embedded import EmbeddedDataPlane
from sievenet.dataplane.plane import PortCount
from sievenet.network.link import natural

__all__ = ["Picture"]

#: A picture is used again for so many times as long as it took.
_REST: Final = 20.0


class Picture:
    """The network of a plane."""

    def __init__(self, plane: AnyPlane, name: str) -> None:
        self._plane, self._name = plane, name
        self._made: dict[str, Any] | None = None
        self._until = 0.0

    def now(self) -> dict[str, Any]:
        """Switches, hosts, links, and who is attached where; of a large network at most some time old.

        However many ask, looking takes no more than a small share of the time.
        """
        begin = time.monotonic()
        if self._made is None or begin >= self._until:
            self._made = self._look()
            self._until = begin + _REST * (time.monotonic() - begin)
        return self._made

    def _look(self) -> dict[str, Any]:
        topology = self._plane.topology
        down_switches, down_links = self._plane.down()
        counted = {switch: self._ports(switch) for switch in topology.switches}
        clients: dict[str, list[str]] = {}
        for name, attached in self._plane.clients().items():
            clients.setdefault(attached.host, []).append(name)
        return {
            "name": self._name,
            "switches": [{"name": s, "up": s not in down_switches} for s in topology.switches],
            "hosts": [
                {
                    "name": host,
                    "switch": topology.attachment(host).switch,
                    "clients": sorted(clients.get(host, []), key=natural),
                }
                for host in topology.hosts
            ],
            "links": [
                {
                    "a": link.a,
                    "a_port": link.a_port,
                    "b": link.b,
                    "b_port": link.b_port,
                    "up": link.id not in down_links,
                    "packets": forth + back,
                    "forth": forth,
                    "back": back,
                }
                for link in topology.links
                for forth, back in [
                    (self._crossed(counted, link.b, link.b_port), self._crossed(counted, link.a, link.a_port))
                ]
            ],
            "ports": [
                {"client": name, "switch": attached.switch, **_carried(counted[attached.switch].get(attached.port))}
                for name, attached in sorted(self._plane.clients().items(), key=lambda item: natural(item[0]))
            ],
        }

    def _ports(self, switch: str) -> Mapping[int, PortCount]:
        """What its ports have counted; thousands of flows are not asked, where that is possible."""
        if isinstance(self._plane, EmbeddedDataPlane):
            return self._plane.forwarding.port_counters(switch)
        return self._plane.counters_now(switch).ports

    def _crossed(self, counted: Mapping[str, Mapping[int, PortCount]], node: str, port: int) -> int:
        """The packets that came to a node over the link at its port; of a host its switch knows what it sent there."""
        topology = self._plane.topology
        came = topology.is_switch(node)
        at = (node, port) if came else topology.peer_port(node, port)
        found = counted[at[0]].get(at[1])
        if found is None:
            return 0
        return found.received.packets if came else found.sent.packets


def _carried(found: PortCount | None) -> dict[str, int]:
    """The packets that a client's port took from it, and those that it gave to it."""
    return {"in": 0, "out": 0} if found is None else {"in": found.received.packets, "out": found.sent.packets}
