"""What switches hold, compared with what the control plane believes they hold: the answer to the question ``check``.

While changes are on their way the two differ, though nothing is wrong: a switch is looked at again as long as there are
some, and what differs in every look is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from sievenet.control.plane import ControlPlane
from sievenet.daemon.planes import AnyPlane
from sievenet.network import Flow

__all__ = ["comparison"]

#: Seconds between two looks at switches that differ, and looks at most.
_PAUSE: Final = 0.1
_LOOKS: Final = 20

_Difference = tuple[set[Flow], set[Flow]]


async def comparison(control: ControlPlane, plane: AnyPlane, switches: Sequence[str]) -> dict[str, Any]:
    """The switches whose tables differ, with what is missing and what is too much."""
    differing: dict[str, _Difference] = {}
    for switch in switches:
        await asyncio.sleep(0)
        differing[switch] = await _difference(control, plane, switch)
    looks = 1
    # Two looks at least: a change may have ended between what a switch said and what is believed.
    while (differing := {s: each for s, each in differing.items() if any(each)}) and looks < _LOOKS:
        if looks > 1 and not control.under_way:
            break
        await asyncio.sleep(_PAUSE)
        for switch, (missing, surplus) in differing.items():
            less, more = await _difference(control, plane, switch)
            differing[switch] = missing & less, surplus & more
        looks += 1
    told = [
        {
            "switch": switch,
            "missing": sorted(str(flow) for flow in missing),
            "surplus": sorted(str(flow) for flow in surplus),
        }
        for switch, (missing, surplus) in differing.items()
    ]
    return {"ok": not told, "switches": len(switches), "differing": told}


async def _difference(control: ControlPlane, plane: AnyPlane, switch: str) -> _Difference:
    held, believed = set(await plane.table(switch)), set(control.table(switch))
    return believed - held, held - believed
