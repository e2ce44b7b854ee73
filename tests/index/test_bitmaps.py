"""Which cells hold a code, or cover, lie in, or meet a cell: against looking at each of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.index import CODE_BITS
from sievenet.index.bitmaps import Bitmaps
from sievenet.index.code import word_arrays

WIDTHS = (1, 4, 7, 12, 128)


@st.composite
def cells(draw):
    """Value and mask in the first bits of the code, and in one of them far behind."""
    width = draw(st.sampled_from(WIDTHS))
    mask = draw(st.integers(0, (1 << width) - 1)) << (CODE_BITS - width)
    return draw(st.integers(0, (1 << CODE_BITS) - 1)) & mask, mask


def related(relation, cell, asked):
    (v, m), (av, am) = cell, asked
    return {
        "covers": not m & ~am and av & m == v,
        "inside": not am & ~m and v & am == av,
        "meets": not (v ^ av) & m & am,
    }[relation]


@settings(deadline=None)
@given(st.lists(st.tuples(cells(), st.booleans()), max_size=150), st.lists(cells(), max_size=5), st.data())
def test_like_looking_at_every_cell(steps, asked, data):
    found = Bitmaps("covers", "inside", "meets")
    for_codes = Bitmaps("covers", codes=True)
    held: dict[int, tuple[int, int]] = {}
    for cell, keep in steps:
        number = found.put(*cell)
        assert number not in held
        assert for_codes.put(*cell) == number
        held[number] = cell
        if not keep:
            gone = data.draw(st.sampled_from(sorted(held)))
            del held[gone]
            found.remove(gone)
            for_codes.remove(gone)
    assert len(found) == len(held)
    assert sorted(found.cells()) == sorted(held.values())
    for each in [*asked, *list(held.values())[:3]]:
        for relation in ("covers", "inside", "meets"):
            wanted = sorted(i for i, cell in held.items() if related(relation, cell, each))
            assert found.related(relation, *each) == wanted
        code = each[0] | data.draw(st.integers(0, (1 << CODE_BITS) - 1)) & ~each[1]
        wanted = sorted(i for i, (v, m) in held.items() if code & m == v)
        assert for_codes.holding(code).tolist() == wanted
        starts, numbers = for_codes.holding_many(*word_arrays([code, 0, code]))
        assert numbers[starts[0] : starts[1]].tolist() == wanted
        assert numbers[starts[2] : starts[3]].tolist() == wanted


def test_many_codes_that_many_cells_hold_come_in_parts():
    cells = Bitmaps("covers", codes=True)
    for _ in range(5000):
        cells.put(0, 0)
    codes = np.zeros(50, np.uint64)
    starts, numbers = cells.holding_many(codes, codes)
    assert starts.tolist() == [5000 * i for i in range(51)]
    assert (numbers.reshape(50, 5000) == np.arange(5000)).all()


def test_a_number_that_is_free_cannot_be_removed():
    cells = Bitmaps("covers")
    cells.remove(cells.put(0, 0))
    with pytest.raises(KeyError):
        cells.remove(0)
