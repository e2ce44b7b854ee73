"""Virtual time for the transport: an overlay of brokers, a TCP to compete with.

Everything is seeded and deterministic, and runs the real protocol objects. Not imported by any other part but
`testing` and the benchmarks.
"""

from sievenet.transport.simulation.graphs import low_degree_graph
from sievenet.transport.simulation.overlay import Overlay
from sievenet.transport.simulation.tcp import TcpFlow
from sievenet.transport.simulation.world import World

__all__ = ["Overlay", "TcpFlow", "World", "low_degree_graph"]
