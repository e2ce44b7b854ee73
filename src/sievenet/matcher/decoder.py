"""Events as they travel, read straight into keys: many rows of bytes by one kernel.

`content.layout` says how events of a schema lie in a row of bytes if all are equally long. What the matching kernels
want of an event is one whole number per attribute, its key (`content.line`). So there is no need for columns in
between:

    head │ x u2 │ y u2 │ price f8 │ bools │ 00      ──▶      xs[row] = x, y, key(price), 0 or 1 for each bool

The same checks as `Layout.decode`: opening, bounds, no payload. Rows that fail are malformed and left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content.layout import Bytes, layout_of
from sievenet.content.schema import Schema
from sievenet.jit import compiled
from sievenet.matcher.octets import load_little
from sievenet.matcher.records import Array, float_key

__all__ = ["Decoder"]

#: Columns of the table of attributes: where its bytes begin, the bits in them, what they are, what is added to the
#: number (the bit, for bools), the largest number that is written.
AT, MASK, KIND, BASE, SPAN = range(5)
_NUMBER, _REAL, _BOOL = range(3)
#: Bools that share bytes; beyond that events are decoded as ever.
_BOOLS: Final = 63


@compiled
def decode_rows(
    rows: Array, start: int, wanted: Array, opening: Array, table: Array, reals: Array, xs: Array, kept: Array
) -> int:
    """The keys of wanted rows' events, which begin at byte ``start``; how many are sound, and which rows (`kept`)."""
    count = 0
    last = rows.shape[1] - 1
    for i in range(len(rows)):
        if not wanted[i]:
            continue
        good = rows[i, last] == 0
        for k in range(len(opening)):
            good &= rows[i, start + k] == opening[k]
        for a in range(len(table)):
            # Eight bytes at a time, none of them behind the row.
            at = min(start + table[a, AT], last - 7)
            number = load_little(rows, i, at) >> np.uint64(8 * (start + table[a, AT] - at)) & np.uint64(table[a, MASK])
            if table[a, KIND] == _REAL:
                value = np.uint64(number).view(np.float64)
                good &= value >= reals[a, 0] and value <= reals[a, 1]
                xs[count, a] = float_key(np.int64(number))  # type: ignore[arg-type]
            else:
                good &= number <= np.uint64(table[a, SPAN])
                if table[a, KIND] == _BOOL:
                    number = (number >> np.uint64(table[a, BASE])) & np.uint64(1)
                else:
                    number += np.uint64(table[a, BASE])
                xs[count, a] = np.int64(number)
        kept[count] = i
        count += 1 if good else 0
    return count


class Decoder:
    """How rows of one schema become keys."""

    def __init__(self, schema: Schema) -> None:
        layout = layout_of(schema)
        bools = [a for a in schema.attributes if a.type == "bool"]
        #: Whether rows of this schema can be read so.
        self.possible: Final = layout is not None and len(bools) <= _BOOLS
        if layout is None or not self.possible:
            return
        #: Bytes of an event.
        self.size: Final = layout.size
        self.attributes: Final = len(schema.attributes)
        opening = np.frombuffer(layout.opening, np.uint8)
        table = np.zeros((self.attributes, 5), np.int64)
        reals = np.zeros((self.attributes, 2), np.float64)
        #: What says how to read a row, for `decode_rows`.
        self.arrays: Final = opening, table, reals
        bit = 0
        for i, attribute in enumerate(schema.attributes):
            at, size = layout.place(i)
            mask = (1 << 8 * size) - 1 if size < 8 else -1
            if attribute.type == "bool":
                table[i] = at, mask, _BOOL, bit, (1 << len(bools)) - 1
                bit += 1
            elif attribute.type == "float":
                table[i] = at, mask, _REAL, 0, 0
                reals[i] = float(attribute.lo or 0), float(attribute.hi or 0)
            elif attribute.type == "int":
                lo, hi = int(attribute.lo or 0), int(attribute.hi or 0)
                table[i] = at, mask, _NUMBER, lo, np.uint64(hi - lo).astype(np.int64)
            else:
                table[i] = at, mask, _NUMBER, 0, len(attribute.values or ()) - 1

    def read(
        self,
        rows: Bytes,
        start: int,
        wanted: npt.NDArray[np.bool_] | npt.NDArray[np.uint8],
        xs: npt.NDArray[np.int64],
        kept: npt.NDArray[np.int64],
    ) -> int:
        """Read the wanted rows' events, which begin at a byte of each row: into the first rows of ``xs``.

        Returns how many are sound; ``kept`` says which rows those are.
        """
        return decode_rows(rows, start, wanted.view(np.uint8), *self.arrays, xs, kept)
