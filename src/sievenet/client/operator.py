"""What an operator asks of a fabric, beyond what any node can (`FabricNode.apply_plan`, `ask`)."""

from __future__ import annotations

from typing import Any

from sievenet.client.fabric_node import FabricNode
from sievenet.client.node import Node
from sievenet.control import protocol as p
from sievenet.errors import InvalidInput

__all__ = ["fit_tables"]


async def fit_tables(node: Node, traffic: bytes = b"") -> Any:
    """Choose merges anew where tables do not fit; ``traffic`` is what was published, counted (`control.traffic`)."""
    if not isinstance(node, FabricNode):
        raise InvalidInput(expected="a node in a fabric", got="one at a router, which has no flow tables")
    return await node._session.call(lambda number: p.FitTables(number, traffic), again=False)
