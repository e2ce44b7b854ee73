"""Packets in bulk through a matcher: the kernels against what is done packet by packet."""

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.client import audience as audiences
from sievenet.client.audience import Audience, homed, place_of, side_of
from sievenet.client.directed import TOGETHER, several
from sievenet.client.parcel import Targets, parcels
from sievenet.client.ports.burst import Burst, uniform
from sievenet.content import Attribute, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import decode_event
from sievenet.content.layout import layout_of
from sievenet.control.directed import OVERHEAD, twin_schema
from sievenet.dataplane.packet import Packet, encode_packet
from sievenet.errors import CodecError, InvalidInput
from sievenet.matcher import Matcher
from sievenet.matcher.decoder import Decoder
from sievenet.transport.duplicates import DuplicateWindow
from sievenet.workload import Ticks, grid

TWIN = twin_schema("any")
MIXED = Schema(
    "mixed",
    (
        Attribute("wide", "int", lo=-(2**63) + 1, hi=2**63 - 1),
        Attribute("up", "bool"),
        Attribute("price", "float", lo=-5.0, hi=7.5),
        Attribute("kind", "str", values=("x", "y", "z")),
        Attribute("down", "bool"),
        Attribute("near", "int", lo=-7, hi=900),
    ),
)


def mixed(rng, count):
    columns = {
        "wide": rng.integers(-(2**63) + 1, 2**63 - 1, size=count),
        "up": rng.random(count) < 0.5,
        "price": np.where(rng.random(count) < 0.2, -0.0, rng.random(count) * 12 - 4.9),
        "kind": ["xyz"[i] for i in rng.integers(3, size=count)],
        "down": rng.random(count) < 0.5,
        "near": rng.integers(-7, 901, size=count),
    }
    return EventBatch.of(MIXED, columns)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 40))
def test_rows_are_read_as_the_codec_reads_events(seed, count, broken):
    rng = np.random.default_rng(seed)
    bodies = layout_of(MIXED).encode(mixed(rng, count))
    for _ in range(broken):  # any byte may be wrong
        bodies[rng.integers(count), rng.integers(bodies.shape[1])] = rng.integers(256)
    rows = np.concatenate([np.zeros((count, 3), np.uint8), bodies], axis=1)
    wanted = rng.random(count) < 0.9
    xs, kept = np.empty((count, len(MIXED.attributes)), np.int64), np.empty(count, np.int64)
    sound = Decoder(MIXED).read(rows, 3, wanted, xs, kept)
    expected = {}
    for i in np.flatnonzero(wanted).tolist():
        try:
            expected[i] = decode_event(MIXED, bodies[i].tobytes())
        except CodecError:
            continue
    # What is written with a payload or strings is no row of this kind, and has another length.
    assert kept[:sound].tolist() == [i for i, event in expected.items() if not event.payload]
    for e, i in enumerate(kept[:sound].tolist()):
        values = expected[i].values
        keys = [a.line.key(value) for a, value in zip(MIXED.attributes, values, strict=True)]
        assert xs[e].tolist() == keys


def packets(rng, schema, batch, sources, numbers):
    burst = Burst(7, rng.integers(2**63, size=len(batch)).astype(np.uint64), np.zeros(len(batch), np.uint64), layout_of(schema).encode(batch))  # fmt: skip  # noqa: E501
    burst.heads["publisher"] = [each[0] for each in sources]
    burst.heads["incarnation"] = [each[1] for each in sources]
    burst.heads["sequence"], burst.heads["departure"] = numbers, 5
    burst.matrix[:, : burst.heads.itemsize] = burst.heads.view(np.uint8).reshape(len(batch), -1)
    return burst.matrix


