"""Grains: a plan of cells that is applied gets the grain that suits those who subscribe (`index.cover.grain`)."""

from __future__ import annotations

from sievenet.control.state import State
from sievenet.control.transition import usable
from sievenet.control.worker import Worker
from sievenet.index import Plan

__all__ = ["with_grain"]


async def with_grain(state: State, number: int, plan: Plan, worker: Worker) -> Plan:
    """The plan with a grain, if it is of cells and has none; by some of the subscriptions that there are."""
    category = state.categories[number]
    if plan.kind != "cells" or plan.grain or plan.schema != category.schema:
        return plan  # if it is for another schema, it is refused with the reason
    from sievenet.index.cover.grain import SOME, grained

    clients = state.clients.values()
    entries = [each for client in clients for each in client.subscriptions.values() if each.category == number]
    some = [each.subscription(category.schema) for each in entries[:: -(-len(entries) // SOME) or 1]]
    return await worker.run(grained, usable(category.schema, plan), some, category.budget)
