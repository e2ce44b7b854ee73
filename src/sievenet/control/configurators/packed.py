"""Changes as bytes: columns of numbers (`registrations.columns`) that come from another process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sievenet.control.configurators.messages import Answer
from sievenet.control.registrations import Changes
from sievenet.control.registrations.changes import changes_in
from sievenet.control.registrations.trie import Told
from sievenet.control.routes import Wires
from sievenet.errors import CodecError

__all__ = ["pack", "unpack"]


def pack(partition: int, epoch: int, serial: int, wires: Wires, found: Told | None) -> Answer:
    """What a walk found."""
    if found is None:
        return Answer(partition, epoch, serial, b"", b"", b"")
    used = found.used.tobytes()
    if not len(found.rows):
        return Answer(partition, epoch, serial, b"", b"", used)
    from sievenet.control.registrations.columns import written

    keys, rows = written(found.places, found.rows, found.masks, wires.exits, len(wires.names))
    return Answer(partition, epoch, serial, keys.tobytes(), rows.tobytes(), used)


def unpack(category: int, names: Sequence[str], answer: Answer) -> Changes:
    """What the switches must be told; `CodecError` if it contradicts itself, or names a switch that nobody knows."""
    used = int.from_bytes(answer.used, "little")
    if not answer.rows:
        return Changes(used=used)
    from sievenet.control.registrations.columns import sound

    if len(answer.rows) % 4 or len(answer.places) % 16:
        raise CodecError(expected="whole columns", got="parts of some", where="configurator")
    keys = np.frombuffer(answer.places, np.uint64).reshape(2, -1)
    numbers = np.frombuffer(answer.rows, np.uint32)
    if not sound(numbers, keys.shape[1], len(names)) or not (keys[0] | keys[1]).all():
        raise CodecError(expected=f"columns that fit each other, of {len(names)} switches", got="others", where="rows")
    return changes_in(category, names, keys, numbers, used)
