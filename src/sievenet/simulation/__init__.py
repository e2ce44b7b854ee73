"""Simulation: the one virtual clock and the one model of a link, for data plane, routers and transport.

    clock    virtual time, and an event loop's time with the same order of calls
    pipe     one direction of a link: delay, jitter, loss, a bottleneck with a bounded queue

Everything is seeded and deterministic.  What is
simulated lives with its part: `dataplane.simulator`, `routers.simulation`, `transport.simulation`.

Imports only `network`.
"""

from sievenet.simulation.clock import LoopClock, Scheduler, VirtualClock
from sievenet.simulation.pipe import Pipe

__all__ = ["LoopClock", "Pipe", "Scheduler", "VirtualClock"]
