"""The dialling side of a conversation without a connection: one suite, run for every protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.identity import Role
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as c
from sievenet.errors import CodecError, Rejected, SchemaError, Unavailable
from sievenet.routers import messages as m
from sievenet.routers import protocol as r
from sievenet.session.caller import Answered, Caller, Dismissed, Ended, Told, Welcomed
from sievenet.session.framing import frame
from sievenet.session.message import Alive, Done, Failure, Goodbye

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=9),))
INFO = c.CategoryInfo(1, SCHEMA, b"{}", 1)


class Control:
    """The daemon's protocol: what it tells unasked, and an answer of its own."""

    protocol, news, ask = c.CONTROL, c.PlanChanged(INFO), staticmethod(lambda n: c.LookUp(n, "t"))
    answer = staticmethod(lambda n: c.CategoryReply(n, INFO))
    large = staticmethod(lambda n: c.ApplyPlan(n, "t", bytes(c.MAX_REQUEST)))


class Routing:
    """The routers' protocol."""

    protocol, news, ask = r.ROUTING, m.Missed(3), staticmethod(lambda n: r.LookUp(n, "t"))
    answer = staticmethod(lambda n: r.CategoryIs(n, 7, b"s"))
    large = staticmethod(lambda n: r.Publish(1, 0, 0, bytes(r.MAX_FRAME)))


@pytest.fixture(params=[Control, Routing], ids=["control", "router"])
def side(request):
    return request.param


def talking(side, lease=30.0):
    caller, protocol = Caller(side.protocol), side.protocol
    hello = protocol.hello(protocol.version, name="me")
    assert list(protocol.listening().feed(caller.hello(hello))) == [hello]
    welcome = protocol.welcome(protocol.version, "me", b"t", lease)
    assert caller.receive(frame(welcome)) == [Welcomed(welcome)]
    assert caller.lease == lease
    return caller


def test_answers_find_their_requests_in_any_order(side):
    caller = talking(side)
    first, data = caller.request(side.ask)
    assert list(side.protocol.listening().feed(data)) == [side.ask(first)]
    second, _ = caller.request(side.ask)
    third, _ = caller.request(side.ask)
    replies = (side.answer(second), Failure(first, "SchemaError", "unknown"), Done(third, {"a": 1}))
    late, early, plain = caller.receive(b"".join(map(frame, replies)))
    assert late == Answered(second, side.answer(second))
    assert early.number == first
    assert isinstance(early.error, SchemaError)
    assert plain == Answered(third, {"a": 1})


def test_what_is_told_unasked_and_what_means_nothing(side):
    assert talking(side).receive(frame(Alive()) + frame(side.news)) == [Told(side.news)]


def test_a_refused_hello_ends_the_conversation_with_the_reason(side):
    caller = Caller(side.protocol)
    caller.hello(side.protocol.hello(side.protocol.version))
    [ended] = caller.receive(frame(Failure(0, "Rejected", "name taken")))
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, Rejected)


@pytest.mark.parametrize("what", ["goodbye", "unasked answer", "second welcome", "bad length", "no message"])
def test_what_does_not_belong_ends_it(side, what):
    protocol = side.protocol
    data, kind = {
        "goodbye": (frame(Goodbye("shutting down")), Dismissed),
        "unasked answer": (frame(Done(99)), CodecError),
        "second welcome": (frame(protocol.welcome(protocol.version, "me")), CodecError),
        "bad length": (b"\xff\xff\xff\xff", CodecError),
        "no message": (b"\x00\x00\x00\x01\x90", CodecError),
    }[what]
    [ended] = talking(side).receive(data)
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, kind)


def test_nothing_comes_before_the_welcome(side):
    for message in (side.news, Done(1), Alive()):
        caller = Caller(side.protocol)
        caller.hello(side.protocol.hello(side.protocol.version))
        [ended] = caller.receive(frame(message))
        assert isinstance(ended.error, CodecError)


def test_nothing_after_the_end_is_read(side):
    assert len(talking(side).receive(frame(Goodbye("x")) + frame(side.news))) == 1


def test_an_answer_comes_once(side):
    caller = talking(side)
    number, _ = caller.request(side.ask)
    first, second = caller.receive(frame(Done(number)) * 2)
    assert first == Answered(number, None)
    assert isinstance(second, Ended)


def test_a_request_too_large_is_refused_before_it_is_sent(side):
    caller = talking(side)
    with pytest.raises(CodecError, match="at most"):
        caller.request(side.large)
    # It counts for nothing: the next one is answered.
    number, _ = caller.request(side.ask)
    assert caller.receive(frame(Done(number))) == [Answered(number, None)]


def test_silence_ends_it_unless_this_process_slept(side):
    caller = talking(side, lease=8.0)
    assert "for 8 s" in str(caller.silence(8.1))
    assert isinstance(caller.silence(9.9), Unavailable)
    assert caller.silence(10.0) is None


def test_every_role_has_its_bound(side):
    for role in side.protocol.largest:
        if role is not Role.COMPONENT:
            caller = Caller(side.protocol)
            caller.hello(side.protocol.hello(side.protocol.version, role))
            with pytest.raises(CodecError):
                caller.request(side.large)


@given(st.sampled_from([Control, Routing]), st.lists(st.binary(max_size=40), max_size=10), st.randoms())
def test_whatever_comes_is_an_effect(side, noise, rng):
    """Good messages and noise, in any pieces: nothing is raised, and no answer comes that was not asked for."""
    caller = talking(side)
    numbers = {caller.request(side.ask)[0] for _ in range(4)}
    good = [frame(Done(n)) for n in numbers] + [frame(side.news), frame(Alive()), frame(Goodbye("x"))]
    data = b"".join(rng.choice(good) if rng.random() < 0.8 else each for each in noise)
    at = 0
    while at < len(data):
        size = rng.randrange(1, 30)
        for effect in caller.receive(data[at : at + size]):
            if isinstance(effect, Answered):
                numbers.remove(effect.number)
            elif isinstance(effect, Ended):
                return
        at += size
