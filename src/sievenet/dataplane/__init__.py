"""What forwards: switches, links, and the planes that put them to work.

`plane` is the interface that `control` uses.  `Simulator` (virtual time) and
`EmbeddedDataPlane` (real time, UDP on loopback) drive the same `Switch`.
Importing it loads no numba.

Imports only `access`, `errors`, `index`, `jit`, `network`, `programs`, `session` and `simulation`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sievenet.dataplane.packet import MAX_BODY, Datagram, Packet, decode, encode, publisher_of
from sievenet.dataplane.plane import (
    Attached,
    Count,
    DataPlane,
    LinkDown,
    LinkUp,
    Notice,
    PortCount,
    SwitchCounters,
    SwitchDown,
    SwitchUp,
)

if TYPE_CHECKING:
    from sievenet.dataplane.embedded import EmbeddedDataPlane
    from sievenet.dataplane.fabric import ApplyFault
    from sievenet.dataplane.simulator import Simulator
    from sievenet.dataplane.switch import Switch
    from sievenet.dataplane.tracing import Trace, trace

__all__ = [
    "MAX_BODY",
    "ApplyFault",
    "Attached",
    "Count",
    "DataPlane",
    "Datagram",
    "EmbeddedDataPlane",
    "LinkDown",
    "LinkUp",
    "Notice",
    "Packet",
    "PortCount",
    "Simulator",
    "Switch",
    "SwitchCounters",
    "SwitchDown",
    "SwitchUp",
    "Trace",
    "decode",
    "encode",
    "publisher_of",
    "trace",
]

_LAZY = {
    "ApplyFault": "fabric",
    "EmbeddedDataPlane": "embedded",
    "Simulator": "simulator",
    "Switch": "switch",
    "Trace": "tracing",
    "trace": "tracing",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
