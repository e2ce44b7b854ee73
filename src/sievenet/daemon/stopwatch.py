"""A stopwatch for configurators: their answers say how long they took, which is what partitions are balanced by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from sievenet.control.configurators.messages import Answer

__all__ = ["timed"]


def timed(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns; an answer says how long it took."""
    begin = time.perf_counter()
    found = work(*arguments)
    if isinstance(found, Answer):
        found = msgspec.structs.replace(found, spent=int(1e6 * (time.perf_counter() - begin)))
    return found
