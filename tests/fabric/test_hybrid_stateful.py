"""Anything may happen while events go through matchers, on the embedded plane."""

import pytest

from tests.fabric.harness import fabric, run
from tests.fabric.hybrid_world import SETTINGS, anything
from tests.seeds import seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_whatever_happens_everybody_gets_what_is_wanted_once(seed):
    async def main():
        async with fabric(control__forwarding_delay=0.05, **SETTINGS) as daemon:
            await anything(daemon, seed)

    run(main(), timeout=150)
