"""Switches that exist already, plain and with TLS, and hosts that reach the control plane through them alone."""

import json
import os
import select
import subprocess
import sys
import time

import pytest

from sievenet import programs
from tests.openflow.foreign import BRIDGES, HOSTS, Foreign, certificates

pytestmark = [pytest.mark.root, pytest.mark.ovs, pytest.mark.xdist_group("ovs")]

SIEVENET = [sys.executable, "-m", "sievenet"]
URL = "sievenet://[fd0f::1]:7400"


class Process:
    """A command in a namespace, whose output is read as it comes."""

    def __init__(self, namespace, *words, **environment):
        self._process = subprocess.Popen(
            programs.command("ip", "netns", "exec", namespace, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
        self._left = b""

    def line(self, holds, timeout=60.0):
        """The next line that holds this."""
        deadline = time.monotonic() + timeout
        while True:
            while b"\n" in self._left:
                line, self._left = self._left.split(b"\n", 1)
                if holds in line.decode():
                    return line.decode()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            assert data, f"expected {holds!r}, got {self._left[-500:]!r}"
            self._left += data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(90)
        self._process.stdout.close()


@pytest.mark.slow
@pytest.mark.unwatched
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_events_cross_switches_that_were_there_before(tmp_path, secure):
    tls = None
    settings = f'dataplane = "openflow"\n[openflow]\nlisten = "127.0.0.1:6653"\nswitches = {len(BRIDGES)}\n'
    if secure:
        certificates(tmp_path)
        tls = (tmp_path / "switch.key", tmp_path / "switch.pem", tmp_path / "ca.pem")
        for name, file in (("certificate", "controller.pem"), ("key", "controller.key"), ("authority", "ca.pem")):
            settings += f'{name} = "{tmp_path / file}"\n'
    (tmp_path / "fabric.toml").write_text(settings)
    with Foreign(tls) as network:
        network.point_to(6653)
        command = [*SIEVENET, "up", "--config", str(tmp_path / "fabric.toml"), "--schema", "stock", "--every", "200ms"]
        left, right = map(network.host, HOSTS)
        with Process(network.switches, *command) as daemon:
            assert "3 switches, 2 hosts" in daemon.line("is up")
            # Hosts have no way out but their switch.
            routes = network.inside(left, "ip", "-6", "route")
            assert "default" not in routes
            assert network.inside(left, "ip", "-4", "route") == ""
            listening = [*SIEVENET, "sub", "--url", URL, "stock: price > 420", "--count", "1", "--json"]
            with Process(right, *listening) as subscriber:
                subscriber.line("subscribed to")
                said = "stock: symbol=IBM, price={}, volume=1200"
                network.inside(left, *SIEVENET, "pub", "--url", URL, said.format(410), said.format(421.5))
                assert json.loads(subscriber.line("{"))["event"]["price"] == 421.5
