"""Directed delivery without a network: packets inside packets, two ways as one stream, order when they change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.client.directed import (
    Begin,
    End,
    Mark,
    begin,
    end,
    marker_of,
    several,
    unwrapped,
    unwrapped_many,
    wrapped,
    wrapped_many,
)
from sievenet.client.handover import Handovers
from sievenet.client.ports.burst import Arrivals, uniform
from sievenet.content.codec import decode_event
from sievenet.control.directed import BITS, OVERHEAD, is_twin, recipients, twin_schema
from sievenet.dataplane.packet import Packet, encode_packet
from sievenet.errors import CodecError, InvalidInput
from sievenet.index import Plan
from sievenet.simulation.clock import VirtualClock
from tests.client.test_receiving import SCHEMA, packet, receiving

TWIN = twin_schema(SCHEMA.name)
NUMBER = 9
COMPONENT = 77


def outer(inner, to=3, sequence=0, publisher=COMPONENT):
    data = inner if isinstance(inner, bytes) else encode_packet(inner)
    return Packet(NUMBER, to << 96, publisher, sequence, 0, 0, wrapped(to, data))


def both(*texts):
    receiver, edge, sinks = receiving(*texts)
    receiver.direct(NUMBER, TWIN.name)
    return receiver, edge, sinks


# -- the wire ----------------------------------------------------------------------------------


@given(st.integers(0, (1 << BITS) - 1), st.binary(max_size=300))
def test_a_packet_inside_a_packet_is_the_same_packet_and_an_event_of_the_twin(recipient, body):
    inner = Packet(5, 7 << 90, 1, 2, 3, 0, body, 4)
    found = wrapped(recipient, encode_packet(inner))
    assert unwrapped(found) == inner
    event = decode_event(TWIN, found)
    assert event["recipient"] == recipient
    assert recipients(TWIN, (recipient,)).matches(event)
    assert len(found) - len(body) <= OVERHEAD + 6
    [code] = Plan.regular(TWIN, BITS).codes(event)
    assert code == recipient << 96


@given(st.lists(st.integers(0, (1 << BITS) - 1), min_size=1, max_size=20), st.integers(0, 200))
def test_many_are_wrapped_as_one_by_one(numbers, width):
    rows = [encode_packet(Packet(5, i, 1, i, 0, 0, bytes([i]) * width)) for i in range(len(numbers))]
    matrix = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    bodies = wrapped_many(np.array(numbers, np.uint32), matrix)
    assert [row.tobytes() for row in bodies] == [wrapped(n, row) for n, row in zip(numbers, rows, strict=True)]
    assert (unwrapped_many(bodies) == matrix).all()


@given(st.binary(max_size=120))
def test_bytes_that_hold_no_packet_are_refused(data):
    with pytest.raises(CodecError):
        unwrapped(data)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.sampled_from((Mark.CACHED, Mark.EVENT)), st.data())
def test_several_packets_share_one(bodies, mark, data):
    packets = [Packet(5, i << 64 | 7, 1, i, 0, mark, body, 3) for i, body in enumerate(bodies)]
    encoded = list(map(encode_packet, packets))
    together = b"".join(encoded)
    assert several(wrapped(3, together)) == packets
    # What is cut off, or has a packet of another kind or category in it, is refused as a whole.
    cuts = {sum(map(len, encoded[:count])) for count in range(1, len(encoded))}
    cut = data.draw(st.integers(0, len(together) - 1).filter(lambda each: each not in cuts))
    for bad in (
        together[:cut],
        together + encode_packet(Packet(5, 0, 1, 0, 0, Mark.CACHED - mark)),
        together + encode_packet(Packet(6, 0, 1, 0, 0, mark)),
        encode_packet(Packet(5, 0, 1, 0, 0, Mark.BEGIN)),
    ):
        with pytest.raises(CodecError):
            several(wrapped(3, bad))


def test_a_number_that_is_too_large_is_refused():
    with pytest.raises(InvalidInput):
        wrapped(1 << BITS, b"")


@given(
    st.integers(0, 128),
    st.integers(0, 60_000),
    st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.integers(0, 99)),
)
def test_markers_say_what_they_were_told(length, patience, marks):
    opening = Begin((5, 6), 7, 8, length, patience / 1000)
    assert marker_of(_packet(begin(opening))) == opening
    closing = End((5, 6), marks)
    assert marker_of(_packet(end(closing, 7))) == closing


@pytest.mark.parametrize(
    "bad", [Packet(1, 0, 1, 1, 0, 9), Packet(1, 0, 1, 1, 0, Mark.BEGIN, b"x"), Packet(1, 0, 1, 1, 0, Mark.END, b"x")]
)
def test_markers_that_nobody_knows_are_refused(bad):
    with pytest.raises(CodecError):
        marker_of(bad)


def _packet(data):
    return unwrapped(wrapped(0, data))


def test_twins_have_names_of_their_own():
    assert is_twin(twin_schema("x" * 64).name)
    assert twin_schema("x" * 64) != twin_schema("x" * 63 + "y")
    assert not is_twin("sievenet.directed")


# -- both ways are one stream -------------------------------------------------------------------


def test_an_event_that_comes_both_ways_is_delivered_once():
    receiver, _, (low, high) = both("x < 100", "x >= 100")
    receiver.take([packet(0, 5), outer(packet(0, 5)), outer(packet(1, 7)), packet(1, 7), outer(packet(2, 200))], 0)
    assert (low.got, high.got) == ([5, 7], [200])
    counts = receiver.statistics()
    assert (counts.received, counts.duplicates, counts.directed, counts.matched) == (5, 2, 3, 3)


def test_many_at_once_are_delivered_as_one_by_one():
    texts = ["x < 100", "y > 3"]
    some = [outer(packet(i, (i * 37) % 256, i % 8), sequence=i) for i in range(40)]
    one, _, singly = both(*texts)
    one.take(some, 0)
    many, _, together = both(*texts)
    rows = [encode_packet(each) for each in some]
    arrivals = uniform(np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1))
    assert isinstance(arrivals, Arrivals)
    many.take(arrivals, 0)
    assert [sink.got for sink in singly] == [sink.got for sink in together]
    assert one.statistics() == many.statistics()


def test_what_is_no_packet_of_the_category_is_counted_and_dropped():
    receiver, _, (sink,) = both("any")
    broken = Packet(NUMBER, 0, COMPONENT, 0, 0, 0, b"nonsense")
    foreign = outer(Packet(6, 0, 1, 0, 0))
    receiver.take([broken, foreign, outer(packet(1, 4))], 0)
    counts = receiver.statistics()
    assert (sink.got, counts.malformed, counts.strangers) == ([4], 1, 1)


def test_a_caches_packets_that_came_as_one_are_taken_one_by_one():
    receiver, _, _ = both("any")
    seen = []
    receiver.cached = lambda inner, now: seen.append(inner.sequence) is None
    stream = [encode_packet(Packet(5, i, 1, i, 0, Mark.CACHED, b"x")) for i in range(6)]
    receiver.take([outer(b"".join(stream[:4])), outer(stream[4]), outer(stream[5] + b"?")], 0)
    foreign = encode_packet(Packet(6, 0, 1, 0, 0, Mark.CACHED))
    receiver.take([outer(foreign + foreign)], 0)
    counts = receiver.statistics()
    assert seen == [0, 1, 2, 3, 4]
    assert (counts.received, counts.malformed, counts.strangers) == (8, 1, 2)


def parcel(some, to=3, sequence=0):
    return outer(b"".join(map(encode_packet, some)), to, sequence)


@pytest.mark.parametrize("stuck", [False, True], ids=["free", "full"])
@pytest.mark.parametrize("changing", [False, True], ids=["settled", "changing"])
def test_events_that_came_as_one_are_delivered_as_one_by_one(changing, stuck):
    """In parcels, in a matrix of parcels, or each alone; also while ways change, and where a queue is full."""
    some = [packet(i, (i * 37) % 256, i % 8) for i in range(40)]
    rows = b"".join(encode_packet(parcel(some[i : i + 10], sequence=i)) for i in range(0, 40, 10))
    ways = {
        "alone": [outer(each, sequence=i) for i, each in enumerate(some)],
        "parcels": [parcel(some[:7]), parcel(some[7:8]), parcel(some[8:40])],
        "matrix": uniform(np.frombuffer(rows, np.uint8).reshape(4, -1)),
    }
    found = {}
    for name, packets in ways.items():
        receiver, _, sinks = both("x < 100", "y > 3")
        if changing:
            receiver.take([packet(50, 50)], 0)
            handover(receiver)
        sinks[1].room = not stuck
        receiver.take(packets, 0)
        receiver.take([packet(60, 60)], 0)
        for _ in range(3 if stuck else 0):
            assert receiver.blocked
            assert not receiver.resume(0)
        sinks[1].room = True
        assert receiver.resume(0)
        if changing:
            finish(receiver, {(1, 0): 39})
        found[name] = [sink.got for sink in sinks], receiver.statistics()
    assert found["alone"] == found["parcels"] == found["matrix"]
    assert found["alone"][0][0][-1] == 60


def test_what_a_node_published_itself_does_not_come_back_to_it():
    receiver, _, (sink,) = both("any")
    receiver.own = 1
    own, others = [packet(i, 1) for i in range(20)], [packet(i, 2, publisher=2) for i in range(20)]
    receiver.take([outer(each) for each in own + others], 0)
    assert sink.got == [2] * 20
    rows = [encode_packet(outer(packet(20 + i, 3, publisher=1 + i % 2))) for i in range(20)]
    receiver.take(uniform(np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)), 0)
    assert sink.got == [2] * 20 + [3] * 10


def test_a_full_queue_holds_what_comes_either_way():
    receiver, _, (sink,) = both("any")
    sink.room = False
    receiver.take([packet(0, 0), outer(packet(1, 1)), packet(2, 2)], 0)
    assert receiver.blocked
    sink.room = True
    assert receiver.resume(0)
    assert sink.got == [0, 1, 2]
    assert receiver.statistics().received == 3


# -- order across a change of way ---------------------------------------------------------------


def handover(receiver, way=1, length=0, code=0, patience=2.0, now=0):
    receiver.take([outer(begin(Begin((COMPONENT, way), 5, code, length, patience)))], now)


def finish(receiver, marks, way=1):
    receiver.take([outer(end(End((COMPONENT, way), marks), 5))], 0)


def test_what_comes_by_content_waits_for_the_end_of_the_old_way():
    receiver, _, (sink,) = both("any")
    receiver.take([outer(packet(0, 0))], 0)
    handover(receiver)
    receiver.take([packet(2, 2), packet(3, 3), outer(packet(1, 1))], 0)
    assert sink.got == [0, 1]
    finish(receiver, {(1, 0): 1})
    assert sink.got == [0, 1, 2, 3]
    receiver.take([packet(4, 4)], 0)
    assert sink.got == [0, 1, 2, 3, 4]


def test_the_end_waits_for_the_last_event_that_it_speaks_of():
    receiver, _, (sink,) = both("any")
    handover(receiver)
    receiver.take([packet(2, 2)], 0)
    finish(receiver, {(1, 0): 1})
    assert sink.got == []
    receiver.take([outer(packet(1, 1))], 0)
    assert sink.got == [1, 2]


def test_only_the_subspace_that_changes_its_way_waits():
    receiver, _, (sink,) = both("any")
    inside = packet(1, 200)
    handover(receiver, code=inside.code, length=2)
    receiver.take([inside, packet(2, 3)], 0)
    assert sink.got == [3]
    finish(receiver, {})
    assert sink.got == [3, 200]


def test_holding_ends_by_the_clock_when_the_component_dies():
    receiver, _, (sink,) = both("any")
    handover(receiver, patience=1.0)
    receiver.take([packet(2, 2)], 0)
    receiver.expire(999_999_999)
    assert sink.got == []
    receiver.expire(1_000_000_000)
    assert (sink.got, receiver.statistics().hasty) == ([2], 1)


def test_holding_is_bounded():
    receiver, _, (sink,) = both("any")
    receiver.handovers = Handovers(packets=3)
    handover(receiver)
    receiver.take([packet(i, i) for i in range(10)], 0)
    assert len(sink.got) >= 7
    assert sink.got == sorted(sink.got)
    receiver.expire(1 << 62)
    assert sink.got == list(range(10))


def test_what_is_released_waits_if_a_queue_is_full():
    receiver, _, (sink,) = both("any")
    handover(receiver)
    receiver.take([packet(1, 1), packet(2, 2)], 0)
    sink.room = False
    finish(receiver, {})
    receiver.take([packet(3, 3)], 0)
    sink.room = True
    assert receiver.resume(0)
    assert sink.got == [1, 2, 3]
    assert receiver.statistics().received == 5


@settings(deadline=None)
@given(st.data())
def test_order_and_exactly_once_through_any_changes_of_way_in_virtual_time(data):
    """A publisher, a network and a component that each delay what they carry: FIFO each, at different paces."""
    clock = VirtualClock()
    receiver, _, (sink,) = both("any")
    ways = {"content": 0.0, "directed": 0.0}

    def carry(way, delay, one):
        # Never before what went the same way earlier.
        ways[way] = max(ways[way], clock.time() + delay)
        clock.call_at(ways[way], lambda: receiver.take([one], int(clock.time() * 1e9)))

    delays = st.floats(0.0, 0.3)
    directed, count, changes = True, 0, 0

    def publish(marks=None):
        nonlocal count
        one = packet(count, count % 256)
        carry("directed" if directed else "content", data.draw(delays), outer(one) if directed else one)
        if marks is not None:
            marks[1, 0] = count
        count += 1

    for step in data.draw(st.lists(st.sampled_from(("event", "event", "event", "change")), max_size=40)):
        if step == "event":
            publish()
        elif directed:
            changes += 1
            way, marks = (COMPONENT, changes), {}
            carry("directed", data.draw(delays), outer(begin(Begin(way, 5, 0, 0, 60.0))))
            clock.run(until=ways["directed"])  # it is there before the network changes
            for _ in range(data.draw(st.integers(0, 3))):
                publish(marks)
            directed = False
            # The end may overtake the last events: it says which they are.
            last = clock.time() + data.draw(delays)
            clock.call_at(last, receiver.take, [outer(end(End(way, marks), 5))], 0)
        else:
            # The component begins when all that went by content is there, and the change before is over.
            clock.run(until=max(*ways.values(), clock.time() + 0.3))
            directed = True
        clock.run(until=clock.time() + data.draw(st.floats(0.0, 0.05)))
    clock.run()
    assert sink.got == [i % 256 for i in range(count)]
    assert receiver.statistics().hasty == 0
    assert not receiver.handovers
