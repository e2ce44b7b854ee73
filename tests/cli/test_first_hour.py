"""What a new user meets in the first hour, at the command line, with real processes."""

import contextlib
import fcntl
import gzip
import inspect
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

import sievenet
import sievenet.sync
from sievenet.client.feed import Feed
from sievenet.client.node import Node
from sievenet.content import EventBatch
from sievenet.errors import EventError, SchemaError
from sievenet.matcher import Matcher
from sievenet.workload.samples import load_schema
from tests.fabric.harness import caller, fabric_in_thread

STOCK = load_schema("stock")
EVENT = "stock: symbol=IBM, price=421.5, volume=1200"
LIMIT = 60.0


@pytest.fixture(scope="module")
def daemon():
    with fabric_in_thread(topology="testbed") as running:
        with sievenet.sync.connect(running.url) as node:
            node.schema(STOCK)
        yield running


@pytest.fixture
def call(daemon, monkeypatch):
    return caller(daemon.url, monkeypatch)


class Command:
    """`sievenet …` as a process, with everything that it prints."""

    def __init__(self, daemon, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sievenet", *arguments],
            env={**os.environ, "SIEVENET_URL": daemon.url, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # As in a terminal: processes in the background of a script ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.seen = ""

    def until(self, text):
        """Read until this was printed."""
        end = time.monotonic() + LIMIT
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, self.seen
                self.seen += data.decode()
        return self.seen

    def ended(self):
        """The exit code, once everything is read."""
        out, _ = self.process.communicate(timeout=LIMIT)
        self.seen += out.decode()
        return self.process.returncode


@contextlib.contextmanager
def command(daemon, *arguments):
    made = Command(daemon, *arguments)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def test_a_killed_clients_name_can_be_used_at_once(daemon, call):
    with command(daemon, "sub", "stock: price > 420", "--name", "bob") as first:
        first.until("subscribed")
        # Its holder is there: refused, with how long that may last.
        refused = call("sub", "stock", "--name", "bob", code=2)
        assert "its holder is connected" in refused.output
        assert "silent for 30 s" in refused.output
        first.process.kill()
        first.process.wait()
        begin = time.monotonic()
        with command(daemon, "sub", "stock: price > 400", "--name", "bob", "-n", "1") as second:
            second.until("bob at")
            assert time.monotonic() - begin < 15, "it should not have waited for the lease"
            call("pub", EVENT)
            assert second.ended() == 0
            assert "1 events of stock: price > 400" in second.seen


def test_a_terminated_sub_gives_its_summary(daemon, call):
    with command(daemon, "sub", "stock: price > 420") as sub:
        sub.until("subscribed")
        call("pub", EVENT, "--repeat", "3")
        for _ in range(3):
            sub.until("421.5")
        sub.process.terminate()
        assert sub.ended() == 128 + signal.SIGTERM
        assert "3 events of stock: price > 420" in sub.seen
        assert "Traceback" not in sub.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pub_gives_its_count(daemon, number):
    with sievenet.sync.connect(daemon.url) as node, command(daemon, "pub", "--schema", "stock", "--json") as pub:
        feed = node.subscribe("stock")
        for _ in range(2):
            pub.process.stdin.write(b'{"symbol": "GE", "price": 7, "volume": 10}\n')
            pub.process.stdin.flush()
            assert feed.get(LIMIT)["symbol"] == "GE"
        # Its standard input stays open and silent, as that of `tail -f` would.
        pub.process.send_signal(number)
        assert pub.process.wait(LIMIT) == 128 + number
        seen = pub.process.stdout.read().decode()
        assert json.loads(seen) == {"published": 2, "bad": 0}, seen


def test_status_of_a_router_and_of_what_is_none(daemon, call):
    with command(daemon, "router", "--listen", "127.0.0.1:0") as router:
        url = re.search(r"sievenet\+router://\S+", router.until("is up: ") + router.until("\n"))[0]
        assert "scheme" in call("status", "--url", url).output
        assert json.loads(call("status", "--url", url, "--json").output)
        refused = call("status", "--url", url.replace("sievenet+router", "sievenet"), code=2)
        assert "sievenet+router://" in refused.output
    refused = call("status", "--url", daemon.url.replace("sievenet", "sievenet+router"), code=2)
    assert "A fabric's address begins with sievenet://" in refused.output


def test_pub_reads_a_packed_table(call, tmp_path):
    file = tmp_path / "x.csv.gz"
    file.write_bytes(gzip.compress(b"symbol,price,volume\nIBM,3.5,10\nGE,4.5,20\n"))
    assert json.loads(call("pub", "--schema", "stock", "--file", str(file), "--json").output)["published"] == 2
    file.write_bytes(file.read_bytes()[:30])
    assert str(file) in call("pub", "--schema", "stock", "--file", str(file), code=2).output


def test_unknown_hosts_and_taken_ports_give_hints(call, daemon):
    unknown = call("status", "--url", "sievenet://nowhere.invalid", code=2).output
    assert "nowhere.invalid" in unknown
    assert "spelt right" in unknown
    silent = call("status", "--url", "sievenet://127.0.0.1:1", code=2).output
    assert "nobody listens there" in silent
    port = daemon.url.rpartition(":")[2]
    taken = call("up", "--port", port, "--data-port", "0", "--for", "1s", code=2).output
    assert "the port is taken" in taken
    assert "0 takes a free one" in taken
    data = str(daemon.plane.endpoint[1])
    assert "the port is taken" in call("up", "--port", "0", "--data-port", data, "--for", "1s", code=2).output


def test_topo_shows_packets_per_link(call, daemon):
    with sievenet.sync.connect(daemon.url, name="far", host="h8") as node:
        feed = node.subscribe("stock")
        call("pub", EVENT, "--repeat", "50", "--host", "h1")
        for _ in range(50):
            assert feed.get(LIMIT)
        found = json.loads(call("topo", "--json").output)
        drawn = call("topo").output
        inner = [each for each in found["links"] if each["a"].startswith("s") and each["b"].startswith("s")]
        carried = [each for each in inner if each["packets"]]
        assert carried
        # Every link that carried something is drawn with its number: in the tree, or as ↔ with it behind.
        numbers = re.findall(r"─ ([\d,]+) ─|\(([\d,]+)\)", drawn)
        assert sorted(int((a or b).replace(",", "")) for a, b in numbers) == sorted(e["packets"] for e in carried)
        assert re.search(r"far →0 ←\d+", drawn)


class Terminal:
    """A terminal of 80 × 24: what is on its screen after what was written to it."""

    def __init__(self, rows=24, columns=80):
        self.rows, self.columns = rows, columns
        self.lines = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0

    def write(self, text):
        for token in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]", text):
            if token == "\r":
                self.x = 0
            elif token == "\n":
                self._down()
            elif token[0] != "\x1b":
                if self.x >= self.columns:
                    self.x = 0
                    self._down()
                self.lines[self.y][self.x] = token
                self.x += 1
            elif token.endswith("A"):
                self.y = max(0, self.y - int(token[2:-1] or 1))
            elif token.endswith("K"):
                self.lines[self.y] = [" "] * self.columns

    def _down(self):
        if self.y == self.rows - 1:
            self.lines = [*self.lines[1:], [" "] * self.columns]
        else:
            self.y += 1

    def shown(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


def in_terminal(*arguments, rows=24, columns=80):
    """Run a command in a terminal; what is on the screen in the end, before the shell's prompt."""
    pid, handle = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "sievenet", *arguments])
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    terminal, data = Terminal(rows, columns), b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(handle, 65536):
            data += chunk
    os.close(handle)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, data.decode()
    terminal.write(data.decode())
    return terminal.shown()


