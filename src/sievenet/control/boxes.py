"""Boxes: encoded filters as boxes on a plan's grid, many at a time, without decoding them.

What most filters say is few bytes of whole numbers (`content.filter_codec`), and where these lie on the grid can be
looked up: so bytes become boxes in compiled code (`kernels.read_boxes`).  What it does not know is left to others:
several filters, a constraint that is more than an interval, values that are not counted, or are very many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sievenet.content import Attribute
from sievenet.content.binary import VERSION
from sievenet.content.codec import SUBSCRIPTION
from sievenet.index import Plan

__all__ = ["BoxReader"]

_Ints = npt.NDArray[np.int64]

#: Most values of an attribute that are looked up.
_MOST: Final = 1 << 16


class BoxReader:
    """Reads filters for a plan of one region that holds everything."""

    def __init__(self, plan: Plan) -> None:
        encoder, attributes = plan.encoder.regions[0], plan.schema.attributes
        self._opening = np.array([VERSION << 4 | SUBSCRIPTION, plan.schema.version], np.int64)
        #: The largest coordinate of each axis.
        self._whole = np.array([(1 << scale.bits) - 1 for scale in encoder.scales], np.int64)
        #: Per attribute how many values it has (0: too many, or they are not counted) and its axis (or none, -1).
        self._sizes = np.array([_count(each) for each in attributes], np.int64)
        self._axes = np.full(len(attributes), -1, np.int64)
        #: Per axis and value where an interval lies on the grid that begins, or ends, with it.
        self._table = np.zeros((2, len(encoder.scales), max(1, int(self._sizes.max(initial=0)))), np.int64)
        for axis, scale in enumerate(encoder.scales):
            at = plan.schema.positions[scale.attribute.name]
            size, self._axes[at] = int(self._sizes[at]), axis
            if not size:
                continue
            places = encoder.coordinates(axis, np.arange(size) + int(scale.lo)).astype(np.int64)
            starts, stops = self._table[:, axis, :size]
            starts[:], stops[:-1] = places, np.maximum(places[:-1], places[1:] - 1)
            starts[0], stops[-1] = 0, self._whole[axis]

    def read(self, contents: Sequence[bytes]) -> tuple[_Ints, _Ints, npt.NDArray[np.bool_]]:
        """Where they begin and end on each axis; and of which that is known."""
        from sievenet.control.kernels import read_boxes

        data = np.frombuffer(b"".join(contents), np.uint8)
        ends = np.cumsum(np.array([len(each) for each in contents], np.int64))
        return read_boxes(data, ends, self._opening, self._sizes, self._axes, self._table, self._whole)


def _count(attribute: Attribute) -> int:
    count = len(attribute.values or ())
    if attribute.type == "int":
        count = int(attribute.hi or 0) - int(attribute.lo or 0) + 1
    return count if count <= _MOST else 0
