"""Many events at once: the same bytes, the same deliveries and the same counts as one by one."""

import socket
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.client.catalog import Catalog
from sievenet.client.edge import MANY, Edge
from sievenet.client.latency import Latency
from sievenet.client.outbox import Outbox
from sievenet.client.ports import mmsg
from sievenet.client.ports.burst import Arrivals, Burst, uniform
from sievenet.client.receiver import Receiver
from sievenet.client.registrations import Registration
from sievenet.content import Attribute, Event, EventBatch, Filter, Schema, Subscription, parse_subscription
from sievenet.content.codec import decode_event, encode_event
from sievenet.content.columns import matching
from sievenet.content.layout import layout_of
from sievenet.content.valueset import ValueSet
from sievenet.control.protocol import CategoryInfo
from sievenet.dataplane.packet import PACKET_HEADER, Packet, encode_packet
from sievenet.errors import CodecError
from sievenet.index import Plan
from sievenet.transport import duplicates
from sievenet.transport.duplicates import DuplicateWindow

MIXED = Schema(
    "mixed",
    (
        Attribute("hot", "bool"),
        Attribute("x", "int", lo=-5, hi=250),
        Attribute("price", "float", lo=0.5, hi=99.0),
        Attribute("kind", "str", values=("a", "bc", "d")),
        Attribute("wide", "int", lo=-(1 << 62), hi=(1 << 63) - 2),
        Attribute("wet", "bool"),
    ),
    version=300,
)
POINT = Schema("point", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "int", lo=0, hi=70_000)))

rows = st.tuples(
    st.booleans(),
    st.integers(-5, 250),
    st.floats(0.5, 99.0),
    st.sampled_from(("a", "bc", "d")),
    st.integers(-(1 << 62), (1 << 63) - 2),
    st.booleans(),
)


def batch_of(schema, values):
    names = [a.name for a in schema.attributes]
    return EventBatch.of(schema, {name: [row[i] for row in values] for i, name in enumerate(names)})


FIELDS = Schema("fields", tuple(a for a in MIXED.attributes if a.type != "bool"), version=2)


@given(rows, st.binary(max_size=3), st.integers(0, 30), st.integers(0, 255))
def test_single_events_are_decoded_alike(row, payload, at, byte):
    schemas = {FIELDS: row[1:-1], MIXED: row}
    for schema, values in schemas.items():
        event = Event(schema, values, payload)
        data = bytearray(encode_event(event))
        quick = layout_of(schema).decode_one(bytes(data))
        assert quick == event if schema is FIELDS and not payload else quick is None
        data[at % len(data)] = byte
        # Whatever it accepts, the codec reads the same way.
        quick = layout_of(schema).decode_one(bytes(data))
        assert quick is None or quick == decode_event(schema, bytes(data))


def test_records_have_no_layout():
    assert layout_of(None) is None


def test_zeros_keep_their_sign():
    schema = Schema("signed", (Attribute("x", "float", lo=-1, hi=1),))
    assert str(layout_of(schema).decode_one(encode_event(schema.event(x=-0.0)))["x"]) == "-0.0"


@given(st.lists(rows, min_size=1, max_size=20))
def test_rows_are_what_the_codec_writes(values):
    batch, layout = batch_of(MIXED, values), layout_of(MIXED)
    matrix = layout.encode(batch)
    assert [row.tobytes() for row in matrix] == [encode_event(event) for event in batch]
    found, good = layout.decode(matrix)
    assert good.all()
    assert list(found) == list(batch)


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_damaged_rows_are_judged_as_the_codec_does(values, data):
    layout = layout_of(MIXED)
    matrix = layout.encode(batch_of(MIXED, values)).copy()
    for row in matrix:
        row[data.draw(st.integers(0, layout.size - 1))] = data.draw(st.integers(0, 255))
    found, good = layout.decode(matrix)
    want = []
    for row, fine in zip(matrix, good, strict=True):
        try:
            want.append(decode_event(MIXED, row.tobytes()))
            assert fine
        except CodecError:
            assert not fine
    assert list(found) == want


def test_what_is_not_equally_long():
    assert layout_of(Schema("free", (Attribute("text", "str"),))) is None
    bits = Schema("bits", tuple(Attribute(f"b{i}", "bool") for i in range(64)))
    batch = batch_of(bits, [(True,) * 64, (False,) * 63 + (True,)])
    assert list(layout_of(bits).decode(layout_of(bits).encode(batch))[0]) == list(batch)
    batch = EventBatch.of(POINT, {"x": [1], "y": [2]}, [b"payload"])
    assert layout_of(POINT).encode(batch) is None


def burst_of(values, first=0, publisher=7, category=3):
    batch = batch_of(POINT, values)
    hi = np.arange(len(batch), dtype=np.uint64) << np.uint64(40)
    burst = Burst(category, hi, np.zeros(len(batch), np.uint64), layout_of(POINT).encode(batch))
    burst.stamp(publisher, 9, np.arange(first, first + len(batch), dtype=np.uint64), 1_000)
    return burst


