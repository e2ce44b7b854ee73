"""What executors hold: one broadcast of plain values, and what is built of it once per process.

Compiled matchers and bitmaps are large and quick to build; what they are built of is small.  So the small part is
broadcast, and every Python process of an executor builds the rest when it first needs it, then keeps it: processes
are reused from task to task.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Shared"]

T = TypeVar("T")

#: Built things that a process keeps at most.
_KEPT: Final = 4
_built: OrderedDict[str, Any] = OrderedDict()


class Shared(Generic[T]):
    """``build(*parts)`` in every process that asks, of parts that are broadcast once."""

    def __init__(self, spark: SparkSession, build: Callable[..., T], *parts: Any) -> None:
        self._build = build
        self._parts = spark.sparkContext.broadcast(parts)
        self._token = uuid.uuid4().hex

    def get(self) -> T:
        """What was built, in this process."""
        if self._token in _built:
            _built.move_to_end(self._token)
        else:
            _built[self._token] = self._build(*self._parts.value)
            while len(_built) > _KEPT:
                _built.popitem(last=False)
        found: T = _built[self._token]
        return found

    def release(self) -> None:
        """Let executors forget the broadcast."""
        self._parts.unpersist()
