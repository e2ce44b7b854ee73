"""Changes: what to tell the switches, in two steps.  Their order is explained in `registrations`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from sievenet.control.registrations.trie import Lookup
from sievenet.control.registrations.trie.layout import ADDED, COVERED, GROWN, LESSENED, NOTHING
from sievenet.control.routes import Wires
from sievenet.network import Add, Delete, Flow, FlowChange, Match, Modify

__all__ = ["Changes", "changes_of"]


class Changes(msgspec.Struct):
    """What to tell the switches: everything of `first` before anything of `second`."""

    #: What adds delivery.
    first: dict[str, Sequence[FlowChange]] = {}
    #: What takes away what nobody needs any more.
    second: dict[str, Sequence[FlowChange]] = {}
    #: The flows that `second` will change or delete, as they are until then.
    between: dict[str, Sequence[Flow]] = {}
    #: Every wire in use where anything changed.
    used: int = 0

    def __bool__(self) -> bool:
        return bool(self.first or self.second)


def changes_of(category: int, wires: Wires, found: Lookup) -> Changes:
    """What a walk found: additions first, then modifications, then deletions with the shorter dz before the longer."""
    first: defaultdict[str, list[FlowChange]] = defaultdict(list)
    grown: defaultdict[str, list[FlowChange]] = defaultdict(list)
    covered: defaultdict[str, list[FlowChange]] = defaultdict(list)
    second: defaultdict[str, list[FlowChange]] = defaultdict(list)
    between: defaultdict[str, list[Flow]] = defaultdict(list)
    matches = [(Match(category, dz), dz.length) for dz in found.places]
    names, ports, masks, size = wires.names, wires.ports, found.masks, found.size
    at = 0
    for place, number, now, then in found.rows:
        (match, length), switch = matches[place], names[number]
        middle = at + size
        flow = Flow(match, ports(masks[at:middle]), length)
        at = middle + size
        if now == ADDED:
            first[switch].append(Add(flow))
        elif now == GROWN:
            grown[switch].append(Modify(flow))
        elif now == COVERED:
            covered[switch].append(Delete(flow))
        if then != NOTHING:
            after = Modify(Flow(match, ports(masks[middle:at]), length)) if then == LESSENED else Delete(flow)
            second[switch].append(after)
            between[switch].append(flow)
    for more in (grown, covered):
        for switch, changes in more.items():
            first[switch] += changes
    return Changes(dict(first), dict(second), dict(between), found.used)
