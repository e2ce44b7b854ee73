"""A whole fabric on the kernel's switches; what holds on Open vSwitch as well is in tests/openflow/test_fabric.py."""

import asyncio
import os
import sys

import pytest

from sievenet.index import Plan
from tests.openflow.test_fabric import POINT, RING, folder, under_traffic  # noqa: F401

pytestmark = [pytest.mark.root]

KERNEL = {"dataplane": "kernel"}


def test_a_plan_change_loses_nothing(folder):  # noqa: F811
    async def main():
        async with under_traffic(folder, **KERNEL, control__forwarding_delay=0.05) as (daemon, traffic):
            first = traffic.sent
            for version in range(2, 5):
                await daemon.control.apply_plan("point", Plan.regular(POINT, 8 + version, version=version))
            await traffic.complete()
            assert set(range(first, traffic.sent - 50)) <= set(traffic.got)
            assert (await daemon.answers.check())["ok"]

    asyncio.run(main())


def test_a_second_daemon_of_the_same_name_is_refused(folder):  # noqa: F811
    async def main():
        async with under_traffic(folder, **KERNEL) as (daemon, traffic):
            name = daemon.plane._network.name
            for topology in (RING, "line,switches=1"):
                command = ("up", "--dataplane", "kernel", "--name", name, "--topo", topology, "--for", "100ms")
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "sievenet", *command, "--port", "0", "--data-port", "0"),
                    stderr=asyncio.subprocess.PIPE,
                )
                _, said = await process.communicate()
                assert process.returncode == 2
                assert f"Network {name} belongs to a daemon that runs (process {os.getpid()})" in said.decode()
            await traffic.flows()
            await traffic.complete()

    asyncio.run(main())
