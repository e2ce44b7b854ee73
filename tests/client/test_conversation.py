"""The client's side of the protocol, without a connection."""

import pytest

from sievenet.client.conversation import Answered, Conversation, Ended, PlanNews, Welcomed
from sievenet.content import Attribute, Schema
from sievenet.control import protocol as p
from sievenet.errors import CodecError, Rejected, SchemaError, Unavailable
from sievenet.session.framing import frame

SCHEMA = Schema("t", (Attribute("x", "int", lo=0, hi=9),))
INFO = p.CategoryInfo(1, SCHEMA, b"{}", 1)
WELCOME = p.Welcome(1, "me", b"t", 30.0, "h1", 1.0, None, 100)


def talking():
    talk = Conversation()
    [hello] = p.CONTROL.listening(p.MAX_REQUEST).feed(talk.hello("me", None, b""))
    assert hello == p.Hello(p.PROTOCOL, name="me")
    assert talk.receive(frame(WELCOME)) == [Welcomed(WELCOME)]
    return talk


def test_answers_find_their_requests_in_any_order():
    talk = talking()
    first, data = talk.request(lambda n: p.LookUp(n, "a"))
    assert list(p.CONTROL.listening(p.MAX_REQUEST).feed(data)) == [p.LookUp(first, "a")]
    second, _ = talk.request(lambda n: p.LookUp(n, "b"))
    replies = frame(p.CategoryReply(second, INFO)) + frame(p.Failure(first, "SchemaError", "unknown"))
    late, early = talk.receive(replies)
    assert late == Answered(second, INFO)
    assert early.number == first
    assert isinstance(early.error, SchemaError)


def test_news_of_a_plan_and_its_acknowledgement():
    talk = talking()
    assert talk.receive(frame(p.PlanChanged(INFO))) == [PlanNews(INFO)]
    assert list(p.CONTROL.listening(p.MAX_REQUEST).feed(talk.adopted(1, 1))) == [p.PlanAdopted(1, 1)]


def test_a_refused_hello_ends_the_conversation_with_the_reason():
    talk = Conversation()
    talk.hello("me", None, b"")
    [ended] = talk.receive(frame(p.Failure(0, "Rejected", "name taken")))
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, Rejected)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frame(p.Goodbye("shutting down")), Unavailable),
        (frame(p.Done(99)), CodecError),
        (frame(WELCOME), CodecError),
        (b"\xff\xff\xff\xff", CodecError),
        (b"\x00\x00\x00\x01\x90", CodecError),
    ],
    ids=["goodbye", "unasked answer", "second welcome", "bad length", "no message"],
)
def test_what_does_not_belong_ends_it(data, kind):
    [ended] = talking().receive(data)
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, kind)


def test_nothing_after_the_end_is_read():
    effects = talking().receive(frame(p.Goodbye("x")) + frame(p.PlanChanged(INFO)))
    assert len(effects) == 1


def test_an_answer_comes_once():
    talk = talking()
    number, _ = talk.request(p.Leave)
    first, second = talk.receive(frame(p.Done(number)) * 2)
    assert first == Answered(number, None)
    assert isinstance(second, Ended)


def test_a_request_too_large_is_refused_before_it_is_sent():
    talk = talking()
    with pytest.raises(CodecError, match="at most"):
        talk.request(lambda n: p.ApplyPlan(n, "t", bytes(p.MAX_REQUEST)))
