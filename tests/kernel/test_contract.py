"""The contract suite on the kernel's switches."""

import asyncio
import os
from functools import partial

import pytest

from sievenet.dataplane import namespaces
from sievenet.dataplane.kernel import bpf
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.errors import Unavailable
from sievenet.network import parse_topology
from sievenet.testing.dataplane_contract import CAPACITY, CHECKS, check_packets_follow_tables, with_harness
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


def test_kernels_without_links_for_programs(monkeypatch):
    """Before 6.6 a filter holds the program at its device."""
    monkeypatch.setattr(bpf, "attach_pinned", lambda program, device, path: False)
    network = make_network(kind="svq")
    try:
        asyncio.run(with_harness(partial(on_kernel, network), check_packets_follow_tables))
    finally:
        remove_network(network)


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match=r"needs root.*--dataplane embedded"):
        KernelNetwork(parse_topology("line,switches=1"), "svn").up()


def test_a_kernel_that_refuses_a_program_is_told_and_left_clean(monkeypatch):
    """Older kernels may look at programs in another way: the error has their reason, and what to use instead."""
    load = bpf.load
    monkeypatch.setattr(bpf, "load", lambda name, code: load(name, bytes(8) if name == "pour" else code))
    network = KernelNetwork(parse_topology("line,switches=1"), f"svr{os.getpid() % 1_000_000:x}")
    with pytest.raises(Unavailable, match=r"refused program pour: .*--dataplane embedded"):
        network.up()
    assert not namespaces.listing(network.name)
