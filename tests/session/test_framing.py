"""The protocol as bytes: round trips, bounds, and what becomes of wrong input."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet import errors
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as p
from sievenet.session.framing import Malformed, frame
from sievenet.session.message import failure, raised

SCHEMA = Schema("stock", (Attribute("price", "float", lo=0, hi=10), Attribute("s", "str", values=("a", "b"))))
INFO = p.CategoryInfo(3, SCHEMA, b"{}", 7, 16)

REQUESTS = [
    p.Hello(p.PROTOCOL, "client", "me", b"ticket", host="h1"),
    p.Hello(p.PROTOCOL, role="observer"),
    p.Register(1, SCHEMA),
    p.LookUp(2, "stock"),
    p.Advertise(3, 1, 3, b"\x00"),
    p.Unadvertise(4, 1),
    p.Subscribe(5, 2, 3, b"\x01"),
    p.Unsubscribe(6, 2),
    p.Renew(7, p.Report(received=5, latency_p50=0.25)),
    p.PlanAdopted(3, 8),
    p.ApplyPlan(8, "stock", b"{}"),
    p.Ask(9, "flows", "s1"),
    p.Leave(10),
]
REPLIES = [
    p.Welcome(1, "me", b"t", 30.0, "h1", 1.0, p.DataEndpoint("udp", "127.0.0.1", 7401, 2**64 - 1), 9, (1,), (2,)),
    p.Done(1, {"a": [1, 2.5, None]}),
    p.CategoryReply(2, INFO),
    p.Failure(3, "EventError", "m", "e", "g", "w"),
    p.PlanChanged(INFO),
    p.Goodbye("over"),
]


def packed(value):
    body = msgspec.msgpack.encode(value)
    return struct.pack("!I", len(body)) + body


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_messages_survive_any_cut_of_the_stream(cut):
    for messages, framer in ((REQUESTS, p.CONTROL.listening(p.MAX_REQUEST)), (REPLIES, p.CONTROL.dialling())):
        data = b"".join(map(frame, messages))
        found = [m for i in range(0, len(data), cut) for m in framer.feed(data[i : i + cut])]
        assert found == messages
        assert framer.pending == 0


def test_a_length_out_of_bounds_is_refused_before_its_bytes_come():
    for length in (0, 101, 0xFFFFFFFF):
        with pytest.raises(errors.CodecError, match="1 to 100 bytes"):
            list(p.CONTROL.listening(100).feed(struct.pack("!I", length)))


def test_a_wrong_inside_is_told_to_its_sender_and_the_stream_goes_on():
    framer = p.CONTROL.listening(p.MAX_REQUEST)
    data = packed({"type": "LookUp", "request": 4, "name": 5}) + frame(REQUESTS[3])
    bad, good = framer.feed(data)
    assert isinstance(bad, Malformed)
    assert bad.request == 4
    assert "name" in str(bad.error)
    assert good == REQUESTS[3]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"type": "Nonsense", "request": 1}, "Nonsense"),
        ({"type": "LookUp", "request": 1, "name": "x", "more": 1}, "more"),
        ({"type": "LookUp", "request": -1, "name": "x"}, "request"),
        ({"type": "Hello", "protocol": 1, "name": "no spaces"}, "name"),
        ({"type": "Register", "request": 1, "schema": {"name": "and", "attributes": []}}, "schema name"),
        ([1, 2], "object"),
        (None, "object"),
    ],
)
def test_wrong_messages_say_what_was_expected(wrong, told):
    [found] = p.CONTROL.listening(p.MAX_REQUEST).feed(packed(wrong))
    assert isinstance(found, Malformed)
    assert isinstance(found.error, errors.SievenetError)
    assert told in str(found.error)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_give_messages_or_the_one_error(chunks):
    framer = p.CONTROL.listening(4096)
    try:
        for chunk in chunks:
            for message in framer.feed(chunk):
                assert isinstance(message, (msgspec.Struct, Malformed))
    except errors.CodecError:
        pass
    assert framer.pending <= 4096 + 200


@given(
    st.recursive(
        st.none() | st.integers(-5, 5) | st.text(max_size=5) | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    )
)
def test_any_message_shaped_value_is_refused_without_harm(value):
    [found] = p.CONTROL.listening(p.MAX_REQUEST).feed(packed(value))
    assert isinstance(found, Malformed)


@pytest.mark.parametrize(
    "error",
    [
        errors.EventError(expected="int in [0, 9]", got=12, where="stock.price"),
        errors.SchemaError("unknown schema"),
        errors.ParseError("a = = 2", 4, expected="a value", got="`=`"),
        errors.Rejected("name taken"),
        errors.Unavailable("no answer"),
        errors.SievenetError("other"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_cross_the_wire_with_their_facts(error):
    [told] = p.CONTROL.dialling().feed(frame(failure(5, error)))
    assert told.request == 5
    back = raised(told)
    assert type(back) is type(error)
    assert str(back) == str(error)
    if isinstance(error, errors.InvalidInput):
        assert (back.expected, back.where) == (error.expected, error.where)


def test_a_bug_in_the_daemon_tells_its_kind_and_no_more():
    told = failure(1, KeyError("secret"))
    assert told.kind == "SievenetError"
    assert "secret" not in told.message
    assert "KeyError" in told.message


def test_a_subclass_that_only_the_daemon_has_arrives_as_its_base():
    class Special(errors.Rejected):
        pass

    assert type(raised(failure(1, Special("x")))) is errors.Rejected
