"""The stages of a plan change, as a table: in which stage what leads where.

    covering    the new registrations are worked out beside the old ones, a little at a time
    closing     new requests wait, the lanes run empty
    catching    every switch gets one flow of top priority: all of this category → every port in use before or after
    logging     the journal has it: from here on a crash finishes the change
    swapping    old flows are removed, new flows added below; requests go on
    telling     publishers use the new plan, each confirms
    draining    the slowest packet with an old code arrives
    ending      new requests wait again, the lanes run empty
    clearing    the catch-all flows are removed

    reverting   the journal has the old plan again
    aborting    the old flows are put back
    resuming    after a crash: catch again
    repairing   after a crash: put all tables right

`done` and `failed` are the end of what a stage began; `covered`, `rested` and `adopted` come from outside, and mean
nothing in other stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

__all__ = ["STAGES", "Signal", "Stage"]

Stage = Literal[
    "covering", "closing", "catching", "logging", "swapping", "telling", "draining", "ending", "clearing",
    "reverting", "aborting", "resuming", "repairing", "ended",
]  # fmt: skip
Signal = Literal["covered", "rested", "adopted", "done", "failed"]

STAGES: Final[Mapping[Stage, Mapping[Signal, Stage]]] = {
    "covering": {"covered": "closing", "failed": "ended"},
    "closing": {"rested": "catching", "failed": "ended"},
    "catching": {"done": "logging", "failed": "aborting"},
    "logging": {"done": "swapping", "failed": "aborting"},
    "swapping": {"done": "telling", "failed": "reverting"},
    "telling": {"adopted": "draining"},
    "draining": {"done": "ending"},
    "ending": {"rested": "clearing"},
    "clearing": {"done": "ended", "failed": "ended"},
    "reverting": {"done": "aborting"},
    "aborting": {"done": "ended", "failed": "ended"},
    "resuming": {"done": "repairing", "failed": "repairing"},
    "repairing": {"done": "telling", "failed": "telling"},
    "ended": {},
}
