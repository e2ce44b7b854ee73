"""`sievenet sub` and `sievenet pub` with a transport, over links that lose and reorder; the examples of their help."""

import contextlib
import json
import re
import shlex
import threading
import time

import pytest

import sievenet.sync
from sievenet.cli import main
from sievenet.cli.cache import caches
from sievenet.cli.transport import gap_json, publishing, received_text, sent_text, subscribing
from sievenet.client.transport.exchange import control_schema, events_of
from sievenet.transport import Publishing, Recover
from sievenet.transport.actions import OPEN, Channel, Gap, Send
from sievenet.transport.control import Feedback, FlowRequest, encode
from sievenet.transport.statistics import ReceiverStatistics, SenderStatistics
from sievenet.workload.samples import load_schema
from tests.fabric.harness import caller, fabric_in_thread, in_thread
from tests.test_docs import help_examples

STOCK = load_schema("stock")


@pytest.fixture(scope="module")
def daemon():
    links = {"links__loss": 0.03, "links__delay": 0.001, "links__reorder": 0.05, "seed": 9}
    with fabric_in_thread(topology="testbed", **links) as running:
        yield running


@pytest.fixture
def call(daemon, monkeypatch):
    return caller(daemon.url, monkeypatch)


def lines(count):
    return "".join(f'{{"symbol": "GE", "price": {i % 400}, "volume": {i}}}\n' for i in range(count))


def test_pub_with_a_transport_serves_those_who_recover(call, daemon):
    with sievenet.sync.connect(daemon.url, host="h8") as node:
        node.schema(STOCK)
        # So many attempts that a busy machine gives nothing up.
        feed = node.subscribe(STOCK, order=True, recover=Recover(distance=0.01, attempts=64))
        out = call(
            "pub", "--schema", "stock", "--log", "500", "--digest", "50ms", "--linger", "3s", "--host", "h1",
            "--json", input=lines(300),
        )  # fmt: skip
        assert [feed.get(10)["volume"] for _ in range(300)] == list(range(300))
        said = json.loads(out.stdout)
        assert (said["published"], said["bad"]) == (300, 0)
        assert said["transport"]["stock"]["published"] == 300
        assert said["transport"]["stock"]["repairs"] > 0
        assert feed.statistics().transport.recovered > 0


def test_sub_shows_what_the_transport_did(call, daemon):
    with sievenet.sync.connect(daemon.url, host="h1") as source:
        source.schema(STOCK)
        source.advertise(STOCK, transport=Publishing(record=40, digest=0.03, log=5000))
        ended = threading.Event()

        def publish():
            volume = 0
            while not ended.is_set():
                source.publish(STOCK.event(symbol="IBM", price=5.0, volume=volume))
                volume += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            asked = ("sub", "stock", "--order", "--recover", "--rate-control", "--host", "h8")
            people = call(*asked, "-n", "200")
            programs = call(*asked, "-n", "200", "--json")
        finally:
            ended.set()
            thread.join()
    assert people.stdout.count('symbol="IBM"') == 200
    summary = people.stderr.splitlines()[-1]
    assert "held (" in summary
    assert "recovered" in summary
    assert "rate" in summary
    told = [json.loads(line) for line in programs.stdout.splitlines()]
    events = [each for each in told if "event" in each]
    volumes = [each["event"]["volume"] for each in events]
    assert volumes == list(range(volumes[0], volumes[0] + 200))
    done = told[-1]["transport"]
    assert done["delivered"] >= 200
    assert done["recovered"] >= sum(each.get("recovered", False) for each in events)
    assert {"held", "lost", "recovered", "gaps", "rate", "allowed"} <= done.keys()


def test_gaps_are_lines(call, daemon):
    with sievenet.sync.connect(daemon.url, host="h1") as source:
        source.schema(STOCK)
        source.advertise(STOCK, transport=Publishing(record=8))
        ended = threading.Event()

        def publish():
            while not ended.is_set():
                source.publish(STOCK.event(symbol="IBM", price=5.0, volume=1))

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            out = call("sub", "stock", "--order", "--host", "h8", "-n", "400", "--json")
        finally:
            ended.set()
            thread.join()
    gaps = [json.loads(line)["gap"] for line in out.stdout.splitlines() if line.startswith('{"gap"')]
    assert gaps
    assert all(gap["from"] <= gap["to"] for gap in gaps)


@pytest.mark.parametrize("repair", ["republish", "unicast", "auto"])
def test_what_is_missing_in_the_end_is_told(call, daemon, repair):
    """Links lose one in ten: a subscriber that ends under traffic always waits for something."""
    with sievenet.sync.connect(daemon.url, host="h1") as source:
        source.schema(STOCK)
        source.advertise(STOCK, transport=Publishing(record=40, digest=0.03, log=5000))
        ended = threading.Event()

        def publish():
            while not ended.wait(0.001):
                source.publish(STOCK.event(symbol="IBM", price=5.0, volume=1))

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            order = ("--order",) if repair == "auto" else ()
            out = call("sub", "stock", "--recover", "--repair", repair, *order, "--host", "h8", "--for", "1s", "--json")
        finally:
            ended.set()
            thread.join()
    said = [json.loads(line) for line in out.stdout.splitlines()]
    got = [each for each in said if "event" in each]
    gaps = [each["gap"] for each in said if "gap" in each]
    numbers = [each["sequence"] for each in got]
    told = {number for gap in gaps for number in range(gap["from"], gap["to"] + 1)}
    known = {*numbers, *told}
    assert len(numbers) > 50
    assert len(known) == len(numbers) + len(told)
    assert known == set(range(min(known), max(known) + 1))
    assert not order or numbers == sorted(numbers)
    # An event names the stream that a gap names, however it came.
    assert len({(each["publisher"], each["incarnation"]) for each in [*got, *gaps]}) == 1
    assert any(each.get("recovered") for each in got)
    done = said[-1]["transport"]
    assert (done["delivered"], done["gaps"], done["waiting"]) == (len(numbers), len(told), 0)


