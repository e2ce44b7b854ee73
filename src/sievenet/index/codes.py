"""Codes: encoded events in batches.

A code is a string of up to 112 bits.  In arrays it is two 64-bit words, left-aligned in
128 bits, so that codes of different lengths compare, and prefixes and masks apply, as
they stand.

    row   0    0    2         which event of the batch
    hi    ▓▓▓  ▓▓▓  ▓▓▓       first 64 bits
    lo    ▓▓   ▓▓   ▓▓        the rest, zeros behind

One event can have several codes (one per region of the plan that holds it) or none (no
filter can want it).  Rows ascend within each region.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sievenet.index.code import CODE_BITS, joined, word_arrays
from sievenet.index.dz import Dz

__all__ = ["Codes"]


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Codes of a batch: event number, and the two words of each code."""

    row: npt.NDArray[np.int64]
    hi: npt.NDArray[np.uint64]
    lo: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.hi)

    def __getitem__(self, i: int) -> int:
        """One code as a number of 128 bits."""
        return joined(int(self.hi[i]), int(self.lo[i]))

    def dz(self, i: int, length: int) -> Dz:
        """The first ``length`` bits of one code."""
        return Dz(self[i] >> (CODE_BITS - length), length)

    def inside(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """For each code whether it lies in one of some dz or cells, given as rows of value and mask words."""
        found = np.zeros(len(self), np.bool_)
        for value_hi, value_lo, mask_hi, mask_lo in rows:
            found |= (self.hi & mask_hi == value_hi) & (self.lo & mask_lo == value_lo)
        return found

    def take(self, where: Any) -> Codes:
        """The chosen codes."""
        return Codes(self.row[where], self.hi[where], self.lo[where])

    def sorted(self) -> Codes:
        """The same codes in ascending order."""
        return self.take(np.lexsort((self.lo, self.hi)))

    @staticmethod
    def concat(parts: list[Codes]) -> Codes:
        """Several as one."""
        return Codes(
            np.concatenate([p.row for p in parts]),
            np.concatenate([p.hi for p in parts]),
            np.concatenate([p.lo for p in parts]),
        )

    @staticmethod
    def of(numbers: list[int]) -> Codes:
        """From numbers of 128 bits, one event each."""
        return Codes(np.arange(len(numbers)), *word_arrays(numbers))
