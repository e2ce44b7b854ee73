"""Topologies: named shapes, files, and what cannot be built."""

import contextlib

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import InvalidInput, Unavailable
from sievenet.network import (
    PERFECT,
    SHAPES,
    Attachment,
    Clos,
    FatTree,
    Line,
    Link,
    LinkSettings,
    Random,
    Ring,
    Star,
    Testbed,
    Topology,
    Tree,
    dump_topology,
    load_topology,
    natural,
    parse_topology,
    read_topology,
)


def graph_of(topology):
    graph = nx.Graph()
    graph.add_nodes_from(topology.switches + topology.hosts)
    graph.add_edges_from((link.a, link.b) for link in topology.links)
    return graph


@pytest.mark.parametrize(
    ("text", "switches", "hosts"),
    [
        ("line,switches=3", 3, 3),
        ("star,arms=5,hosts=2", 6, 10),
        ("ring,switches=6", 6, 6),
        ("tree,depth=3,fanout=3", 13, 9),
        ("fattree,k=4", 20, 16),
        ("fattree,k=8,hosts=1", 80, 32),
        ("clos", 102, 64),
        ("testbed", 10, 8),
        ("random,switches=300,hosts=4400,seed=5", 300, 4400),
    ],
)
def test_sizes(text, switches, hosts):
    topology = parse_topology(text)
    assert (len(topology.switches), len(topology.hosts)) == (switches, hosts)
    assert nx.is_connected(graph_of(topology))


def test_fat_tree_switches_have_k_ports():
    for topology in (FatTree.build(k=4), FatTree.build(k=6)):
        k = 4 if len(topology.switches) == 20 else 6
        assert {len(topology.ports(s)) for s in topology.switches} == {k}


def test_testbed_is_ten_four_port_switches():
    topology = Testbed.build()
    assert {len(topology.ports(s)) for s in topology.switches} == {4}


def test_every_shape_builds_without_parameters_and_is_documented():
    for name, shape in SHAPES.items():
        assert shape.__doc__
        if name != "file":
            assert parse_topology(name).switches


@pytest.mark.parametrize("build", [Line.build, Star.build, Ring.build, Tree.build, Clos.build, Random.build])
def test_ports_agree_from_both_ends(build):
    topology = build()
    for switch in topology.switches:
        for port, peer in topology.ports(switch).items():
            there, back = topology.peer_port(switch, port)
            assert there == peer
            assert topology.peer_port(peer, back) == (switch, port)
            assert topology.port(switch, peer) == port


def test_random_is_seeded():
    assert Random.build(seed=3) == Random.build(seed=3)
    assert Random.build(seed=3) != Random.build(seed=4)


def test_natural_order():
    assert sorted(["s10", "s2", "h1"], key=natural) == ["h1", "s2", "s10"]
    assert Line.build(switches=12).switches[-1] == "s12"


def test_link_settings_from_the_shell():
    topology = parse_topology("line, switches=2, delay=0.001, bandwidth=1e9, queue=10, loss=0.5")
    assert {link.settings for link in topology.links} == {LinkSettings(delay=0.001, bandwidth=1e9, queue=10, loss=0.5)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("circle", "one of line, star"),
        ("line,switches", "parameter=value"),
        ("line,width=3", "one of switches, hosts, delay"),
        ("line,switches=many", "an integer"),
        ("random,degree=x", "a number"),
        ("line,switches=0", "1.."),
        ("line,link=3", "one of switches"),
        ("ring,switches=2", "3.."),
        ("fattree,k=5", "an even k"),
        ("tree,depth=16,fanout=100", "at most"),
        ("line,loss=2", "a probability"),
        ("line,delay=-1", "seconds"),
        ("line,bandwidth=0", "bits/s"),
        ("line,queue=0", "at least 1 packet"),
        ("line,queue=often", "queue"),
        ("nowhere.json", "a readable file"),
        ("random,degree=500", "a mean degree"),
    ],
)
def test_bad_names(text, says):
    with pytest.raises(InvalidInput, match=says):
        parse_topology(text)


@pytest.mark.parametrize(
    ("switches", "hosts", "links", "says"),
    [
        (["s1", "s1"], [], [], "named once"),
        (["s 1"], [], [], "printable"),
        (["s1"], [], [Link("s1", 1, "s2", 1)], "known node"),
        (["s1", "s2"], [], [Link("s1", 0, "s2", 1)], "a port in"),
        (["s1", "s2"], [], [Link("s1", 1000, "s2", 1)], "a port in"),
        (["s1", "s2", "s3"], [], [Link("s1", 1, "s2", 1), Link("s1", 1, "s3", 1)], "one link per port"),
        (["s1", "s2"], [], [Link("s1", 1, "s2", 1), Link("s2", 2, "s1", 2)], "one link between"),
        (["s1"], [], [Link("s1", 1, "s1", 2)], "two different"),
        (["s1", "s2"], ["h1"], [Link("s1", 1, "h1", 1), Link("s2", 1, "h1", 2)], "one link per host"),
        (["s1"], ["h1", "h2"], [Link("h1", 1, "h2", 1)], "hosts joined by switches"),
    ],
)
def test_contradictions(switches, hosts, links, says):
    with pytest.raises(InvalidInput, match=says):
        Topology(switches, hosts, links)


