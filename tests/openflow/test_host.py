"""`sievenet host`, and the tools around namespaces."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sievenet.cli.host import host
from sievenet.dataplane import namespaces
from sievenet.dataplane.openflow.buffers import enlarge
from sievenet.dataplane.openflow.ovs import OvsNetwork
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network import parse_topology
from tests.openflow.harness import unique_name


def test_no_network():
    assert "no network nowhere is up" in CliRunner().invoke(host, ["--network", "nowhere"]).output
    found = CliRunner().invoke(host, ["h1", "--network", "nowhere", "--", "true"])
    assert isinstance(found.exception, InvalidInput)


@pytest.mark.root
@pytest.mark.ovs
def test_commands_run_in_a_hosts_network(monkeypatch):
    name = unique_name("svh")
    namespaces.add([f"{name}-h1", f"{name}-h2", f"{name}-net"])
    try:
        assert CliRunner().invoke(host, ["--network", name]).output == f"h1  {name}-h1\nh2  {name}-h2\n"
        assert f'"{name}-h2"' in CliRunner().invoke(host, ["h2", "--network", name, "--json"]).output
        inside = subprocess.run(
            [sys.executable, "-m", "sievenet", "host", "h1", "--network", name, "--", "readlink", "/proc/self/ns/net"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert inside.stdout.strip() != os.readlink("/proc/self/ns/net")
        assert namespaces.inside(f"{name}-h1", lambda: os.readlink("/proc/thread-self/ns/net")) == inside.stdout.strip()
        assert not namespaces.current(f"{name}-h1")
        assert namespaces.inside(f"{name}-h1", lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            namespaces.inside(f"{name}-h1", lambda: 1 // 0)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        refused = CliRunner().invoke(host, ["h1", "--network", name, "--", "true"])
        assert "Expected root" in refused.output
        with pytest.raises(Unavailable, match="Expected root"):
            OvsNetwork(parse_topology("line,switches=1"), name).prepare()
    finally:
        namespaces.delete(namespaces.listing(f"{name}-"))


def test_what_is_not_there(monkeypatch):
    with pytest.raises(Unavailable, match="Network namespace nowhere-at-all"):
        namespaces.inside("nowhere-at-all", lambda: 1)
    assert not namespaces.current("nowhere-at-all")
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/nowhere")
        bare.setattr("sievenet.programs._SYSTEM", "/nowhere")
        with pytest.raises(Unavailable, match="Expected the program ip, got none: install Debian package iproute2"):
            namespaces.run("ip", "link")
    with pytest.raises(Unavailable):
        namespaces.run("false")
    with pytest.raises(InvalidInput):
        OvsNetwork(parse_topology("line,switches=1"), "a name that is too long for a device")
    with pytest.raises(InvalidInput):
        OvsNetwork(parse_topology("line,switches=1"), "x").host_namespace("h9")


@pytest.mark.root
def test_buffers_of_another_process():
    code = "import socket, sys\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
    code += "print(flush=True)\nsys.stdin.read()\n"
    code += "print(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        assert enlarge(process.pid) == 1
        assert int(process.communicate("")[0]) >= 16 << 20
