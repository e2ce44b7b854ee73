"""Reports, charts and the page about a run."""

import json
import math
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from sievenet.cli import main
from sievenet.index import Plan
from sievenet.network import parse_topology
from sievenet.pipeline import chart
from sievenet.pipeline.report import Report
from sievenet.pipeline.run import Journal
from sievenet.pipeline.sketch import carried, sketch
from sievenet.workload import Ticks

SVG = "{http://www.w3.org/2000/svg}"


def titles(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def test_a_report_is_a_page_markdown_charts_and_figures(tmp_path):
    report = Report("Title <of> a report")
    report.figures = {"a": 1}
    report.text("Some text & more.")
    report.tiles({"events": "12,345"})
    report.table("Table", ["name", "number"], [("a|b", 0.123456), ("c", 12345)])
    report.bars("bars", ["x", "y"], {"one": [1, 2], "two": [2, 1]})
    report.lines("lines", [1, 2, 3], {"one": [1, 2, 3]}, "x", "y")
    report.code("sievenet plan apply plan.json")
    page = report.write(tmp_path / "deep" / "folder")
    html, text = page.read_text(), (page.parent / "report.md").read_text()
    assert "<h1>Title &lt;of&gt; a report</h1>" in html
    assert html.count("<svg") == 2
    assert "<td>0.123</td>" in html
    assert text.startswith("# Title <of> a report\n\nMade 2")
    assert "## Table\n\n| name | number |\n|---|---|\n| a\\|b | 0.123 |\n| c | 12,345 |" in text
    assert "![bars](bars.svg)" in text
    for name in ("bars.svg", "lines.svg"):
        assert ElementTree.parse(page.parent / name).getroot().tag == f"{SVG}svg"
    assert json.loads((page.parent / "figures.json").read_text()) == {"a": 1}


def test_charts_say_their_numbers():
    assert titles(chart.bars(["a"], {"one": [1234.0], "two": [0.0]}, "packets")) == [
        "a, one: 1,234 packets",
        "a, two: 0 packets",
    ]
    assert titles(chart.histogram([0.0, 0.5, 1.0], [3, 0], [1, 2], ("events", "filters"))) == [
        "0 to 0.5: 3",
        "0.5 to 1: 0",
    ]
    # Nothing at all, a single point, and what is no number break no chart.
    for svg in (
        chart.bars([], {"one": []}),
        chart.bars(["a"], {"one": [0.0]}, mark=("needed", 0.0)),
        chart.curves([5.0], {"one": [0.0]}),
        chart.curves([0.0, 1e-9], {"one": [1e-9, 3e12]}, steps=True),
        chart.histogram([1.0, 1.0], [0]),
    ):
        ElementTree.fromstring(svg)
    assert [chart.number(v) for v in (0.012345, 12, 1234.5, math.nan, math.inf)] == ["0.0123", "12", "1,234", "–", "–"]


@pytest.mark.parametrize("shape", ["testbed", "fattree,k=4", "line,switches=1", "ring,switches=5"])
def test_a_sketch_shows_every_link_with_its_packets(shape):
    topology = parse_topology(shape)
    host = topology.hosts[0]
    switch = topology.attachment(host).switch
    links = carried(
        {("client", switch): 5, (switch, "client"): 7, (switch, "other"): 3}, {"client": host, "other": host}
    )
    assert links == {(host, switch): 5, (switch, host): 10}
    svg = sketch(topology, links)
    shown = titles(svg)
    assert sum("→" in title for title in shown) == len(topology.links)
    assert any(f"{switch} → {host}: 10" in title and f"{host} → {switch}: 5" in title for title in shown)
    places = [(e.get("cx"), e.get("cy")) for e in ElementTree.fromstring(svg).iter(f"{SVG}circle")]
    assert len(set(places)) == len(topology.hosts)


def test_a_journal_is_bounded():
    said, now = [], iter(range(10_000))
    journal = Journal(said.append, clock=lambda: float(next(now)))
    for number in range(500):
        journal(f"line {number}")
    assert len(said) == 500
    assert (len(journal.lines), journal.left_out) == (200, 300)
    assert (journal.lines[0], journal.lines[-1]) == ((1.0, "line 0"), (500.0, "line 499"))


@pytest.mark.spark
def test_run_from_a_trace_to_a_page(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    market = Ticks(seed=1)
    lines = [",".join(["when", *market.schema.positions])]
    lines += [
        f"2026-03-01T10:{i // 60 % 60:02}:{i % 60:02}Z," + ",".join(map(str, event.values))
        for i, event in enumerate(market.events(400))
    ]
    (tmp_path / "trades.csv").write_text("\n".join([*lines, "broken"]) + "\n")
    (tmp_path / "wanted.txt").write_text("\n".join(str(f) for f in market.subscriptions(24).filters()))
    arguments = ["pipeline", "run", "trades.csv", "--schema", "stock", "--subscriptions", "wanted.txt"]
    arguments += ["--topology", "testbed", "--seconds", "1", "--bits", "16"]
    done = CliRunner().invoke(main, [*arguments, "--report", "out"])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"
    assert "time: when (ISO 8601)" in done.stderr
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg") > 6
    assert "2026-03-01 10:00:00 to 2026-03-01 10:06:39 UTC; 1 bad rows in quarantine" in page
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert (figures["ingested"], figures["quarantined"]) == (400, 1)
    # What links carry adds up to what the plan is said to carry, before and after.
    for side, plan in (("before", "present"), ("after", "predicted")):
        assert sum(link["packets"] for link in figures["links"][side]) == figures[plan]["transmissions"]
    assert figures["predicted"]["transmissions"] <= figures["present"]["transmissions"]
    assert Plan.from_json((tmp_path / "out" / "plan.json").read_bytes()).bits == 16
    assert "sievenet plan apply" in done.stdout
    # Again: nothing new is read, and the figures are the same.
    again = CliRunner().invoke(main, [*arguments, "--report", "out", "--json"])
    assert "nothing new" in again.stderr
    assert json.loads(again.stdout)["present"] == figures["present"]
