"""Flow tables as values, and the difference between two of them.

`difference(old, new)` is *make-before-break*: carried out one change at a time, no
state in between loses a delivery that both tables make.  For every packet p and every
intermediate table t:

    ports(t, p)  ⊇  ports(old, p) ∩ ports(new, p)

The order that achieves it is short:

    1. additions, the highest precedence first;
    2. modifications, those that only add ports first;
    3. deletions, the lowest precedence first.

Why.  Let n be the flow that decides p in `new` and o the one in `old`.  While adding, a
new flow that matches p and takes precedence over n does not exist (n is the greatest),
so p is decided by o until n comes, and then by the greater of the two.  If that is o, o
is in `old` alone.  Modifying touches flows that are in both tables: one that decides p
at that time is o = n.  Deleting starts at the bottom: when o goes, no old-only flow below
it is left to catch p, so p falls through to n.  Nothing here needs prefixes to nest, so
it holds for cells with masks, in-ports and catch-all flows just as well.  It needs
room for both tables' flows at once in the worst case.  Where a switch has several tables it
holds for each of them; a delivery that moves from one to another is not protected, and no
layout moves any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sievenet.network.flow import Add, Delete, Flow, FlowChange, FlowKey, Modify

__all__ = ["EMPTY_TABLE", "FlowTable", "difference", "make_before_break"]


class FlowTable:
    """An immutable set of flows, at most one per key."""

    __slots__ = ("_flows",)

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self._flows: dict[FlowKey, Flow] = {flow.key: flow for flow in flows}

    def get(self, key: FlowKey) -> Flow | None:
        """The flow with this key, or None."""
        return self._flows.get(key)

    def by_key(self) -> Mapping[FlowKey, Flow]:
        """All flows by their keys."""
        return self._flows

    def sorted(self) -> list[Flow]:
        """All flows in the order in which they are tried: by table, the highest precedence first."""
        return sorted(
            self._flows.values(),
            key=lambda f: (f.table, tuple(-int(x) for x in f.precedence), f.match.category, f.match.bits[0]),
        )

    def decide(self, category: int, code: int, in_port: int | None = None) -> tuple[Flow, ...]:
        """The flows that decide a packet, one per table at most.  Looks at every flow: for tests and for people."""
        best: dict[int, Flow] = {}
        for flow in self._flows.values():
            if flow.matches(category, code, in_port):
                rival = best.get(flow.table)
                if rival is None or flow.precedence > rival.precedence:
                    best[flow.table] = flow
        return tuple(best[table] for table in sorted(best))

    def ports(self, category: int, code: int, in_port: int | None = None) -> frozenset[int]:
        """The ports a packet leaves by; never the one it came in by."""
        out: frozenset[int] = frozenset().union(*(f.ports for f in self.decide(category, code, in_port)))
        return out - {in_port} if in_port is not None else out

    def applied(self, changes: Iterable[FlowChange]) -> FlowTable:
        """The table after some changes."""
        table = FlowTable()
        flows = table._flows
        flows.update(self._flows)
        for change in changes:
            if isinstance(change, Delete):
                flows.pop(change.flow.key, None)
            else:
                flows[change.flow.key] = change.flow
        return table

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._flows.values())

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, flow: object) -> bool:
        return isinstance(flow, Flow) and self._flows.get(flow.key) == flow

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FlowTable):
            return NotImplemented
        return self._flows == other._flows

    def __hash__(self) -> int:
        return hash(frozenset(self._flows.values()))

    def __repr__(self) -> str:
        return f"<FlowTable: {len(self)} flows>"

    def __str__(self) -> str:
        return "\n".join(map(str, self.sorted())) or "(empty)"


#: No flows at all.
EMPTY_TABLE = FlowTable()


def difference(old: FlowTable, new: FlowTable) -> list[FlowChange]:
    """The changes that turn one table into another, make-before-break."""
    before, after = old.by_key(), new.by_key()
    return make_before_break(
        added=[flow for key, flow in after.items() if key not in before],
        modified=[(before[key], flow) for key, flow in after.items() if key in before and before[key] != flow],
        deleted=[flow for key, flow in before.items() if key not in after],
    )


def make_before_break(
    added: Iterable[Flow], modified: Iterable[tuple[Flow, Flow]], deleted: Iterable[Flow]
) -> list[FlowChange]:
    """Changes in their safe order, for those who know them without comparing tables; `modified` holds (was, now)."""
    changes: list[FlowChange] = [Add(flow) for flow in sorted(added, key=_precedence, reverse=True)]
    shrinking: list[FlowChange] = []
    for was, now in modified:
        (changes if was.ports <= now.ports else shrinking).append(Modify(now))
    changes += shrinking
    changes += [Delete(flow) for flow in sorted(deleted, key=_precedence)]
    return changes


def _precedence(flow: Flow) -> tuple[int, bool, int, int]:
    return flow.precedence
