"""What posets and forests should be, by brute force."""

import itertools

from sievenet.content import Attribute, Schema

PLANE = Schema("plane", (Attribute("x", "int", lo=0, hi=7), Attribute("y", "int", lo=0, hi=7)))


def strictly(one, other):
    return one != other and one.covers(other)


def check_poset(poset, wanted):
    """All relations as brute force has them."""
    assert {e.filter: set(e.subscribers) for e in poset} == wanted
    every = list(wanted)
    for entry in poset:
        assert poset.entries[entry.id] is entry
        above = [g for g in every if strictly(g, entry.filter)]
        below = [g for g in every if strictly(entry.filter, g)]
        immediate_above = {g for g in above if not any(strictly(g, h) for h in above)}
        immediate_below = {g for g in below if not any(strictly(h, g) for h in below)}
        assert {poset.entries[p].filter for p in entry.preds} == immediate_above
        assert {poset.entries[s].filter for s in entry.succs} == immediate_below
        assert {poset.entries[p].filter for p in poset.above(entry.id)} == set(above)
        assert {poset.entries[s].filter for s in poset.below(entry.id)} == set(below)
        assert entry.level == 1 + max((poset.entries[p].level for p in entry.preds), default=-1)
    assert set(poset.root_filters()) == {f for f in every if not any(strictly(g, f) for g in every)}
    for layer in poset.layers():
        for one, other in itertools.permutations(layer, 2):
            assert not poset.entries[one].filter.covers(poset.entries[other].filter)


def check_forest(forest):
    filters = [n.filter for n in forest]
    for node in forest:
        siblings = forest.roots if node.parent is None else forest.nodes[node.parent].children
        assert node.id in siblings
        if node.parent is not None:
            assert strictly(forest.nodes[node.parent].filter, node.filter)
        for other in siblings:
            if other != node.id:
                assert not node.filter.covers(forest.nodes[other].filter)
        assert node.level == (0 if node.parent is None else forest.nodes[node.parent].level + 1)
        total = {}
        for number in (node.id, *descendants(forest, node)):
            for interface in forest.nodes[number].subscribers:
                total[interface] = total.get(interface, 0) + 1
        assert dict(node.below) == total
    assert set(forest.root_filters()) == {f for f in filters if not any(strictly(g, f) for g in filters)}


def descendants(forest, node):
    for child in node.children:
        yield child
        yield from descendants(forest, forest.nodes[child])


class Levels(dict):
    """What `on_level` was told."""

    def __call__(self, number, was, level):
        assert self.get(number) == was
        if level is None:
            del self[number]
        else:
            self[number] = level