def test_a_burst_is_its_packets():
    burst = burst_of([(5, 6), (7, 8)], first=40)
    packets = list(Arrivals(burst.matrix))
    bodies = [encode_event(POINT.event(x=x, y=y)) for x, y in ((5, 6), (7, 8))]
    assert packets == [Packet(3, i << 104, 7, 40 + i, 1_000, 0, body, 9) for i, body in enumerate(bodies)]
    assert burst.packets() == [encode_packet(packet) for packet in packets]
    arrivals = uniform(burst.matrix)
    assert (len(arrivals), arrivals.category) == (2, 3)
    assert arrivals.only(np.array([True, True])) is arrivals
    assert [packet.sequence for packet in arrivals.only(np.array([False, True]))] == [41]


@pytest.mark.parametrize("at", [0, 1, 2, 5])
def test_matrices_that_are_no_packets(at):
    matrix = burst_of([(5, 6), (7, 8)]).matrix.copy()
    matrix[1, at] ^= 1
    assert uniform(matrix) is None
    assert uniform(matrix[:0]) is None
    assert uniform(matrix[:, :20]) is None


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 40)), min_size=1, max_size=12),
        max_size=8,
    ),
    st.sampled_from((4, 16)),
)
def test_duplicates_together_are_duplicates_one_by_one(batches, span):
    # Small batches too, which would go one by one.
    with mock.patch.object(duplicates, "_MANY", 2):
        check_duplicates(batches, span)


def check_duplicates(batches, span):
    together, singly = DuplicateWindow(span, sources=3), DuplicateWindow(span, sources=3)
    for batch in batches:
        columns = [np.array(column, np.uint64) for column in zip(*batch, strict=True)]
        assert together.fresh_many(*columns).tolist() == [singly.fresh(*each) for each in batch]
    assert (together.duplicates, together.late) == (singly.duplicates, singly.late)
    assert together.forgotten == singly.forgotten


@given(st.lists(st.floats(-1, 1e6), max_size=100))
def test_durations_together(durations):
    together, singly = Latency(), Latency()
    together.add_many(np.array(durations, np.float64))
    for each in durations:
        singly.add(each)
    assert together.count == singly.count == len(durations)
    for one, other in zip(together.quantiles((0.5, 0.99)), singly.quantiles((0.5, 0.99)), strict=True):
        # NumPy's logarithm and the library's may differ in the last bit: a neighbouring bucket at most.
        assert one == other or one == pytest.approx(other, rel=0.07)


class Sink:
    """Takes so many, then refuses until there is room again."""

    def __init__(self, room=10**9):
        self.room, self.got, self.false_positives = room, [], 0

    def accept(self, delivery):
        if len(self.got) >= self.room:
            return False
        self.got.append(delivery)
        return True


def receiver_of(filters, room=10**9):
    receiver, edge = Receiver(), Edge(POINT)
    edge.adopt(lambda: Plan.regular(POINT, 12), 16)
    sinks = [Sink(room) for _ in filters]
    for key, text in enumerate(filters):
        edge.add(key, parse_subscription(text, {"point": POINT}))
        receiver.connect(key, sinks[key])
    receiver.enter(3, edge)
    return receiver, sinks


