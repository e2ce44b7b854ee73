"""What a queued event costs a cache, in a process of its own: the memory that the process has more of, by the system.

    python -m benchmarks._cache_store COUNT MEMORY [FOLDER]

Events come as a cache's port gives them, and all of them wait for one subscriber that takes next to nothing. What does
not fit into MEMORY bytes goes to FOLDER.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks._cache_pump import SCHEMA, packets
from sievenet.cache.cache import Cache
from sievenet.cache.messages import Take
from sievenet.cache.ring import Ring
from sievenet.cache.spill import Spill
from sievenet.cachehost.envelope import records_of
from sievenet.cachehost.filters import SchemaFilters
from sievenet.client.ports.burst import uniform
from sievenet.content import Filter, Subscription

#: Packets that come together.
_TOGETHER = 256


def resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stored(count: int, memory: int, folder: Path | None) -> dict[str, int]:
    """Have so many events wait; what there is then."""
    ring = Ring(seconds=1e9, max_bytes=memory, spill=None if folder is None else Spill(folder, 1 << 33))
    cache = Cache(seed=1, max_events=10 * count)
    cache.open("point", lambda: ring, SchemaFilters(SCHEMA), 0.0)
    cache.assign(1, "point", Subscription([Filter(SCHEMA)], SCHEMA), "all", 0.0)
    cache.hear(1, Take(1, back=1.0, age=1.0, limit=1e-6), 0.0)
    # Once round, so that nothing is counted that only has to be there.
    _arrive(cache, 0)
    before, waiting = resident(), cache.statistics().waiting
    for first in range(_TOGETHER, count, _TOGETHER):
        _arrive(cache, first)
    [record] = ring.read([0])
    waiting = cache.statistics().waiting - waiting
    return {"grown": resident() - before, "waiting": waiting, "disk": ring.disk, "size": len(record)}


def _arrive(cache: Cache, first: int) -> None:
    arrivals = uniform(packets(_TOGETHER, first))
    assert arrivals is not None
    heads = arrivals.heads
    keys = (heads["publisher"], heads["incarnation"], heads["sequence"])
    cache.arrive("point", records_of(arrivals), 1.0, keys)
    cache.tick(1.0)


if __name__ == "__main__":
    amount, most, *rest = sys.argv[1:]
    print(json.dumps(stored(int(amount), int(most), Path(rest[0]) if rest else None)))