@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from([1, 3, 150]), st.sampled_from([0, 20, 290, 300]))
def test_each_new_event_goes_once_to_each_who_wants_it_on_another_side(seed, count, publishers, early):
    rng = np.random.default_rng(seed)
    load = Ticks(seed=seed)
    batch, wanted = load.events(count), load.subscriptions(300).filters()
    matcher = Matcher(load.schema)
    sides = rng.integers(3, size=300)
    numbers = np.array([5, 2**32 - 1, 77, 9], np.uint32)
    places = rng.integers(len(numbers), size=300)
    homes = [homed(i, int(places[i]), int(sides[i])) for i in range(300)]
    for some in (range(early), range(early, 300)):  # so many in order, the others not
        matcher.compact()
        matcher.add_many([homes[i] for i in some], [Subscription([wanted[i]], load.schema) for i in some])
    origins = {p: int(rng.integers(3)) for p in range(publishers) if rng.random() < 0.8}
    sources = [(int(p), int(p) % 2) for p in rng.integers(publishers, size=count)]
    rows = packets(rng, load.schema, batch, sources, rng.integers(20, size=count))

    audience = Audience(load.schema, matcher, window := DuplicateWindow(span=16, sources=4096))
    assert audience.takes(rows)
    plain = DuplicateWindow(span=16, sources=4096)
    for part in np.array_split(rows, 3):  # what was noted before counts
        if not len(part):
            continue
        found = audience.targets(part, origins, numbers)
        expected, unwanted = set(), 0
        for i, packet in enumerate(uniform(part)):
            if not plain.fresh(packet.publisher, packet.incarnation, packet.sequence):
                continue
            keys = [homes.index(key) for key in matcher.match(decode_event(load.schema, packet.body))]
            unwanted += not keys
            origin = origins.get(packet.publisher, 0)
            expected |= {(i, int(numbers[places[k]])) for k in keys if not sides[k] or sides[k] != origin}
        pairs = list(zip(found.rows.tolist(), found.recipients.tolist(), strict=True))
        assert set(pairs) == expected
        assert len(pairs) == len(expected)
        assert found.rows.tolist() == sorted(found.rows.tolist())
        assert (found.unwanted, found.malformed) == (unwanted, 0)
    assert (window.duplicates, window.late) == (plain.duplicates, plain.late)


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["add", "remove", "compact", "match"]), max_size=12))
def test_what_comes_and_goes_between_two_groups_counts_at_once(seed, steps):
    rng, load = np.random.default_rng(seed), Ticks(seed=seed)
    batch, wanted = load.events(40), load.subscriptions(900).filters()
    matcher, there, unused = Matcher(load.schema), {}, list(range(900))
    audience = Audience(load.schema, matcher, DuplicateWindow(span=1 << 12))
    numbers, sequence = np.array([3], np.uint32), 0
    for step in ["add", *steps, "match"]:
        if step == "add":
            some = [unused.pop() for _ in range(min(len(unused), int(rng.integers(1, 400))))]
            matcher.add_many([homed(i, 0, 0) for i in some], [wanted[i] for i in some])
            there |= {i: wanted[i] for i in some}
        elif step == "remove" and there:
            for i in rng.choice(sorted(there), size=int(rng.integers(1, len(there) + 1)), replace=False).tolist():
                matcher.remove(homed(i, 0, 0))
                del there[i]
        elif step == "compact":
            matcher.compact()
        # Small groups and large ones; what was put together for one may not do for the next.
        part = batch.take(slice(0, int(rng.integers(1, len(batch) + 1))))
        rows = packets(rng, load.schema, part, [(1, 1)] * len(part), np.arange(sequence, sequence + len(part)))
        sequence += len(part)
        found = audience.targets(rows, {}, numbers)
        expected = [i for i, event in enumerate(part) if any(each.matches(event) for each in there.values())]
        assert found.rows.tolist() == expected
        assert found.unwanted == len(part) - len(expected)


