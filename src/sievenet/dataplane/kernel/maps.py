"""The maps that a kernel switch's program works with: which there are, and how large."""

from __future__ import annotations

from typing import Final

import numpy as np

from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.sets import MASKS, SLOTS

__all__ = ["CAPACITY", "PORT", "PORTS", "REASONS", "ROWS", "map_shapes"]

#: Flows that fit if nobody says otherwise.
CAPACITY: Final = 1 << 18
#: Rows of special flows.
ROWS: Final = 32
#: Port numbers, clients' among them.
PORTS: Final = 1 << 15
_OUTPUTS: Final = 1 << 16
#: Pairs of client and category that fit.
_PERMITS: Final = 1 << 18
#: Why packets were dropped, as the program counts it.
REASONS: Final = ("malformed", "unadmitted", "unmatched", "expired", "unsent", "unadvertised")
#: A port: `struct port` of the program.
PORT: Final = np.dtype(
    [
        *(("device", "u4"), ("way", "u4"), ("rp", "u8"), ("rb", "u8"), ("sp", "u8"), ("sb", "u8")),
        *(("dropped", "u8"), ("checked", "u8"), ("address", "V16")),
    ]
)


def map_shapes(capacity: int) -> dict[str, tuple[int, int, int, int]]:
    """The maps of a switch: kind, bytes of a key, bytes of a value, rows."""
    return {
        "prefixes": (bpf.PREFIXES, 20, 16, capacity),
        "cells": (bpf.HASH, 24, 16, capacity),
        "rows": (bpf.HASH, 4, 32, ROWS + 1),
        "masks": (bpf.HASH, 4, 24, MASKS + 1),
        # While cells move from mask to mask they are there twice.
        "sets": (bpf.HASH, 24, 24, 2 * capacity),
        "slots": (bpf.ARRAY, 4, 8, SLOTS),
        "held": (bpf.HASH, 40, 4, capacity),
        "outputs": (bpf.ARRAY, 4, 8, _OUTPUTS),
        "counts": (bpf.ARRAY, 4, 16, capacity + 1),
        "ports": (bpf.ARRAY, 4, PORT.itemsize, PORTS),
        "devices": (bpf.HASH, 4, 8, 4096),
        "reasons": (bpf.ARRAY, 4, 8, 8),
        "permits": (bpf.HASH, 4, 4, _PERMITS),
        "self": (bpf.PROGRAMS, 4, 4, 5),
        "pile": (bpf.PER_CORE, 4, 184, 1),
        "marks": (bpf.PER_CORE, 4, 8, PORTS),
    }
