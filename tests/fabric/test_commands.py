"""The fabric's commands against a running fabric, as people and programs call them."""

import json
import threading

import msgspec
import pytest

import sievenet.sync
from sievenet.content import Attribute, Schema, parse_event
from sievenet.index import Dz, Plan
from sievenet.network import Add, Delete, Flow
from sievenet.tap import read_segment
from sievenet.workload.samples import load_schema
from tests.fabric.harness import caller, fabric_in_thread

STOCK = load_schema("stock")
EVENT = "stock: symbol=IBM, price=421.5, volume=1200"


@pytest.fixture(scope="module")
def daemon():
    with fabric_in_thread(topology="testbed", control__forwarding_delay=0.01) as running:
        yield running


@pytest.fixture
def call(daemon, monkeypatch):
    return caller(daemon.url, monkeypatch)


@pytest.fixture
def watcher(daemon):
    with sievenet.sync.connect(daemon.url, name="watcher", host="h8") as node:
        node.schema(STOCK)
        yield node


def test_pub_arguments_and_sub(call, watcher):
    feed = watcher.subscribe("stock: price > 420")
    result = call("pub", EVENT, "stock: symbol=GE, price=7, volume=1", "--repeat", "2", "--json")
    assert json.loads(result.stdout) == {"published": 4, "bad": 0}
    assert [feed.get(5)["symbol"] for _ in range(2)] == ["IBM", "IBM"]
    feed.close()


def test_sub_prints_until_it_has_enough(call, watcher):
    market = threading.Event()

    def publish():
        with sievenet.sync.connect() as node:
            node.advertise(STOCK)
            x = 0
            while not market.wait(0.01):
                node.publish(STOCK.event(symbol="IBM", price=400.0 + x % 100, volume=x % 1000))
                x += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        text = call("sub", "stock: price > 420", "-n", "2", "--name", "reader", "--host", "h2")
        lines = call("sub", 'stock: symbol = "IBM"', "stock", "-n", "4", "--json").stdout.splitlines()
        short = call("sub", "stock: price > 999", "--for", "50ms")
    finally:
        market.set()
        thread.join()
    events = text.stdout.splitlines()
    assert len(events) == 2
    assert all(parse_event(line, STOCK)["price"] > 420 for line in events)
    assert "reader at h2 subscribed" in text.stderr
    assert "2 events of stock: price > 420" in text.stderr
    found = [json.loads(line) for line in lines]
    assert len(found) == 4
    assert {each["schema"] for each in found} == {"stock"}
    assert all(0 <= each["latency"] < 10 and each["event"]["symbol"] == "IBM" for each in found)
    assert short.stdout == ""


def test_pub_json_lines_text_lines_and_csv(call, watcher, tmp_path):
    feed = watcher.subscribe("stock")
    call("pub", "--schema", "stock", input='{"symbol": "GE", "price": 7, "volume": 10}\n\n' + EVENT + "\n")
    assert [feed.get(5)["symbol"] for _ in range(2)] == ["GE", "IBM"]
    table = tmp_path / "quotes.csv"
    table.write_text("day,symbol,price,volume\n1,IBM,1.5,3\n2,GE,2,4\n")
    call("pub", "--schema", "stock", "--file", str(table), "--rate", "1000")
    assert [feed.get(5)["volume"] for _ in range(2)] == [3, 4]
    feed.close()


@pytest.mark.parametrize(
    ("lines", "form", "told"),
    [
        ('{"symbol": "GE", "price": 7}', "json", "line 1: Expected a value of volume"),
        ("{", "json", "line 1: Expected a JSON object"),
        ("stock: symbol=GE, price=7, volume=1\nstock: prize=7", "text", "line 2"),
        ("symbol,price,volume\nGE,x,1\n", "csv", "line 2: Expected float, got 'x' - at stock.price"),
        ("symbol,price,volume\nGE,1\n", "csv", "line 2: Expected 3 fields, got 2"),
        ('{"symbol": "GE", "price": 7000, "volume": 1}', "json", "float in [0.0, 1000.0], got 7000"),
    ],
)
def test_bad_lines_are_named(call, watcher, lines, form, told):
    result = call("pub", "--schema", "stock", "--as", form, input=lines, code=2)
    assert told in result.output
    skipping = call("pub", "--schema", "stock", "--as", form, "--skip-bad", "--json", input=lines)
    assert json.loads(skipping.stdout)["bad"] == 1
    assert told.split(": ")[-1].split(",")[0] in skipping.stderr