def test_lookups_of_strangers():
    topology = Line.build(switches=2)
    for call in (
        lambda: topology.ports("x"),
        lambda: topology.port("s1", "h2"),
        lambda: topology.peer_port("s1", 99),
        lambda: topology.link("s1", "h2"),
        lambda: topology.attachment("s1"),
        lambda: topology.attachment("h9"),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_without_keeps_names_and_ports():
    topology = Ring.build(switches=4)
    less = topology.without([("s2", "s1")], ["s4"])
    assert less.switches == ("s1", "s2", "s3")
    assert "s2" not in less.ports("s1").values()
    assert less.port("s2", "s3") == topology.port("s2", "s3")
    assert less.attachment("h1") == topology.attachment("h1") == Attachment("s1", topology.port("s1", "h1"))
    with pytest.raises(Unavailable):
        less.attachment("h4")
    assert topology.without() is topology
    with pytest.raises(Unavailable):
        topology.without([("h2", "s2")]).attachment("h2")


def test_values_compare_and_show_themselves():
    assert hash(Line.build()) == hash(Line.build())
    assert Line.build() != "line"
    assert repr(Line.build(switches=2)) == "<Topology: 2 switches, 2 hosts, 3 links>"
    assert str(Link("s1", 1, "s2", 2)) == "s1:1-2:s2"
    slow = Line.build().with_links(LinkSettings(delay=1.0))
    assert not any(link.settings.perfect for link in slow.links)
    assert PERFECT.perfect


# -- files ---------------------------------------------------------------------------------------


@given(
    st.integers(1, 8),
    st.integers(0, 9),
    st.integers(0, 5),
    st.sampled_from([PERFECT, LinkSettings(delay=0.25, loss=0.5, queue=3)]),
)
def test_json_round_trip(switches, hosts, seed, link):
    topology = Random.build(switches=switches, hosts=hosts, seed=seed, link=link)
    assert load_topology(dump_topology(topology)) == topology


def test_json_numbers_ports_itself(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(
        '{"switches": ["s1", "s2"], "hosts": ["h1"],'
        ' "links": [{"a": "s1", "b": "s2", "a_port": 1, "delay": 0.5}, {"a": "h1", "b": "s1"}]}'
    )
    topology = parse_topology(str(path))
    assert dict(topology.ports("s1")) == {1: "s2", 2: "h1"}
    assert topology.link("s1", "s2").settings.delay == 0.5


def test_file_without_hosts_gets_some(tmp_path):
    path = tmp_path / "net.json"
    path.write_text('{"switches": ["s1", "s2"], "links": [{"a": "s1", "b": "s2"}]}')
    assert parse_topology(f"{path},hosts=2,delay=1").hosts == ("h1", "h2", "h3", "h4")
    assert read_topology(path).hosts == ()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"switches": 3}', '{"switches": [], "links": [], "colour": 1}',
     '{"switches": ["a", "b"], "links": [{"a": "a", "b": "b", "loss": 7}]}'],
)  # fmt: skip
def test_bad_json(text, tmp_path):
    path = tmp_path / "net.json"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        read_topology(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_topology_or_an_error(data):
    with contextlib.suppress(InvalidInput):
        load_topology(data)


def test_graphml(tmp_path):
    graph = nx.path_graph(3)
    graph.add_edge(1, 1)
    graph.add_node(7, kind="host")
    graph.add_edge(0, 7, delay=0.25)
    path = tmp_path / "net.graphml"
    nx.write_graphml(graph, path)
    topology = parse_topology(str(path))
    assert topology.switches == ("s1", "s2", "s3")
    assert topology.hosts == ("h1",)
    assert topology.link("h1", topology.attachment("h1").switch).settings.delay == 0.25
    named = nx.relabel_nodes(nx.cycle_graph(4), lambda i: f"n{i}")
    nx.write_graphml(named, path)
    assert read_topology(path, hosts=1).switches == ("n0", "n1", "n2", "n3")


def test_bad_graphml(tmp_path):
    path = tmp_path / "net.graphml"
    path.write_text("<graphml><nothing")
    with pytest.raises(InvalidInput, match="GraphML"):
        read_topology(path)
    graph = nx.Graph()
    graph.add_node("h1", kind="host")
    graph.add_node("h2", kind="host")
    graph.add_edge("h1", "h2")
    nx.write_graphml(graph, path)
    with pytest.raises(InvalidInput, match="hosts joined"):
        read_topology(path)
    with pytest.raises(InvalidInput, match=r"\.json or \.graphml"):
        read_topology(tmp_path / "net.txt")


def test_link_settings_parse_knows_its_names():
    with pytest.raises(InvalidInput, match="colour"):
        LinkSettings.parse({"colour": 1})
    assert msgspec.structs.asdict(LinkSettings.parse({"delay": "0.5"}))["delay"] == 0.5
