"""What a walk found, as flow changes that are made one by one: what columns are compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sievenet.control.registrations import Changes
from sievenet.control.registrations.trie.layout import ADDED, COVERED, GROWN, LESSENED, NOTHING, Told
from sievenet.control.routes import Wires
from sievenet.index import CODE_BITS, Dz
from sievenet.index.code import joined
from sievenet.network import Add, Delete, Flow, Match, Modify

Listed = tuple[dict[str, Sequence], dict[str, Sequence], dict[str, Sequence], int]


def listed(changes: Changes) -> Listed:
    """Changes as lists, to compare."""
    steps = changes.first, changes.second, changes.between
    assert all(len(each) == len(list(each)) > 0 for step in steps for each in step.values())
    return *({switch: list(each) for switch, each in step.items()} for step in steps), changes.used


def one_by_one(category: int, wires: Wires, found: Told) -> Listed:
    """What to tell the switches: additions first, then modifications, then deletions, in the order of the walk."""
    ranks = {rank: defaultdict(list) for rank in (ADDED, GROWN, COVERED)}
    second, between = defaultdict(list), defaultdict(list)

    def ports(mask) -> frozenset[int]:
        number = int.from_bytes(mask.tobytes(), "little")
        return frozenset(port for wire, port in enumerate(wires.port) if number >> wire & 1)

    middle = found.masks.shape[1] // 2
    for (place, number, now, then), masks in zip(found.rows.tolist(), found.masks, strict=True):
        hi, lo, length = found.places[place].tolist()
        match = Match(category, Dz(joined(hi, lo) >> (CODE_BITS - length), length))
        flow, after = (Flow(match, ports(mask), length) for mask in (masks[:middle], masks[middle:]))
        switch = wires.names[number]
        if now != NOTHING:
            ranks[now][switch].append({ADDED: Add, GROWN: Modify, COVERED: Delete}[now](flow))
        if then != NOTHING:
            second[switch].append(Modify(after) if then == LESSENED else Delete(flow))
            between[switch].append(flow)
    switches = {switch for each in ranks.values() for switch in each}
    first = {switch: [change for rank in ranks.values() for change in rank.get(switch, [])] for switch in switches}
    return first, dict(second), dict(between), int.from_bytes(found.used.tobytes(), "little")
