"""Recovery: asking, answering, caching, giving up; two receivers and a publisher on a lossy overlay."""

from itertools import pairwise
from random import Random

import msgspec
import pytest

from sievenet.content import Attribute, Filter, Schema, ValueSet
from sievenet.errors import CodecError, InvalidInput
from sievenet.simulation import Pipe, VirtualClock
from sievenet.transport.actions import OPEN, Channel, Deliver, Gap, Publish, Send
from sievenet.transport.bloom import Tagger
from sievenet.transport.cache import Cache, Log
from sievenet.transport.codec import HEADER, decode_header
from sievenet.transport.control import Echo, Gone, Inquiry, Repair, Request, decode, encode
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.receiver import Receiver
from sievenet.transport.repairs import Repairs
from sievenet.transport.requests import Requests
from sievenet.transport.sender import Sender
from sievenet.transport.simulation import Overlay, World
from sievenet.transport.stream import Loss
from sievenet.transport.timers import AdaptiveTimer
from tests.seeds import seeds

SCHEMA = Schema("s", (Attribute("x", "int", 0, 99),))
TAGGER = Tagger(SCHEMA, 128)
MINE = TAGGER.event(SCHEMA.event(x=5))
WANT = (TAGGER.filter(Filter(SCHEMA, {"x": ValueSet.of(5)})),)
OTHER = TAGGER.event(SCHEMA.event(x=77))
PUBLISHER = 1000


def loss(sequence, publisher=PUBLISHER):
    return Loss(publisher, 1, sequence, MINE, 16, 0.01, 1.0)


def request(sequence=3, requester=2, attempt=0, publisher=PUBLISHER, bits=MINE):
    return Request(publisher, 1, sequence, requester, attempt, 0.05, 0.2, bits, 16)


# -- asking ------------------------------------------------------------------------------


def test_request_is_sent_after_a_wait_and_repeated_with_backoff():
    asking = Requests(1, Recover(attempts=4), Random(1))
    asking.lost(loss(3), 10.0)
    gaps, times = [], []
    while (due := asking.timer()) is not None:
        sent, given_up = asking.expire(due)
        times += [due] * len(sent)
        gaps += given_up
    assert 10.05 <= times[0] <= 10.1
    assert len(times) == 4
    waits = [b - a for a, b in pairwise(times)]
    assert waits[0] < waits[1] < waits[2]
    assert [g.sequence for g in gaps] == [3]
    assert len(asking) == 0


def test_hearing_the_same_request_waits_longer():
    asking = Requests(1, Recover(), Random(1))
    asking.lost(loss(3), 10.0)
    before = asking.timer()
    asking.heard(request(3), 10.01)
    assert asking.timer() > before
    after = asking.timer()
    asking.heard(request(3), 10.011)  # the same round
    assert asking.timer() == after
    asking.heard(request(4), 10.02)  # not missed here


def test_echoes_teach_the_distance_and_quick_repairs_lower_it():
    asking = Requests(1, Recover(distance=0.05), Random(1))
    assert asking.distance(PUBLISHER) == 0.05
    echo = asking.greet(PUBLISHER, 9.0)
    assert echo is not None
    assert asking.greet(PUBLISHER, 9.1) is None  # it is still under way
    assert asking.greet(PUBLISHER, 9.6) is not None  # it was lost
    assert not asking.echoed(echo, 9.7)
    assert asking.echoed(msgspec.structs.replace(echo, sent=9.6), 10.0)
    assert asking.distance(PUBLISHER) == pytest.approx(0.2)
    assert asking.greet(PUBLISHER, 10.5) is None

    def repaired(sequence, took):
        asking.lost(loss(sequence), 10.0)
        asking.expire(asking.timer())
        sent = asking._wants[PUBLISHER, 1, sequence].sent
        assert asking.found((PUBLISHER, 1, sequence), sent + took)
        assert not asking.found((PUBLISHER, 1, sequence), sent + took)

    repaired(3, 4.0)  # whoever repaired may have waited: says nothing of the distance
    assert asking.distance(PUBLISHER) == pytest.approx(0.2)
    repaired(4, 0.2)
    assert asking.distance(PUBLISHER) == pytest.approx(0.1)