def test_pub_needs_to_know_the_schema(call):
    assert "schema" in call("pub", "x=1", code=2).output
    assert "nonsense" in call("pub", "nonsense: x=1", code=2).output
    assert "advertises" in call("pub", "--advertise", "stock: price < 1", EVENT, code=2).output


def test_status(call, watcher):
    watcher.subscribe("stock: price > 1").close()
    found = json.loads(call("status", "--json").stdout)
    assert {"traffic", "categories", "clients", "switches"} <= found.keys()
    assert len(found["switches"]) == 10
    text = call("status").stdout
    assert "watcher" in text
    assert "10 of 10 switches hold what they should" in call("status", "--check").stdout
    assert json.loads(call("status", "--check", "--json").stdout) == {"ok": True, "switches": 10, "differing": []}
    assert "unnecessary per host" in text


def test_a_switch_that_holds_something_else_is_found(call, watcher, daemon):
    flow = Flow.of(1, Dz.parse("0101"), 1)
    daemon.plane.forwarding.install("s3", [Add(flow)])
    try:
        assert "s3: 0 flows missing, 1 too many" in call("status", "--check", code=2).stdout
    finally:
        daemon.plane.forwarding.install("s3", [Delete(flow)])
    call("status", "--check")


def test_topo(call, watcher):
    text = call("topo").stdout
    assert "testbed: 10 switches, 8 hosts, 24 links" in text
    assert "h8  watcher" in text
    assert text.count("[s") == 10
    found = json.loads(call("topo", "--json").stdout)
    assert len(found["links"]) == 24
    assert "[s4]" in call("topo", "--shape", "ring,switches=4").stdout
    assert "moebius" in call("topo", "--shape", "moebius", code=2).output


def test_flows_and_trace(call, watcher, daemon):
    with sievenet.sync.connect(daemon.url, name="market", host="h1") as market:
        market.advertise(STOCK)
        watcher.subscribe("stock: price > 420")
        watcher.subscribe("stock: price > 900 and volume < 5")
        found = json.loads(call("flows", "s10", "--json").stdout)
        assert found["flows"]
        assert all(flow["category"] == "stock" for flow in found["flows"])
        assert {port["peer"] for flow in found["flows"] for port in flow["ports"]} == {"watcher"}
        assert "watcher" in call("flows", "s10", "--limit", "1").stdout
        seen = json.loads(call("trace", EVENT, "--json").stdout)
        assert seen["from"] == "market at h1"
        assert seen["hops"][0]["switch"] == "s5"
        assert seen["hops"][-1]["switch"] == "s10"
        assert [(d["client"], d["reached"]) for d in seen["delivered"]] == [("watcher", True)]
        assert [n["subscription"] for n in seen["not_wanted"]] == ["stock: price > 900 and volume <= 4"]
        text = call("trace", EVENT, "--from", "h3").stdout
        assert "comes in from h3" in text
        assert "watcher gets it: stock: price > 420" in text
        assert "watcher does not want it" in text
        assert "price" in text
        nobody = call("trace", "stock: symbol=IBM, price=0.5, volume=0").stdout
        assert "no flow matches" in nobody or "false positive" in nobody
    assert "s99" in call("flows", "s99", code=2).output


def test_plan(call, watcher, tmp_path):
    assert "stock: dz" in call("plan", "show", "stock").stdout
    shown = call("plan", "show", "stock", "--json").stdout
    plan = Plan.from_json(shown)
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.structs.replace(plan, version=plan.version + 1).to_json())
    assert "in use after" in call("plan", "apply", str(file)).stdout
    report = json.loads(call("plan", "apply", str(file), "--json").stdout)
    assert report["category"] == "stock"
    file.write_text("{}")
    call("plan", "apply", str(file), code=2)
    call("plan", "show", "nonsense", code=2)


def test_up_runs_a_sample_and_prints_what_to_try(call):
    result = call("up", "--sample", "stock", "--for", "1s", "--every", "300ms", "--port", "0", "--data-port", "0")
    first, who, second, sub, pub, status, tuning, *looks = result.stdout.splitlines()
    assert first.startswith("fabric testbed is up: 10 switches, 8 hosts")
    assert "everybody on this machine is an operator" in who
    assert "another terminal" in second
    assert "sub --url" in sub
    assert "pub --url" in pub
    assert "status --url" in status
    assert "by itself" in tuning
    assert "published/s" in looks[0]


