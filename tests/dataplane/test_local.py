"""Networks on this machine: names, who may use them, and what is left of them."""

from pathlib import Path

import pytest

from sievenet.dataplane import local, namespaces
from sievenet.dataplane.kernel.network import KernelNetwork
from sievenet.dataplane.local import LocalNetwork
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network import parse_topology
from tests.openflow.harness import unique_name

LINE = parse_topology("line,switches=2")


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "a b", "abcdefghijk", "../x"])
def test_no_name_is_the_beginning_of_anothers_namespaces(name):
    with pytest.raises(InvalidInput, match="letters, digits and _"):
        LocalNetwork(LINE, name)


def test_a_name_belongs_to_one_daemon(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "RUN", tmp_path / "run")
    monkeypatch.setattr(namespaces, "lacking", lambda: None)
    network, other = LocalNetwork(LINE, "one"), LocalNetwork(LINE, "two")
    taken = r"Network one belongs to a daemon that runs \(process \d+\).*--name"
    with network.claimed(), other.claimed(), pytest.raises(Unavailable, match=taken):
        LocalNetwork(LINE, "one").claimed().__enter__()
    with network.claimed():
        pass


def test_without_rights(monkeypatch, tmp_path):
    monkeypatch.setattr(local, "RUN", tmp_path / "run")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    expected = r"Expected root.*another user.*--dataplane embedded"
    with pytest.raises(Unavailable, match=expected), LocalNetwork(LINE, "one").claimed():
        pass


def test_root_in_a_container_is_told_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    status = tmp_path / "status"
    for capabilities, lacks in (("00000000a80425fb", True), ("000001ffffffffff", False)):
        status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        assert ("without the capabilities" in (namespaces.lacking(status) or "")) is lacks


def runs(process):
    """Whether a process is alive; one that ended may be there until somebody asks for its exit code."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.root
@pytest.mark.ovs
def test_a_network_of_another_kind_is_removed_whole(tmp_path):
    name = unique_name("svl")
    switches = OvsNetwork(LINE, name, run_dir=tmp_path / "run")
    try:
        switches.prepare()
        processes = [switches._pid(program) for program in ("ovs-vswitchd", "ovsdb-server")]
        assert None not in processes
        network = KernelNetwork(LINE, name, run_dir=tmp_path / "run")
        assert not network.up()
        assert not any(map(runs, processes))
        assert not OvsNetwork(LINE, name, run_dir=tmp_path / "run").prepare()
        assert namespaces.listing(f"{name}.") == []
    finally:
        switches.down()
    assert namespaces.listing(name) == []
    assert not (tmp_path / "run").exists()
