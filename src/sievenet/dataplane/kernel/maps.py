"""The maps that a kernel switch's program works with: which there are, and how large."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from sievenet.dataplane.kernel import bpf, chunks, prefixes, records
from sievenet.dataplane.kernel.rows import MASK_SIZE, ROW_SIZE, ROWS, VERSIONS
from sievenet.dataplane.kernel.sets import SLOTS

__all__ = ["CAPACITY", "DEVICE", "PORT", "PORTS", "REASONS", "create_maps", "pinned_maps"]

#: Flows that fit if nobody says otherwise.
CAPACITY: Final = 1 << 18
#: Port numbers, clients' among them.
PORTS: Final = 1 << 15
_OUTPUTS: Final = 1 << 16
#: Pairs of client and category that fit.
_PERMITS: Final = 1 << 18
_DEVICES: Final = 1024
#: Why packets were dropped, as the program counts it.
REASONS: Final = ("malformed", "unadmitted", "unmatched", "expired", "unsent", "unadvertised")
#: A port: `struct port` of the program.
PORT: Final = np.dtype(
    [
        *(("device", "u4"), ("way", "u2"), ("checked", "u2"), ("rp", "u8"), ("rb", "u8"), ("sp", "u8"), ("sb", "u8")),
        *(("dropped", "u8"), ("address", "V16")),
    ]
)
#: A device: `struct device` of the program.
DEVICE: Final = np.dtype([("index", "u4"), ("port", "u2"), ("host", "u1"), ("odd", "u1")])


def _shapes(capacity: int) -> dict[str, tuple[int, int, int, int]]:
    """The maps of a switch: kind, bytes of a key, bytes of a value (of a row in a chunk), rows (chunks)."""
    # While cells move from mask to mask they are there twice.
    flows = 2 * capacity + 1
    return {
        "nodes": (bpf.MAPS, 4, prefixes.SIZE, -(-prefixes.nodes_for(capacity) // chunks.ROWS)),
        "flows": (bpf.MAPS, 4, records.SIZE, -(-flows // chunks.ROWS)),
        #: Not for the program: which flows are in the tree.
        "ordinary": (bpf.ARRAY, 4, flows + chunks.ROWS, 1),
        "cells": (bpf.HASH, 24, 4, 2 * capacity),
        "state": (bpf.ARRAY, 4, 8, 1),
        "rows": (bpf.ARRAY, 4, ROWS * ROW_SIZE, VERSIONS),
        "masks": (bpf.ARRAY, 4, ROWS * MASK_SIZE, VERSIONS),
        "slots": (bpf.ARRAY, 4, 8, SLOTS),
        "held": (bpf.HASH, 40, 4, capacity),
        "outputs": (bpf.ARRAY, 4, 8, _OUTPUTS),
        "ports": (bpf.ARRAY, 4, PORT.itemsize, PORTS),
        "devices": (bpf.ARRAY, 4, DEVICE.itemsize, _DEVICES),
        "reasons": (bpf.ARRAY, 4, 8, 8),
        "permits": (bpf.HASH, 4, 4, _PERMITS),
        "self": (bpf.PROGRAMS, 4, 4, 5),
        "pile": (bpf.PER_CORE, 4, 192, 1),
        "marks": (bpf.PER_CORE, 4, 8, PORTS),
    }


def create_maps(capacity: int | None) -> dict[str, bpf.Map]:
    """The maps of a new switch, empty."""
    made = {}
    for name, (kind, key, value, rows) in _shapes(capacity or CAPACITY).items():
        if kind == bpf.MAPS:
            made[name] = chunks.create(name, value, rows)
        else:
            made[name] = bpf.Map.create(name, kind, key, value, rows)
    return made


def pinned_maps(folder: Path, capacity: int | None) -> dict[str, bpf.Map]:
    """The maps of a switch that were pinned in a folder."""
    shapes = _shapes(capacity or CAPACITY)
    sizes = {name: (key, 4 if kind == bpf.MAPS else value, rows) for name, (kind, key, value, rows) in shapes.items()}
    return {name: bpf.Map(bpf.pinned(str(folder / name)), *size) for name, size in sizes.items()}
