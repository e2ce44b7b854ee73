"""Tiles: a plan that is applied gets partitions that suit what is registered (`tiling`), if the settings say so."""

from __future__ import annotations

from typing import Final

import msgspec

from sievenet.control.config import ControlConfig
from sievenet.control.covering import Coverer
from sievenet.control.recovery import cover_all
from sievenet.control.state import State
from sievenet.control.tiling import balanced
from sievenet.control.transition import usable
from sievenet.control.worker import Worker
from sievenet.index import Plan

__all__ = ["with_tiles"]

#: Registrations that are looked at.
_SOME: Final = 4096


async def with_tiles(state: State, number: int, plan: Plan, config: ControlConfig, worker: Worker) -> Plan:
    """The plan with tiles, if it is to have some and has none; by some of what is registered."""
    category = state.categories[number]
    if config.tiling == "equal" or plan.kind == "cells" or plan.tiles or plan.schema != category.schema:
        return plan  # if it is for another schema, it is refused with the reason
    clients = state.clients.values()
    entries = [each for client in clients for each in client.subscriptions.values() if each.category == number]
    some = [(each.content, True) for each in entries[:: -(-len(entries) // _SOME) or 1]]

    def tiled() -> Plan:
        complete = usable(category.schema, plan)
        found = cover_all(Coverer(complete, category.budget), some)
        keys = [key for each in found if isinstance(each, list) for key in each]
        return msgspec.structs.replace(complete, tiles=balanced(keys, config.partitions, config.spread))

    return await worker.run(tiled)