@pytest.mark.parametrize("count", [2, MANY])
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 70_000)), min_size=1, max_size=30), st.data())
def test_together_as_one_by_one(count, values, data):
    filters = [f"point: x in [{i * 30}, {i * 30 + 200}]" for i in range(count)]
    (together, left), (singly, right) = receiver_of(filters), receiver_of(filters)
    matrix = burst_of(values).matrix
    matrix = np.concatenate([matrix, matrix[: len(matrix) // 2]])
    matrix[data.draw(st.integers(0, len(matrix) - 1)), PACKET_HEADER] = data.draw(st.integers(0, 255))
    together.take(uniform(matrix), 2_000)
    singly.take(list(Arrivals(matrix)), 2_000)
    assert [sink.got for sink in left] == [sink.got for sink in right]
    assert together.statistics() == singly.statistics()
    assert [sink.false_positives for sink in left] == [sink.false_positives for sink in right]


def test_a_full_queue_holds_the_rest():
    receiver, (sink,) = receiver_of(["point: x >= 0"], room=3)
    receiver.take(uniform(burst_of([(i, i) for i in range(10)]).matrix), 5)
    assert receiver.blocked
    receiver.take(uniform(burst_of([(i, i) for i in range(10, 14)], first=10).matrix), 6)
    for room in (5, 100):
        sink.room = room
        assert receiver.resume(7) == (room == 100)
    assert [delivery.sequence for delivery in sink.got] == list(range(14))
    assert receiver.statistics().duplicates == 0


def test_packets_of_others_go_one_by_one():
    receiver, (sink,) = receiver_of(["point: x >= 0"])
    receiver.take(uniform(burst_of([(1, 1)] * 9, category=4).matrix), 5)
    assert receiver.statistics().strangers == 9
    assert sink.got == []


# -- publishing ------------------------------------------------------------------------------------


def outbox_of(plan):
    catalog = Catalog()
    catalog.update(CategoryInfo(3, POINT, plan.to_json(), 1, 16))
    outbox = Outbox(catalog)
    outbox.publisher, outbox.incarnation = 7, 8
    wanted = Subscription([Filter(POINT)])
    outbox.offers.allow(Registration("advertisement", 1, "point", wanted, b""))
    return outbox


def test_bursts_are_the_packets_of_their_events():
    values = np.random.default_rng(1).integers((0, 0), (1000, 70_000), (3_000, 2)).tolist()
    plan = Plan.regular(POINT, 20)
    bulk, single = outbox_of(plan), outbox_of(plan)
    for start in range(0, 3_000, 500):
        batch = batch_of(POINT, values[start : start + 500])
        burst = bulk.many(batch, lambda: 99)
        assert isinstance(burst, Burst)
        assert list(Arrivals(burst.matrix)) == [p for event in batch for p in single.packets(event, 99)]
        if bulk._encoder is not None:
            # From here on with the batch encoder.
            bulk._encoder.join()
    assert bulk._encoder is not None
    assert bulk.published == single.published == 3_000
    assert bulk.many(list(batch)[:20], lambda: 99).matrix.shape[0] == 20


def test_what_goes_event_by_event():
    outbox = outbox_of(Plan.regular(POINT, 20))
    few = batch_of(POINT, [(1, 1)])
    assert isinstance(outbox.many(few, lambda: 99), list)
    payloads = EventBatch.of(POINT, {"x": [1] * 9, "y": [2] * 9}, [b"z"] * 9)
    assert len(outbox.many(payloads, lambda: 99)) == 9
    outbox.max_event = 3
    assert outbox.burst(batch_of(POINT, [(1, 1)] * 9), 99) is None


# -- system calls ----------------------------------------------------------------------------------


@pytest.fixture
def pair():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as b:
        for sock in (a, b):
            sock.bind(("::1", 0))
            sock.setblocking(False)
        yield a, b


def names_of(sock, count):
    names = np.zeros(count, mmsg.NAME)
    names["family"], names["port"] = socket.AF_INET6, sock.getsockname()[1]
    names["address"][:, 15] = 1
    return names


@pytest.mark.skipif(not mmsg.available, reason="needs sendmmsg")
def test_many_datagrams_with_one_call(pair):
    a, b = pair
    matrix = np.random.default_rng(2).integers(0, 256, (40, 33), np.uint8)
    outlet = mmsg.Outlet(matrix, names_of(b, 40))
    assert outlet.send(a, 15) == 15
    assert outlet.send(a, 100) == 25
    assert len(outlet) == 0
    a.sendto(b"short", b.getsockname())
    inlet = mmsg.Inlet(32, 100)
    first = inlet.read(b)
    assert len(first) == 1
    assert (first[0][0] == matrix[:32]).all()
    assert set(first[0][1]["port"].tolist()) == {a.getsockname()[1]}
    (second, _), (short, _) = inlet.read(b)
    assert (second == matrix[32:]).all()
    assert short.tobytes() == b"short"
    assert inlet.read(b) == []


@pytest.mark.skipif(not mmsg.available, reason="needs sendmmsg")
def test_errors_of_the_system(pair):
    a, b = pair
    names = names_of(b, 2)
    names["family"][0] = 99
    outlet = mmsg.Outlet(np.zeros((2, 5), np.uint8), names)
    with pytest.raises(OSError):
        outlet.send(a, 2)
    outlet.skip()
    assert outlet.send(a, 2) == 1
    closed = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    closed.close()
    with pytest.raises(OSError):
        mmsg.Inlet(1, 10).read(closed)


# -- a handful of subscriptions --------------------------------------------------------------------

texts = [
    "mixed: x in [3, 90]",
    "mixed: x > 5 and x != 7 and price <= 12.5",
    'mixed: kind in {"a", "d"} and hot = true',
    'mixed: kind != "bc"',
    "mixed: wide >= 4611686018427387903",
    "mixed: price > 3 and wet = false",
    "mixed: x < 0 or mixed: x > 200 or mixed: price > 98.5",
]


@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from(texts))
def test_columns_match_as_events_do(values, text):
    batch = batch_of(MIXED, values)
    wanted = parse_subscription(text, {"mixed": MIXED})
    assert matching(wanted, batch).tolist() == [wanted.matches(event) for event in batch]
    assert matching(Subscription([Filter(MIXED)]), batch).all()


@given(st.lists(rows, min_size=1, max_size=20), st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_any_interval(values, lo, hi):
    batch = batch_of(MIXED, values)
    for name in ("x", "price", "wide"):
        for inside in (ValueSet.interval(min(lo, hi), max(lo, hi)), ~ValueSet.of(lo), ValueSet.interval(lo, None)):
            wanted = Subscription([Filter(MIXED, {name: inside})])
            assert matching(wanted, batch).tolist() == [wanted.matches(event) for event in batch]
