"""The queues of links with a bandwidth: what they had to drop, as the system counts it.

The program hands a packet to a device and is done; whether its queue was full, only the queue knows.  Asking takes a
process (`tc`), so that it is done for switches that have such links, and seldom.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final

from sievenet.dataplane import namespaces as ns
from sievenet.errors import Unavailable

__all__ = ["Queues"]

#: Seconds for which an answer is good.
_FRESH: Final = 0.5


class Queues:
    """The limited ports of a switch: number and device of each."""

    def __init__(
        self, namespace: str | None, devices: Mapping[int, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = () if namespace is None else ("-n", namespace)
        self._ports = {device: port for port, device in devices.items()}
        self._now = now
        self._asked = -_FRESH
        self._dropped: dict[int, int] = {}

    def dropped(self) -> Mapping[int, int]:
        """Packets that each queue dropped since it was made."""
        now = self._now()
        if self._ports and now - self._asked >= _FRESH:
            self._asked = now
            try:
                found = json.loads(ns.run("tc", *self._where, "-s", "-j", "qdisc", "show") or "[]")
            except (Unavailable, ValueError):
                return self._dropped
            for queue in found:
                port = self._ports.get(queue.get("dev", ""))
                if port is not None and queue.get("kind") == "tbf":
                    self._dropped[port] = int(queue.get("drops", 0))
        return self._dropped
