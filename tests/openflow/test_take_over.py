"""Two daemons at the same Open vSwitch switches, by NATS: one is killed, the other takes over, and events go on."""

import json
import os
import signal
import time

import pytest

from sievenet.testing.nats_server import nats_program
from tests.openflow.foreign import BRIDGES, HOSTS, Foreign
from tests.openflow.test_existing import SIEVENET, URL, Process

pytestmark = [
    pytest.mark.root,
    pytest.mark.ovs,
    pytest.mark.slow,
    pytest.mark.unwatched,
    pytest.mark.xdist_group("ovs"),
]


def test_switches_go_over_to_another_daemon(tmp_path):
    commands = []
    for port, name in ((6653, "first"), (6654, "second")):
        settings = f'dataplane = "openflow"\n[openflow]\nlisten = "127.0.0.1:{port}"\nswitches = {len(BRIDGES)}\n'
        settings += f'[nats]\nurl = "nats://127.0.0.1:4222"\nname = "{name}"\nlease = 1.0\n'
        (tmp_path / f"{name}.toml").write_text(settings)
        commands.append([*SIEVENET, "up", "--config", str(tmp_path / f"{name}.toml"), "--every", "200ms"])
    with Foreign(None) as network:
        for bridge in BRIDGES:
            network.vsctl("set-controller", bridge, "tcp:127.0.0.1:6653", "tcp:127.0.0.1:6654")
        for controller in network.vsctl("--columns=_uuid", "--no-headings", "list", "Controller").split():
            network.vsctl("set", "Controller", controller, "max_backoff=1000")
        left, right = map(network.host, HOSTS)
        server = [nats_program(), "-js", "-sd", str(tmp_path / "nats"), "-a", "127.0.0.1", "-p", "4222"]
        said = "stock: symbol=IBM, price={}, volume=1200"
        with Process(network.switches, *server), Process(network.switches, *commands[0], "--schema", "stock") as first:
            assert "3 switches, 2 hosts" in first.line("is up")
            listening = [*SIEVENET, "sub", "--url", URL, "stock: price > 420", "--json"]
            with Process(right, *listening) as subscriber, Process(network.switches, *commands[1]) as second:
                subscriber.line("subscribed to")
                network.inside(left, *SIEVENET, "pub", "--url", URL, said.format(421.5))
                assert json.loads(subscriber.line("{"))["event"]["price"] == 421.5
                os.kill(first._process.pid, signal.SIGKILL)
                assert "3 switches, 2 hosts" in second.line("is up")
                ask = [*SIEVENET, "status", "--json", "--url", "sievenet://127.0.0.1:7400"]
                deadline = time.monotonic() + 60
                while not (now := json.loads(network.inside(network.switches, *ask)))["clients"][0]["connected"]:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
                assert now["shared"]["term"] == 2
                assert now["clients"][0]["subscriptions"] == 1
                network.inside(left, *SIEVENET, "pub", "--url", URL, said.format(422.5))
                assert json.loads(subscriber.line("{"))["event"]["price"] == 422.5
