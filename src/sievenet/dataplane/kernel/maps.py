"""The maps that the programs of kernel switches work with: which there are, how large, and whose.

One program serves all switches of a network on this machine: what one switch has just run is still in the processor's
cache for the next one on a packet's way, and the kernel checks it once.  So the switches share their maps:

    parts    arrays, of which each switch has so many rows, behind those of the switches before it; maps of chunks,
             in which switches take turns: what several of them need is close together
    inner    hash tables, one of each switch, in a map by the switches' numbers
    whole    the same rows for all: a device belongs to one switch, and says to which
    own      not for programs: what a process has to know that takes a switch over
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from sievenet.dataplane.kernel import bpf, chunks, prefixes, records
from sievenet.dataplane.kernel.image import linked, shipped
from sievenet.dataplane.kernel.rows import MASK_SIZE, ROW_SIZE, ROWS, VERSIONS
from sievenet.dataplane.kernel.sets import SLOTS

__all__ = ["CAPACITY", "DEVICE", "PORT", "PORTS", "REASONS", "Rack", "pinned_maps"]

#: The programs of switches: the one that is attached, and those that it goes on in, by their place in the map `self`.
_PARTS: Final = ("sieve", "more", "each", "odd", "pour", "drain")
#: Maps that are not arrays of parts.
_WHOLE: Final = ("devices", "self", "pile", "marks")
_INNER: Final = ("cells", "permits")
_OWN: Final = ("ordinary", "held")
_IN_TURN: Final = ("nodes", "flows")

#: Flows that fit if nobody says otherwise.
CAPACITY: Final = 1 << 18
#: Port numbers, clients' among them.
PORTS: Final = 1 << 15
_OUTPUTS: Final = 1 << 16
#: Pairs of client and category that fit.
_PERMITS: Final = 1 << 18
_DEVICES: Final = 1 << 14
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
DEVICE: Final = np.dtype(
    [("index", "u4"), ("port", "u2"), ("host", "u1"), ("odd", "u1"), ("owner", "u4"), ("unused", "u4")]
)


def _shapes(capacity: int) -> dict[str, tuple[int, int, int, int]]:
    """The maps of one switch: kind, bytes of a key, bytes of a value (of a row in a chunk), rows (chunks)."""
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


def _part(name: str, whole: bpf.Map, number: int, switches: int, rows: int) -> bpf.Map:
    """What a switch has of a map that all share."""
    if name in _IN_TURN:
        return whole.part(number, rows, switches)
    return whole.part(0 if name in _WHOLE else number * rows, rows)


class Rack:
    """What all switches of a network share on this machine: programs, and maps with room for so many switches."""

    def __init__(self, switches: int, capacity: int | None) -> None:
        self._shapes, self._switches = _shapes(capacity or CAPACITY), switches
        #: By name: what the programs use, and what is each switch's.
        self._shared: dict[str, bpf.Map] = {}
        self._inner: dict[str, list[bpf.Map]] = {}
        for name, (kind, key, value, rows) in self._shapes.items():
            if name in _INNER:
                inner = self._inner[name] = [bpf.Map.create(name, kind, key, value, rows) for _ in range(switches)]
                self._shared[name] = bpf.Map.create(name, bpf.MAPS, 4, 4, switches, inner[0])
                numbers = [number.to_bytes(4, "little") for number in range(switches)]
                self._shared[name].put_all(numbers, [each.descriptor.to_bytes(4, "little") for each in inner])
            elif kind == bpf.MAPS:
                self._shared[name] = chunks.create(name, value, switches * rows)
            elif name not in _OWN:
                size = rows if name in _WHOLE else rows * switches
                self._shared[name] = bpf.Map.create(name, kind, key, value, size)
        self._program = _loaded(self._shared)

    def maps(self, number: int) -> dict[str, bpf.Map]:
        """The maps of one switch, empty."""
        made = {}
        for name, (kind, key, value, rows) in self._shapes.items():
            if name in _OWN:
                made[name] = bpf.Map.create(name, kind, key, value, rows)
            elif name in _INNER:
                made[name] = self._inner[name][number].part(0, rows)
            else:
                made[name] = _part(name, self._shared[name], number, self._switches, rows)
        return made

    def program(self) -> int:
        """What is attached to the switches' devices; the caller closes it."""
        return os.dup(self._program)

    def close(self) -> None:
        """No more switches are made."""
        os.close(self._program)
        for entry in (*self._shared.values(), *(each for some in self._inner.values() for each in some)):
            entry.close()


def _loaded(maps: Mapping[str, bpf.Map]) -> int:
    """The program that is attached; the kernel has checked it and all that it goes on in."""
    descriptors = {name: entry.descriptor for name, entry in maps.items()}
    # The kernel checks each for a while: on several cores at a time.
    with ThreadPoolExecutor(len(_PARTS)) as pool:
        codes = [linked(shipped()[f"tc/{part}"], descriptors) for part in _PARTS]
        program, *others = pool.map(bpf.load, _PARTS, codes)
    for at, again in enumerate(others):
        maps["self"].put(at.to_bytes(4, "little"), again.to_bytes(4, "little"))
        os.close(again)
    return program


def pinned_maps(folder: Path, capacity: int | None, number: int, switches: int) -> dict[str, bpf.Map]:
    """The maps of a switch that were pinned in a folder: its number, and how many there are."""
    found = {}
    for name, (kind, key, value, rows) in _shapes(capacity or CAPACITY).items():
        size = 4 if kind == bpf.MAPS else value
        pinned = bpf.Map(bpf.pinned(str(folder / name)), key, size, rows)
        found[name] = pinned
        if name not in _OWN and name not in _INNER:
            found[name] = _part(name, pinned, number, switches, rows)
            pinned.close()
    return found
