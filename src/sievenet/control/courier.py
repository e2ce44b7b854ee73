"""The courier: carries changes and questions to the switches of a data plane, and brings back what they say.

What several switches acknowledge in one turn of the event loop is told in one go, so that what follows from it for
one switch goes in one bundle too.
"""

from __future__ import annotations

import asyncio
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
        self._loop = asyncio.get_running_loop()
        #: Acknowledged in this turn.
        self._acknowledged: list[int] = []

    async def apply(self, order: signals.Apply) -> None:
        """Tell a switch."""
        parts = order.parts
        try:
            await self._dataplane.apply(order.switch, parts[0] if len(parts) == 1 else _Bundle(parts))
        except Rejected as error:
            self._handle(signals.Refused(order.serial, error))
        except SievenetError:
            self._handle(signals.Undefined(order.serial))
        else:
            if not self._acknowledged:
                self._loop.call_soon(self._tell)
            self._acknowledged.append(order.serial)

    def _tell(self) -> None:
        serials, self._acknowledged = self._acknowledged, []
        self._handle(signals.Acknowledged(serials))

    async def read(self, order: signals.Read) -> None:
        """Ask a switch what it holds."""
        try:
            table = await self._dataplane.table(order.switch)
        except SievenetError:
            self._handle(signals.NotRead(order.serial))
        else:
            self._handle(signals.SwitchTable(order.serial, table))
