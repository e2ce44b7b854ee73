"""Seeds of simulation tests: the same ones in every normal run, fresh ones in a soak.

`SIEVENET_SEED` is the only switch. Without it `seeds(3)` stands for 0, 1 and 2. With `SIEVENET_SEED=500` it stands for
500, 501 and 502, and hypothesis draws its examples from the same number (see conftest.py), so a run with one value of
`SIEVENET_SEED` does the same thing twice. Neighbouring numbers, because tests choose a case by `seed % 3` and the like,
and every case should have its turn. `tests/soak.py` runs the tests again and again, with another value in each round.
"""

import os

import pytest

#: What a run starts counting from, or None in a normal run.
START: int | None = int(os.environ["SIEVENET_SEED"]) if os.environ.get("SIEVENET_SEED") else None


def seeds(count: int, watched: int | None = None):
    """`count` values for `parametrize("seed", …)`; coverage looks at the first `watched` of them, or at all.

    A test that uses them is run by `make soak`, and should hold for any seed at all.
    """
    start = START or 0
    watched = count if watched is None else watched
    return [
        pytest.param(start + i, marks=[pytest.mark.soak, *([pytest.mark.unwatched] if i >= watched else [])])
        for i in range(count)
    ]
