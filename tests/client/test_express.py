"""Single events by the short way: deliveries and counts are those of the ordinary way; and on the way out."""

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.access.quota import Bucket
from sievenet.client.edge import Edge
from sievenet.client.express import Express
from sievenet.client.outbox import Outbox
from sievenet.client.ports.content import ContentPort
from sievenet.client.ports.port import DataPort
from sievenet.client.receiver import Receiver
from sievenet.client.registrations import Registration
from sievenet.content import Attribute, Filter, Schema, Subscription, parse_subscription
from sievenet.content.codec import encode_event
from sievenet.dataplane.packet import (
    MAX_NUMBER,
    Packet,
    datagram_alone,
    encode_datagram,
    encode_packet,
    header,
    packets_of,
    publisher_at,
)
from sievenet.errors import CodecError
from sievenet.index import Plan
from tests.seeds import examples

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=255), Attribute("y", "int", lo=3, hi=90)))
PLAN = Plan.regular(SCHEMA, 6)


class Sink:
    def __init__(self):
        self.got, self.room, self.false_positives = [], True, 0

    def accept(self, delivery):
        if self.room:
            self.got.append(
                (delivery.event, delivery.publisher, delivery.sequence, delivery.incarnation, delivery.sent)
            )
        return self.room


class Side:
    """A receiver with three subscriptions, that takes datagrams by the short way, or not."""

    def __init__(self, short):
        self.receiver, self.edge, self.cached, self.full = Receiver(), Edge(SCHEMA), {}, 0
        self.edge.adopt(lambda: PLAN, 8)
        self.receiver.enter(5, self.edge)
        self.sinks = []
        for key, text in enumerate(("x < 100", "x in 50..60 and y > 20", "x >= 200")):
            self.edge.add(key, parse_subscription(text, SCHEMA))
            self.sinks.append(Sink())
            self.receiver.connect(key, self.sinks[-1])
        self.express = Express(self.receiver, self.cached, self._full) if short else None
        self.passed = 0

    def _full(self):
        self.full += 1

    def take(self, data, owner=1):
        if self.express is not None and self.receiver.stuck is None and self.express.take(data, owner):
            self.passed += 1
            return
        try:
            found = packets_of(data, header(data)[-1])
        except CodecError:
            return
        self.receiver.take([packet for packet in found if packet.publisher == owner], 2000)

    @property
    def said(self):
        return [sink.got for sink in self.sinks], self.receiver.statistics()


def packet(sequence, x, y=9, publisher=1, category=5, flags=0, payload=b"", departure=1000):
    event = SCHEMA.event(x=x, y=y)
    body = encode_event(type(event)(SCHEMA, event.values, payload))
    return Packet(category, PLAN.codes(event)[0], publisher, sequence, departure, flags, body, 77)


def datagram(*args, **fields):
    return datagram_alone(packet(*args, **fields))


def both():
    sides = Side(False), Side(True)
    for side in sides:
        for number in range(3):  # as many as make segments
            side.take(datagram(number, 5))
    return sides


packets = st.builds(
    packet,
    st.integers(3, 9) | st.sampled_from([MAX_NUMBER, MAX_NUMBER + 1]),
    st.integers(0, 255),
    st.integers(3, 90),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([5, 5, 5, 6]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([b"", b"", b"p"]),
    st.sampled_from([1000, MAX_NUMBER + 1]),
)


#: Bytes that are missing at the end.
cuts = st.sampled_from([0, 0, 0, 1, 2, 30, 48, 60])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(packets, st.integers(-1, 90), st.integers(0, 255), cuts), max_size=12))
def test_the_short_way_delivers_and_counts_what_the_ordinary_one_does(rows):
    """Whatever comes: duplicates, what nobody wants, what is malformed, forged or of strangers."""
    ordinary, short = both()
    for each, at, byte, cut in rows:
        data = bytearray(datagram_alone(each))
        if at >= 0:
            data[at % len(data)] = byte
        for side in (ordinary, short):
            side.take(bytes(data[: len(data) - cut]))
    assert short.said == ordinary.said


def test_single_events_pass_the_short_way():
    ordinary, short = both()
    for number, x in enumerate((5, 55, 250, 5), 3):
        for side in (ordinary, short):
            side.take(datagram(number, x, 30))
    assert short.passed >= 4
    assert short.said == ordinary.said
    assert [len(sink.got) for sink in short.sinks] == [6, 1, 1]


