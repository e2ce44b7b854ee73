"""Traces say what happened to an event, and why it went no further."""

from sievenet.dataplane.tracing import trace
from sievenet.index import Dz
from sievenet.network import Attachment, Flow, FlowTable, Line, Ring

NET = Line.build(switches=3)
CLIENTS = {Attachment("s1", 1000): "alice", Attachment("s3", 1000): "bob"}
START = Attachment("s1", 1000)
TABLES = {
    "s1": FlowTable([Flow.of(1, Dz.parse("1"), NET.port("s1", "s2"), 1000)]),
    "s2": FlowTable([Flow.of(1, Dz.parse("10"), NET.port("s2", "s3"), NET.port("s2", "h2"))]),
    "s3": FlowTable([Flow.of(1, Dz.parse(""), 1000, 1001)]),
}


def test_a_way_through():
    way = trace(NET, TABLES, CLIENTS, START, 1, 0b10 << 126)
    assert way.reached == ("h2", "bob")
    assert str(way).splitlines() == [
        "s1 in 1000",
        "  1:1 → 1,1000",
        "  1 → s2",
        "  s2 in 1",
        "    1:10 → 2,3",
        "    2 → s3    3 → h2",
        "    s3 in 1",
        "      1: → 1000,1001",
        "      1000 → bob    1001 → nobody (nobody there)",
        "reached: h2, bob",
    ]


def test_dropped():
    way = trace(NET, TABLES.get, CLIENTS, START, 1, 0b11 << 126)
    assert way.reached == ()
    assert "no flow: dropped" in str(way)
    assert str(way).endswith("reached: nobody")


def test_what_is_down():
    stopped = trace(NET, TABLES, CLIENTS, START, 1, 1 << 127, down_switches=frozenset({"s3"}))
    assert stopped.reached == ("h2",)
    assert stopped.hops[1].outs[0].stopped == "switch down"
    cut = trace(NET, TABLES, CLIENTS, START, 1, 1 << 127, down_links=frozenset({("s1", "s2")}))
    assert "1 → s2 (link down)" in str(cut)
    assert trace(NET, TABLES, CLIENTS, START, 1, 0, down_switches=frozenset({"s1"})).hops == ()


def test_circles():
    net = Ring.build(switches=3)
    tables = {
        a: FlowTable([Flow.of(1, Dz.parse(""), net.port(a, b))]) for a, b in (("s1", "s2"), ("s2", "s3"), ("s3", "s1"))
    }
    way = trace(net, tables, {}, Attachment("s1", net.port("s1", "s3")), 1, 0)
    assert [hop.switch for hop in way.hops] == ["s1", "s2", "s3"]
    assert way.hops[-1].outs[0].stopped == "a circle"
