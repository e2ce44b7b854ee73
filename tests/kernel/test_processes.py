"""Machines, daemon, agents and clients as processes of their own, as a user starts them; some are killed."""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from sievenet.dataplane import namespaces as ns
from sievenet.network import parse_topology
from tests.kernel.machines import make_wires, remove_wires

pytestmark = [pytest.mark.root]

TOPOLOGY = parse_topology("line,switches=2,hosts=1")
ONE = parse_topology("line,switches=1,hosts=2")
STOCK = "stock: symbol=IBM, price={price}, volume=1200"


def entering(namespace):
    """What a child does to be in a namespace; unlike `ip netns exec` it shares our mounts, as on a machine."""
    descriptor = os.open(ns.NAMESPACES / namespace, os.O_RDONLY)

    def enter():
        ctypes.CDLL(None).setns(descriptor, 0x40000000)

    return enter, descriptor


class Process:
    """A `sievenet` command inside a namespace."""

    def __init__(self, namespace, words):
        enter, descriptor = entering(namespace)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sievenet", *words],
            preexec_fn=enter,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        os.close(descriptor)
        self._lines = queue.Queue()
        self._said = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def says(self, part, seconds=30):
        """The next line with this in it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = ""
            self._said.append(line)
            assert line, f"expected {part!r}, got {''.join(self._said)}"
            if part in line:
                return line

    def end(self, number=signal.SIGINT):
        self._process.send_signal(number)
        try:
            return self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def wait(self):
        return self._process.wait(60)


@contextmanager
def started(namespace, *words):
    process = Process(namespace, words)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def connected(topology, control=None):
    """Machines that are to be switches, hosts, and the control plane's (perhaps a switch), joined to each of them."""
    wires = make_wires(topology, kind="svp")
    try:
        nodes = [*map(wires.switch_namespace, topology.switches), *map(wires.host_namespace, topology.hosts)]
        if control is None:
            control = f"{wires.name}.c"
            ns.add([control])
        else:
            control = wires.switch_namespace(control)
            nodes.remove(control)
        for i, node in enumerate(nodes):
            ns.run("ip", "link", "add", f"m{i}", "netns", control, "type", "veth", "peer", "name", "mg", "netns", node)
            for where, device, end in ((control, f"m{i}", 1), (node, "mg", 2)):
                ns.run("ip", "-n", where, "address", "add", f"10.9.{i}.{end}/24", "dev", device)
                ns.run("ip", "-n", where, "link", "set", device, "up")
        yield wires, control
    finally:
        remove_wires(wires)


@pytest.fixture
def machines():
    with connected(TOPOLOGY) as found:
        yield found


def agent(wires, i):
    switch = TOPOLOGY.switches[i]
    where = ("--run-dir", str(wires.run_dir / f"m-{switch}"))
    ports = ",".join(wires.interfaces(switch))
    return started(
        wires.switch_namespace(switch), "switch", switch, "--interfaces", ports, "--control", f"10.9.{i}.1:7402", *where
    )


def daemon(wires, control):
    topology = ("--topo", "line,switches=2,hosts=1", "--schema", "stock")
    state = ("--state", str(wires.run_dir / "state"))
    listen = ("--listen", "0.0.0.0:7402", "--config", str(wires.run_dir / "config.toml"))
    (wires.run_dir / "config.toml").write_text('listen.host = "0.0.0.0"\nkernel.grace = 1.0\n')
    return started(control, "up", "--insecure", "--dataplane", "kernel", *listen, *topology, *state, "--every", "1h")


def client(wires, host, *words):
    topology = wires.topology
    i = (len(topology.switches) if topology is TOPOLOGY else 0) + topology.hosts.index(host)
    where = ("--url", f"sievenet://10.9.{i}.1:7400", "--host", host)
    return started(wires.host_namespace(host), words[0], *where, *words[1:])


def published(wires, price):
    with client(wires, "h1", "pub", STOCK.format(price=price)) as process:
        assert process.wait() == 0, process.says("Error")


@pytest.mark.slow
@pytest.mark.unwatched
def test_agents_and_daemon_are_killed_and_come_back(machines):
    wires, control = machines
    with ExitStack() as stack:
        agents = [stack.enter_context(agent(wires, i)) for i in range(2)]
        master = stack.enter_context(daemon(wires, control))
        master.says("fabric line,switches=2,hosts=1 is up: 2 switches, 2 hosts")
        for each in agents:
            each.says("forwards between p1, p2")
        watcher = stack.enter_context(client(wires, "h2", "sub", "stock: price > 420", "--json"))
        watcher.says("subscribed to")

        def arrives(price):
            published(wires, price)
            assert f"{price}" in watcher.says("{")

        arrives(421)
        # All are killed: the machines go on forwarding, new agents take them over, and the daemon has its journal.
        for each in (*agents, master):
            each.end(signal.SIGKILL)
        agents = [stack.enter_context(agent(wires, i)) for i in range(2)]
        master = stack.enter_context(daemon(wires, control))
        master.says("is up")
        for each in agents:
            each.says("forwards between")
        arrives(422)
        # One is killed, and nobody takes its switch over: whoever is there is told.
        agents[1].end(signal.SIGKILL)
        watcher.says("switch s2 of this host is down: nothing comes here")
        published(wires, 423)
        agents[1] = stack.enter_context(agent(wires, 1))
        watcher.says("switch s2 of this host is back")
        arrives(424)
        # Agents that end by themselves take their switches away.
        for each in agents:
            assert each.end() == 0
        assert not (wires.run_dir / "m-s1").exists()


@pytest.mark.slow
@pytest.mark.unwatched
def test_a_single_machine_is_a_network():
    with connected(ONE, "s1") as (wires, control), ExitStack() as stack:
        words = ("--interfaces", "p1,p2", "--schema", "stock", "--host", "0.0.0.0", "--insecure", "--every", "1h")
        master = stack.enter_context(started(control, "up", "--dataplane", "kernel", *words))
        master.says("is up: 1 switches, 2 hosts")
        watcher = stack.enter_context(client(wires, "h2", "sub", "stock: price > 420", "--json"))
        watcher.says("subscribed to")
        published(wires, 421)
        assert "421" in watcher.says("{")