@pytest.mark.parametrize(
    "special",
    [
        lambda side: side.cached.update({1: None}),
        lambda side: side.receiver.directs.update({9: "twin"}),
        lambda side: side.receiver.entitlements.first.update({7: {}}),
        lambda side: side.receiver.handovers.open.update({(1, 1): None}),
        lambda side: setattr(side.receiver, "stuck", (None, [])),
        lambda side: setattr(side.edge, "segments", None),
        lambda side: side.receiver.forget(),
        lambda side: side.receiver.enter(5, Edge(Schema("u", (Attribute("z", "int", lo=0, hi=7),)))),
    ],
)
def test_nothing_passes_and_nothing_is_noted_while_something_special_is_under_way(special):
    _, side = both()
    assert side.express.take(datagram(3, 5), 1)
    special(side)
    before = side.said
    assert not side.express.take(datagram(4, 5), 1)
    assert side.said == before


def test_a_sink_that_is_full_stops_reading_and_loses_nothing():
    _, side = both()
    side.sinks[0].room = False
    side.take(datagram(3, 5))
    assert side.full == 1
    assert side.receiver.blocked
    side.take(datagram(4, 6))
    side.sinks[0].room = True
    assert side.receiver.resume(2000)
    assert [sequence for _, _, sequence, *_ in side.sinks[0].got][-2:] == [3, 4]


# -- the way out ---------------------------------------------------------------------------


class Category:
    schema, plan, number, budget = SCHEMA, PLAN, 5, 8


class Catalog:
    changes = 0

    def known(self, schema):
        return Category


class Port:
    """Takes datagrams alone, or not."""

    def __init__(self, takes):
        self.takes, self.sent = takes, []

    def send_alone(self, datagram, category, code):
        self.sent += [(datagram, category, code)] * self.takes
        return self.takes


def outbox(text="any"):
    found = Outbox(Catalog())
    found.publisher, found.incarnation = 3, 4
    found.offers.allow(Registration(1, "advertisement", "t", parse_subscription(text, SCHEMA), b""))
    return found


@given(st.integers(0, 255), st.integers(3, 90), st.booleans())
def test_an_event_leaves_alone_as_the_packet_that_it_would_be(x, y, takes):
    event, port = SCHEMA.event(x=x, y=y), Port(takes)
    alone, ordinary = outbox(), outbox()
    found = [alone.sent(event, port, 1000 + i) for i in range(3)]
    expected = [ordinary.packets(event, 1000 + i) for i in range(3)]
    assert alone.published == alone.next == 3
    # The first finds the way.
    assert found == [expected[0], None, None] if takes else found == expected
    for (datagram, category, code), [each] in zip(port.sent, expected[1:], strict=takes):
        assert datagram == encode_datagram(0, [encode_packet(each)]) == datagram_alone(each)
        assert (category, int.from_bytes(code, "big")) == (5, each.code)


def test_events_that_may_not_leave_as_they_are_go_the_ordinary_way():
    event = SCHEMA.event(x=1, y=9)
    for prepared, changed in (
        (outbox("x < 9"), lambda box: None),  # limited: each is looked at
        (
            outbox(),
            lambda box: box.offers.allow(Registration(2, "advertisement", "t", Subscription([Filter(SCHEMA)]), b"")),
        ),
    ):
        prepared.sent(event, Port(True), 1000)
        changed(prepared)
        assert len(prepared.sent(event, port := Port(True), 1000)) == 1
        assert not port.sent


def test_a_port_that_knows_no_datagrams_alone_takes_none():
    assert not DataPort.single
    assert not DataPort.send_alone(None, b"", 1, b"")


def test_single_packets_are_paced_and_keep_their_order():
    """What is paid for in advance is not more than the pace; what does not go at once waits behind what waits."""

    async def main():
        with (
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as here,
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as there,
        ):
            there.bind(("::1", 0))
            here.setblocking(False)
            address, number, *_ = there.getsockname()
            port = ContentPort(here, publisher_at(socket.inet_pton(socket.AF_INET6, address), number), lambda _: None)
            sent = []

            class Socket:
                def sendto(self, data, place):
                    sent.append((packets_of(data, 1)[0].sequence, place))

            port._socket, port._pace = Socket(), Bucket(0.001, 70)
            for sequence in range(100):
                port.send([packet(sequence, 5)])
            assert [sequence for sequence, _ in sent] == list(range(70))
            assert port.waiting == 30
            assert all(socket.inet_pton(socket.AF_INET6, place[0])[:4] == b"\xfd\x0e\0\5" for _, place in sent)
            assert not port.send_alone(b"", 5, bytes(16))
            port._socket = here
            port.close()

    asyncio.run(main())