@given(st.integers(0, 2**32), st.integers(1, 150), st.integers(0, 700), st.integers(1, 5))
def test_each_recipient_gets_its_packets_in_order_in_as_few_parcels_as_three_sizes_allow(
    seed, count, width, several_to
):
    rng = np.random.default_rng(seed)
    inside = [Packet(7, i, 1, i, 0, 0, rng.bytes(width), 9) for i in range(count)]
    rows = np.frombuffer(b"".join(map(encode_packet, inside)), np.uint8).reshape(count, -1)
    which = np.sort(rng.integers(count, size=2 * count))
    numbers = rng.choice(2**32, size=several_to, replace=False).astype(np.uint32)
    places = rng.integers(several_to, size=2 * count)
    made = parcels(9, 3, 2**64 - 1, lambda wanted: 1000, 17, rows, Targets(which, places, numbers))
    packets = [packet for matrix in made for packet in uniform(matrix)]
    assert [each.sequence for each in packets] == list(range(1000, 1000 + len(packets)))
    assert {(each.category, each.publisher, each.incarnation, each.departure) for each in packets} == {
        (9, 3, 2**64 - 1, 17)
    }
    most = max(1, TOGETHER // rows.shape[1])
    for place, number in enumerate(numbers.tolist()):
        mine = [each for each in packets if each.code == number << 96]
        assert all(decode_event(TWIN, each.body)["recipient"] == number for each in mine)
        contents = [several(each.body) for each in mine]
        assert [one for some in contents for one in some] == [inside[i] for i in which[places == place].tolist()]
        total = int((places == place).sum())
        least = total // most + (rest := total % most) // (quarter := max(1, most // 4)) + rest % quarter
        assert len(contents) == least
        assert all(
            len(each.body) <= TOGETHER + OVERHEAD or len(some) == 1 for each, some in zip(mine, contents, strict=True)
        )


def test_schemas_whose_events_are_not_equally_long_are_not_read_so():
    free = Schema("free", (Attribute("note", "str"),))
    assert not Audience(free, Matcher(free), DuplicateWindow()).takes(np.zeros((4, 60), np.uint8))
    square = grid(2, hi=9)
    audience = Audience(square, Matcher(square), DuplicateWindow())
    assert not audience.takes(np.zeros((4, 60), np.uint8))


def test_a_subscription_of_several_filters_counts_once():
    square = grid(2, hi=9)
    matcher = Matcher(square)
    [first, _] = [a.name for a in square.attributes]
    twice = [Filter(square, {first: ValueSet.interval(0, 5)}), Filter(square, {first: ValueSet.interval(3, 9)})]
    matcher.add(0, Subscription(twice))
    batch = EventBatch.from_events(square, [square.event(**{a.name: 4 for a in square.attributes})] * 2)
    rows = packets(np.random.default_rng(1), square, batch, [(1, 1)] * 2, [0, 1])
    found = Audience(square, matcher, DuplicateWindow()).targets(rows, {}, np.array([6], np.uint32))
    assert found.rows.tolist() == [0, 1]
    assert found.recipients.tolist() == [6, 6]


def test_a_key_says_where_a_subscription_belongs():
    rng = np.random.default_rng(1)
    for number, place, side in rng.integers((1 << 30, 1 << 20, 1 << 12), size=(100, 3)).tolist():
        key = homed(number, place, side)
        assert 0 <= key < 2**63
        assert (key & ((1 << 30) - 1), place_of(key), side_of(key)) == (number, place, side)
    assert side_of(homed(1, 2, 1 << 12)) == 0  # to all sides, rather than to none
    for number, place in ((1 << 30, 0), (0, 1 << 20), (-1, 0)):
        with pytest.raises(InvalidInput):
            homed(number, place, 0)


class Floods:
    """Groups of events for an audience that is new, all of which its one recipient is to get if somebody wants them."""

    def __init__(self):
        self.load, self.sent = Ticks(seed=3), 0
        self.matcher = Matcher(self.load.schema)
        self.audience = Audience(self.load.schema, self.matcher, DuplicateWindow())
        self.filters = iter(self.load.subscriptions(2_000).filters())

    def add(self, count):
        some = [next(self.filters) for _ in range(count)]
        first = len(self.matcher)
        self.matcher.add_many([homed(first + i, 0, 0) for i in range(count)], some)

    def come(self, count=30):
        """Rows that come, and those that the matcher says are wanted."""
        batch = self.load.events(count)
        numbers = np.arange(self.sent, self.sent + count)
        self.sent += count
        rows = packets(np.random.default_rng(1), self.load.schema, batch, [(1, 1)] * count, numbers)
        found = self.audience.targets(rows, {}, np.array([3], np.uint32)).rows.tolist()
        assert found == [i for i, event in enumerate(batch) if self.matcher.match(event)]


def test_a_flood_for_which_there_are_no_places_does_not_harm_the_next(monkeypatch):
    floods, whole = Floods(), audiences.placed
    for count in (0, 600):
        floods.add(400)  # other arrays than before, if there were any
        floods.matcher.compact()

        def fails(*arrays):
            monkeypatch.setattr(audiences, "placed", whole)
            raise MemoryError

        monkeypatch.setattr(audiences, "placed", fails)
        with pytest.raises(MemoryError):
            floods.come()
        floods.come()
        assert floods.audience._level is not None
        floods.come(30 + count)


def test_a_level_that_is_replaced_is_not_kept():
    floods = Floods()
    floods.add(400)
    floods.matcher.compact()
    floods.come()
    words = weakref.ref(floods.matcher._levels[1].words)
    floods.add(5)  # beside the level: it takes more than one step
    floods.come()
    floods.matcher.compact()
    assert words() is None
    floods.come()


def test_places_are_made_once_while_nothing_changes(monkeypatch):
    floods, made, whole = Floods(), [], audiences.placed
    monkeypatch.setattr(audiences, "placed", lambda *arrays: made.append(0) or whole(*arrays))
    floods.add(20)  # no level yet
    for _ in range(3):
        floods.come()
    assert len(made) == 1
    floods.matcher.compact()
    for _ in range(3):
        floods.come()
    assert len(made) == 2


def test_room_that_was_not_had_is_not_counted_on():
    floods = Floods()
    floods.add(400)
    floods.matcher.compact()
    floods.come()
    decoder, floods.audience._decoder = floods.audience._decoder, None
    with pytest.raises(AttributeError):  # as if memory were short
        floods.come(5_000)
    floods.audience._decoder = decoder
    floods.come(5_000)
    assert len(floods.audience._last) == 1
    assert all(len(each) >= 5_000 for each in floods.audience._seen)
    assert len(floods.audience._read[-1]) >= 5_000
