"""Layouts: the two forms of a category's tables, and how its keys are shared out among lanes.

    united     one table of dz: the longest decides, and names all ports           plans of kind dz
    per-port   a table for each out port, whose entries may be cells with masks    plans of kind cells

The layout of a category follows from its plan, so a change of plan changes it too (`transition`).

A dz is cut at the borders of partitions and lies in one of them, mostly.  A cell may lie in all of them.  So a category
of cells has no partitions, but one lane per tree (`ControlConfig.spread`, 1 by default).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Literal

from sievenet.control.config import ControlConfig
from sievenet.control.registrations import PortRegistrations, Registrations
from sievenet.control.routes import Routes, Wires
from sievenet.control.tiling import Parts, Tiling
from sievenet.dataplane.plane import DataPlane
from sievenet.errors import PlanError
from sievenet.index import Cell, Dz, Plan
from sievenet.network import Flow

__all__ = ["PER_PORT", "UNITED", "Layout", "check_kind", "layout_of"]


class Layout(ABC):
    """What depends on the form of tables."""

    name: Literal["united", "per-port"]

    @abstractmethod
    def tiling(self, config: ControlConfig, plan: Plan) -> Tiling:
        """Which partitions a category has, one per lane."""

    @abstractmethod
    def registrations(self, category: int, wires: Wires, routes: Routes) -> Registrations | PortRegistrations:
        """Those of a lane, none at first."""

    @abstractmethod
    def holds(self, prefix: int, key: int) -> bool:
        """Whether a key lies in the lane with this prefix."""

    @abstractmethod
    def owns(self, prefix: Dz, flow: Flow) -> bool:
        """Whether a flow may follow from the registrations of a lane."""


class _United(Layout):
    name = "united"

    def tiling(self, config: ControlConfig, plan: Plan) -> Tiling:
        return Tiling.of(config, plan)

    def registrations(self, category: int, wires: Wires, routes: Routes) -> Registrations:
        return Registrations(category, wires, routes)

    def holds(self, prefix: int, key: int) -> bool:
        gap = key.bit_length() - prefix.bit_length()
        return gap >= 0 and key >> gap == prefix

    def owns(self, prefix: Dz, flow: Flow) -> bool:
        cell = flow.match.cell
        return not flow.table and isinstance(cell, Dz) and prefix.covers(cell)


class _Cells(Tiling):
    """Partitions that a cell may lie in several of."""

    def split(self, keys: Sequence[int]) -> Parts:
        count = len(self.tiles)
        if count == 1:
            return super().split(keys)
        depth = count.bit_length() - 1
        found: dict[int, list[int]] = {}
        for key in keys:
            cell = Cell.of_key(key)
            assert isinstance(cell, Cell)
            more = max(depth - cell.width, 0)
            cell = Cell(cell.value << more, cell.mask << more, cell.width + more)
            rest = cell.width - depth
            for i in range(count):
                part = cell.intersect(Cell(i << rest, (count - 1) << rest, cell.width))
                if part is not None:
                    found.setdefault(i, []).append(part.key)
        return list(found.items())


class _PerPort(Layout):
    name = "per-port"

    def tiling(self, config: ControlConfig, plan: Plan) -> Tiling:
        return _Cells.equal(config.spread)

    def registrations(self, category: int, wires: Wires, routes: Routes) -> PortRegistrations:
        return PortRegistrations(category, wires, routes)

    def holds(self, prefix: int, key: int) -> bool:
        return _inside(Dz.of_key(prefix), Cell.of_key(key))

    def owns(self, prefix: Dz, flow: Flow) -> bool:
        return flow.table > 0 and _inside(prefix, flow.match.cell)


def _inside(prefix: Dz, cell: Dz | Cell) -> bool:
    (value, mask), (mine, bits) = prefix.masked, cell.masked
    return not mask & ~bits and mine & mask == value


UNITED: Final[Layout] = _United()
PER_PORT: Final[Layout] = _PerPort()


def check_kind(kind: str, dataplane: DataPlane) -> None:
    """Refuse plans whose tables a data plane cannot hold."""
    if kind == "cells" and not dataplane.per_port:
        raise PlanError(
            "Expected a plan of kind dz, got cells: the switches of this data plane have too few tables for masks. "
            "Take kind dz, or other switches"
        )


def layout_of(plan: Plan) -> Layout:
    """The layout of tables for a plan."""
    return PER_PORT if plan.kind == "cells" else UNITED
