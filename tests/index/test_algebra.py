"""The algebra of dz, cells and their sets against brute force on small widths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import InvalidInput
from sievenet.index import CODE_BITS, ROOT, Cell, CellSet, Codes, Dz, DzSet
from sievenet.index.dzset import blocks

WIDTH = 6


def dzs(width=WIDTH):
    return st.integers(0, width).flatmap(lambda n: st.builds(Dz, st.integers(0, (1 << n) - 1), st.just(n)))


def cells(width=WIDTH):
    return st.text("01*", min_size=width, max_size=width).map(Cell.parse)


def dz_points(dz):
    return set(range(*dz.interval(WIDTH)))


def cell_points(cell):
    return {code for code in range(1 << cell.width) if code in cell}


def set_points(members):
    points = dz_points if isinstance(members, DzSet) else cell_points
    return set().union(*(points(m) for m in members))


@given(dzs(), dzs())
def test_dz_algebra_is_that_of_point_sets(a, b):
    pa, pb = dz_points(a), dz_points(b)
    assert a.covers(b) == (pa >= pb)
    assert a.overlaps(b) == bool(pa & pb)
    both = a.intersect(b)
    assert (dz_points(both) if both else set()) == pa & pb
    rest = a.minus(b)
    assert set().union(*map(dz_points, rest)) == pa - pb
    assert sum(len(dz_points(r)) for r in rest) == len(pa - pb)
    assert list(rest) == sorted(rest)
    prefix = a.common_prefix(b)
    assert prefix.covers(a)
    assert prefix.covers(b)
    assert not any(c.covers(a) and c.covers(b) for c in prefix.children if prefix.length < WIDTH)


@given(st.lists(dzs(CODE_BITS)))
def test_many_dz_of_their_keys(some):
    assert Dz.of_keys([dz.key for dz in some]) == some == [Dz.of_key(dz.key) for dz in some]
    for wrong in (0, -1, 2 << CODE_BITS):
        with pytest.raises(InvalidInput):
            Dz.of_keys([*(dz.key for dz in some), wrong])


@given(dzs(), dzs())
def test_dz_order_is_that_of_strings(a, b):
    assert (a < b) == (str(a) < str(b))
    assert (a == b) == (str(a) == str(b))
    assert Dz.parse(str(a)) == a
    assert len(a) == len(str(a))


@given(dzs())
def test_dz_family(dz):
    left, right = dz.children
    assert left.parent == right.parent == dz
    assert left.sibling == right
    assert [str(p) for p in dz.prefixes()] == [str(dz)[:n] for n in range(len(dz) + 1)]
    assert str(dz.append(left)) == str(dz) + str(left)
    cell = dz.cell(WIDTH)
    assert cell.is_dz
    assert cell.dz == dz
    assert cell_points(cell) == dz_points(dz)
    assert dz.volume() == len(dz_points(dz)) / (1 << WIDTH)
    high, low = dz.words()
    assert (high << 64 | low, (high << 64 | low) + (1 << (CODE_BITS - dz.length))) == dz.interval(CODE_BITS)


def test_the_root_is_everything_and_true():
    assert str(ROOT) == ""
    assert bool(ROOT)
    assert ROOT.covers(Dz.parse("101"))
    with pytest.raises(InvalidInput):
        _ = ROOT.parent
    with pytest.raises(InvalidInput):
        _ = ROOT.sibling


@pytest.mark.parametrize(("bits", "length"), [(2, 1), (-1, 3), (0, -1), (0, 129)])
def test_malformed_dz(bits, length):
    with pytest.raises(InvalidInput):
        Dz(bits, length)


def test_malformed_text():
    for text in ("012", "x", "0" * 129):
        with pytest.raises(InvalidInput):
            Dz.parse(text)
    with pytest.raises(InvalidInput):
        Cell.parse("01?")
    with pytest.raises(InvalidInput):
        Dz.parse("101").interval(2)
    with pytest.raises(InvalidInput):
        Cell(1, 0, 3)
    with pytest.raises(InvalidInput):
        Cell(0, 8, 3)
    with pytest.raises(InvalidInput):
        Cell(0, 0, 129)
    with pytest.raises(InvalidInput):
        Cell.parse("01").covers(Cell.parse("011"))
    with pytest.raises(InvalidInput):
        _ = Cell.parse("0*1").dz
    with pytest.raises(InvalidInput):
        CellSet([Cell.parse("01"), Cell.parse("011")])


@given(cells(), cells())
def test_cell_algebra_is_that_of_point_sets(a, b):
    pa, pb = cell_points(a), cell_points(b)
    assert a.covers(b) == (pa >= pb)
    assert a.overlaps(b) == bool(pa & pb)
    both = a.intersect(b)
    assert (cell_points(both) if both else set()) == pa & pb
    rest = a.minus(b)
    assert set().union(*map(cell_points, rest)) == pa - pb
    assert sum(map(len, map(cell_points, rest))) == len(pa - pb)
    hull = a.hull(b)
    assert cell_points(hull) >= pa | pb
    for bit in range(WIDTH):
        if hull.mask >> bit & 1:
            continue
        for value in (0, 1 << bit):
            smaller = Cell(hull.value | value, hull.mask | 1 << bit, WIDTH)
            assert not cell_points(smaller) >= pa | pb
    assert a.enclosing_dz.cell(WIDTH).covers(a)
    assert a.measure() == len(pa)
    assert a.volume() == len(pa) / (1 << WIDTH)
    assert Cell.parse(str(a)) == a


@given(st.lists(dzs(), max_size=12))
def test_dz_sets_are_canonical(members):
    union = DzSet(members)
    points = set().union(*map(dz_points, members))
    assert set_points(union) == points
    listed = list(union)
    assert listed == sorted(listed)
    for i, a in enumerate(listed):
        assert not any(a.overlaps(b) for b in listed[i + 1 :])
        assert not a.length or a.sibling not in listed
    assert DzSet(reversed(members)) == union
    assert hash(DzSet(listed)) == hash(union)
    assert union.measure(WIDTH) == len(points)
    assert union.volume() == len(points) / (1 << WIDTH)
    assert DzSet.parse(str(union).strip("{}")) == union
    assert union.cells(WIDTH).measure() == len(points)


@given(st.lists(dzs(), max_size=8), st.lists(dzs(), max_size=8))
def test_dz_set_algebra(a, b):
    a, b = DzSet(a), DzSet(b)
    pa, pb = set_points(a), set_points(b)
    assert set_points(a | b) == pa | pb
    assert set_points(a & b) == pa & pb
    assert set_points(a - b) == pa - pb
    assert a.covers(b) == (pa >= pb)
    assert a.overlaps(b) == bool(pa & pb)
    assert a - b == DzSet(list(a - b))


@given(st.integers(0, 64), st.integers(0, 64))
def test_blocks_cut_an_interval(lo, hi):
    pieces = list(blocks(lo, hi, WIDTH))
    assert set().union(*map(dz_points, pieces)) == set(range(lo, hi))
    assert list(DzSet(pieces)) == pieces


@given(st.lists(cells(), max_size=8), st.lists(cells(), max_size=6))
def test_cell_set_algebra(a, b):
    raw = set().union(*map(cell_points, a))
    a, b = CellSet(a, WIDTH), CellSet(b, WIDTH)
    pa, pb = set_points(a), set_points(b)
    assert pa == raw
    assert not any(x.covers(y) for x in a for y in a if x != y)
    assert set_points(a | b) == pa | pb
    assert set_points(a & b) == pa & pb
    assert set_points(a - b) == pa - pb
    assert a.covers(b) == (pa >= pb)
    assert a.overlaps(b) == bool(pa & pb)
    assert a.equivalent(b) == (pa == pb)
    assert a.measure() == len(pa)
    assert a.volume() == len(pa) / (1 << WIDTH)
    assert CellSet(reversed(list(a)), WIDTH) == a
    compact = a.compact()
    assert set_points(compact) == pa
    assert len(compact) <= len(a)
    assert not a.members or CellSet.parse(str(a).strip("{}")) == a


@given(st.lists(cells(), max_size=6), st.lists(dzs(), max_size=6), st.lists(st.integers(0, 63), max_size=20))
def test_sets_match_codes(cell_list, dz_list, numbers):
    codes = Codes.of([n << (CODE_BITS - WIDTH) for n in numbers])
    for members in (CellSet(cell_list, WIDTH), DzSet(dz_list)):
        assert members.matches(codes).tolist() == [n in set_points(members) for n in numbers]
    ordered = codes.sorted()
    assert [ordered[i] for i in range(len(ordered))] == sorted(n << (CODE_BITS - WIDTH) for n in numbers)
    assert len(Codes.concat([codes, codes])) == 2 * len(codes)
    if numbers:
        assert codes.dz(0, WIDTH).bits == numbers[0]
        assert codes.take(np.array([0]))[0] == codes[0]


@given(dzs(100), dzs(100))
def test_wide_strings(a, b):
    assert a.overlaps(b) == (str(a).startswith(str(b)) or str(b).startswith(str(a)))
    assert a.cell(112).overlaps(b.cell(112)) == a.overlaps(b)
    assert DzSet([a]).union(b).covers(a)
