"""Tiles: dz that the event space is divided into, none inside another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sievenet.errors import PlanError

__all__ = ["MAX_TILE", "check_tiles"]

#: Bits of the smallest tile.
MAX_TILE: Final = 16
#: Tiles at most.
_MANY: Final = 4096


def check_tiles(tiles: Sequence[int]) -> None:
    """Refuse keys that are not tiles of the whole space, in its order."""
    if len(tiles) > _MANY:
        raise PlanError(expected=f"at most {_MANY} tiles", got=len(tiles), where="index plan")
    end = 0
    for key in tiles:
        gap = MAX_TILE + 1 - key.bit_length()
        if key < 1 or gap < 0 or key << gap != 1 << MAX_TILE | end:
            raise PlanError(expected="the next tile of the event space, in its order", got=key, where="index plan")
        end += 1 << gap
    if tiles and end != 1 << MAX_TILE:
        raise PlanError("Expected tiles of the whole event space, got a part of it", where="index plan")
