"""Two machines' worth of network, and nothing but the commands of docs/howto/secure.md: who gets in, who gets what.

A daemon listens on a real address of one namespace; members and outsiders are processes in another. What was published
is the oracle: a reader has all of it that its rule allows, over a change of every key under traffic.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sievenet import programs
from sievenet.dataplane import namespaces

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.unwatched]

DAEMON, PORT = "fd5e::1", 7400
MEMBERS = """
[members.alice]
role = "client"
rules = ["publish stock: price < 500"]

[members.bob]
role = "client"
rules = ["subscribe stock: price < 100"]

[members.olga]
role = "operator"
rules = ["publish *: any", "subscribe *: any"]

[members.eye]
role = "observer"

[members.daemon]
role = "component"
"""


@pytest.fixture
def machines():
    """A daemon's machine and another one, on one wire."""
    here, there = (f"sva{os.getpid() % 1_000_000:x}{each}" for each in "ds")
    namespaces.add((here, there))
    try:
        namespaces.ip(here, [f"link add w type veth peer name w netns {there}"])
        for name, address in ((here, DAEMON), (there, "fd5e::2")):
            namespaces.ip(name, ["link set w up", f"address add {address}/64 dev w nodad"])
        yield here, there
    finally:
        namespaces.delete((here, there))


def call(machine, *arguments, timeout=60, **options):
    command = programs.command("ip", "netns", "exec", machine, sys.executable, "-m", "sievenet", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


def begin(machine, *arguments, **options):
    command = programs.command("ip", "netns", "exec", machine, sys.executable, "-m", "sievenet", *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_from_another_machine(machines, tmp_path):
    here, there = machines
    url = f"sievenets://[{DAEMON}]:{PORT}"

    def keys(*arguments):
        done = call(here, "keys", *arguments, cwd=tmp_path)
        assert not done.returncode, done.stderr
        return done.stdout

    keys("authority", "access")
    keys("certificate", "access", "daemon", "--role", "component", "--address", DAEMON)
    for name, role in (("alice", "client"), ("bob", "client"), ("olga", "operator"), ("eye", "observer")):
        keys("token", "access", name, "--role", role)
    (tmp_path / "access" / "members.toml").write_text(MEMBERS)
    assert "subscribe stock: price < 100" in keys("members", "access")

    def as_member(name, *arguments, timeout=60):
        login = str(tmp_path / "access" / f"{name}.login")
        return call(there, *arguments, "--url", url, "--login", login, timeout=timeout)

    # Without an access folder, an address that others reach is refused, and what to do is said.
    refused = call(here, "up", "--host", DAEMON, "--for", "1s", cwd=tmp_path)
    assert refused.returncode
    assert "--access FOLDER" in refused.stderr
    options = ("--host", DAEMON, "--port", str(PORT), "--schema", "stock", "--topology", "line,switches=2")
    daemon = begin(here, "up", "--access", "access", "--state", "state", *options, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 40
        while as_member("eye", "status").returncode:
            assert daemon.poll() is None, daemon.communicate()
            assert time.monotonic() < deadline
        # An outsider gets nothing: without a login, with somebody else's, with a token that is none.
        for arguments in (("status",), ("sub", "stock", "--for", "1s"), ("pub", "stock: symbol=A, price=1, volume=1")):
            done = call(there, *arguments, "--url", f"sievenet://[{DAEMON}]:{PORT}")
            assert done.returncode, arguments
            assert "login" in done.stderr
        forged = (tmp_path / "access" / "olga.login").read_text().replace('token = "olga.', 'token = "olga.x')
        (tmp_path / "forged.login").touch(0o600)
        (tmp_path / "forged.login").write_text(forged)
        done = call(there, "status", "--url", url, "--login", str(tmp_path / "forged.login"))
        assert "does not count here" in done.stderr
        # Members with fewer rights: each refusal names what is missing.
        event = "stock: symbol=IBM, price=7, volume=1"
        for name, arguments, told in (
            ("eye", ("pub", event), "eye is an observer and may not be a client"),
            ("bob", ("pub", event), "No rule lets bob publish in stock"),
            ("bob", ("sub", "stock: price > 200", "--for", "1s"), "does not let bob subscribe"),
            ("alice", ("pub", event), "does not let alice publish"),  # it offers all of the schema
            ("alice", ("sub", "stock", "--for", "1s"), "No rule lets alice subscribe"),
            ("alice", ("plan", "apply", "stock"), "alice is a client and may not be an operator"),
            ("bob", ("trace", event), "Expected an operator to ask for trace"),
            ("bob", ("flows", "s1"), "Expected an operator to ask for flows"),
            ("eye", ("flows", "s1"), "Expected an operator to ask for flows"),
        ):
            done = as_member(name, *arguments)
            assert done.returncode, (name, arguments)
            assert told in done.stderr, (name, arguments, done.stderr)

        # Traffic, and every key changes: the daemon's certificate, and the tokens of those who are connected.
        login = str(tmp_path / "access" / "bob.login")
        reader = begin(there, "sub", "stock: price < 100", "--json", "--url", url, "--login", login)
        deadline = time.monotonic() + 30
        while not any(c["subscriptions"] for c in json.loads(as_member("olga", "status", "--json").stdout)["clients"]):
            assert time.monotonic() < deadline
        (tmp_path / "events").write_text(
            "".join(f"stock: symbol=IBM, price={n % 120}, volume={n}\n" for n in range(1, 1501))
        )
        login = str(tmp_path / "access" / "alice.login")
        source = ("--file", str(tmp_path / "events"), "--advertise", "stock: price < 500", "--rate", "300")
        writer = begin(there, "pub", *source, "--url", url, "--login", login)
        time.sleep(1.2)
        keys("certificate", "access", "daemon", "--address", DAEMON)
        for name in ("alice", "bob"):
            keys("token", "access", name)
        time.sleep(1.2)
        assert not as_member("bob", "sub", "stock: price < 100", "--for", "500ms").returncode  # the new login counts
        said = writer.communicate(timeout=60)
        assert writer.returncode == 0, said
        time.sleep(1)
        reader.send_signal(signal.SIGINT)
        got = [json.loads(line) for line in reader.communicate(timeout=20)[0].splitlines()]
        volumes = [each["volume"] for each in got if "volume" in each] or [
            each["event"]["volume"] for each in got if "event" in each
        ]
        assert volumes == [n for n in range(1, 1501) if n % 120 < 100]
        # The old ones go: whoever is still connected by them is out, and the new ones go on.
        keys("revoke", "access", "bob", "--old")
        assert not as_member("bob", "sub", "stock: price < 100", "--for", "500ms").returncode
        audit = [json.loads(line) for line in (tmp_path / "state" / "audit.jsonl").read_text().splitlines()]
        assert {"alice", "bob", "olga", "eye"} <= {each["who"] for each in audit}
        assert any("No rule lets bob publish" in each["outcome"] for each in audit)
    finally:
        daemon.send_signal(signal.SIGINT)
        try:
            daemon.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.communicate()
