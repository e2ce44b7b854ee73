"""Looking for tables that somebody else has changed, and for decisions of switches that may be out of date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from sievenet.dataplane.openflow.handle import SwitchHandle
from sievenet.errors import SievenetError

__all__ = ["audit"]

log = logging.getLogger("sievenet.openflow")


async def audit(switches: Mapping[str, SwitchHandle], every: float, tampered: Callable[[str], None]) -> None:
    """Compare how many entries the switches hold with what they held after our own last change, for ever."""
    while True:
        await asyncio.sleep(every)
        for switch in list(switches.values()):
            with contextlib.suppress(SievenetError):
                channel = switch.channel
                if channel is None or not await switch.touched():
                    continue
                log.warning("switch %s: its tables were changed by somebody else", switch.name)
                await switch.set_right(channel)
                await switch.count()
                tampered(switch.name)
        for rounds in {switch.rounds for switch in switches.values() if switch.rounds is not None}:
            with contextlib.suppress(SievenetError):
                await rounds.refresh()