def test_an_echo_that_waited_somewhere_is_repeated_and_the_shorter_one_counts():
    """A router keeps messages for a neighbour that restarts: that time is no distance."""
    for second, distance in ((0.02, 0.01), (3.0, 1.5)):
        asking = Requests(1, Recover(distance=0.05), Random(1))
        assert asking.echoed(asking.greet(PUBLISHER, 9.0), 15.0)
        assert asking.distance(PUBLISHER) == 0.05
        echo = asking.greet(PUBLISHER, 15.0)
        assert asking.echoed(echo, 15.0 + second)
        assert asking.distance(PUBLISHER) == pytest.approx(distance)
        assert asking.greet(PUBLISHER, 15.0 + second) is None  # a long way is not measured without end


def test_a_receiver_asks_soon_after_an_echo_that_waited():
    sender, receiver = Sender(PUBLISHER, Publishing(record=1, log=10)), Receiver(5, (MINE,), recover=Recover())
    first, _lost, third = (sender.publish(MINE, b"", now)[0].data for now in (1.0, 9.0, 9.02))

    def echoes(actions):
        found = [decode(each.data) for each in actions if isinstance(each, Send)]
        return [each for each in found if isinstance(each, Echo)]

    (echo,) = echoes(receiver.receive(first, 1.0))
    answer = encode(msgspec.structs.replace(echo, reply=True))
    (again,) = echoes(receiver.receive(answer, 9.0))
    assert not echoes(receiver.receive(encode(msgspec.structs.replace(again, reply=True)), 9.01))
    receiver.receive(third, 9.02)
    asked, now = [], 9.02
    while not asked:
        now = receiver.timer()
        asked = [each for each in receiver.expire(now) if isinstance(each, Send)]
    assert now < 10.0


def test_wants_are_bounded():
    asking = Requests(1, Recover(wanted=3), Random(1))
    assert [asking.lost(loss(i), 0.0) for i in range(5)] == [True, True, True, False, False]
    assert asking.lost(loss(1), 0.0)
    assert len(asking.forget((PUBLISHER, 1))) == 3


def test_who_was_away_gives_nothing_up_and_asks_anew():
    asking = Requests(7, Recover(attempts=3, distance=0.01), Random(1))
    asking.lost(loss(3), 0.0)
    now, asked = 0.0, 0
    for _ in range(6):
        now = asking.timer()
        requests, given_up = asking.expire(now, silent=lambda _: True)
        asked += len(requests)
        assert not given_up
    assert asked == 6
    asking.renew(now)
    assert asking.timer() <= now + 0.03  # as soon as the first time
    for _ in range(3):
        requests, given_up = asking.expire(asking.timer())
        assert requests
        assert not given_up
    assert asking.expire(asking.timer())[1] == [loss(3)]


def test_gone_ends_what_was_asked_twice():
    asking = Requests(1, Recover(), Random(1))
    asking.lost(loss(3), 0.0)
    assert asking.gone(Gone(PUBLISHER, 1, 0, 9)) == []
    for _ in range(2):
        asking.expire(asking.timer())
    assert [x.sequence for x in asking.gone(Gone(PUBLISHER, 1, 0, 9))] == [3]


def test_timers_adapt_to_duplicates_and_delay():
    timer = AdaptiveTimer(1.0, 1.0)
    for _ in range(20):
        timer.finished(4, 1.0)
    assert timer.width == 4.0
    for _ in range(200):
        timer.finished(0, 3.0)
    assert timer.width == 0.5
    assert timer.start == 0.5


# -- answering ---------------------------------------------------------------------------