def test_what_to_try_stays_on_a_small_screen():
    screen = in_terminal("up", "--sample", "stock", "--for", "3s", "--port", "0", "--data-port", "0")
    for text in ("fabric testbed is up", " sub --url", " pub --url", "published/s", "latency p50"):
        assert text in screen, screen


def test_the_synchronous_node_has_every_method():
    def public(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    # What the network and the transport call; `connect` starts a node.
    inner = {"start", "listen", "room", "explain"}
    assert public(Node) - inner <= public(sievenet.sync.SyncNode)
    assert public(Feed) - {"accept", "drained", "end", "take_last"} <= public(sievenet.sync.SyncFeed)
    for name in ("advertise", "subscribe", "publish", "publish_many", "schema", "remove_schema", "ask", "apply_plan"):
        ours = inspect.signature(getattr(sievenet.sync.SyncNode, name)).parameters
        assert list(ours) == list(inspect.signature(getattr(Node, name)).parameters), name
    connect = inspect.signature(sievenet.connect).parameters
    assert list(inspect.signature(sievenet.sync.connect).parameters) == list(connect)


def test_the_synchronous_node_does_what_the_other_does(daemon):
    with sievenet.sync.connect(daemon.url) as node, sievenet.sync.connect(daemon.url, operator=True) as operator:
        assert node.connected
        feed = node.subscribe("stock")
        with node.advertise(STOCK):
            node.publish(STOCK.event(symbol="GE", price=7.0, volume=10))
            assert next(iter(feed.deliveries())).own
        with pytest.raises(sievenet.SievenetError):
            node.publish(STOCK.event(symbol="GE", price=7.0, volume=10))
        assert operator.apply_plan("stock", node.plan("stock"))["epoch"] >= 1
        assert node.published_with("stock") is None
        node.unsubscribe(feed)
        assert feed.get(1) is None


def test_batches_of_events_and_clear_errors():
    event = STOCK.event(symbol="GE", price=7.0, volume=10)
    batch = EventBatch.of([event, event])
    assert list(batch) == [event, event]
    for wrong in ([], [1], "stock", 3, STOCK):
        with pytest.raises(EventError, match="Expected"):
            EventBatch.of(wrong)
    matcher = Matcher(STOCK)
    with pytest.raises(SchemaError, match="got `a batch: use match_batch`"):
        matcher.match(batch)
    with pytest.raises(SchemaError, match="got `dict`"):
        matcher.match({"symbol": "GE"})
    assert matcher.match_batch(batch).counts.tolist() == [0, 0]


def test_payloads(call, daemon, tmp_path):
    file = tmp_path / "picture"
    file.write_bytes(bytes(range(10)))
    with command(daemon, "sub", "stock", "-n", "2", "--payload", "--json") as sub:
        sub.until("subscribed")
        call("pub", EVENT, "--payload", "see page 3")
        call("pub", EVENT, "--payload", f"@{file}")
        assert sub.ended() == 0
        found = [json.loads(line) for line in sub.seen.splitlines() if line.startswith("{")]
    assert [each["payload_base64"] for each in found] == ["c2VlIHBhZ2UgMw==", "AAECAwQFBgcICQ=="]
    assert [each["payload"] for each in found] == [10, 10]
    assert "Expected at most" in call("pub", EVENT, "--payload", "x" * 70000, code=2).output
    assert "No such file" in call("pub", EVENT, "--payload", "@nowhere", code=2).output


def test_a_clients_subscriptions_are_listed(call, daemon):
    with sievenet.sync.connect(daemon.url, name="ann") as node:
        node.subscribe("stock: price > 420")
        node.advertise("stock: price < 7")
        listed = call("status", "--client", "ann").output
        assert "ann at h" in listed
        assert "wants     stock: price > 420" in listed
        assert "publishes stock: price < 7" in listed
        everybody = json.loads(call("status", "--clients", "--json").output)
        [found] = [each for each in everybody["clients"] if each["name"] == "ann"]
        assert found["subscriptions"] == ["stock: price > 420"]
        assert found["more_subscriptions"] == 0
        assert 0 < found["lease_left"] <= 30
    assert "Expected a client" in call("status", "--client", "nobody", code=2).output
