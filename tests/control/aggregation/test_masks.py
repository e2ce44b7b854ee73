"""Merges of cells chosen for a whole table: they fit, hold everything, and leave hot content alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sievenet.control.aggregation import Sample
from sievenet.control.aggregation.masks import Masked, merge_cells
from sievenet.control.deployment.cells import CellDeployment, inside

BITS = 5
CELLS = st.tuples(st.integers(0, 31), st.integers(0, 31)).map(lambda c: ((c[0] & c[1]) << 123, c[1] << 123))
ENTRIES = st.sets(st.tuples(st.integers(1, 3), CELLS).map(lambda e: (e[0], *e[1])), max_size=20)
CODES = st.lists(st.integers(0, 31), max_size=12)


def sample(codes):
    return Sample(np.array([code << 59 for code in sorted(codes)], np.uint64), np.zeros(len(codes), np.int64))


def held(entries, port):
    """The codes that a port gets."""
    cells = [entry[1:] for entry in entries if entry[0] == port]
    return {code for code in range(32) if any((code << 123) & mask == value for value, mask in cells)}


@given(ENTRIES, CODES, st.integers(0, 20), st.booleans())
def test_tables_fit_and_hold_everything(entries, codes, limit, known):
    ports = {port for port, _, _ in entries}
    limit = max(limit, len(ports))
    (found,) = merge_cells([Masked({"s": entries}, {"s": limit}, sample(codes) if known else None)])
    deployment = CellDeployment((0, 0), entries)
    deployment.remerge(found.get("s", ()))
    assert len(deployment) <= limit
    assert len(entries) > limit or not found
    for port in ports:
        assert held(deployment.table, port) >= held(entries, port)


@given(st.sets(CELLS, min_size=4, max_size=12), CODES)
def test_each_merge_is_around_cells_of_its_port(cells, codes):
    entries = [(7, *cell) for cell in cells]
    (found,) = merge_cells([Masked({"s": entries}, {"s": 2}, sample(codes))])
    for port, *merge in found["s"]:
        assert port == 7
        assert sum(inside(cell, tuple(merge)) for cell in cells) > 1


def test_hot_content_is_left_alone():
    """Two pairs of cells that are as far apart; the one is merged between which nothing is published."""
    cells = [0b00000, 0b00011, 0b11100, 0b11111]
    entries = [(1, cell << 123, 31 << 123) for cell in cells]
    for hot, merged in ((0b00001, 0b111), (0b11110, 0b000)):
        (found,) = merge_cells([Masked({"s": entries}, {"s": 3}, sample([hot] * 5))])
        assert found["s"] == {(1, merged << 125, 0b11100 << 123)}