def test_repair_is_sent_unless_another_was_quicker():
    answering = Repairs(1, Random(1))
    answering.asked(request(), b"m", 0.0)
    answering.asked(request(requester=3), b"m", 0.01)
    due = answering.timer()
    assert answering.expire(due) == [(Repair(1, 0, b"m"), MINE)]
    answering.asked(request(), b"m", due + 0.01)  # deaf for a while
    assert answering.timer() is None
    answering.heard((PUBLISHER, 1, 3), due + 0.02)
    assert answering.counts.duplicates == 1
    answering.asked(request(4), b"m", 5.0)
    answering.heard((PUBLISHER, 1, 4), 5.001)
    assert answering.timer() is None
    assert answering.counts.silenced == 1
    answering.asked(request(9, requester=1), b"m", 6.0)  # my own
    assert (PUBLISHER, 1, 9) not in answering


def test_unicast_when_alone_and_used_to_answering():
    answering = Repairs(1, Random(1), style="auto")
    for sequence, target in ((1, 0), (2, 7)):
        answering.asked(request(sequence, requester=7), b"m", sequence * 10.0)
        assert [r.requester for r, _ in answering.expire(sequence * 10.0 + 1)] == [target]
    always = Repairs(1, Random(1), style="unicast")
    always.asked(request(1, requester=7), b"m", 0.0)
    always.asked(request(1, requester=8), b"m", 0.0)
    assert [r.requester for r, _ in always.expire(1.0)] == [7, 8]


def test_publisher_lets_peers_go_first():
    peer, publisher = Repairs(1, Random(1)), Repairs(9, Random(1), publisher=True)
    for each in (peer, publisher):
        each.asked(request(), b"m", 0.0)
    assert publisher.timer() > peer.timer()
    publisher.asked(request(attempt=1), b"m", 0.01)
    assert publisher.timer() == 0.01


def test_cache_adapts_within_bounds():
    cache = Cache(Recover(cache_min=5, cache_max=50, horizon=0.1))
    for i in range(100):
        cache.keep(PUBLISHER, 1, i, b"x" * 10, i * 0.01)
    assert cache.sizes() == [pytest.approx(10.0)]  # 100/s for 0.1 s
    assert cache.get(PUBLISHER, 1, 99) == b"x" * 10
    assert cache.get(PUBLISHER, 1, 5) is None
    assert cache.get(1, 1, 5) is None
    assert cache.bytes == 10 * len(cache)
    cache.asked(PUBLISHER, 0.3, 0.05, False)
    assert cache.sizes()[0] > 10
    for _ in range(60):
        cache.asked(PUBLISHER, 0.3, 0.05, False)
    assert cache.sizes() == [50.0]
    cache.repaired(PUBLISHER, mine=False)
    for _ in range(60):
        cache.asked(PUBLISHER, 0.3, 0.05, True)
    assert cache.sizes() == [5.0]
    cache.asked(55, 0.1, 0.1, False)


def test_log_is_bounded():
    log = Log(3, 25)
    for i in range(5):
        log.keep(i, b"x" * 10)
    assert (len(log), log.bytes, log.first) == (2, 20, 3)
    assert log.get(4) == b"x" * 10
    assert log.get(1) is None
    off = Log(0, 100)
    off.keep(1, b"x")
    assert len(off) == 0
    assert off.first is None


# -- together ----------------------------------------------------------------------------


def world(loss_rate=0.2, *, order=None, log=0, digest=None, rate=None, seed=1, count=40, recover=None, jitter=0.02):
    clock = VirtualClock()
    rng = Random(seed)

    def link(_a, _b):
        return Pipe(clock, rng, delay=0.02 - jitter, jitter=2 * jitter, ordered=False, loss=loss_rate)

    overlay = Overlay(clock, [(0, 1), (1, 2)], link, processing=0.001, seed=seed)
    got, gaps = {1: [], 2: []}, []

    def delivered(client, message):
        got[client].append(message)

    w = World(overlay, delivered=delivered, gap=lambda _client, gap: gaps.append(gap))
    options = Publishing(record=8, log=log, digest=digest, rate_control=rate is not None)
    w.add_sender(PUBLISHER, 0, Sender(PUBLISHER, options, epoch=1))
    for me, broker in ((1, 1), (2, 2)):
        receiver = Receiver(me, WANT, order=order, recover=recover or Recover(), rate=rate, rng=Random(me))
        w.add_receiver(me, broker, receiver, digests=digest is not None)

    def publish(i):
        wanted = i % 3 != 1
        groups = {1: [1], 2: [2]} if wanted else {}
        w.publish(PUBLISHER, MINE if wanted else OTHER, str(i).encode(), groups)

    for i in range(count):
        clock.call_at(0.02 * i, publish, i)
    clock.run(60.0)
    return w, got, gaps, [i for i in range(count) if i % 3 != 1]


