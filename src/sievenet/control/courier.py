"""The courier: carries changes and questions to the switches of a data plane, and brings back what they say.

Changes for one switch that come up in the same moment, as those of several partitions do, go in one bundle: a switch
needs about as long for a large one as for a small one.  If it refuses a bundle, each part of it is tried alone, so that
only whoever asked for too much is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import overload

from sievenet.control import signals
from sievenet.dataplane.plane import DataPlane
from sievenet.errors import Rejected, SievenetError
from sievenet.network import FlowChange

__all__ = ["Courier"]


class _Bundle(Sequence[FlowChange]):
    """Several sequences one after the other, not looked into before somebody has to."""

    def __init__(self, parts: Sequence[Sequence[FlowChange]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[FlowChange]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, at: int) -> FlowChange: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FlowChange]: ...
    def __getitem__(self, at: int | slice) -> FlowChange | Sequence[FlowChange]:
        return list(self)[at]


class Courier:
    """Turns instructions into calls of a data plane, and their results into stimuli."""

    def __init__(self, dataplane: DataPlane, handle: Callable[[signals.Stimulus], None]) -> None:
        self._dataplane = dataplane
        self._handle = handle

    async def apply(self, orders: Sequence[signals.Apply]) -> None:
        """Tell one switch; every order is answered."""
        changes = orders[0].changes if len(orders) == 1 else _Bundle([order.changes for order in orders])
        try:
            await self._dataplane.apply(orders[0].switch, changes)
        except Rejected as error:
            if len(orders) == 1:
                self._handle(signals.Refused(orders[0].serial, error))
            else:
                for order in orders:
                    await self.apply([order])
        except SievenetError:
            for order in orders:
                self._handle(signals.Undefined(order.serial))
        else:
            # In one go, so that what follows from it for a switch goes in one bundle too.
            self._handle(signals.Acknowledged(tuple(order.serial for order in orders)))

    async def read(self, order: signals.Read) -> None:
        """Ask a switch what it holds."""
        try:
            table = await self._dataplane.table(order.switch)
        except SievenetError:
            self._handle(signals.NotRead(order.serial))
        else:
            self._handle(signals.SwitchTable(order.serial, table))
