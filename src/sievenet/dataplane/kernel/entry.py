"""What our flows are in a kernel switch: how they are found, and what they match.

    ordinary   priority = length of the prefix   `prefixes`: the longest prefix of (category, code)
    special    everything else                   `cells`: (row, in-port, category and code under the mask)

A *row* is what special flows of equal precedence share: priority, whether they ask for an in-port, mask.  The program
tries rows from the highest precedence down, so that the number of rows is what masks cost, not that of flows.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, MAX_BITS, Cell, Dz
from sievenet.network.flow import Flow, Match

__all__ = [
    "CATEGORY",
    "CELL",
    "Row",
    "bits_of",
    "cell_key",
    "is_ordinary",
    "ordinary_flow",
    "prefix_of",
    "special_flow",
]

#: The bits of a category, before those of a code.
CATEGORY: Final = 0xFFFF << MAX_BITS
#: A key of `cells`: row, in-port, bits.
CELL: Final = struct.Struct("=II16s")
_ROW: Final = struct.Struct("=16sIIIHH")
_SHIFT: Final = CODE_BITS - MAX_BITS
_CODE: Final = (1 << MAX_BITS) - 1


class Row(NamedTuple):
    """What special flows of one precedence share; the greatest row is tried first."""

    priority: int
    by_port: bool
    ones: int
    mask: int
    #: Bits of the cells' code, which a mask does not tell; 0 for a dz.
    width: int

    @classmethod
    def of(cls, flow: Flow) -> Row:
        """The row of a flow."""
        mask = flow.match.bits[1]
        cell = flow.match.cell
        width = cell.width if isinstance(cell, Cell) else 0
        return cls(flow.priority, flow.in_port is not None, mask.bit_count(), mask, width)

    def encode(self, number: int) -> bytes:
        """As the program reads it; the number tells its cells from others'."""
        mask = (CATEGORY | self.mask >> _SHIFT).to_bytes(16, "big")
        return _ROW.pack(mask, self.priority, self.by_port, number, self.width, self.ones)

    @classmethod
    def decode(cls, data: bytes) -> tuple[Row, int]:
        """A row and its number."""
        packed, priority, by_port, number, width, _ = _ROW.unpack(data)
        mask = (int.from_bytes(packed, "big") & _CODE) << _SHIFT
        return cls(priority, bool(by_port), mask.bit_count(), mask, width), number


def is_ordinary(flow: Flow) -> bool:
    """Whether the tree of prefixes holds it; `InvalidInput` if nothing does."""
    cell = flow.match.cell
    ordinary = isinstance(cell, Dz) and flow.in_port is None and flow.priority == cell.length and not flow.table
    if ordinary and flow.priority <= MAX_BITS:
        return True
    if flow.table or flow.match.bits[1] & ((1 << _SHIFT) - 1):
        raise InvalidInput(expected=f"table 0 and at most {MAX_BITS} bits", got=str(flow), where="flow")
    return False


def prefix_of(flow: Flow) -> int:
    """Category and dz of an ordinary flow, as an integer that begins with a one."""
    cell = flow.match.cell
    assert isinstance(cell, Dz)
    return (1 << 16 | flow.match.category) << cell.length | cell.bits


def bits_of(flow: Flow) -> tuple[int, int]:
    """What a flow matches: category and code, and their mask."""
    value, mask = flow.match.bits
    return flow.match.category << MAX_BITS | value >> _SHIFT, CATEGORY | mask >> _SHIFT


def cell_key(row: int, in_port: int, bits: int) -> bytes:
    """The key in `cells` of what has these bits in a row."""
    return CELL.pack(row, in_port, bits.to_bytes(16, "big"))


def ordinary_flow(bits: int, length: int, ports: frozenset[int]) -> Flow:
    """The flow that matches so many bits of a code."""
    return Flow(Match(bits >> MAX_BITS, Dz((bits & _CODE) >> (MAX_BITS - length), length)), ports, length)


def special_flow(bits: int, row: Row, in_port: int, ports: frozenset[int]) -> Flow:
    """The flow of a row that matches these bits."""
    code = (bits & _CODE) << _SHIFT
    cell: Dz | Cell
    if row.width:
        shift = CODE_BITS - row.width
        cell = Cell(code >> shift, row.mask >> shift, row.width)
    else:
        cell = Dz(code >> (CODE_BITS - row.ones), row.ones)
    return Flow(Match(bits >> MAX_BITS, cell), ports, row.priority, in_port or None)
