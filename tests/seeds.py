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


def seeds(few: int, many: int | None = None):
    """Values for `parametrize("seed", …)`: `few` in a normal run, `many` (if that is said) in a round of a soak.

    A test that uses them should hold for any seed at all.
    """
    start, count = START or 0, few if many is None or START is None else many
    return [pytest.param(start + i, marks=pytest.mark.soak) for i in range(count)]


def examples(many: int) -> int:
    """Examples for hypothesis's `settings`: `many` in a round of a soak, a third of them in a normal run."""
    return many if START is not None else -(-many // 3)
