"""The pipeline as data: which tables a switch has, and which entries, at which priorities, may stand in each.

                 admission                                  content
    packet ──▶ from a link, or from an attached ──▶ fd0e:<category>:<code>/<mask> ──▶ output: a link's port
               client's address and UDP port?        longest dz first                 group: a client's port
                 │ no: dropped                         │ none
                                                       ▼
                 masked                              one for each out port                   rest
                 a category with cells? ──▶ cell → output, marked ──▶ cell → output, … ──▶ unmarked: counted
                 │ no: dropped, counted

Cells under masks have a table per out port (`ports`).  A packet passes all of them, whatever it meets there.  Every
entry of such a table says the same, so all have one priority: Open vSwitch stops at the first that matches.  A flow of
the content table decides alone: where both match, a plan is changing, and that flow names the ports of all tables.  The
packet must not leave by one of them twice.

`RULES` is the whole of it.  Every entry is built by the rule that it follows (`Rule.checked`), so that no code can use
a priority or a field that is not declared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from sievenet.dataplane.openflow import oxm
from sievenet.dataplane.openflow.numbers import CONTROLLER, Oxm
from sievenet.errors import InvalidInput

__all__ = ["MARK", "RULES", "Rule", "Table"]

#: In a packet's metadata: some out port wants it.
MARK: Final = 1


class Table(IntEnum):
    """The tables of a switch, in the order in which a packet passes them."""

    ADMISSION = 0
    CONTENT = 1
    #: Which categories have cells.
    MASKED = 2
    #: The first and the last that an out port can have.
    FIRST = 3
    LAST = 252
    #: What passed them all.
    REST = 253


class Rule(NamedTuple):
    """A kind of entry."""

    table: Table
    #: The lowest and the highest priority.
    priorities: tuple[int, int]
    #: Fields that every such entry matches, and those that it may match.
    fields: frozenset[Oxm]
    optional: frozenset[Oxm] = frozenset()
    #: Instructions, unless each entry has its own.
    rest: bytes = b""

    @property
    def priority(self) -> int:
        """The priority, if there is but one."""
        return self.priorities[0]

    def checked(self, priority: int, fields: oxm.Fields) -> oxm.Fields:
        """These fields, if an entry of this kind may have them; else `InvalidInput`."""
        low, high = self.priorities
        if not low <= priority <= high:
            raise InvalidInput(expected=f"a priority of {low} to {high}", got=priority, where="flow")
        if not self.fields <= fields.keys() <= self.fields | self.optional:
            names = ", ".join(sorted(Oxm(each).name for each in fields))
            wanted = ", ".join(sorted(each.name for each in self.fields))
            raise InvalidInput(expected=f"a match on {wanted}", got=names, where="flow")
        return fields


_CONTROLLER: Final = oxm.apply_actions([oxm.output(CONTROLLER)])
_ADMITTED: Final = oxm.goto(Table.CONTENT)
_PACKET: Final = frozenset({Oxm.ETH_TYPE, Oxm.IPV6_DST})

#: Every kind of entry. What goes to the controller stands below what admits content: a switch that has found one of
#: those looks no further, and its cache need not tell content from what goes to the controller bit by bit.
RULES: Final[Mapping[str, Rule]] = {
    "discovery": Rule(Table.ADMISSION, (1, 1), frozenset({Oxm.ETH_TYPE}), rest=_CONTROLLER),
    "control": Rule(Table.ADMISSION, (2, 2), _PACKET, rest=_CONTROLLER),
    "link": Rule(Table.ADMISSION, (10, 10), _PACKET | {Oxm.IN_PORT}, rest=_ADMITTED),
    "client": Rule(
        Table.ADMISSION,
        (20, 20),
        _PACKET | {Oxm.IN_PORT, Oxm.IP_PROTO, Oxm.UDP_SRC},
        frozenset({Oxm.IPV6_SRC}),
        rest=_ADMITTED,
    ),
    # A flow's priority is one higher in the switch, since 0 is the entry that counts what nobody wanted, or sends it on
    # where there are tables for cells.
    "unwanted": Rule(Table.CONTENT, (0, 0), frozenset()),
    "masked": Rule(Table.MASKED, (1, 1), _PACKET, rest=oxm.goto(Table.FIRST)),
    "unmasked": Rule(Table.MASKED, (0, 0), frozenset()),
    # These two stand in the table of every port. Cells of another priority than their number of bits stand above.
    "past": Rule(Table.FIRST, (0, 0), frozenset()),
    "cell": Rule(
        Table.FIRST, (1, 0xFFFF), _PACKET, frozenset({Oxm.IN_PORT, Oxm.IP_DSCP, Oxm.IP_PROTO, Oxm.UDP_SRC, Oxm.UDP_DST})
    ),
    "unmarked": Rule(Table.REST, (1, 1), frozenset({Oxm.METADATA})),
    "content": Rule(
        Table.CONTENT,
        (1, 0xFFFF),
        _PACKET,
        frozenset({Oxm.IN_PORT, Oxm.IP_DSCP, Oxm.IP_PROTO, Oxm.UDP_SRC, Oxm.UDP_DST}),
    ),
}
