"""Real OpenFlow switches as a data plane: our own codec and driver, and networks of Open vSwitch.

Bytes: `numbers` (what the standard calls things), `messages`, `oxm` (matches and actions), `statistics`.  Meaning:
`translation` says which entries of a switch our flows are.  Talking: `connection` (no I/O), `channel` (its socket),
`handle` (one switch), `plane` (all of them, as a `DataPlane`), `effect`, `discovery`.  How hosts reach us: `inband`
and `tunnel`.  Open vSwitch on this machine: `buffers`, `ovs`.  May import what `dataplane` may; importing it opens
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sievenet.dataplane.openflow.ovs import OvsNetwork
    from sievenet.dataplane.openflow.plane import OpenFlowDataPlane

__all__ = ["OpenFlowDataPlane", "OvsNetwork"]

_LAZY = {"OpenFlowDataPlane": "plane", "OvsNetwork": "ovs"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
