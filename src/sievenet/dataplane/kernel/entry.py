"""What our flows are in a kernel switch: keys and values of its maps.

    ordinary   priority = length of the prefix   `prefixes`: longest prefix of (category, code) → action
    special    everything else                   `cells`: (row, in-port, category and code under the mask) → action

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
    "Action",
    "Row",
    "cell_key",
    "is_ordinary",
    "prefix_key",
    "read_cell",
    "read_prefix",
    "row_number",
]

_ACTION: Final = struct.Struct("=IIII")
_KEY: Final = struct.Struct("=I16s")
_CELL: Final = struct.Struct("=II16s")
_ROW: Final = struct.Struct("=16sIIIHH")
_SHIFT: Final = CODE_BITS - MAX_BITS


class Action(NamedTuple):
    """What an entry does: where its outputs lie, how many, what counts it, how many bits it matches."""

    first: int
    outputs: int
    counter: int
    length: int = 0

    def encode(self) -> bytes:
        """As the program reads it."""
        return _ACTION.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> Action:
        """From what the program reads."""
        return cls(*_ACTION.unpack(data))


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
        mask = (0xFFFF << MAX_BITS | self.mask >> _SHIFT).to_bytes(16, "big")
        return _ROW.pack(mask, self.priority, self.by_port, number, self.width, self.ones)

    @classmethod
    def decode(cls, data: bytes) -> tuple[Row, int]:
        """A row and its number."""
        packed, priority, by_port, number, width, _ = _ROW.unpack(data)
        mask = (int.from_bytes(packed, "big") & ((1 << MAX_BITS) - 1)) << _SHIFT
        return cls(priority, bool(by_port), mask.bit_count(), mask, width), number


def is_ordinary(flow: Flow) -> bool:
    """Whether the trie holds it; `InvalidInput` if no map does."""
    cell = flow.match.cell
    ordinary = isinstance(cell, Dz) and flow.in_port is None and flow.priority == cell.length and not flow.table
    if ordinary and flow.priority <= MAX_BITS:
        return True
    if flow.table or flow.match.bits[1] & ((1 << _SHIFT) - 1):
        raise InvalidInput(expected=f"table 0 and at most {MAX_BITS} bits", got=str(flow), where="flow")
    return False


def prefix_key(flow: Flow) -> bytes:
    """The key of an ordinary flow."""
    cell = flow.match.cell
    assert isinstance(cell, Dz)
    bits = flow.match.category << MAX_BITS | cell.bits << (MAX_BITS - cell.length)
    return _KEY.pack(16 + cell.length, bits.to_bytes(16, "big"))


def cell_key(flow: Flow, number: int) -> bytes:
    """The key of a special flow in the row of this number."""
    bits = flow.match.category << MAX_BITS | flow.match.bits[0] >> _SHIFT
    return _CELL.pack(number, flow.in_port or 0, bits.to_bytes(16, "big"))


def read_prefix(key: bytes, ports: frozenset[int]) -> Flow:
    """The flow of an entry of the trie."""
    length, packed = _KEY.unpack(key)
    bits, length = int.from_bytes(packed, "big"), length - 16
    code = bits & ((1 << MAX_BITS) - 1)
    return Flow(Match(bits >> MAX_BITS, Dz(code >> (MAX_BITS - length), length)), ports, length)


def read_cell(key: bytes, row: Row, ports: frozenset[int]) -> Flow:
    """The flow of an entry of a row."""
    _, in_port, packed = _CELL.unpack(key)
    bits = int.from_bytes(packed, "big")
    code = (bits & ((1 << MAX_BITS) - 1)) << _SHIFT
    cell: Dz | Cell
    if row.width:
        shift = CODE_BITS - row.width
        cell = Cell(code >> shift, row.mask >> shift, row.width)
    else:
        cell = Dz(code >> (CODE_BITS - row.ones), row.ones)
    return Flow(Match(bits >> MAX_BITS, cell), ports, row.priority, in_port or None)


def row_number(key: bytes) -> int:
    """The row that an entry of `cells` belongs to."""
    number: int = _CELL.unpack(key)[0]
    return number
