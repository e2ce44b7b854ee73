"""Headers on events and control messages as events: the law of covering, authenticity, bounds."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.client.transport import exchange
from sievenet.client.transport.shim import MARK, all_escaped, escaped, stamped, unstamped
from sievenet.client.transport.voice import Verdict, Voices
from sievenet.content import Attribute, Event, EventBatch, Filter, Schema, Subscription, ValueSet
from sievenet.errors import CodecError
from sievenet.index.plan import Plan
from sievenet.transport.actions import Channel, Send
from sievenet.transport.bloom import Tagger
from sievenet.transport.codec import Header, Record, encode_header
from sievenet.transport.control import Echo, Gone, Repair, Request, encode
from tests.seeds import seeds

SCHEMA = Schema(
    "quote",
    (Attribute("symbol", "str"), Attribute("price", "float", lo=0, hi=1000), Attribute("n", "int", lo=0, hi=999)),
)
CONTROL = exchange.control_schema("quote")
HEADER = encode_header(Header(7, 1, 2, 3.0, 4, Record.of([(5, 6)], 16)))


def quote(symbol="IBM", price=1.0, n=1, payload=b""):
    return Event(SCHEMA, (symbol, price, n), payload)


# -- stamps -------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.booleans())
def test_whatever_the_payload_it_comes_back(payload, marked):
    event = quote(payload=MARK + payload if marked else payload)
    back, stamp = unstamped(stamped(event, HEADER))
    assert back == event
    assert stamp.raw == HEADER
    assert (stamp.header.publisher, stamp.header.sequence) == (7, 2)
    sent = escaped(event)
    assert (unstamped(sent) if sent.payload.startswith(MARK) else (sent, None)) == (event, None)


@given(st.binary(max_size=60))
def test_bytes_that_only_look_like_a_stamp_are_refused(tail):
    event = quote(payload=MARK + b"\x21" + tail)
    try:
        back, stamp = unstamped(event)
    except CodecError:
        return
    assert stamp is not None
    assert len(back.payload) < len(event.payload)


def test_a_digest_is_no_stamp():
    digest = encode_header(Header(7, 1, 2, 3.0, 4, digest=True))
    with pytest.raises(CodecError, match="a digest"):
        unstamped(quote(payload=MARK + digest))


def test_many_are_escaped_only_where_needed():
    plain = [quote(n=i) for i in range(3)]
    assert all_escaped(plain) is plain
    batch = EventBatch.from_events(SCHEMA, plain)
    assert all_escaped(batch) is batch
    odd = [*plain, quote(payload=MARK)]
    for form in (odd, EventBatch.from_events(SCHEMA, odd)):
        assert [each.payload for each in all_escaped(form)] == [b"", b"", b"", MARK + b"\x00" + MARK]


# -- control messages ---------------------------------------------------------------------


def some_filter(rng):
    parts = {}
    if rng.random() < 0.6:
        parts["symbol"] = ValueSet.of(rng.choice("ABCDE"))
    if rng.random() < 0.6:
        low = rng.random() * 900
        parts["price"] = ValueSet.interval(low, low + rng.random() * 100)
    if rng.random() < 0.4:
        parts["n"] = ValueSet.interval(rng.randrange(500), 500 + rng.randrange(500))
    return Filter(SCHEMA, parts)


@pytest.mark.parametrize("seed", seeds(1))
def test_requests_reach_everyone_whose_filter_the_lost_message_matches(seed):
    rng = Random(seed)
    tagger = Tagger(SCHEMA, exchange.WIDTH)
    plan = Plan.regular(CONTROL, 32)
    reached = asked = 0
    for _ in range(150):
        wanted = Subscription([some_filter(rng) for _ in range(rng.randint(1, 3))])
        listening = Subscription(exchange.peers(CONTROL, wanted))
        assert len(listening.filters) <= 8 + len(wanted.filters)
        cells = plan.cover(listening, budget=8)
        for _ in range(30):
            event = quote(rng.choice("ABCDE"), rng.random() * 1000, rng.randrange(1000))
            send = Send(Channel.PEERS, 99, tagger.event(event), b"x", exchange.WIDTH // 8)
            said, to_publisher = exchange.events_of(CONTROL, send, 5)
            if wanted.matches(event):
                assert listening.matches(said)
                assert any(cell.covers(code) for cell in cells for code in plan.encode(said))
            else:
                asked += 1
                reached += listening.matches(said)
            assert not listening.matches(to_publisher)
    assert reached < 0.95 * asked  # the network filters; how much depends on the filters drawn


def test_what_is_for_one_reaches_only_that_one():
    mine, other = exchange.to_node(CONTROL, 1 << 63 | 5), exchange.to_node(CONTROL, 6)
    for channel in (Channel.NODE, Channel.PUBLISHER):
        (said,) = exchange.events_of(CONTROL, Send(channel, 1 << 63 | 5, 0, b"x"), 1)
        assert mine.matches(said)
        assert not other.matches(said)
        assert len(list(Plan.regular(CONTROL, 32).cover(mine, budget=8))) == 1


def test_digests_and_other_widths_reach_all():
    listening = Subscription(exchange.peers(CONTROL, Subscription([Filter(SCHEMA, {"symbol": ValueSet.of("A")})])))
    digest = Send(Channel.DIGEST, 9, 0, b"x")
    wide = Send(Channel.PEERS, 9, 0, b"x", 32)
    for send in (digest, wide):
        assert listening.matches(exchange.events_of(CONTROL, send, 9)[0])
    assert len(exchange.events_of(CONTROL, wide, 9)) == 1  # the publisher does not tell itself
    assert exchange.events_of(CONTROL, Send(Channel.DIGEST, 9, 0, bytes(40_000)), 9) == []


def test_only_a_publisher_speaks_for_itself():
    digest = encode_header(Header(7, 1, 2, 3.0, 4, digest=True))
    gone, reply = encode(Gone(7, 1, 2, 3)), encode(Echo(5, 7, 1.0, reply=True))
    for data in (digest, gone, reply):
        assert exchange.spoken_for(data) == 7
    for message in (Request(7, 1, 2, 5, 0, 0.1, 0.1, 3, 16), Repair(5, 0, HEADER + b"body"), Echo(5, 7, 1.0)):
        assert exchange.spoken_for(encode(message)) is None
    assert exchange.spoken_for(HEADER + b"body") == -1  # published messages come as events of their own category
    assert exchange.spoken_for(b"") is None  # nothing to believe; the transport counts it as malformed


def test_a_voice_is_believed_while_the_one_before_is_silent():
    voices = Voices()
    assert voices.judge(7, 7, 0.0) is Verdict.TRUE
    assert voices.judge(7, 8, 0.1) is Verdict.WAIT  # a new connection, or a forger
    assert voices.judge(7, 7, 0.2) is Verdict.TRUE  # was still under way
    assert voices.judge(7, 8, 0.9) is Verdict.WAIT
    assert voices.judge(7, 8, 1.1) is Verdict.TRUE
    assert voices.judge(7, 8, 1.2) is Verdict.TRUE
    assert voices.judge(9, 5, 2.0) is Verdict.TRUE  # behind a gateway: nobody spoke before
    assert voices.judge(9, 9, 2.1) is Verdict.TRUE  # the network vouches


def test_a_forger_is_a_stranger_while_the_publisher_speaks():
    voices = Voices()
    verdicts = set()
    for i in range(100):
        now = i * 0.1
        assert voices.judge(7, 7, now) is Verdict.TRUE
        verdicts.add((now >= 1.0, voices.judge(7, 8, now + 0.05)))
    assert verdicts == {(False, Verdict.WAIT), (True, Verdict.FOREIGN)}


def test_names_are_short_enough_and_different():
    names = {exchange.control_schema("a" * length).name for length in range(1, 64)}
    assert len(names) == 63
    assert all(len(name) <= 64 for name in names)
