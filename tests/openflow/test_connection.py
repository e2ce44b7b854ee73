"""The conversation with a switch, without any: a pretended one says what we want to see handled."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.openflow import messages as m
from sievenet.dataplane.openflow.connection import (
    DEAD,
    ECHO,
    Answered,
    Closed,
    Connection,
    Failed,
    PacketCame,
    PortChanged,
    Ready,
    Send,
)
from sievenet.dataplane.openflow.numbers import V13, V14, Bundle, Multipart, Type

FEATURES = struct.pack(">QIBBxxII", 7, 0, 254, 0, 0, 0)


def connected(version=V14):
    connection = Connection(0.0)
    assert connection.begin()[0] == V14
    (send,) = connection.receive(m.hello(1, (version,)), 0.1)
    assert send.data[1] == Type.FEATURES_REQUEST
    config, ready = connection.receive(m.message(version, Type.FEATURES_REPLY, 2, FEATURES), 0.2)
    assert config.data[1] == Type.SET_CONFIG
    assert ready == Ready((7, 254, 0))
    assert connection.state == "ready"
    return connection


def sent(data):
    return list(m.Framer().feed(data))


def error(version, xid, kind=5, code=1):
    return m.message(version, Type.ERROR, xid, struct.pack(">HH", kind, code) + b"request")


def control(version, xid, bundle, kind):
    """What a switch answers about a bundle."""
    return m.bundle_control(version, xid, bundle, kind)


def changes(connection, count=3, **options):
    encoders = [lambda xid: m.barrier(connection.version, xid)] * count
    return connection.change(encoders, **options)


@pytest.mark.parametrize("version", [V13, V14])
def test_a_bundle_is_closed_then_committed(version):
    connection = connected(version)
    ticket, data = changes(connection)
    opened, *added, closed = sent(data)
    assert len(added) == 3
    bundle = 1
    assert connection.receive(control(version, opened.xid, bundle, Bundle.OPEN + 1), 1.0) == []
    (commit,) = connection.receive(control(version, closed.xid, bundle, Bundle.CLOSE + 1), 1.0)
    (asked,) = sent(commit.data)
    assert m.read_bundle(version, asked) == (bundle, Bundle.COMMIT)
    assert connection.waiting == {ticket}
    assert connection.receive(control(version, asked.xid, bundle, Bundle.COMMIT + 1), 1.0) == [Answered(ticket)]
    assert connection.waiting == frozenset()


def test_an_error_about_a_change_discards_the_bundle():
    connection = connected()
    ticket, data = changes(connection)
    _opened, _first, second, _third, closed = sent(data)
    assert connection.receive(error(V14, second.xid, 4, 6), 1.0) == []
    (discard,) = connection.receive(control(V14, closed.xid, 1, Bundle.CLOSE + 1), 1.0)
    (asked,) = sent(discard.data)
    assert m.read_bundle(V14, asked).kind == Bundle.DISCARD
    (failed,) = connection.receive(control(V14, asked.xid, 1, Bundle.DISCARD + 1), 1.0)
    assert isinstance(failed, Failed)
    assert (failed.ticket, failed.change, str(failed.error), failed.partly) == (
        ticket,
        1,
        "field cannot be matched",
        False,
    )


def test_a_commit_that_fails_names_the_change():
    """A full table shows when the bundle is committed: first the change's own error, then the commit's."""
    connection = connected()
    ticket, data = changes(connection)
    *_, third, closed = sent(data)
    (commit,) = connection.receive(control(V14, closed.xid, 1, Bundle.CLOSE + 1), 1.0)
    (asked,) = sent(commit.data)
    assert connection.receive(error(V14, third.xid), 1.0) == []
    (failed,) = connection.receive(error(V14, asked.xid, 17, 15), 1.0)
    assert (failed.ticket, failed.change, str(failed.error), failed.partly) == (ticket, 2, "table full", False)
    assert connection.waiting == frozenset()
    assert connection.errors == 2


def test_without_bundles_a_barrier_acknowledges():
    connection = connected()
    ticket, data = changes(connection, atomic=False)
    first, _, _, barrier = sent(data)
    assert connection.receive(m.message(V14, Type.BARRIER_REPLY, barrier.xid), 1.0) == [Answered(ticket)]
    ticket, data = changes(connection, atomic=False)
    first, _, _, barrier = sent(data)
    assert connection.receive(error(V14, first.xid), 1.0) == []
    (failed,) = connection.receive(m.message(V14, Type.BARRIER_REPLY, barrier.xid), 1.0)
    assert (failed.ticket, failed.change, failed.partly) == (ticket, 0, True)


def test_a_switch_without_bundles_is_recognised():
    connection = connected(V13)
    ticket, data = changes(connection)
    opened, *_, closed = sent(data)
    assert connection.receive(error(V13, opened.xid, 1, 3), 1.0) == []
    assert not connection.bundles
    (failed,) = connection.receive(error(V13, closed.xid, 1, 3), 1.0)
    assert failed.ticket == ticket
    _, data = changes(connection)
    assert sent(data)[-1].type == Type.BARRIER_REQUEST


def test_answers_in_parts():
    connection = connected()
    ticket, data = connection.ask(Multipart.TABLE)
    (asked,) = sent(data)

    def part(more, body):
        return m.message(V14, Type.MULTIPART_REPLY, asked.xid, struct.pack(">HH4x", 3, more) + body)

    assert connection.receive(part(1, b"one "), 1.0) == []
    assert connection.receive(part(0, b"two"), 1.0) == [Answered(ticket, b"one two")]
    assert connection.receive(part(0, b"late"), 1.0) == []
    ticket, data = connection.ask(Multipart.TABLE)
    (failed,) = connection.receive(error(V14, sent(data)[0].xid, 1, 2), 1.0)
    assert (failed.ticket, failed.change) == (ticket, None)


def test_forgotten_requests_are_not_answered():
    connection = connected()
    ticket, data = changes(connection, atomic=False)
    connection.forget(ticket)
    assert connection.receive(m.message(V14, Type.BARRIER_REPLY, sent(data)[-1].xid), 1.0) == []
    assert connection.receive(error(V14, sent(data)[0].xid), 1.0) == []


def test_echo_and_silence():
    connection = connected()
    (reply,) = connection.receive(m.echo_request(V14, 9, b"hi"), 1.0)
    assert sent(reply.data)[0] == (V14, Type.ECHO_REPLY, 9, b"hi")
    effects = {half / 2: connection.tick(1.0 + half / 2) for half in range(1, 41)}
    ((asked,), (closed,)) = (found for found in effects.values() if found)
    assert effects[ECHO] == [asked]
    assert asked.data[1] == Type.ECHO_REQUEST
    assert effects[DEAD] == [closed]
    assert isinstance(closed, Closed)
    assert connection.receive(b"anything", 100.0) == []


def test_whoever_talks_and_never_introduces_itself_is_closed():
    connection = Connection(0.0)
    connection.receive(m.hello(1, (V14,)), 0.1)
    found = []
    for tenth in range(1, 200):
        found += connection.receive(m.echo_request(V14, tenth), tenth / 10)
        if tenth % 5 == 0:
            found += connection.tick(tenth / 10)
    (closed,) = [each for each in found if isinstance(each, Closed)]
    assert "not introduced" in closed.reason


def test_what_we_slept_through_is_not_the_switches_silence():
    connection = connected()
    connection.receive(m.echo_request(V14, 9, b"hi"), 1.0)
    now = 1.0
    for _ in range(3):
        now += 60.0  # stopped for a minute; what came meanwhile is read after the tick
        assert not any(isinstance(effect, Closed) for effect in connection.tick(now))
        connection.receive(m.echo_reply(V14, 1, b""), now)
    assert connection.state == "ready"


def test_news_of_ports_and_packets():
    connection = connected()
    port = struct.pack(">IH2x6s2x16sII", 5, 40, b"abcdef", b"eth5", 0, 1)
    (news,) = connection.receive(m.message(V14, Type.PORT_STATUS, 0, b"\2" + bytes(7) + port), 1.0)
    assert news == PortChanged((2, (5, b"abcdef", "eth5", False)))
    match = struct.pack(">HHHBBI4x", 1, 12, 0x8000, 0, 4, 9)
    body = struct.pack(">IHBBQ", 0xFFFFFFFF, 4, 0, 1, 77) + match + b"\0\0data"
    assert connection.receive(m.message(V14, Type.PACKET_IN, 0, body), 1.0) == [PacketCame((9, 1, 77, b"data"))]
    assert connection.packet(1, b"", b"x")[1] == Type.PACKET_OUT


@pytest.mark.parametrize(
    "first", [m.echo_request(V14, 1), m.hello(1, (1,)), m.message(V14, 0, 1)[:4] + b"\0\0\0\1" + b"\5\0\0\1" * 4]
)
def test_who_does_not_greet_is_closed(first):
    effects = Connection(0.0).receive(first, 0.0)
    assert not effects or isinstance(effects[-1], Closed | Send)
    if first[1] == Type.ECHO_REQUEST:
        assert isinstance(effects[-1], Closed)


def test_other_versions_are_refused_later():
    (closed,) = connected(V13).receive(m.echo_request(V14, 1), 1.0)
    assert "version" in closed.reason


def test_numbers_begin_again():
    connection = connected()
    connection._xid = 0x7FFFFFFE
    _ticket, data = changes(connection)
    assert [each.xid for each in sent(data)] == [1, 2, 3, 4, 5]
    connection._xid = 0x7FFFFFFF
    assert connection.ask(Multipart.TABLE)[0] == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.binary(max_size=60)), max_size=12))
def test_no_switch_can_break_it(said):
    """Whatever comes, effects come out, or the connection is closed; nothing is raised."""
    connection = connected()
    changes(connection)
    connection.ask(Multipart.FLOW)
    for kind, xid, body in said:
        for effect in connection.receive(m.message(V14, kind, xid, body), 1.0):
            assert isinstance(effect, Send | Answered | Failed | PortChanged | PacketCame | Closed)
