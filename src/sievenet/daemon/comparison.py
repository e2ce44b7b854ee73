"""What switches hold, compared with what the control plane believes they hold: the answer to the question ``check``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sievenet.control.plane import ControlPlane
from sievenet.daemon.planes import AnyPlane

__all__ = ["comparison"]


async def comparison(control: ControlPlane, plane: AnyPlane, switches: Sequence[str]) -> dict[str, Any]:
    """The switches whose tables differ, with what is missing and what is too much."""
    differing = []
    for switch in switches:
        await asyncio.sleep(0)
        held, believed = set(await plane.table(switch)), set(control.table(switch))
        if held != believed:
            differing.append(
                {
                    "switch": switch,
                    "missing": sorted(str(flow) for flow in believed - held),
                    "surplus": sorted(str(flow) for flow in held - believed),
                }
            )
    return {"ok": not differing, "switches": len(switches), "differing": differing}
