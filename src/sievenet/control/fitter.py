"""The fitter: chooses merges for the whole network, on demand and from time to time.

It takes a picture of all tables (a turn of the event loop per category), has `aggregation` work on it beside the event
loop, and gives the control plane the merges that come out.  Without recorded traffic it goes by how much each publisher
has sent (FA-LB); with it, by what (FA-PB).  Traffic that was given once is used again as long as the plan is the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sievenet.control import warmup
from sievenet.control.traffic import FitReport, Traffic, traffic_from
from sievenet.errors import SievenetError

if TYPE_CHECKING:
    from sievenet.control.aggregation import Tables
    from sievenet.control.aggregation.masks import Masked
    from sievenet.control.plane import ControlPlane
    from sievenet.dataplane.plane import DataPlane

__all__ = ["Fitter"]

logger = logging.getLogger(__name__)


class Fitter:
    """Chooses merges that cost least traffic."""

    def __init__(self, control: ControlPlane, dataplane: DataPlane) -> None:
        self._control = control
        self._dataplane = dataplane
        self._traffic: dict[int, Traffic] = {}
        self._busy = asyncio.Lock()
        #: Entries of tables when merges were last chosen: nothing to do while they are the same.
        self._last: tuple[object, ...] = ()

    async def run(self, every: float) -> None:
        """Choose merges again periodically if something has changed."""
        if self._limited():
            await warmup.FITTING.ready()  # else the first who asks would wait for a compiler
        while every:
            await asyncio.sleep(every)
            try:
                if any(self._control.merging(switch)[2] for switch in self._limited()) and self._state() != self._last:
                    await self.fit()
            except SievenetError as error:
                logger.warning("Tables could not be fitted anew: %s", error)
            except Exception:
                logger.exception("Tables could not be fitted anew")

    async def answer(self, traffic: bytes) -> Any:
        """The same for a request over a connection."""
        return msgspec.to_builtins(await self.fit(traffic_from(traffic) if traffic else ()))

    async def fit(self, traffic: Iterable[Traffic] = ()) -> FitReport:
        """Choose merges for the network as it is now."""
        from sievenet.control.aggregation import aggregate
        from sievenet.control.aggregation.masks import merge_cells

        async with self._busy:
            begin = time.monotonic()
            control = self._control
            for each in traffic:
                self._traffic[control.category(each.category).number] = each
            limited = self._limited()
            load = await self._load()
            lanes, tables = control.lanes(), control.picture(self._traffic, load)
            limits = {switch: capacity - 1 - control.cells(switch) for switch, capacity in limited.items()}
            masked = control.masked(self._traffic)
            chosen = await control.worker.run(aggregate, tables, limits)
            merges: dict[int, dict[str, Collection[Any]]] = {
                lane: {switch: found.get(switch, ()) for switch in limits}
                for lane, found in zip(lanes, chosen, strict=True)
            }
            cells = await control.worker.run(merge_cells, list(masked.values()))
            for (lane, known), found in zip(masked.items(), cells, strict=True):
                merges[lane] = {switch: found.get(switch, ()) for switch in known.limits}
            control.merge(merges)
            self._last = self._state()
            return _report([*tables, *masked.values()], limited, time.monotonic() - begin)

    def _limited(self) -> dict[str, int]:
        found = {switch: self._control.merging(switch)[0] for switch in self._dataplane.topology.switches}
        return {switch: capacity for switch, capacity in found.items() if capacity is not None}

    def _state(self) -> tuple[object, ...]:
        status = self._control.status()
        return status.answered, status.switches_down, status.links_down

    async def _load(self) -> dict[tuple[str, int], float]:
        """Packets that came in by each port of a client."""
        found: dict[tuple[str, int], float] = {}
        for switch in self._dataplane.topology.switches:
            try:
                counters = await self._dataplane.counters(switch)
            except SievenetError:
                continue
            await asyncio.sleep(0)
            for port, count in counters.ports.items():
                found[switch, port] = float(count.received.packets)
        return found


def _report(lanes: Sequence[Tables | Masked], limited: Mapping[str, int], seconds: float) -> FitReport:
    sizes = {switch: sum(len(each.tables.get(switch, ())) for each in lanes) for switch in limited}
    room = {switch: capacity - 1 for switch, capacity in limited.items()}  # one is spare
    return FitReport(
        merged=sum(sizes[switch] > room[switch] for switch in limited),
        switches=len(limited),
        ideal=sum(sizes.values()),
        deployed=sum(min(sizes[switch], room[switch]) for switch in limited),
        method="load" if all(each.sample is None for each in lanes) else "pattern",
        seconds=seconds,
    )
