"""Anything may happen while events go through matchers, on Open vSwitch and on the kernel's switches."""

import pytest

from sievenet.config import load_config
from sievenet.daemon.daemon import Daemon
from tests.fabric.harness import run
from tests.fabric.hybrid_world import SETTINGS, anything
from tests.openflow.test_fabric import every_plane, folder, settings  # noqa: F401
from tests.seeds import seeds

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs"), pytest.mark.slow]


@every_plane
@pytest.mark.parametrize("seed", seeds(1))
def test_whatever_happens_everybody_gets_what_is_wanted_once(folder, plane, seed):  # noqa: F811
    async def main():
        async with Daemon(load_config(**settings(folder, dataplane=plane, state=None, **SETTINGS))) as daemon:
            # Open vSwitch sends packets that it read together grouped by its decisions (docs/topics/openflow.md).
            await anything(daemon, seed, ordered=plane != "ovs")

    run(main(), timeout=150)