@pytest.mark.parametrize("seed", seeds(4))
def test_log_and_digests_recover_everything_since_first_contact(seed):
    w, got, gaps, wanted = world(log=1000, digest=0.1, seed=seed, recover=Recover(attempts=32))
    assert gaps == []
    for messages in got.values():
        items = [int(m.item) for m in messages]
        assert len(items) == len(set(items))
        assert set(items) >= {i for i in wanted if i > min(items)}
    assert any(m.recovered for messages in got.values() for m in messages)
    assert w.messages["REPAIR"] > 0


@pytest.mark.parametrize("seed", seeds(3))
def test_order_and_recovery_together_deliver_in_order(seed):
    _, got, _, wanted = world(order=Order(), log=1000, digest=0.1, seed=seed, recover=Recover(attempts=32))
    for messages in got.values():
        items = [int(m.item) for m in messages if not m.late]
        assert items == sorted(items)
        assert set(items) >= {i for i in wanted if i > items[0]}


def test_all_three_together():
    w, got, _, wanted = world(0.05, order=Order(), log=1000, digest=0.1, rate=RateControl())
    for receiver in w.receivers.values():
        figures = receiver.statistics()
        assert figures.rate is not None
        assert figures.delivered > 0
    for messages in got.values():
        assert len(messages) > 0.8 * len(wanted)
    assert w.messages["ECHO_REPLY"] > 0


def test_without_log_a_gap_is_told():
    w, _, gaps, _ = world(0.4, recover=Recover(volunteer=False, attempts=3), count=60)
    assert gaps
    assert all(isinstance(gap, Gap) and gap.publisher == PUBLISHER for gap in gaps)
    assert sum(r.statistics().gaps for r in w.receivers.values()) == sum(gap.last - gap.first + 1 for gap in gaps)
    assert w.messages["GONE"] > 0


# -- bad input ---------------------------------------------------------------------------


def sent(sender, *contents, start=0.0):
    return [sender.publish(MINE, body, start + 0.01 * i)[0].data for i, body in enumerate(contents)]


def test_receiver_drops_and_counts_what_is_wrong():
    receiver = Receiver(1, WANT, recover=Recover(), rate=RateControl())
    assert receiver.receive(b"", 0.0) == []
    assert receiver.receive(b"\x99\x00junk", 0.0) == []
    assert receiver.receive(b"junk", 0.0) == []
    good = sent(Sender(PUBLISHER, epoch=1), b"a")[0]
    receiver.receive(good[:20], 0.0)
    assert receiver.dropped["malformed"] == 4
    receiver.receive(encode(request(bits=OTHER)), 0.0)
    receiver.receive(encode(Echo(1, 55, 0.0, reply=True)), 0.0)
    receiver.receive(encode(Echo(9, 55, 0.0, reply=True)), 0.0)
    receiver.receive(encode(Repair(3, 9, good)), 0.0)
    receiver.receive(encode(Repair(3, 0, good)), 0.0)
    assert receiver.dropped["not for me"] == 3
    assert receiver.dropped["unknown publisher"] == receiver.dropped["not due"] == 1
    assert receiver.statistics().delivered == 0


def test_sessions_are_bounded_and_expire():
    receiver = Receiver(1, WANT, order=Order(), sessions=5, idle=10.0)
    for publisher in range(20):
        receiver.receive(sent(Sender(publisher, epoch=1), b"a")[0], float(publisher))
    assert receiver.statistics().sessions == 5
    receiver.expire(100.0)
    assert receiver.statistics().sessions == 0


