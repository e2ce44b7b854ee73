"""A single event's own way: the same bytes, keys and counts as the ways that serve every case."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.client.edge import Edge
from sievenet.client.segments import Segments
from sievenet.content import Attribute, Event, Filter, Schema, Subscription, ValueSet
from sievenet.content.codec import encode_event
from sievenet.content.layout import layout_of
from sievenet.dataplane.packet import (
    MAX_NUMBER,
    Packet,
    encode_datagram,
    encode_packet,
    header,
    packet_alone,
    packets_of,
)
from sievenet.errors import CodecError
from tests.index import strategies as own
from tests.seeds import examples

POINT = Schema("point", (Attribute("x", "int", lo=0, hi=999), Attribute("y", "float", lo=0, hi=1)))
HEAD = encode_datagram(0, (b"",))


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_segments_match_what_filters_match(data):
    schema = data.draw(own.schemas())
    wanted = {
        key: Subscription(data.draw(st.lists(own.filters(schema), min_size=1, max_size=3)))
        for key in data.draw(st.sets(st.integers(0, 20), min_size=1, max_size=8))
    }
    segments = Segments.of(schema, wanted)
    for _ in range(4):
        event = data.draw(own.events(schema))
        expected = sorted(key for key, each in wanted.items() if each.matches(event))
        if segments is not None:
            assert list(segments.match(event)) == expected


def tile(count, width=1):
    return {
        i: Subscription([Filter(POINT, {"x": ValueSet.interval(i * width, (i + 1) * width - 1)})]) for i in range(count)
    }


def test_segments_end_where_filters_do():
    segments = Segments.of(POINT, tile(100, 10))
    for x in range(1000):
        assert list(segments.match(POINT.event(x=x, y=0.5))) == [x // 10]


def test_where_everything_overlaps_the_line_is_not_cut():
    wanted = {i: Subscription([Filter(POINT, {"x": ValueSet.interval(i, 600 + i)})]) for i in range(300)}
    assert Segments.of(POINT, wanted) is None


@pytest.mark.parametrize("count", [3, 60])
def test_an_edge_matches_alike_before_and_after_it_has_segments(count):
    """Also while subscriptions come and go."""
    rng = random.Random(count)
    edge, held = Edge(POINT), {}
    for step in range(40):
        key = rng.randrange(count)
        if key in held:
            edge.remove(key)
            del held[key]
        else:
            lo = rng.randrange(900)
            held[key] = Subscription([Filter(POINT, {"x": ValueSet.interval(lo, lo + rng.randrange(100))})])
            edge.add(key, held[key])
        for _ in range(len(held) + 2 if step % 2 else 1):
            event = POINT.event(x=rng.randrange(1000), y=rng.random())
            assert sorted(edge.match(event)) == sorted(k for k, w in held.items() if w.matches(event))


@given(st.integers(0, 999), st.floats(0, 1), st.binary(max_size=2))
def test_one_event_is_written_as_the_codec_writes_it(x, y, payload):
    event = Event(POINT, (x, y), payload)
    assert layout_of(POINT).encode_one(event) == (None if payload else encode_event(event))


@given(st.data())
def test_any_event_is_written_as_the_codec_writes_it(data):
    schema = data.draw(own.schemas())
    event = data.draw(own.events(schema))
    layout = layout_of(schema)
    found = None if layout is None else layout.encode_one(event)
    assert found in (None, encode_event(event))


@given(st.binary(max_size=8), st.integers(0, 90), st.integers(0, 255), st.integers(0, 3))
def test_a_packet_alone_is_read_as_packets_are(body, at, byte, cut):
    whole = bytearray(HEAD + encode_packet(Packet(3, 5 << 100, 7, 9, 11, 0, body, 13)))
    assert packet_alone(bytes(whole), HEAD) == Packet(3, 5 << 100, 7, 9, 11, 0, body, 13)
    whole[at % len(whole)] = byte
    data = bytes(whole[: len(whole) - cut])
    quick = packet_alone(data, HEAD)
    try:
        [found] = packets_of(data, header(data)[-1]) or [None]
    except (CodecError, ValueError):
        found = None
    assert quick is None or quick == found


def test_absurd_numbers_are_not_read():
    packet = Packet(3, 0, 7, MAX_NUMBER + 1, 11, 0, b"", 13)
    assert packet_alone(HEAD + encode_packet(packet), HEAD) is None


def test_publishing_to_oneself_and_waiting_still_work():
    """What a quick `publish` leaves out when nobody needs it: own feeds, and waiting for a connection."""
    import sievenet
    from sievenet.config import load_config
    from sievenet.daemon.daemon import Daemon

    async def main():
        async with Daemon(load_config(listen__port=0, data__port=0, topology="line,switches=2")) as daemon:
            await daemon.control.register_schema(POINT)
            node = await sievenet.connect(daemon.url)
            await node.advertise(await node.schema("point"))
            await node.publish(POINT.event(x=1, y=0.5))
            feed = await node.subscribe("point: x < 500")
            await node.publish(POINT.event(x=2, y=0.5))
            await node.publish(POINT.event(x=502, y=0.5))
            await node.publish(POINT.event(x=3, y=0.5))
            assert [(await feed.next()).event["x"] for _ in range(2)] == [2, 3]
            await node.close()

    asyncio.run(main())
