"""One forged or flipped message does bounded harm, and that heals: every field of every message, every bit of a header.

A publisher and a receiver talk in virtual time; one message is replaced by a wrong one, or a wrong one comes besides.
From two messages after it on everything is delivered as if nothing had been (in order, not late), and the publisher
sends all that it was given.
"""

import struct
from math import inf, nan

import pytest

from sievenet.transport.actions import Deliver, Gap, Publish, Send
from sievenet.transport.codec import Header, Record, checked, encode_header, kind_of
from sievenet.transport.control import Echo, Feedback, FlowRequest, Gone, Inquiry, Repair, Request, encode
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender
from tests.seeds import START

PUBLISHER, ME, EPOCH = 77, 5, 1234567
BITS, WIDTH = 0b1011, 16
STEP = 0.01

VARIANTS = {
    "order": {"order": Order(late="drop")},
    "all": {"order": Order(late="drop"), "recover": Recover(distance=0.02), "rate": RateControl()},
    "recover": {"recover": Recover(distance=0.02)},
}


class Talk:
    """One publisher and one receiver, and nothing between them but time."""

    def __init__(self, variant):
        self.now = 1000.0
        options = Publishing(record=3, log=500, digest=0.05, rate_control=True, flow_timeout=2.0)
        self.sender = Sender(PUBLISHER, options, epoch=EPOCH)
        self.receiver = Receiver(ME, (0b1,), **VARIANTS[variant])
        self.receiver.profile.since = self.now
        self.delivered, self.gaps = [], []
        self.sent = []
        self.corrupt = None
        self.given = 0

    def take(self, actions):
        for action in actions:
            match action:
                case Publish():
                    data, self.corrupt = (
                        (action.data, None) if self.corrupt is None else (self.corrupt(action.data), None)
                    )
                    self.sent.append(action.sequence)
                    self.take(self.receiver.receive(data, self.now + 0.001))
                case Send(target=target, data=data):
                    if target == PUBLISHER and kind_of(data).name not in ("DIGEST", "GONE", "REPAIR"):
                        self.take(self.sender.receive(data, self.now + 0.001))
                    else:
                        self.take(self.receiver.receive(data, self.now + 0.001))
                case Deliver():
                    self.delivered.append(action)
                case Gap():
                    self.gaps.append(action)

    def run(self, count):
        """Publish so many, one per step, and let time do its work."""
        for _ in range(count):
            self.take(self.sender.publish(BITS, b"%d" % self.given, self.now))
            self.given += 1
            self.wait(STEP)

    def wait(self, seconds):
        end = self.now + seconds
        while True:
            dues = {self.sender: self.sender.timer(self.now), self.receiver: self.receiver.timer()}
            part = min(dues, key=lambda each: end if dues[each] is None else dues[each])
            due = dues[part]
            if due is None or due > end:
                break
            self.now = max(self.now + 1e-5, due)
            self.take(part.expire(self.now))
        self.now = max(self.now, end)

    def true(self):
        """What was delivered under its own number."""
        return [d for d in self.delivered if d.item == b"%d" % d.sequence]

    def healed(self, since):
        """Whether all messages from a number on came once, in order, and not late."""
        got = [d.sequence for d in self.true() if d.sequence >= since and not d.late]
        expected = list(range(since, len(self.sent)))
        return (sorted(got) if self.receiver.profile.order is None else got) == expected


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("byte", range(41))
def test_a_flipped_bit_harms_its_own_message_alone(variant, byte):
    for bit in range(8) if START is not None else (byte % 8,):
        talk = Talk(variant)
        talk.run(20)

        def flipped(data, bit=bit):
            return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]

        talk.corrupt = flipped
        talk.run(40)
        talk.wait(6.0)
        assert talk.healed(23), f"byte {byte}, bit {bit}: {[d.sequence for d in talk.delivered][15:40]}"
        assert talk.true() == talk.delivered
        if variant == "all":
            # The log has the message whose header was wrong: it is had again.
            assert {d.sequence for d in talk.true()} == set(range(60)), f"byte {byte}, bit {bit}"