def test_unwanted_repair_is_not_delivered():
    receiver = Receiver(1, WANT, recover=Recover(), order=Order(), decode_item=lambda _h, b: b if b != b"no" else None)
    sender = Sender(PUBLISHER, Publishing(record=3), epoch=1)
    first, second, third = sent(sender, b"a", b"no", b"c")
    receiver.receive(first, 0.0)
    receiver.receive(third, 0.03)
    receiver.expire(1.0)
    out = receiver.receive(encode(Repair(5, 0, second)), 1.1)
    assert [a.item for a in out if isinstance(a, Deliver)] == [b"c"]
    assert receiver.receive(second, 2.0) == []
    assert receiver.dropped["unwanted"] == 1


def test_close_delivers_what_is_held():
    receiver = Receiver(1, WANT, order=Order())
    sender = Sender(PUBLISHER, Publishing(record=3), epoch=1)
    a, b, _, d = sent(sender, b"a", b"b", b"c", b"d")
    receiver.receive(a, 0.0)
    receiver.receive(b, 0.08)
    receiver.receive(d, 0.081)
    assert [x.item for x in receiver.close(0.1) if isinstance(x, Deliver)] == [b"d"]


def test_sender_drops_and_counts_what_is_wrong():
    sender = Sender(PUBLISHER, Publishing(log=10), epoch=1)
    sender.publish(MINE, b"x", 0.0)
    assert sender.receive(b"junk", 0.0) == []
    assert sender.receive(encode(request(10**6)), 0.0) == []
    assert sender.receive(encode(Echo(1, 5, 0.0)), 0.0) == []
    assert sender.receive(encode(request(0, publisher=5)), 0.0) == []
    assert dict(sender.dropped) == {"malformed": 1, "absurd": 1, "not for me": 2}
    for _ in range(1500):
        sender.receive(encode(Echo(1, PUBLISHER, 0.0)), 1.0)
    assert sender.dropped["echoes"] == 500
    with pytest.raises(InvalidInput):
        Sender(1, epoch=-1)


def test_sender_repairs_from_its_log_and_says_what_is_gone():
    sender = Sender(PUBLISHER, Publishing(log=2), epoch=1)
    for i in range(5):
        sender.publish(MINE, b"%d" % i, float(i))
    sender.receive(encode(request(4, attempt=1)), 10.0)
    action, *_digests = sender.expire(10.0)
    assert isinstance(action, Send)
    assert decode(action.data).message.endswith(b"4")
    assert sender.receive(encode(request(0)), 11.0) == []
    (gone,) = sender.receive(encode(request(0, attempt=2)), 11.0)
    assert decode(gone.data) == Gone(PUBLISHER, 1, 0, 2)
    assert gone.channel is Channel.PEERS
    assert sender.statistics().repairs == 1


def test_what_is_gone_may_not_have_been_wanted():
    """Bits look wanted; without a log the publisher says what the message was, and only a wanted one is a gap."""
    sender = Sender(PUBLISHER, Publishing(record=2), epoch=1, describe=lambda context: lambda: b"%d" % context)
    known = set(range(10, 20))
    receiver = Receiver(
        5, WANT, order=Order(), recover=Recover(distance=0.01),
        decode_item=lambda _, body: int(body) if int(body) in known else None,
    )  # fmt: skip
    said = [sender.publish(MINE, b"%d" % number, 0.01 * i, number)[0].data for i, number in enumerate((10, 99, 11, 12))]
    actions = receiver.receive(said[0], 0.0) + receiver.receive(said[3], 0.03)  # 99 and 11 did not come
    now = 0.03
    for _ in range(1000):
        for each in [a for a in actions if isinstance(a, Send)]:
            for answer in sender.receive(each.data, now):
                actions += receiver.receive(answer.data, now)
        if (due := receiver.timer()) is None or due > 60.0:
            break
        now = due
        actions += receiver.expire(now)
        actions = [a for a in actions if not isinstance(a, Send)] + [a for a in actions if isinstance(a, Send)][-20:]
    assert [a.item for a in actions if isinstance(a, Deliver)] == [10, 12]
    assert [(a.first, a.last) for a in actions if isinstance(a, Gap)] == [(2, 2)]
    assert (receiver.statistics().gaps, receiver.statistics().lost) == (1, 1)


