"""The listening side of a conversation without a connection: one suite, run for every protocol."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.identity import Identity, Role
from sievenet.control.protocol import CONTROL
from sievenet.control.protocol import Ask as DaemonAsk
from sievenet.errors import CodecError, Rejected, Unavailable
from sievenet.routers.protocol import ROUTING
from sievenet.routers.protocol import Ask as RouterAsk
from sievenet.session.callee import Callee
from sievenet.session.framing import frame
from sievenet.session.limits import Limits
from sievenet.session.message import Alive, Failure, Goodbye

PROTOCOLS = {"control": (CONTROL, DaemonAsk), "router": (ROUTING, RouterAsk)}
LIMITS = Limits(hello=5.0, malformed=3, unread=30.0)
WRONG = b"\0\0\0\1\xc1"


@pytest.fixture(params=sorted(PROTOCOLS))
def side(request):
    return Side(*PROTOCOLS[request.param])


class Side:
    """A callee, and bytes for it."""

    def __init__(self, protocol, ask):
        self.protocol, self.ask = protocol, ask
        self.hello = frame(protocol.hello(protocol.version, name="x"))
        self.callee = Callee(protocol, LIMITS, 0.0)

    def open(self, role=Role.CLIENT, lease=8.0, now=1.0):
        step = self.callee.receive(self.hello, now)
        assert step.greeting.name == "x"
        self.callee.welcomed(Identity(role, "x"), lease)
        return self.callee

    def question(self, number=1):
        return self.ask(number, "status")


def test_hello_comes_first_and_what_follows_it_waits(side):
    question = side.question()
    step = side.callee.receive(side.hello + frame(question) + frame(question)[:5], 1.0)
    assert step.greeting.name == "x"
    assert (step.messages, step.answers, step.end) == ([], [], None)
    side.callee.welcomed(Identity(Role.CLIENT), 8.0)
    step = side.callee.receive(b"", 1.0)
    assert step.messages == [(question, len(frame(question)) - 4)]
    assert side.callee.pending == 5


@pytest.mark.parametrize(
    ("data", "kind", "told"),
    [
        (WRONG, CodecError, "message"),
        (b"GET / HTTP/1.1\r\n\r\n", CodecError, "frame of 1 to 4096"),
        (frame(Alive()), CodecError, "a hello"),
        (frame(Goodbye("no")), Unavailable, "no"),
    ],
    ids=["malformed", "another protocol", "too early", "goodbye"],
)
def test_anything_but_a_hello_ends_it(side, data, kind, told):
    step = side.callee.receive(data, 1.0)
    assert isinstance(step.end, kind)
    assert told in str(step.end)
    assert step.greeting is None


def test_another_version_is_refused(side):
    step = side.callee.receive(frame(side.protocol.hello(99)), 1.0)
    assert isinstance(step.end, Rejected)
    assert f"version {side.protocol.version}, got 99" in str(step.end)


def test_who_dialled_expects_a_welcome(side):
    callee = Callee(side.protocol, LIMITS, 0.0, dialled=True)
    if side.protocol.welcome in side.protocol.taken:
        welcome = side.protocol.welcome(side.protocol.version, "x")
        assert callee.receive(frame(welcome), 1.0).greeting == welcome
        refused = Callee(side.protocol, LIMITS, 0.0, dialled=True).receive(
            frame(Failure(0, "Rejected", "go away")), 1.0
        )
        assert isinstance(refused.end, Rejected)
    assert callee.receive(side.hello, 1.0).greeting is None


def test_only_those_who_may_are_heard(side):
    for role in Role:
        callee = Callee(side.protocol, Limits(malformed=1000), 0.0)
        callee.receive(side.hello, 0.0)
        if role not in side.protocol.largest:
            continue
        callee.welcomed(Identity(role), 0.0)
        heard = callee.receive(frame(side.question(7)), 1.0)
        if role is Role.COMPONENT:
            # Not told either: it might not understand, and complain in turn.
            assert (heard.messages, heard.answers, callee.malformed) == ([], [], 1)
        else:
            assert [message for message, _ in heard.messages] == [side.question(7)]
        again = callee.receive(side.hello, 1.0)
        assert not again.messages
        assert role is Role.COMPONENT or [answer.kind for answer in again.answers] == ["Rejected"]


def test_what_is_malformed_is_answered_until_patience_ends(side):
    callee = side.open()
    body = msgspec.msgpack.encode({"type": "Ask", "request": 9, "about": 7})
    bad = len(body).to_bytes(4, "big") + body
    step = callee.receive(bad + frame(side.question()) + bad, 1.0)
    assert [answer.request for answer in step.answers] == [9, 9]
    assert len(step.messages) == 1
    step = callee.receive(bad * 2 + frame(side.question()), 1.0)
    assert "at most 3 malformed" in str(step.end)
    assert step.messages == []


def test_after_goodbye_nothing_is_read(side):
    step = side.open().receive(frame(side.question(1)) + frame(Goodbye("done")) + frame(side.question(2)), 1.0)
    assert step.left
    assert step.end is None
    assert [message.request for message, _ in step.messages] == [1]


def test_silence_ends_it_and_every_word_counts(side):
    assert "hello within 5 s" in str(side.callee.tick(5.0, 0, 0))
    callee = side.open(lease=8.0, now=1.0)
    callee.receive(b"", 1.0)
    for now in (5.0, 10.0, 15.0):
        callee.receive(frame(Alive()), now)
        assert not isinstance(callee.tick(now + 4.0, 0, 0), Exception)
    assert "a word within 8 s" in str(callee.tick(23.0, 0, 0))


def test_hello_does_not_end_while_bytes_trickle(side):
    """Bytes of a hello that never ends do not prolong its time."""
    for now in range(5):
        side.callee.receive(side.hello[now : now + 1], float(now))
    assert isinstance(side.callee.tick(5.0, 0, 0), Unavailable)


def test_who_hears_nothing_is_told_that_this_side_lives(side):
    callee = side.open(lease=8.0, now=0.0)
    callee.receive(frame(Alive()), 1.0)
    assert callee.tick(1.0, 100, 0) is None
    assert callee.tick(1.9, 100, 0) is None
    assert callee.tick(2.0, 100, 0) == Alive()
    assert callee.tick(2.1, 120, 0) is None
    callee.welcomed(Identity(Role.CLIENT), 0.0)
    assert callee.tick(1000.0, 120, 0) is None


def test_who_reads_nothing_is_given_up_and_who_reads_little_is_not(side):
    callee = side.open(lease=0.0, now=0.0)
    for now in range(0, 300, 20):
        assert callee.tick(float(now), 1000 + 10 * now, 900) is None
    assert callee.tick(309.0, 4000, 4000 - 1000 - 10 * 280 + 900) is None
    assert "read within 30 s" in str(callee.tick(310.0, 5000, 5000 - 2900))


def test_time_that_this_process_slept_counts_for_nobody(side):
    callee = side.open(lease=8.0, now=0.0)
    callee.receive(frame(Alive()), 0.0)
    callee.slept(20.0)
    assert not isinstance(callee.tick(27.9, 0, 0), Exception)
    callee.slept(0.1)
    assert isinstance(callee.tick(28.0, 0, 0), Unavailable)


@given(
    st.sampled_from(sorted(PROTOCOLS)), st.lists(st.binary(max_size=60), max_size=12), st.randoms(use_true_random=False)
)
def test_whatever_comes_is_cut_answered_or_ends_it(name, noise, rng):
    """Good messages and noise, in any pieces: nothing is raised, nothing passes that is not in the table."""
    side = Side(*PROTOCOLS[name])
    good = [frame(side.question(i)) for i in range(4)] + [frame(Alive()), WRONG, side.hello]
    data = side.hello + b"".join(rng.choice(good) if rng.random() < 0.7 else each for each in noise)
    at, welcome = 0, False
    while at < len(data):
        size = rng.randrange(1, 40)
        step = side.callee.receive(data[at : at + size], 1.0)
        at += size
        while True:
            assert all(type(message) in side.protocol.taken for message, _ in step.messages)
            assert all(isinstance(answer, Failure) for answer in step.answers)
            if step.greeting is None:
                break
            assert not welcome
            welcome = True
            side.callee.welcomed(Identity(rng.choice([Role.OBSERVER, Role.CLIENT])), 8.0)
            step = side.callee.receive(b"", 1.0)
        if step.end is not None or step.left:
            break
        assert side.callee.pending <= max(side.protocol.largest.values())
