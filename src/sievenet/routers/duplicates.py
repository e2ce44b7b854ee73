"""Which events a router has passed on: by its tables, and to everybody.

An event goes on once. If the graph changes under it, an event that went on by the tables may go on once more, to
everybody, if it comes back that way (`readiness`); it is delivered once. What is too old to tell is not forwarded: *at
most once* has no exception. The memory is the client's (`transport.duplicates`), once for each of the two ways.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.transport.duplicates import DuplicateWindow

__all__ = ["Seen"]

_Ints = npt.NDArray[np.int64]
#: Numbers of one publisher that are remembered.
_SPAN: Final = 1 << 14


class Seen:
    """The last numbers of the publishers heard last."""

    def __init__(self, publishers: int = 1024) -> None:
        self._any = DuplicateWindow(_SPAN, publishers)
        self._flooded = DuplicateWindow(_SPAN, publishers)
        self.repeated = 0

    def fresh(self, publisher: int, sequences: _Ints, flood: bool = False) -> tuple[_Ints, _Ints]:
        """The rows that are new, and those to pass on: with ``flood`` also what only went on by tables before."""
        source = (publisher, 0)
        new = np.flatnonzero(self._any.fresh_of(source, sequences))
        rows = np.flatnonzero(self._flooded.fresh_of(source, sequences)) if flood else new
        self.repeated += len(sequences) - len(rows)
        return new, rows
