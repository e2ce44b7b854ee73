"""Where exact matchers are worth their latency: benefit and penalty of subspaces at switches, and the choice."""

from sievenet.control.hybrid.model import Model, Observation
from sievenet.control.hybrid.selection import Choice, csa, ssa

__all__ = ["Choice", "Model", "Observation", "csa", "ssa"]