def test_a_malformed_answer_settles_nothing():
    sender = Sender(PUBLISHER, Publishing(record=2, log=5), epoch=1)

    def never(header, body):
        raise CodecError("not an event")

    receiver = Receiver(5, WANT, recover=Recover(distance=0.01), decode_item=never)
    said = [sender.publish(MINE, b"", 0.01 * i)[0].data for i in range(3)]
    for now, data in ((0.0, said[0]), (0.02, said[2])):
        header, _ = decode_header(data)
        receiver.message(header, "item", now, data)
    while (PUBLISHER, 1, 1) not in receiver.requests:
        receiver.expire(receiver.timer())
    for answer in (encode(Repair(9, 0, said[1])), encode(Gone(PUBLISHER, 1, 1, 1, b"junk"))):
        assert receiver.receive(answer, 1.0) == []
        assert (PUBLISHER, 1, 1) in receiver.requests
    assert receiver.dropped["malformed"] == 2
    assert [(a.first, a.last) for a in receiver.close(2.0) if isinstance(a, Gap)] == [(1, 1)]


def test_digests_go_on_rarely_and_the_last_says_that_it_ended():
    sender = Sender(PUBLISHER, Publishing(record=0, digest=0.5), epoch=1)
    assert isinstance(sender.publish(MINE, b"x", 0.0)[0], Publish)
    times = []
    while (due := sender.timer(0.0)) < 100.0:
        times.append(due)
        sender.expire(due)
    assert times[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert {b - a for a, b in pairwise(times[4:])} == {5.0}
    (last,) = sender.end(100.0)
    header, _ = decode_header(last.data)
    assert (header.ended, header.sequence, header.part) == (True, 1, False)
    assert sender.timer(0.0) == 100.5


def test_publisher_says_what_was_sent_as_far_back_as_its_log():
    sender = Sender(PUBLISHER, Publishing(record=2, log=2000), epoch=1, largest=HEADER + 20 * 100)
    for i in range(3000):
        sender.publish(MINE if i % 7 == 0 else OTHER, b"%d" % i, i * 0.001)
    sender.expire(3.0)
    sender.receive(encode(Inquiry(PUBLISHER, 1, 990, 1149, 77)), 4.0)
    sender.receive(encode(Inquiry(PUBLISHER, 9, 990, 1149, 77)), 4.0)  # of another life
    answers = [each for each in sender.expire(4.01) if each.channel is Channel.NODE]
    assert {each.target for each in answers} == {77}
    *pages, gone = answers
    assert decode(gone.data) == Gone(PUBLISHER, 1, 990, 999)
    told = {}
    for page in pages:
        header, _ = decode_header(page.data)
        assert header.part
        for i, (age, bits) in enumerate(header.record.walk(header.previous, header.record.count)):
            told[header.sequence - 1 - i] = bits
            assert age == pytest.approx(4.01 - (header.sequence - 1 - i) * 0.001, abs=0.001)
    assert told == {i: MINE if i % 7 == 0 else OTHER for i in range(1000, 1150)}
    for requester in (77, 78):
        sender.receive(encode(Inquiry(PUBLISHER, 1, 2990, 5000, requester)), 5.0)
    answers = [each for each in sender.expire(5.01) if isinstance(each, Send)]
    assert {each.channel for each in answers} == {Channel.DIGEST}  # several asked
    assert decode_header(answers[0].data)[0].sequence == 3000  # it goes no further than that


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Order, {"p_late": 0.0}), (Order, {"samples": 0}), (Recover, {"cache_min": 0}), (Recover, {"attempts": 0}),
        (Recover, {"wanted": 0}), (Recover, {"distance": 0}), (RateControl, {"alpha": 2}),
        (RateControl, {"interval": 0}), (RateControl, {"round_trip": -1}), (RateControl, {"segment": 0}),
        (RateControl, {"slowest": float("nan")}), (RateControl, {"growth": 0.0}),
        (Publishing, {"record": 65}), (Publishing, {"width": 7}),
        (Publishing, {"digest": 0}), (Publishing, {"log": -1}), (Publishing, {"queue": 0}),
        (Publishing, {"flow_timeout": 0}), (Publishing, {"flows": 0}),
    ],
)  # fmt: skip
def test_bad_options_are_refused(kind, options):
    with pytest.raises(InvalidInput):
        kind(**options)


