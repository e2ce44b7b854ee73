"""Changes: what to tell the switches, in two steps.

`Difference` is given the dz whose out ports changed, as masks of wires over the whole network before and after, and
takes them apart by switch.  The order of the two steps is explained in `registrations`.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from sievenet.control.wires import Wires
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Changes", "Difference"]


class Changes(msgspec.Struct):
    """What to tell the switches: everything of `first` before anything of `second`."""

    #: What adds delivery.
    first: dict[str, list[FlowChange]] = {}
    #: What takes away what nobody needs any more.
    second: dict[str, list[FlowChange]] = {}
    #: The flows that `second` will change or delete, as they are until then.
    between: dict[str, list[Flow]] = {}
    #: Every wire in use where anything changed.
    used: int = 0

    def __bool__(self) -> bool:
        return bool(self.first or self.second)


class Spheres(dict[int, int]):
    """For some wires, all wires of the switches they leave from."""

    def __init__(self, wires: Wires) -> None:
        super().__init__()
        self._wires = wires

    def __missing__(self, mask: int) -> int:
        out = self._wires.out
        sphere = self[mask] = sum(map(out.__getitem__, self._wires.switches(mask)))
        return sphere


class Difference:
    """Collects the changes of nodes that are added parents first."""

    def __init__(self, wires: Wires, dead: int) -> None:
        self._wires = wires
        self._alive = ~dead
        self._added: defaultdict[str, list[FlowChange]] = defaultdict(list)
        self._grown: defaultdict[str, list[FlowChange]] = defaultdict(list)
        self._covered: defaultdict[str, list[FlowChange]] = defaultdict(list)
        self._second: defaultdict[str, list[FlowChange]] = defaultdict(list)
        self._between: defaultdict[str, list[Flow]] = defaultdict(list)
        self._used = 0
        self.sphere = Spheres(wires)

    def add(self, match: Match, length: int, old: int, now: int, old_new: int, now_new: int) -> None:
        """A node with P and the wires new at it, before and after."""
        self._used |= now
        wires, alive = self._wires, self._alive
        owner, out, ports = wires.owner, wires.out, wires.ports
        # A switch is concerned if it has a flow here before or after and anything differs.
        either, differing = old_new | now_new, old ^ now | old_new ^ now_new
        fewer, other = (either, differing) if either.bit_count() < differing.bit_count() else (differing, either)
        while fewer:  # as `Wires.switches`, here for speed
            switch = owner[fewer.bit_length() - 1]
            mask = out[switch]
            fewer &= ~mask
            if not other & mask:
                continue
            before, after = old & mask, now & mask
            had, has = old_new & mask, now_new & mask
            if before == after and had and has:
                continue
            between = before & alive | after
            flow = Flow(match, ports(between), length)
            if has:
                if not had:
                    self._added[switch].append(Add(flow))
                elif between != before:
                    self._grown[switch].append(Modify(flow))
                if between != after:
                    self._second[switch].append(Modify(Flow(match, ports(after), length)))
                    self._between[switch].append(flow)
            elif between == after:
                # What takes over sends to at least as many: deleting adds delivery.
                self._covered[switch].append(Delete(flow))
            else:
                if between != before:
                    self._grown[switch].append(Modify(flow))
                self._second[switch].append(Delete(flow))
                self._between[switch].append(flow)

    def changes(self) -> Changes:
        """Additions first, then modifications, then deletions with the shorter dz before the longer."""
        first = self._added
        for more in (self._grown, self._covered):
            for switch, changes in more.items():
                first[switch] += changes
        return Changes(dict(first), dict(self._second), dict(self._between), self._used)