def test_up_as_json(call, tmp_path):
    settings = tmp_path / "sievenet.toml"
    settings.write_text('topology = "line,switches=2"\n')
    result = call(
        "up", "--config", str(settings), "--schema", "stock", "--for", "100ms", "--every", "30ms", "--json",
        "--port", "0", "--data-port", "0", "--state", str(tmp_path / "state"),
    )  # fmt: skip
    look = json.loads(result.stdout.splitlines()[0])
    assert look["topology"] == "line,switches=2"
    assert [c["name"] for c in look["categories"]] == ["stock"]
    assert (tmp_path / "state" / "journal.db").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--sample", "weather"), "weather"),
        (("--topology", "moebius"), "moebius"),
        (("--for", "soon"), "duration"),
        (("--schema", "none.json"), "none.json"),
        (("--config", "none.toml"), "none.toml"),
    ],
)
def test_up_refuses_nonsense(call, arguments, told):
    result = call("up", "--port", "0", "--data-port", "0", *arguments, code=2)
    assert told in result.output


def test_schemas_are_registered_in_versions_and_removed(call, tmp_path):
    one = Schema("trip", (Attribute("km", "int", lo=0, hi=99),))
    two = Schema("trip", (*one.attributes, Attribute("tip", "bool")), 2)
    for each in (one, two):
        (tmp_path / f"{each.version}.json").write_bytes(each.to_json())
        assert (
            f"trip version {each.version} is registered"
            in call("schema", "register", str(tmp_path / f"{each.version}.json")).output
        )
    versions = [c["version"] for c in json.loads(call("status", "--json").output)["categories"] if c["name"] == "trip"]
    assert versions == [1, 2]
    assert "a version of trip (1, 2)" in call("schema", "remove", "trip", code=2).output
    with sievenet.sync.connect(name="traveller") as node:
        node.subscribe("trip: km > 3")
        assert "is used by traveller" in call("schema", "remove", "trip", "--version", "1", code=2).output
        call("schema", "remove", "trip", "--version", "1", "--force")
    call("schema", "remove", "trip")
    assert "trip" not in {c["name"] for c in json.loads(call("status", "--json").output)["categories"]}


def test_a_tap_keeps_what_is_published(call, watcher, tmp_path):
    result = call("pub", EVENT, "--repeat", "30", "--name", "market", "--tap", str(tmp_path / "tap"), "--json")
    assert json.loads(result.stdout) == {"published": 30, "bad": 0, "tap_kept": 30, "tap_lost": 0}
    (path,) = (tmp_path / "tap").iterdir()
    segment = read_segment(path.read_bytes())
    assert (segment.publisher, segment.factor, len(segment)) == ("market", 1, 30)
    assert {event.values for part in segment.parts for event in part.batch} == {parse_event(EVENT, STOCK).values}
    result = call("pub", EVENT, "--repeat", "400", "--tap", str(tmp_path / "some"), "--tap-factor", "4")
    kept = sum(len(read_segment(path.read_bytes())) for path in (tmp_path / "some").iterdir())
    assert 60 < kept < 150
    assert f"{kept} kept in {tmp_path / 'some'}" in result.stderr


def test_a_tap_that_cannot_be_written_is_told_before_anything_is_published(call, watcher, tmp_path):
    feed = watcher.subscribe("stock: price > 420")
    (tmp_path / "file").write_text("")
    said = call("pub", EVENT, "--tap", str(tmp_path / "file" / "tap"), code=2).stderr
    assert "a folder that can be written" in said
    assert feed.statistics().delivered == 0
    feed.close()


def test_the_sample_has_a_tap_too(call, tmp_path):
    start = ["up", "--sample", "stock", "--rate", "400", "--tap", str(tmp_path), "--for", "1s"]
    said = call(*start, "--port", "0", "--data-port", "0").stderr
    kept = sum(len(read_segment(path.read_bytes())) for path in tmp_path.iterdir())
    assert kept > 20
    assert f"{kept} events kept in {tmp_path}" in said
    # Without a sample the folder is only read, for the rates.
    said = call("up", "--tap", str(tmp_path), "--for", "1s", "--port", "0", "--data-port", "0").stdout
    assert "unnecessary - per link, 0.0% per host, - per subscription" in said