def test_how_to_repair_needs_recovery(call):
    assert "--repair needs --recover" in call("sub", "stock", "--repair", "unicast", code=2).stderr
    assert subscribing({"order": False, "recover": True, "rate_control": False, "repair": "unicast"}) == {
        "order": False, "recover": Recover(repair="unicast"), "rate_control": False,
    }  # fmt: skip


def test_a_gap_without_an_end_has_no_last_number():
    assert gap_json(Gap(17, 5, 3, OPEN)) == {
        "gap": {"publisher": "0000000000000011", "incarnation": "0000000000000005", "from": 3, "to": None}
    }


@contextlib.contextmanager
def cached(daemon):
    """A cache of the fabric, in a thread of its own."""
    with in_thread(lambda: caches(daemon, ["h4"])):
        yield


@pytest.mark.parametrize("name", ["sub", "pub"])
def test_examples_of_the_help_run(call, daemon, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotes.csv").write_text("symbol,price,volume\nGE,7,1\nIBM,421,2\n")
    with sievenet.sync.connect(daemon.url) as source:
        source.schema(STOCK)
        source.advertise(STOCK)
        ended = threading.Event()

        def publish():
            while not ended.is_set():
                source.publish(STOCK.event(symbol="IBM", price=421.5, volume=1))

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            examples = help_examples(main.get_command(None, name))
            assert len(examples) >= 3
            for example in examples:
                piped, _, after = example.text.partition("|") if "|" in example.text else ("", "", example.text)
                words = shlex.split(after, comments=True)[1:]
                if "--for" in words:
                    words[words.index("--for") + 1] = "300ms"
                if "-n" in words:
                    words[words.index("-n") + 1] = "2"
                elif name == "sub" and "--for" not in words:
                    words += ["-n", "2"]
                with cached(daemon) if "with a cache" in example.needs else contextlib.nullcontext():
                    call(*words, input=shlex.split(piped)[1] if piped else None)
        finally:
            ended.set()
            thread.join()


def test_pub_says_what_receivers_kept_it_from_sending(call, daemon):
    with sievenet.sync.connect(daemon.url, host="h8") as node:
        node.schema(STOCK)
        number = 1 << 40

        def slow(publisher):
            """A receiver that wants one event per second, as the control plane of the transport carries it."""
            return encode(Feedback(number, publisher, time.time(), (FlowRequest(0, 16, 1.0),)))

        feed = node.subscribe(STOCK, order=True)
        control = node.schema(control_schema("stock"))
        node.advertise(control)
        ended = threading.Event()

        def insist():
            delivery = feed.next(20)
            while delivery is not None and not ended.is_set():
                for event in events_of(control, Send(Channel.NODE, delivery.publisher, 0, slow(delivery.publisher)), 0):
                    node.publish(event)
                ended.wait(0.02)

        thread = threading.Thread(target=insist)
        thread.start()
        try:
            out = call(
                "pub", "--schema", "stock", "--rate-control", "--drain", "500ms", "--rate", "100", "--host", "h1",
                code=2, input=lines(300),
            )  # fmt: skip
        finally:
            ended.set()
            thread.join()
        assert "events of stock were not sent" in out.stderr
        assert int(re.search(r"(\d+) events of stock", out.stderr)[1]) > 100


def test_options_become_settings():
    nothing = dict.fromkeys(("record", "digest", "log", "rate_control", "when_full", "drain", "linger"))
    assert publishing({"transport": False, **nothing}) is None
    assert publishing({"transport": True, **nothing}) == Publishing()
    chosen = publishing({"transport": False, **nothing, "log": 10, "digest": 0.5, "rate_control": True})
    assert chosen == Publishing(log=10, digest=0.5, rate_control=True, linger=1.5)
    assert publishing({"transport": False, **nothing, "log": 10}).linger == 0.75  # three digests of the usual length


def test_texts():
    done = ReceiverStatistics(9, 4, 0.02, 0, 1, 3, 2, 1, 120.0, 4000.0, 1, {})
    assert received_text(done) == (
        "4 held (5.0 ms each), 3 lost, 2 recovered, 1 gone for good, 1 late, rate 120/s of 4,000/s"
    )
    free = ReceiverStatistics(9, 0, 0.0, 0, 0, 0, 0, 0, 120.0, float("inf"), 1, {})
    assert received_text(free) == "0 held, 0 lost, 0 recovered, 0 gone for good, rate 120/s of any rate"
    sent = SenderStatistics(10, 0, 1, 5.0, 2, 3, 4, 5, 6, {})
    assert sent_text(sent) == "5 repairs, 4 digests, 2 limited flows, 3 feedback messages, 1 refused"
