"""Seeded workloads: what events say, what subscribers want, and when they arrive.

Every test, benchmark and experiment takes its input from here.  A generator is one frozen
object of settings with two methods, ``events(count)`` and ``subscriptions(count)``; equal
settings give equal rows, and more rows begin with the fewer.

    uniform     evenly spread over the event space
    hotspots    interest popularity: Zipf around up to eight places that may drift
    mixed       numbers, sets of strings and bools at once, for the matcher
    ticks       a synthetic stock market: random walks of made-up prices
    stocks      daily quotes from a CSV file, and plausible subscriptions to them
    arrivals    constant, Poisson, bursts, greedy: arrays of times
    samples     schemas that ship with the package

Imports only `content`, `errors` and `index`.
"""

from sievenet.workload.arrivals import Arrivals, Bursts, Constant, Greedy, Poisson
from sievenet.workload.drift import Drift
from sievenet.workload.hotspots import MAX_HOTSPOTS, Hotspots, random_factor
from sievenet.workload.interests import Choices, Interests
from sievenet.workload.mixed import Mixed
from sievenet.workload.samples import load_schema, sample_names
from sievenet.workload.space import grid
from sievenet.workload.stocks import Quotes, load_quotes
from sievenet.workload.ticks import Ticks
from sievenet.workload.uniform import Uniform, Workload

__all__ = [
    "MAX_HOTSPOTS",
    "Arrivals",
    "Bursts",
    "Choices",
    "Constant",
    "Drift",
    "Greedy",
    "Hotspots",
    "Interests",
    "Mixed",
    "Poisson",
    "Quotes",
    "Ticks",
    "Uniform",
    "Workload",
    "grid",
    "load_quotes",
    "load_schema",
    "random_factor",
    "sample_names",
]
