"""From the name of a scheme to the scheme at work."""

from __future__ import annotations

from sievenet.routers.bdrp import BdrpRouting
from sievenet.routers.cbcb import CbcbRouting
from sievenet.routers.edge import EdgeRouting
from sievenet.routers.intake import Intake
from sievenet.routers.routing import Context, Routing
from sievenet.routers.tree import TreeRouting

__all__ = ["make_routing"]


def make_routing(context: Context, intake: Intake) -> Routing:
    """The routing that a router's settings name."""
    match context.settings.scheme:
        case "cbcb":
            return CbcbRouting(context)
        case "bdrp":
            return BdrpRouting(context)
        case "edge":
            return EdgeRouting(context)
        case _:
            return TreeRouting(context, intake)