def test_long_digests_are_told_in_parts():
    sender = Sender(PUBLISHER, Publishing(record=0, digest=0.5, width=128), epoch=1, largest=HEADER + 20 * 7)
    for i in range(20):
        sender.publish(MINE, b"x", i * 0.01)
    parts = [decode_header(action.data)[0] for action in sender.expire(0.6)]
    assert [(part.sequence, part.record.count) for part in parts] == [(20, 7), (13, 7), (6, 6)]
    left = {
        part.sequence - 1 - i: round(part.departure - age, 6)
        for part in parts
        for i, (age, _) in enumerate(part.record.walk(part.previous, part.record.count))
    }
    assert left == {i: pytest.approx(i * 0.01, abs=1e-4) for i in range(20)}


def test_a_publisher_that_restarts_is_another_stream_and_the_old_one_is_settled():
    receiver = Receiver(1, (MINE,), recover=Recover(distance=0.05))
    old, new = (Sender(PUBLISHER, Publishing(record=4, log=4), epoch=epoch) for epoch in (1, 2))
    sent = [old.publish(MINE, b"%d" % i, i * 0.01)[0].data for i in range(3)]
    receiver.receive(sent[0], 0.0)
    receiver.receive(sent[2], 0.02)
    receiver.receive(old.expire(0.5)[0].data, 0.5)
    actions = receiver.receive(new.publish(MINE, b"n", 1.0)[0].data, 1.0)
    assert [each.item for each in actions if isinstance(each, Deliver)] == [b"n"]
    while not receiver.gaps:
        actions = receiver.expire(receiver.timer())
    assert Gap(PUBLISHER, 1, 1, 1) in actions
    # It was killed: what it may have sent after the last digest, nobody can say.
    assert Gap(PUBLISHER, 1, 3, OPEN) in receiver.expire(1000.0)
    assert str(Gap(PUBLISHER, 1, 3, OPEN)).endswith("from 3, on (the publisher fell silent)")


def test_a_stream_that_is_heard_again_after_a_long_silence_is_taken_up_where_it_was():
    receiver = Receiver(1, WANT, recover=Recover(), idle=10.0)
    sender = Sender(PUBLISHER, Publishing(record=1, log=100), epoch=1)
    data = [sender.publish(MINE, b"%d" % i, float(i))[0].data for i in range(5)]
    receiver.receive(data[0], 0.0)
    receiver.expire(100.0)
    assert receiver.statistics().sessions == 0
    receiver.receive(data[4], 200.0)
    sent = []
    while (due := receiver.timer()) is not None:
        sent += [decode(each.data) for each in receiver.expire(due) if isinstance(each, Send)]
    assert any(isinstance(each, Request) and each.sequence == 3 for each in sent)
    assert any(isinstance(each, Inquiry) and (each.first, each.last) == (1, 2) for each in sent)


def test_each_publisher_has_its_own_width():
    asked = []

    def interests(width):
        asked.append(width)
        return (1 << width,)

    receiver = Receiver(1, interests, order=Order(), width=128)
    for publisher, width in ((PUBLISHER, 64), (PUBLISHER + 1, 256)):
        sender = Sender(publisher, Publishing(record=4, width=width), epoch=1)
        sent = [sender.publish(1 << width // 8, b"x", i * 0.01)[0].data for i in range(3)]
        receiver.receive(sent[0], 0.0)
        receiver.receive(sent[2], 0.02)  # the one between was wanted
        receiver.expire(1.0)
    assert receiver.counts.losses == 2
    assert asked == [8, 32]
