"""The contract suite on real Open vSwitch."""

import asyncio
from functools import partial

import pytest

from sievenet.testing.dataplane_contract import CAPACITY, CHECKS, with_harness
from tests.openflow.harness import make_network, on_ovs, remove_network

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]


@pytest.fixture(scope="module")
def network():
    # Room for the entry that counts what nobody wanted.
    network = make_network(capacity=CAPACITY + 1)
    yield network
    remove_network(network)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_open_vswitch(network, check):
    asyncio.run(with_harness(partial(on_ovs, network), check))
