"""The bound on what any table sends in vain: never above the best of all tables, and often equal to it."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from benchmarks._tcam_bound import bound
from tests.seeds import seeds

PORTS = (1, 2)
SETS = [frozenset(port for i, port in enumerate(PORTS) if number >> i & 1) for number in range(4)]
DZ = range(1, 16)  # of up to three bits


def at(table, code):
    """The ports of the smallest dz around a code of three bits."""
    key = 8 | code
    while key and key not in table:
        key >>= 1
    return table.get(key, frozenset())


def best(table, codes, came, limit):
    """What the best of all tables of so many entries sends in vain: by trying them."""
    meant = [at(table, code) for code in range(8)]
    found = np.inf
    for count in range(limit + 1):
        for keys in combinations(DZ, count):
            for sets in product(SETS, repeat=count):
                other = dict(zip(keys, sets, strict=True))
                sent = [at(other, code) for code in range(8)]
                if all(meant[code] <= sent[code] for code in range(8)):
                    vain = sum(len(sent[code] - meant[code] - {by}) for code, by in zip(codes, came, strict=True))
                    found = min(found, vain)
    return found


@pytest.mark.parametrize("seed", seeds(6))
def test_no_table_is_better(seed):
    random = np.random.default_rng(seed)
    keys = random.choice(np.arange(2, 16), size=4, replace=False).tolist()
    table = {key: SETS[int(random.integers(1, 4))] for key in keys}
    codes, came = random.integers(8, size=12), random.choice(PORTS, size=12)
    for limit in (1, 2):
        found = bound(table, codes.astype(np.uint64) << np.uint64(61), came, limit)
        least = best(table, codes.tolist(), came.tolist(), limit)
        assert found.least <= least + 1e-6
        assert least <= found.found
        assert found.entries <= limit
        if found.entries == limit:
            assert found.least == pytest.approx(least, abs=1e-3)
