"""What loads the compiled parts of covering. Code on an event loop asks first whether they are there."""

from __future__ import annotations

from typing import Final

from sievenet.content import Attribute, Filter, Schema
from sievenet.jit.warmup import Warmup

__all__ = ["COVERS"]


def _use() -> None:
    from sievenet.index.bitmaps import Bitmaps
    from sievenet.index.plan import Plan

    schema = Schema("warm", (Attribute("x", "int", lo=0, hi=1),))
    Plan.regular(schema, 4).cover(Filter(schema))
    cells = Bitmaps("covers", codes=True)
    cells.put(0, 0)
    cells.holding(0)


COVERS: Final = Warmup(_use)
