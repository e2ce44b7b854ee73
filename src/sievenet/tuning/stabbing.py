"""Stabbing: which boxes hold a point, for whole batches of points.

The places of one axis fall into few stretches between which no box begins or ends.  Each
stretch gets a bitmap of the boxes whose span holds it; a point's boxes are the *and* of one
bitmap per axis.

    axis    ────┬─────┬───┬────────       stretches 0 … 3
    box 0       [─────]                   bitmap of stretch 1: box 0
    box 1             [───────────        of stretch 2: box 1 …

Boxes are taken in groups of `GROUP`, so bitmaps stay small: a group of n boxes with s ends
costs ``s · n / 8`` bytes, a point ``axes · n / 64`` word operations, less when an axis leaves
nothing.  Exact matching and encoded matching are the same question with different boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["GROUP", "Axis", "Stabbing"]

#: Boxes per set of bitmaps.
GROUP: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The stretches of one axis: ``ends`` are where a new one begins."""

    ends: npt.NDArray[Any]
    #: Rows of bitmaps before this axis' own.
    start: int

    def ranks(self, places: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """The stretch of each place."""
        return np.searchsorted(self.ends, places, "right").astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Stabbing:
    """A group of boxes, ready to be asked."""

    axes: tuple[Axis, ...]
    bitmaps: npt.NDArray[np.uint64]
    #: The owner of each box, or empty if every box is its own.
    owners: npt.NDArray[np.int64]

    @staticmethod
    def of(
        spans: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]],
        count: int,
        owners: npt.NDArray[np.int64] | None = None,
    ) -> Stabbing:
        """From spans per axis: first places, places *behind* the last, and whose they are.

        A box may have several spans on an axis; boxes of one owner are neighbours.
        """
        from sievenet.tuning.kernels import mark

        axes: list[Axis] = []
        rows = 0
        for first, behind, _ in spans:
            ends = np.unique(np.concatenate([first, behind]))
            axes.append(Axis(ends, rows))
            rows += len(ends) + 1
        bitmaps = np.zeros((rows, max(1, -(-count // 64))), np.uint64)
        for axis, (first, behind, box) in zip(axes, spans, strict=True):
            rank = axis.start
            lower = rank + axis.ranks(first).astype(np.int64)
            upper = rank + axis.ranks(behind).astype(np.int64)
            mark(bitmaps, lower, upper, np.asarray(box, np.int64))
        return Stabbing(tuple(axes), bitmaps, np.zeros(0, np.int64) if owners is None else owners)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of bitmaps of each axis."""
        return np.array([a.start for a in self.axes], np.int64)

    def ranks(self, places: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
        """Axes × events: the stretch of each event on each axis."""
        return np.stack([axis.ranks(places(i)) for i, axis in enumerate(self.axes)])