NUMBERS = {"Q": (0, 1, 2**63 - 1, 2**63, 2**64 - 1), "I": (0, 1, 2**32 - 1), "B": (0, 1, 255), "H": (0, 1, 65535)}
FLOATS = (nan, inf, -inf, -1.0, 0.0, 5e-324, 1e-30, 1e30, 3e38)
#: Kind → a good message up to its checksum, and the form of its head, field by field.
GOOD = {
    "data": (encode_header(Header(PUBLISHER, EPOCH, 20, 1000.2, 10_000)), "BBQIQdIBH"),
    "digest": (
        encode_header(Header(PUBLISHER, EPOCH, 20, 1000.2, 10, Record.of([(5, BITS)], WIDTH), digest=True)),
        "BBQIQdIBH",
    ),
    "request": (encode(Request(PUBLISHER, EPOCH, 7, 99, 1, 0.1, 0.1, BITS, WIDTH)), "BBQIQQBffB"),
    "repair": (encode(Repair(3, 0, encode_header(Header(PUBLISHER, EPOCH, 20, 1000.2, 10)) + b"x")), "BBQQ"),
    "repaired": (encode_header(Header(PUBLISHER, EPOCH, 20, 1000.2, 10)), "BBQIQdIBH"),
    "gone": (encode(Gone(PUBLISHER, EPOCH, 3, 9)), "BBQIQQ"),
    "inquiry": (encode(Inquiry(PUBLISHER, EPOCH, 3, 9, ME)), "BBQIQQQ"),
    "feedback": (encode(Feedback(99, PUBLISHER, 1000.0, (FlowRequest(0b1, WIDTH, 50.0),))), "BBQQdBfB"),
    "echo": (encode(Echo(99, PUBLISHER, 1000.0)), "BBQQd"),
    "echo reply": (encode(Echo(ME, PUBLISHER, 1000.0, reply=True)), "BBQQd"),
}


def forgeries(kind):
    """Whoever forges knows how to make a checksum."""
    good, form = GOOD[kind]
    fields = list(struct.unpack_from(">" + form, good))
    rest = good[struct.calcsize(">" + form) : -4]
    for place, code in enumerate(form[2:], 2):
        for value in FLOATS if code in "fd" else NUMBERS[code]:
            if code == "f" and abs(value) > 3.5e38 and value not in (inf, -inf):
                continue
            data = checked(struct.pack(">" + form, *fields[:place], value, *fields[place + 1 :]) + rest)
            if kind in ("data", "repaired"):
                data += b"x"
            yield place, value, checked(struct.pack(">BBQQ", 0x24, 0, 3, 0) + data) if kind == "repaired" else data


@pytest.mark.parametrize("variant", ["all", "order"])
@pytest.mark.parametrize("kind", GOOD)
def test_a_forged_field_does_harm_that_heals(variant, kind):
    for place, value, data in forgeries(kind):
        talk = Talk(variant)
        talk.run(10)
        # Everybody hears it.
        talk.take(talk.receiver.receive(data, talk.now))
        talk.take(talk.sender.receive(data, talk.now))
        talk.run(30)
        talk.wait(6.0)
        where = f"{kind}, field {place} = {value}"
        assert talk.sent == list(range(40)), f"{where}: {40 - len(talk.sent)} were not sent"
        # A whole message that is forged is taken for the one of its number, until real ones have left after it.
        since = 23 if kind in ("data", "repair", "repaired") else 13
        got = [d.sequence for d in talk.true() if d.sequence >= since and not d.late]
        assert {*got} >= {*range(since, 40)}, f"{where}: {got}"
        assert got == sorted(got), where


def test_no_wish_stalls_a_publisher():
    options = Publishing(record=0, rate_control=True, flow_timeout=10.0, queue=10_000)
    sender = Sender(PUBLISHER, options, epoch=1)
    for i in range(1000):
        sender.publish(BITS, b"", 1000 + i * 0.001)
    tiny = encode(Feedback(9, PUBLISHER, 1001.0, (FlowRequest(0, WIDTH, 1e-30),)))
    sender.receive(tiny, 1001.0)
    sent = sum(len(sender.publish(BITS, b"", 1001 + i * 0.001)) for i in range(1000))
    now = 1002.0
    while len(sender.queue) and now < 1100:
        now = sender.timer(now)
        sent += sum(isinstance(each, Publish) for each in sender.expire(now))
    assert sent == 1000
    assert now < 1001.0 + 10.0 + 1.0  # the flow expired
    # Who repeats it gets what the floor allows, and no less.
    for i in range(20):
        sender.receive(tiny, now + i * 0.1)
    assert [flow.quota for flow in sender.table.flows] == [1.0]
