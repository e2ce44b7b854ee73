"""`sievenet pipeline` from files to a plan, as people use it; one session serves all calls."""

import json

import pytest
from click.testing import CliRunner

from sievenet.cli import main
from sievenet.cli.tables import read_traffic
from sievenet.content import Schema
from sievenet.errors import CodecError, PlanError
from sievenet.index import Plan
from sievenet.tap import Tap
from sievenet.workload import Ticks
from tests.fabric.harness import fabric_in_thread

pytestmark = pytest.mark.spark

MARKET = Ticks(seed=1)


@pytest.fixture
def world(spark, tmp_path, monkeypatch):
    """A folder with a trace of the stock market and what some want of it."""
    monkeypatch.chdir(tmp_path)
    names = list(MARKET.schema.positions)
    lines = [",".join(["time", "publisher", *names])]
    for i, event in enumerate(MARKET.events(600)):
        lines.append(",".join([str(1_700_000_000 + i), "nyse" if i % 2 else "cboe", *map(str, event.values)]))
    lines.append("1700000000,nyse" + ",nonsense" * len(names))
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "wanted.txt").write_text("\n".join(str(f) for f in MARKET.subscriptions(30).filters()))
    return tmp_path


def call(*arguments, code=0):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, f"{result.stderr}\n{result.exception!r}"
    return result


def test_from_a_trace_to_a_plan(world):
    done = call("pipeline", "ingest", "store", "trace.csv", "--schema", "stock", "--report", "r1")
    first, span, reason = done.stdout.splitlines()
    assert first == "600 events from 1 files; 1 bad rows in quarantine"
    assert span == "  2023-11-14 22:13:20 to 2023-11-14 22:23:19 UTC"
    assert reason.startswith("  1  expected ")
    assert "report in" in done.stderr
    assert "1 bad rows" in (world / "r1" / "report.md").read_text()
    assert json.loads(call("pipeline", "report", "store", "stock", "--json").stdout)["events"] == 600
    found = json.loads(call("pipeline", "profile", "store", "stock", "--subscriptions", "wanted.txt", "--json").stdout)
    assert found["filters"] == 30
    plan = ["pipeline", "plan", "store", "stock", "--subscriptions", "wanted.txt", "--seconds", "3", "--bits", "16"]
    said = call(*plan, "-o", "plan.json", "--report", "r2", "--version", "3")
    assert "sievenet plan apply plan.json" in said.stdout
    chosen = Plan.from_json((world / "plan.json").read_bytes())
    assert (chosen.bits, chosen.version, chosen.complete) == (16, 3, True)
    assert (world / "r2" / "transmissions.svg").exists()
    assert "are assumed to be clients of their own, all at one switch" in said.stderr
    figures = json.loads((world / "r2" / "figures.json").read_text())
    results = json.loads(
        call(
            "pipeline", "evaluate", "store", "stock", "--subscriptions", "wanted.txt", "--plan", "plan.json", "--json"
        ).stdout
    )
    assert {k: v for k, v in results["plan.json"].items() if k in figures["predicted"]} == figures["predicted"]
    assert figures["predicted"]["transmissions"] <= figures["present"]["transmissions"]
    rates = figures["predicted"]["per_link"], figures["predicted"]["per_host"], figures["predicted"]["per_subscription"]
    assert all(0 <= rate < 1 for rate in rates)
    text = call("pipeline", "evaluate", "store", "stock", "--subscriptions", "wanted.txt", "--budget", "any").stdout
    assert text.startswith("regular, 23 bits: ")
    assert "per link" in text
    # One way of the literature, asked for by name: it is taken, whatever it carries.
    only = json.loads(
        call(*plan, "--method", "EVS+ASI", "--method", "CS", "--objective", "host", "--seconds", "90", "--json").stdout
    )
    assert {t["name"] for t in only["tried"]} == {"RI", "EVS", "EVS+ASI", "CS"}
    assert only["name"] in ("EVS+ASI", "CS")
    assert only["objective"] == "host"
    traffic = ["pipeline", "traffic", "store", "stock", "--prefix", "3", "--json"]
    links = json.loads(call(*traffic, "--subscriptions", "wanted.txt", "--topology", "line,switches=3").stdout)
    assert sum(row["packets"] for row in links["prefixes"]) == 600
    assert links["links"]


