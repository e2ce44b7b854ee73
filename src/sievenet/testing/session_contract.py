"""What every protocol that speaks through `sievenet.session` may rely on: one suite, run for each of them.

A protocol comes as a `Talk`: its table, who dials, and one message of each sort. Here are the checks of both sides
without connections; `connection_contract` has those over real ones.

    @pytest.mark.parametrize("check", PURE, ids=lambda check: check.__name__)
    def test_contract(check):
        check(Talk(...), random.Random(1))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from sievenet.access.identity import Identity, Role
from sievenet.errors import CodecError, Rejected, SievenetError, Unavailable
from sievenet.session.callee import Callee, Step
from sievenet.session.caller import Answered, Caller, Dismissed, Effect, Ended, Request, Told, Welcomed
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.message import Alive, Done, Failure, Goodbye, Hello, Message, Welcome
from sievenet.session.protocol import Protocol

__all__ = ["PURE", "Talk"]

_LIMITS: Final = Limits(hello=5.0, malformed=3, unread=30.0)
_WRONG: Final = b"\0\0\0\1\xc1"
_RANK: Final = (Role.OBSERVER, Role.CLIENT, Role.OPERATOR)


@dataclass(frozen=True)
class Talk:
    """A protocol under test."""

    protocol: Protocol
    #: Who dials, something that it may say, and something that it is told unasked.
    role: Role
    said: Message
    told: Message
    #: A request by its number, and an answer that is no `Done`; None if the protocol has none.
    request: Request | None = None
    answer: Request | None = None

    @property
    def hello(self) -> Hello:
        """The first message."""
        return self.protocol.hello(self.protocol.version, self.role, "x")

    def welcome(self, lease: float = 8.0, ticket: bytes = b"t") -> Welcome:
        """Its answer."""
        return self.protocol.welcome(self.protocol.version, "x", ticket, lease)

    def callee(self) -> Callee:
        """The listening side, new."""
        return Callee(self.protocol, _LIMITS, 0.0)

    def open(self, lease: float = 8.0, now: float = 1.0) -> Callee:
        """The listening side after the hello."""
        callee = self.callee()
        assert callee.receive(frame(self.hello), now).greeting == self.hello
        callee.welcomed(Identity(self.role, "x"), lease)
        return callee

    def caller(self, lease: float = 8.0) -> Caller:
        """The dialling side after the welcome."""
        caller = Caller(self.protocol)
        assert list(self.protocol.listening().feed(caller.hello(self.hello))) == [self.hello]
        assert caller.receive(frame(self.welcome(lease))) == [Welcomed(self.welcome(lease))]
        return caller


def _messages(step: Step) -> list[Any]:
    return [message for message, _ in step.messages]


# -- the table -----------------------------------------------------------------------------


def every_message_passes_for_those_who_may_send_it(talk: Talk, rng: Random) -> None:
    """And for nobody else; nobody says hello twice."""
    for kind, least in talk.protocol.taken.items():
        message = kind(**dict.fromkeys(kind.__struct_fields__))
        for role in Role:
            allowed = any(_may(role, each) for each in (least if isinstance(least, tuple) else (least,)))
            refusal = _refusal(talk, role, message)
            assert (refusal == "") is allowed, (kind, role)
            assert allowed or kind.__name__ in refusal
    for role in Role:
        assert "second" in _refusal(talk, role, talk.hello)


def _may(role: Role, least: Role | None) -> bool:
    if least is None:
        return True
    if Role.COMPONENT in (role, least):
        return role is least
    return _RANK.index(role) >= _RANK.index(least)


def _refusal(talk: Talk, role: Role, message: Any) -> str:
    try:
        talk.protocol.check(role, message)
    except Rejected as error:
        return str(error)
    return ""


def the_common_messages_are_there(talk: Talk, rng: Random) -> None:
    """Either side may say that it lives and that it goes."""
    assert {Alive, Goodbye} <= {*talk.protocol.taken} & {*talk.protocol.given}
    assert {Failure, talk.protocol.welcome} <= {*talk.protocol.given}
    assert talk.protocol.listening().limit == talk.protocol.max_hello < min(talk.protocol.largest.values())


def messages_survive_any_cut_of_the_stream(talk: Talk, rng: Random) -> None:
    """Byte by byte or all at once."""
    said = [talk.said, Alive(), talk.said, Goodbye("x")]
    data = b"".join(map(frame, said))
    for _ in range(5):
        framer, at = talk.protocol.listening(1 << 20), 0
        found: list[Any] = []
        while at < len(data):
            size = rng.choice((1, 2, 3, 7, 1000))
            found += framer.feed(data[at : at + size])
            at += size
        assert found == said
        assert framer.pending == 0


# -- the listening side --------------------------------------------------------------------


def hello_comes_first_and_what_follows_it_waits(talk: Talk, rng: Random) -> None:
    """Until it is known who speaks."""
    callee, data = talk.callee(), frame(talk.said)
    step = callee.receive(frame(talk.hello) + data + data[:5], 1.0)
    assert step.greeting == talk.hello
    assert (step.messages, step.answers, step.end) == ([], [], None)
    callee.welcomed(Identity(talk.role), 8.0)
    assert callee.receive(b"", 1.0).messages == [(talk.said, len(data) - 4)]
    assert callee.pending == 5


def anything_but_a_hello_ends_it(talk: Talk, rng: Random) -> None:
    """Also a hello of another version."""
    for data, kind, told in (
        (_WRONG, CodecError, "message"),
        (b"GET / HTTP/1.1\r\n\r\n", CodecError, "frame of 1 to 4096"),
        (frame(talk.said), CodecError, "a hello"),
        (frame(Goodbye("no")), Unavailable, "no"),
        (frame(msgspec.structs.replace(talk.hello, protocol=99)), Rejected, "got 99"),
    ):
        step = talk.callee().receive(data, 1.0)
        assert isinstance(step.end, kind), data
        assert told in str(step.end)
        assert step.greeting is None


def what_is_malformed_is_answered_until_patience_ends(talk: Talk, rng: Random) -> None:
    """Components are not told: they might not understand that either."""
    callee, component = talk.open(), talk.role is Role.COMPONENT
    step = callee.receive(_WRONG + frame(talk.said) + frame(talk.hello), 1.0)
    assert _messages(step) == [talk.said]
    assert [answer.kind for answer in step.answers if isinstance(answer, Failure)] == (
        [] if component else ["CodecError", "Rejected"]
    )
    assert callee.malformed == 2
    step = callee.receive(_WRONG * 2 + frame(talk.said), 1.0)
    assert "at most 3 malformed" in str(step.end)
    assert step.messages == []


def after_a_goodbye_nothing_is_read(talk: Talk, rng: Random) -> None:
    """By either side."""
    step = talk.open().receive(frame(talk.said) + frame(Goodbye("done")) + frame(talk.said), 1.0)
    assert step.left
    assert step.end is None
    assert _messages(step) == [talk.said]
    [ended] = talk.caller().receive(frame(Goodbye("x")) + frame(talk.told))
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, Dismissed)


def silence_ends_it_and_every_word_counts(talk: Talk, rng: Random) -> None:
    """Bytes of a hello that does not end count for nothing; nor does time that this process slept."""
    callee = talk.callee()
    for at in range(5):
        callee.receive(frame(talk.hello)[at : at + 1], float(at))
    assert "hello within 5 s" in str(callee.tick(5.0, 0, 0))
    callee = talk.open(lease=8.0, now=1.0)
    for now in (5.0, 10.0, 15.0):
        callee.receive(frame(rng.choice((Alive(), talk.said))), now)
        assert not isinstance(callee.tick(now + 4.0, 0, 0), SievenetError)
    callee.slept(20.0)
    assert not isinstance(callee.tick(42.9, 0, 0), SievenetError)
    assert "a word within 8 s" in str(callee.tick(43.0, 0, 0))
    caller = talk.caller(lease=8.0)
    assert "for 8 s" in str(caller.silence(8.1))
    assert caller.silence(10.0) is None


def who_hears_nothing_is_told_that_this_side_lives(talk: Talk, rng: Random) -> None:
    """A few times per lease, and never where there is none."""
    callee = talk.open(lease=8.0, now=0.0)
    callee.receive(frame(Alive()), 1.0)
    assert [callee.tick(now, 100, 0) for now in (1.0, 1.9, 2.0)] == [None, None, Alive()]
    assert callee.tick(2.1, 120, 0) is None
    callee.welcomed(Identity(talk.role), 0.0)
    assert callee.tick(1000.0, 120, 0) is None


def who_reads_nothing_is_given_up(talk: Talk, rng: Random) -> None:
    """Who reads little is not."""
    callee = talk.open(lease=0.0, now=0.0)
    for now in range(0, 300, 20):
        assert callee.tick(float(now), 1000 + 10 * now, 900) is None
    assert callee.tick(309.0, 4000, 1100) is None
    assert "read within 30 s" in str(callee.tick(310.0, 5000, 2100))


def who_reads_too_slowly_is_given_up(talk: Talk, rng: Random) -> None:
    """Of much that waits, 64 KiB per second have to be read; whoever does so may have ever more that waits."""
    callee, size = talk.open(lease=0.0, now=0.0), 10 << 16
    for now in range(41):
        assert callee.tick(float(now), size, size - now) is None
    assert "64 KiB per second" in str(callee.tick(41.0, size, size - 41))
    callee = talk.open(lease=0.0, now=0.0)
    for now in range(300):
        assert callee.tick(float(now), size + (now << 16), size) is None


# -- the dialling side ---------------------------------------------------------------------


def answers_find_their_requests_in_any_order(talk: Talk, rng: Random) -> None:
    """Once each; an answer that nobody asked for ends it."""
    if talk.request is None or talk.answer is None:
        return
    caller = talk.caller()
    numbers = [caller.request(talk.request)[0] for _ in range(3)]
    rng.shuffle(numbers)
    own, wrong, plain = numbers
    replies = (talk.answer(own), Failure(wrong, "SchemaError", "unknown"), Done(plain, {"a": 1}))
    first, second, third = caller.receive(b"".join(map(frame, replies)))
    assert first == Answered(own, talk.answer(own))
    assert isinstance(second, Answered)
    assert "unknown" in str(second.error)
    assert third == Answered(plain, {"a": 1})
    [again] = caller.receive(frame(Done(plain)))
    assert isinstance(again, Ended)


def what_does_not_belong_ends_it(talk: Talk, rng: Random) -> None:
    """And tells why."""
    for data, kind in (
        (frame(talk.welcome()), CodecError),
        (b"\xff\xff\xff\xff", CodecError),
        (_WRONG, CodecError),
        (frame(Failure(0, "Rejected", "go away")), Rejected),
    ):
        [ended] = talk.caller().receive(data)
        assert isinstance(ended, Ended)
        assert isinstance(ended.error, kind)
    assert talk.caller().receive(frame(Alive()) + frame(talk.told)) == [Told(talk.told)]
    for message in (talk.told, Alive()):
        caller = Caller(talk.protocol)
        caller.hello(talk.hello)
        [early] = caller.receive(frame(message))
        assert isinstance(early, Ended)


# -- fuzzing -------------------------------------------------------------------------------


def _pieces(data: bytes, rng: Random) -> list[bytes]:
    found = []
    while data:
        size = rng.randrange(1, 40)
        found.append(data[:size])
        data = data[size:]
    return found


def _noise(good: list[bytes], rng: Random) -> bytes:
    """Good frames, flipped ones, wrong lengths and nonsense."""
    found = b""
    for _ in range(rng.randrange(12)):
        data = rng.choice(good)
        kind = rng.randrange(10)
        if kind == 0:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = rng.randbytes(rng.randrange(60))
        elif kind == 2:
            data = rng.choice((_WRONG, b"\xff\xff\xff\xff", b"\0\0\0\0", data[:-1]))
        found += data
    return found


def whatever_comes_is_heard_answered_or_ends_it(talk: Talk, rng: Random) -> None:
    """The listening side: nothing is raised, and nothing passes that the role may not send."""
    good = [frame(each) for each in (talk.said, talk.said, Alive(), talk.hello, Goodbye("x"), talk.told)]
    for _ in range(30):
        callee, role = talk.callee(), rng.choice([*talk.protocol.largest])
        start = frame(talk.hello) if rng.random() < 0.8 else b""
        for piece in _pieces(start + _noise(good, rng), rng):
            step = callee.receive(piece, 1.0)
            if step.greeting is not None:
                callee.welcomed(Identity(role), 8.0)
                step = callee.receive(b"", 1.0)
                assert step.greeting is None
            for message in _messages(step):
                talk.protocol.check(role, message)
            assert all(isinstance(answer, Failure) for answer in step.answers)
            if step.end is not None or step.left:
                break


def whatever_is_told_is_an_effect(talk: Talk, rng: Random) -> None:
    """The dialling side: nothing is raised, and no answer comes twice or unasked."""
    for _ in range(30):
        caller, numbers = talk.caller(), set[int]()
        if talk.request is not None:
            numbers |= {caller.request(talk.request)[0] for _ in range(4)}
        good = [frame(each) for each in (talk.told, Alive(), Goodbye("x"), *map(Done, numbers))]
        for piece in _pieces(_noise(good, rng), rng):
            effects: list[Effect] = caller.receive(piece)
            for effect in effects:
                if isinstance(effect, Answered):
                    numbers.remove(effect.number)
            if effects and isinstance(effects[-1], Ended):
                break
            assert not any(isinstance(effect, Ended | Welcomed) for effect in effects)


PURE: Final[tuple[Callable[[Talk, Random], None], ...]] = (
    every_message_passes_for_those_who_may_send_it,
    the_common_messages_are_there,
    messages_survive_any_cut_of_the_stream,
    hello_comes_first_and_what_follows_it_waits,
    anything_but_a_hello_ends_it,
    what_is_malformed_is_answered_until_patience_ends,
    after_a_goodbye_nothing_is_read,
    silence_ends_it_and_every_word_counts,
    who_hears_nothing_is_told_that_this_side_lives,
    who_reads_nothing_is_given_up,
    who_reads_too_slowly_is_given_up,
    answers_find_their_requests_in_any_order,
    what_does_not_belong_ends_it,
    whatever_comes_is_heard_answered_or_ends_it,
    whatever_is_told_is_an_effect,
)
