"""The contract suite on the kernel's switches."""

import asyncio
from functools import partial

import pytest

from sievenet.testing.dataplane_contract import CAPACITY, CHECKS, with_harness
from tests.kernel.harness import make_network, on_kernel, remove_network

pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module")
def network():
    network = make_network(capacity=CAPACITY)
    yield network
    remove_network(network)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_kernel(network, check):
    asyncio.run(with_harness(partial(on_kernel, network), check))
