"""The tap: what goes in comes out, nothing half-written appears, a full disk costs the sample and nothing else."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import EventBatch, Schema
from sievenet.errors import CodecError, InvalidInput
from sievenet.tap import Tap, Taps, read_segment
from sievenet.testing.strategies import events, schemas
from sievenet.workload import Hotspots, grid

LOAD = Hotspots(schema=grid(3, hi=99), seed=4)


def fill(tap, count, start=1000.0, step=0.001):
    for i, event in enumerate(LOAD.events(count)):
        tap.offer(event, start + i * step)


def segments(folder):
    return [read_segment(path.read_bytes()) for path in sorted(folder.glob("*.tap"))]


def test_what_goes_in_comes_out(tmp_path):
    tap = Tap(tmp_path, LOAD.schema, "market/1", seconds=2.0)
    fill(tap, 10_000)
    tap.close()
    found = segments(tmp_path)
    assert len(found) == tap.segments == 5
    assert sum(map(len, found)) == tap.kept == tap.offered == 10_000
    assert all(s.schema == LOAD.schema and s.publisher == "market/1" and s.factor == 1 for s in found)
    rows = [(t, e) for s in found for p in s.parts for t, e in zip(p.times.tolist(), p.batch, strict=True)]
    rows.sort(key=lambda row: row[0])
    assert [event for _, event in rows] == list(LOAD.events(10_000))
    assert [time for time, _ in rows] == [round((1000.0 + i * 0.001) * 1e6) for i in range(10_000)]


@given(st.data())
def test_any_schema(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("tap")
    schema = data.draw(schemas())
    said = data.draw(st.lists(events(schema), min_size=1, max_size=5))
    tap = Tap(folder, schema, data.draw(st.text(max_size=8)))
    for event in said:
        tap.offer(event, 5.0)
    tap.close()
    (segment,) = segments(folder)
    assert [e.values for e in EventBatch.concat([p.batch for p in segment.parts])] == [e.values for e in said]


def test_the_factor_is_kept_on_average(tmp_path):
    tap = Tap(tmp_path, LOAD.schema, "p", factor=10, seed=1)
    fill(tap, 20_000)
    tap.close()
    assert 1800 < tap.kept < 2200
    assert sum(map(len, segments(tmp_path))) == tap.kept
    with pytest.raises(InvalidInput, match="sampling factor from 1 on, got 0"):
        Tap(tmp_path, LOAD.schema, "p", factor=0)


def test_segments_appear_whole(tmp_path):
    tap = Tap(tmp_path, LOAD.schema, "p", seconds=1e9)
    fill(tap, 5000)
    assert not list(tmp_path.glob("*.tap"))
    assert len(list(tmp_path.glob(".*.part"))) == 1
    tap.close()
    [segment] = tmp_path.glob("*.tap")
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600  # events are not for everybody on the machine
    assert not list(tmp_path.glob(".*.part"))


def test_a_disk_that_refuses_costs_the_sample_only(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    tap = Tap(blocked / "tap", LOAD.schema, "p", seconds=1e9)
    fill(tap, 5000)
    tap.close()
    assert (tap.kept, tap.lost, tap.segments) == (5000, 5000, 0)


@given(st.data())
def test_damage_is_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("tap")
    tap = Tap(folder, LOAD.schema, "p")
    fill(tap, 50)
    tap.close()
    (path,) = folder.glob("*.tap")
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged = whole[:at]
    else:
        damaged = bytearray(whole)
        damaged[at] ^= data.draw(st.integers(1, 255))
        damaged = bytes(damaged)
    try:
        segment = read_segment(damaged)
    except (CodecError, InvalidInput):
        return
    # What is not covered by a checksum is the header's text, or the end right behind the header or a part.
    assert all(e.schema == segment.schema for p in segment.parts for e in p.batch)
    assert len(segment) in (0, 50)


def test_taps_of_several_schemas(tmp_path):
    taps = Taps(tmp_path, lambda: "node", factor=1)
    other = Hotspots(schema=grid(2, name="other"), seed=1)
    for event in [*LOAD.events(5), *other.events(3)]:
        taps.offer(event, 7.0)
    # The same name with another schema begins anew.
    newer = Schema("grid", LOAD.schema.attributes, version=2)
    taps.offer(EventBatch.of(newer, {n: [1] for n in newer.positions})[0], 8.0)
    taps.close()
    found = segments(tmp_path)
    assert sorted((s.schema.name, s.schema.version, len(s)) for s in found) == [
        ("grid", 1, 5),
        ("grid", 2, 1),
        ("other", 1, 3),
    ]
    assert taps.lost == 0
    with pytest.raises(InvalidInput, match="sampling factor"):
        Taps(tmp_path, lambda: "node", factor=0)