def test_traffic_is_counted_for_merging(world):
    call("pipeline", "ingest", "store", "trace.csv", "--schema", "stock")
    counted = json.loads(call("pipeline", "aggregate", "store", "stock", "--prefix", "10", "--json").stdout)
    held = json.loads((world / "traffic.json").read_text())
    assert counted["packets"] == sum(row[2] for row in held["rows"]) == 600
    plans = {"stock": (held["plan"].encode(), 4)}
    traffic = read_traffic(world / "traffic.json", plans)
    assert (traffic.epoch, traffic.publishers) == (4, ["cboe", "nyse"])
    with pytest.raises(PlanError, match="plan of stock in use"):
        read_traffic(world / "traffic.json", {})
    (world / "bad.json").write_text("{}")
    with pytest.raises(CodecError, match="aggregate"):
        read_traffic(world / "bad.json", plans)


def test_watch(world):
    tap = Tap(world / "tap", MARKET.schema, "nyse")
    for i, event in enumerate(MARKET.events(600)):
        tap.offer(event, 1_700_000_000.0 + i * 0.1)
    tap.close()
    (world / "plan.json").write_bytes(Plan.regular(MARKET.schema, 12).to_json())
    arguments = ["tap", "--subscriptions", "wanted.txt", "--plan", "plan.json", "--state", "state", "--window", "20s"]
    said = call("watch", *arguments, "--seconds", "2", "--report", "report")
    assert len([line for line in said.stdout.splitlines() if "drift" in line]) == 3
    assert "batch 0:" in said.stdout
    assert (world / "report" / "windows.svg").exists()
    again = json.loads(call("pipeline", "watch", *arguments, "--json").stdout)
    assert sum(w["events"] for w in again["windows"]) == 600


def test_what_is_wrong_is_told(world):
    assert "got none" in call("pipeline", "ingest", "store", "no.csv", "--schema", "stock", code=2).stderr
    call("pipeline", "ingest", "store", "trace.csv", "--schema", "stock")
    options = ["store", "stock", "--subscriptions", "wanted.txt"]
    assert "Expected a plan file" in call("pipeline", "evaluate", *options, "--plan", "no.json", code=2).stderr
    assert "Expected one of RI, EVS" in call("pipeline", "plan", *options, "--method", "magic", code=2).stderr
    assert "--subscriptions FILE or --snapshot ID" in call("pipeline", "plan", "store", "stock", code=2).stderr
    assert "none yet" in call("pipeline", "plan", "store", "stock", "--snapshot", "x", code=2).stderr
    assert "1 to 4096 entries or `any`" in call("pipeline", "evaluate", *options, "--budget", "0", code=2).stderr
    assert "one of stock" in call("pipeline", "report", "store", "stork", code=2).stderr
    newer = Schema("stock", MARKET.schema.attributes, version=MARKET.schema.version + 1)
    (world / "newer.json").write_bytes(Plan.regular(newer, 12).to_json())
    told = f"a plan for stock version {MARKET.schema.version}, got `a plan for stock version {newer.version}`"
    assert told in call("pipeline", "evaluate", *options, "--plan", "newer.json", code=2).stderr
    assert told in call("pipeline", "traffic", "store", "stock", "--plan", "newer.json", code=2).stderr
    other = call("pipeline", "evaluate", *options, "--master", "spark://nowhere:1", code=2).stderr
    assert "needs a process of its own" in other


def test_from_a_tap_of_the_shell(world, monkeypatch):
    """What `sievenet pub --tap` publishes is what `sievenet pipeline ingest` reads."""
    with fabric_in_thread() as daemon:
        monkeypatch.setenv("SIEVENET_URL", daemon.url)
        text = (world / "trace.csv").read_text().splitlines()
        (world / "good.csv").write_text("\n".join(text[:-1]) + "\n")
        call("pub", "--schema", "stock", "--file", "good.csv", "--name", "market", "--tap", "tap")
    assert call("pipeline", "ingest", "store", "tap", "--schema", "stock").stdout.startswith("600 events from 1 files")
    assert json.loads(call("pipeline", "report", "store", "stock", "--json").stdout)["events"] == 600
