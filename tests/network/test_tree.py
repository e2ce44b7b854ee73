"""Spanning trees: exhaustively on small graphs, by seed on large ones."""

import networkx as nx
import pytest

from sievenet.errors import InvalidInput
from sievenet.network import (
    Clos,
    FatTree,
    LinkSettings,
    Random,
    Ring,
    SpanningTree,
    Topology,
    TopologyBuilder,
    spanning_trees,
)
from tests.seeds import seeds


def topology_of(graph, settings=None):
    net = TopologyBuilder()
    for node in graph.nodes:
        net.switch(f"s{node}")
    for a, b in graph.edges:
        net.link(f"s{a}", f"s{b}", settings)
    return net.build()


def atlas(largest):
    return [g for g in nx.graph_atlas_g() if 1 <= len(g) <= largest]


def check_tree(topology, tree):
    graph = nx.Graph([(link.a, link.b) for link in topology.links])
    graph.add_nodes_from(topology.switches)
    spanned = nx.Graph()
    spanned.add_nodes_from(topology.switches)
    spanned.add_edges_from(tree.links())
    assert nx.is_forest(spanned)
    # It joins exactly what the network joins.
    assert {frozenset(c) for c in nx.connected_components(spanned)} == {
        frozenset(c) for c in nx.connected_components(graph)
    }
    return graph, spanned


def test_all_graphs_of_up_to_six_switches():
    for graph in atlas(6):
        topology = topology_of(graph)
        for tree in spanning_trees(topology, min(3, len(graph))):
            joined, spanned = check_tree(topology, tree)
            for a in topology.switches:
                for b in topology.switches:
                    path = tree.path(a, b)
                    if not nx.has_path(joined, a, b):
                        assert path == ()
                        assert tree.next_port(a, b) is None
                        continue
                    assert list(path) == nx.shortest_path(spanned, a, b)
                    assert tree.joined(a, b)
                    if a == b:
                        assert tree.next_port(a, b) is None
                    else:
                        assert tree.next_hop(a, b) == path[1]
                        assert topology.ports(a)[tree.next_port(a, b)] == path[1]


@pytest.mark.parametrize("seed", seeds(5))
def test_paths_from_the_root_are_shortest(seed):
    topology = Random.build(switches=60, hosts=0, degree=4, seed=seed)
    for tree in spanning_trees(topology, 3):
        graph, _ = check_tree(topology, tree)
        distance = nx.single_source_shortest_path_length(graph, tree.root)
        assert {s: len(tree.path(tree.root, s)) - 1 for s in topology.switches} == distance == tree.depth


def test_delay_comes_before_hops():
    net = TopologyBuilder()
    a, b, c = (net.switch() for _ in range(3))
    net.link(a, b, LinkSettings(delay=1.0))
    net.link(a, c, LinkSettings(delay=0.1))
    net.link(c, b, LinkSettings(delay=0.1))
    assert SpanningTree.shortest(net.build(), a).path(a, b) == (a, c, b)


def test_trees_spread_over_links():
    topology = FatTree.build(k=4)
    trees = spanning_trees(topology, 4)
    assert len({tree.root for tree in trees}) == 4
    used = [tree.links() for tree in trees]
    everything = {link.id for link in topology.links if link.a[0] == link.b[0] == "s"}
    assert len(frozenset().union(*used)) == len(everything)
    assert frozenset.intersection(*used) == frozenset()


def test_the_first_root_is_central():
    topology = topology_of(nx.path_graph(5))
    assert spanning_trees(topology, 1)[0].root == "s2"
    assert SpanningTree.shortest(topology).root == "s2"


def test_more_trees_than_switches_go_round():
    roots = [tree.root for tree in spanning_trees(Ring.build(switches=3), 7)]
    assert roots == ["s1", "s2", "s3"] * 2 + ["s1"]


def test_neighbours_on_the_tree():
    tree = spanning_trees(Clos.build(), 1)[0]
    for switch, above in tree.parent.items():
        near = set(tree.children(switch)) | ({above} if above is not None else set())
        assert set(tree.tree_ports(switch).values()) == near
        assert all(tree.below(child, switch) for child in tree.children(switch))
    assert "102 switches" in repr(tree)


def test_failures_move_the_tree():
    topology = Ring.build(switches=5)
    tree = SpanningTree.shortest(topology, "s1")
    lost = tree.path("s1", "s2")
    assert lost == ("s1", "s2")
    after = SpanningTree.shortest(topology.without([("s1", "s2")]), "s1")
    assert after.path("s1", "s2") == ("s1", "s5", "s4", "s3", "s2")
    split = SpanningTree.shortest(topology.without([("s1", "s2"), ("s3", "s4")]), "s1")
    assert split.path("s1", "s2") == ()
    assert split.path("s2", "s3") == ("s2", "s3")


def test_what_is_no_tree():
    topology = Ring.build(switches=3)
    with pytest.raises(InvalidInput, match="over all switches"):
        SpanningTree(topology, "s1", {"s1": None, "s2": "s1"})
    with pytest.raises(InvalidInput, match="as root"):
        SpanningTree.shortest(topology, "s9")
    with pytest.raises(InvalidInput, match="at least one switch"):
        SpanningTree.shortest(Topology([], [], []))
    with pytest.raises(InvalidInput, match="at least 1 tree"):
        spanning_trees(topology, 0)
