"""The contract suite, on the simulator and on the embedded plane."""

import asyncio
from functools import partial

import pytest

from sievenet.testing.dataplane_contract import CHECKS, with_harness
from sievenet.testing.virtual_time import run_virtual
from tests.dataplane.harnesses import embedded, simulated

by_name = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@by_name
def test_simulator(check):
    run_virtual(with_harness(simulated, check))


@by_name
def test_simulator_with_control_delay(check):
    run_virtual(with_harness(partial(simulated, control_delay=0.01), check))


@by_name
def test_embedded(check):
    asyncio.run(with_harness(embedded, check))


def test_the_suite_is_not_empty():
    assert len(CHECKS) >= 15
