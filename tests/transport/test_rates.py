"""Congestion control: the response function, loss intervals, max-min, flows, buckets, and a bottleneck to share."""

from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import InvalidInput, Rejected
from sievenet.simulation import Pipe, VirtualClock
from sievenet.transport.actions import Publish
from sievenet.transport.codec import Control, Header, decode_header
from sievenet.transport.control import Echo, Feedback, FlowRequest, encode
from sievenet.transport.doubt import Doubt
from sievenet.transport.flows import Flow, FlowTable, SendQueue
from sievenet.transport.latch import ConstantLatch
from sievenet.transport.numbers import Numbers
from sievenet.transport.options import Publishing, RateControl
from sievenet.transport.rates import RateSession, max_min
from sievenet.transport.receiver import Receiver
from sievenet.transport.response import LossIntervals, loss_rate_for, tcp_rate
from sievenet.transport.sender import Sender
from sievenet.transport.simulation import Overlay, TcpFlow, World, low_degree_graph
from sievenet.transport.stream import Loss
from sievenet.transport.window import CongestionWindow

P = 1000


@given(st.floats(1e-6, 1), st.floats(1e-3, 1))
def test_response_function_and_its_inverse(p, round_trip):
    rate = tcp_rate(p, round_trip)
    assert tcp_rate(p / 2, round_trip) > rate
    assert tcp_rate(p, 2 * round_trip) == pytest.approx(rate / 2)
    assert tcp_rate(loss_rate_for(rate, round_trip), round_trip) == pytest.approx(rate, rel=1e-6)


def test_response_function_by_hand():
    # √(2·0.01/3) = 0.08165, 12·√(3·0.01/8)·0.01·(1 + 0.0032) = 0.00737
    assert tcp_rate(0.01, 0.1, 1000) == pytest.approx(1000 / (0.1 * (0.0816497 + 0.0073720)), rel=1e-4)
    assert tcp_rate(0, 0.1) == inf


def test_loss_intervals():
    intervals = LossIntervals()
    assert intervals.event_rate == 0
    for _ in range(10):
        intervals.received()
    assert intervals.lost(1.0, 0.1, 50)  # the first interval is assumed
    assert intervals.event_rate == pytest.approx(1 / 50)
    assert not intervals.lost(1.05, 0.1, 50)  # the same event
    for _ in range(99):
        intervals.received()
    assert intervals.lost(2.0, 0.1, 50)
    assert intervals.event_rate == pytest.approx(1 / 75)
    for _ in range(999):
        intervals.received()
    assert intervals.event_rate < 1 / 300  # the open interval counts when it helps


def test_uncovered_gaps_count_by_their_probability():
    precise, unsure = LossIntervals(), LossIntervals()
    for each in (precise, unsure):
        each.lost(0.0, 0.1, 1)
    for _ in range(100):
        precise.received()
        unsure.received(3, 0.5)
    assert unsure._current == pytest.approx(1 + 100 * 0.125)
    assert unsure.event_rate > precise.event_rate


def test_intervals_are_in_segments():
    intervals = LossIntervals()
    intervals.lost(0.0, 1.0, 10)
    for _ in range(95):
        intervals.received(segments=0.2)
    intervals.lost(1.5, 1.0, 10)
    assert intervals.event_rate == pytest.approx(1 / 15)  # of 10 and of 1 + 19


# -- the window of a TCP -------------------------------------------------------------------


def test_window_grows_by_a_segment_per_round_trip_and_halves():
    window = CongestionWindow(Random(1))
    window.received(0.2, 0.0)
    assert window.size == inf  # no limit before the first loss
    assert window.lost(1.0, 0.1, 31.5, 1.0, 1.0)
    assert (window.size, window.flight) == (16, 15.5)  # half a segment is left unused
    assert not window.lost(1.05, 0.1, 32.0, 1.0, 1.0)  # the same event
    window.received(0.2, 1.1)
    assert window.size == 16  # left before the halving was felt
    for _ in range(80):  # a round trip's worth
        window.received(0.2, 1.2)
    assert window.size == pytest.approx(17, abs=0.1)
    assert window.lost(1.3, 0.1, 0.0, 1.0, 1.0)
    assert window.size == pytest.approx(8.5, abs=0.1)
    window.bound(3.0)
    assert window.flight == 3
    for i in range(20):
        window.lost(2.0 + i, 0.1, 0.0, 1.0, 1.0)
    assert 0 < window.flight < 0.1


def test_a_loss_event_leaves_a_quarter_of_what_is_under_way():
    window = CongestionWindow(Random(1))
    window.lost(1.0, 0.1, 3.5, 1.0, 1.0)
    assert window.flight == 1.5
    window.lost(2.0, 0.1, 0.0, 1.0, 1.0)
    assert window.flight == 0.5  # half of the window still leaves more
    window.lost(3.0, 0.1, 0.0, 1.0, 1.0)
    assert window.flight == 0.125
    window.lost(4.0, 0.1, 0.0, 1.0, 0.5)
    assert window.flight == 1 / 64  # weighs two events; the least of all


@pytest.mark.parametrize("p", [0.01, 0.03, 0.08])
def test_a_window_keeps_as_much_under_way_as_a_tcp_with_the_same_losses(p):
    clock = VirtualClock()
    tcp = TcpFlow(clock, Pipe(clock, Random(1), delay=0.05, loss=p), Pipe(clock, Random(2), delay=0.05))
    tcp.start()
    clock.run(400)
    theirs = tcp.received / 1460 / 400 * 0.1
    rng, window = Random(3), CongestionWindow(Random(4))
    window.lost(0.0, 0.0, 10.0, 1.0, 1.0)
    departure, came = 1.0, 0
    while departure < 401:
        departure += 0.1 * 0.2 / window.flight  # messages of a fifth of a segment, a round trip of 0.1
        if rng.random() < p:
            window.lost(departure, 0.1, 0.0, 0.2, 1.0)
        else:
            window.received(0.2, departure)
            came += 1
    assert came * 0.2 / 400 * 0.1 == pytest.approx(theirs, rel=0.15)


def test_a_window_that_grows_by_a_tenth_meets_a_tenth_of_the_losses():
    rng, window = Random(3), CongestionWindow(Random(4), 0.1)
    window.lost(0.0, 0.0, 10.0, 1.0, 1.0)
    departure, came = 1.0, 0
    while departure < 1001:
        departure += 0.1 * 0.2 / window.flight
        if rng.random() < 0.003:
            window.lost(departure, 0.1, 0.0, 0.2, 1.0)
        else:
            window.received(0.2, departure)
            came += 1
    # As a TCP's with 3 % of losses: 6.3 segments.
    assert came * 0.2 / 1000 * 0.1 == pytest.approx(6.3, rel=0.15)


def test_one_loss_in_n_small_messages_counts():
    assert 340 < sum(CongestionWindow(Random(seed)).lost(1.0, 0.1, 2.5, 0.2, 1.0) for seed in range(2000)) < 460


def test_what_is_hardly_noticed_weighs_more():
    window = CongestionWindow(Random(1))
    window.lost(1.0, 0.1, 15.5, 1.0, 0.5)
    assert window.size == 4


def test_slow_flows_are_measured_over_several_messages_and_may_grow():
    rates = RateSession(5, P, (1,), 1, RateControl(), Random(1), ConstantLatch(0.0))
    sent = []
    for i in range(200):  # four per second
        now = i * 0.25
        rates.received(message(i, now, Control(5, 4.0, 4.0, 0.02)), 300, 0, now)
        if i == 20:
            rates.lost(Loss(P, 1, i, 1, 1, 0.0, now))
        for late in (now, now + 0.12):
            while (due := rates.timer()) <= late:
                sent += [(late, m) for m in rates.expire(max(due, now))]
        if i > 20:
            assert rates.rate == pytest.approx(4.0, rel=0.3)
    quotas = [m.flows[0].quota for t, m in sent if isinstance(m, Feedback) and t > 10]
    assert max(quotas) > 4.0


def test_numbers_show_losses_that_do_not_come_late():
    numbers = Numbers(ConstantLatch(0.05))
    for number in (7, 8, 12, 10):  # 9 and 11 are missing, 10 was overtaken
        numbers.received(number, number * 0.01, number * 0.01)
    assert numbers.timer() == pytest.approx(0.17)
    assert numbers.expire(0.16) == []
    assert numbers.expire(0.17) == [0.12, 0.12]
    assert numbers.timer() is None
    numbers.received(14, 0.2, 0.2)
    numbers.received(5_000_000, 0.3, 0.3)  # another beginning, not five million losses
    assert numbers.expire(1.0) == []
    numbers.received((1 << 32) - 1, 1.0, 1.0)
    numbers.received(1, 1.1, 1.1)  # around, without 0
    assert numbers.expire(2.0) == [1.1]


def test_leaping_numbers_do_not_pile_up():
    numbers = Numbers(ConstantLatch(0.05))
    for number in range(0, 100_000, 1000):
        numbers.received(number, 0.0, 0.0)
        assert len(numbers._due) <= 1024
    assert len(numbers.expire(1.0)) <= 1024


def test_numbers_count_per_limiting_receiver():
    sender = Sender(P, Publishing(rate_control=True), epoch=1)
    sender.receive(encode(feedback(7, (0b01, 1e6))), 0.0)
    sender.receive(encode(feedback(8, (0b10, 1e6))), 0.0)
    sent = [sender.publish(bits, b"", 1.0 + i)[0] for i, bits in enumerate((0b01, 0b10, 0b01, 0b100, 0b10, 0b01))]
    controls = [decode_header(each.data)[0].control for each in sent]
    assert [(c.clr, c.number) for c in controls] == [(7, 0), (8, 0), (7, 1), (0, 0), (8, 1), (7, 2)]


def test_numbers_of_receivers_without_a_flow_are_forgotten():
    table = FlowTable(P, width=16, limit=2)
    for clr in range(1, 100):
        table.number(clr)
    assert len(table._numbers) <= 4


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=8), st.floats(0, 5000))
def test_max_min(demands, total):
    shares = max_min(demands, total)
    assert sum(shares) == pytest.approx(min(total, sum(demands)), abs=1e-6)
    assert all(s <= d + 1e-9 for s, d in zip(shares, demands, strict=True))
    cut = [s for s, d in zip(shares, demands, strict=True) if s < d - 1e-6]
    if cut:
        assert max(shares) <= max(cut) + 1e-6  # nobody has more than those who were cut


# -- flows -------------------------------------------------------------------------------


def feedback(subscriber, *wishes, publisher=P, sent=0.0):
    return Feedback(subscriber, publisher, sent, tuple(FlowRequest(bits, 16, quota) for bits, quota in wishes))


def test_flow_table_merges_by_covering():
    table = FlowTable(P, width=16)
    table.feedback(feedback(1, (0b11, 100.0)), 1.0)
    table.feedback(feedback(2, (0b11, 200.0)), 1.0)  # looser, same filter
    table.feedback(feedback(3, (0b111, 150.0)), 1.0)  # covered by a tighter flow
    assert [(f.bits, f.clr) for f in table.flows] == [(0b11, 1)]
    assert table.ignored == 2
    table.feedback(feedback(1, (0b11, 300.0)), 2.0)  # the CLR may raise it
    table.feedback(feedback(3, (0b111, 150.0)), 2.0)
    assert len(table.flows) == 2
    table.feedback(feedback(4, (0b1, 50.0)), 2.0)  # covers both, tighter
    assert [(f.bits, f.clr, f.quota) for f in table.flows] == [(0b1, 4, 50.0)]
    assert table.matching(0b101)
    assert not table.matching(0b100)


def test_flow_table_is_bounded_and_expires():
    table = FlowTable(P, width=16, limit=3, timeout=5.0)
    for i in range(6):
        table.feedback(feedback(i + 1, (1 << i, 10.0)), float(i))
    assert len(table.flows) == 3
    assert table.timer() == 8.0
    table.expire(9.5)
    assert len(table.flows) == 1
    table.expire(99)
    assert table.timer() is None


def test_absurd_feedback_is_counted():
    table = FlowTable(P, width=16)
    table.feedback(feedback(1, (1, 10.0), publisher=5), 0.0)
    table.feedback(feedback(0, (1, 10.0)), 0.0)
    table.feedback(feedback(1, (1, 0.0)), 0.0)
    assert (table.absurd, table.flows) == (3, [])


def test_queue_keeps_order_within_flows_and_lets_others_pass():
    table = FlowTable(P, width=16)
    table.feedback(feedback(1, (0b01, 10.0)), 0.0)
    table.feedback(feedback(2, (0b10, 1000.0)), 0.0)
    queue = SendQueue(table, 100)
    out = []
    for i in range(12):
        bits = (0b01, 0b10, 0b11)[i % 3]
        if queue.offer(bits, i, table.matching(bits), 0.0):
            out.append((0.0, i))
    now = 0.0
    while (due := queue.timer(now)) is not None:
        now = max(due, now + 1e-9)
        out += [(now, item) for _, item in queue.release(now)]
    sequence = [i for _, i in out]
    assert sorted(sequence) == list(range(12))
    for members in ((0, 2), (1, 2)):
        own = [i for i in sequence if i % 3 in members]
        assert own == sorted(own)
    assert now >= 0.6  # 8 messages of the slow flow, 10 per second, one token to begin with


def test_bucket_limits_the_rate():
    flow = Flow(1, 1, 100.0, 1.0, 0.0, 0.0, 0.0)
    sent, now = 0, 0.0
    while now < 10:
        now = max(flow.ready(now), now)
        flow.tokens -= 1
        sent += 1
        now += 0.001
    assert 950 <= sent <= 1030


def test_sender_queues_refuses_and_releases():
    sender = Sender(P, Publishing(rate_control=True, queue=3), epoch=1)
    sender.receive(encode(feedback(7, (0b1, 10.0), sent=0.0)), 0.05)
    results = [sender.publish(0b11, b"%d" % i, 0.05) for i in range(4)]
    assert [len(r) for r in results] == [1, 0, 0, 0]
    control = results[0][0]
    assert isinstance(control, Publish)
    assert sender.blocked(0b1)
    assert not sender.blocked(0b10)
    with pytest.raises(Rejected):
        sender.publish(0b1, b"", 0.05)
    assert len(sender.publish(0b10, b"free", 0.05)) == 1  # of no flow
    now, out = 0.05, []
    while len(sender.queue):
        now = sender.timer(now)
        out += sender.expire(now)
    assert [a.data[-1:] for a in out] == [b"1", b"2", b"3"]
    assert 0.3 <= now - 0.05 <= 0.4
    assert sender.statistics().refused == 1
    sender.expire(100.0)
    assert sender.statistics().flows == 0


def test_queue_is_sorted_anew_when_flows_go():
    sender = Sender(P, Publishing(rate_control=True, flow_timeout=1.0), epoch=1)
    sender.receive(encode(feedback(7, (0b1, 0.001))), 0.0)
    for i in range(3):
        sender.publish(0b1, b"%d" % i, 0.0)
    out = []
    for now in (0.5, 1.5, 2.0):
        out += sender.expire(now)
    assert [a.data[-1:] for a in out] == [b"1", b"2"]


# -- receivers ---------------------------------------------------------------------------


def message(i, now, control=None):
    return Header(P, 1, i, now - 0.02, 1000, control=control)


def test_round_trip_by_echo_and_by_feedback():
    rates = RateSession(5, P, (1,), 1, RateControl(), Random(1), ConstantLatch(0.0))
    assert rates.timer() is None
    assert rates.expire(0.0) == []
    rates.received(message(0, 1.0), 300, 0, 1.0)
    (echo,) = rates.expire(1.0)
    assert isinstance(echo, Echo)
    rates.echoed(Echo(5, P, 0.5, reply=True), 1.03)  # not mine
    assert rates.round_trip == 0.1
    rates.echoed(Echo(5, P, echo.sent, reply=True), 1.03)
    assert rates.round_trip == pytest.approx(0.03)
    for i in range(60):  # clocks 100 s apart cancel
        rates.received(Header(P, 1, i + 1, 101.0 + i, 1000, control=Control(5, 10.0, 10.0, 100.05)), 300, 0, 1.03 + i)
    assert rates.round_trip == pytest.approx(0.08, rel=0.05)


def test_losses_lower_and_calm_raises_the_quota():
    rates = RateSession(5, P, (1,), 1, RateControl(), Random(1), ConstantLatch(0.0))
    now, sent = 0.0, []
    for i in range(400):
        now = i * 0.005
        rates.received(message(i, now, Control(5, 200.0, 200.0, 0.02)), 300, 0, now)
        if i in (150, 170):
            rates.lost(Loss(P, 1, i, 1, 1, 0.0, now))
        while (due := rates.timer()) <= now:
            sent += [(now, m) for m in rates.expire(due)]
    wishes = [(t, m.flows[0].quota) for t, m in sent if isinstance(m, Feedback)]
    before = [q for t, q in wishes if t < 0.75]
    during = [q for t, q in wishes if 0.75 <= t < 1.0]
    after = [q for t, q in wishes if t > 1.5]
    assert min(during) < 0.7 * before[-1]
    assert after[-1] > min(during)
    assert rates.allowed < inf


def test_milder_wishes_are_suppressed():
    rates = RateSession(5, P, (1,), 1, RateControl(), Random(1), ConstantLatch(0.0))
    out = []
    for i in range(400):
        now = i * 0.005
        # Another receiver limits the flow already, to less than this one would.
        rates.received(message(i, now, Control(9, 200.0, 1.0, 0.02)), 300, 0, now)
        if i % 20 == 10:
            rates.lost(Loss(P, 1, i, 1, 1, 0.0, now))
        while (due := rates.timer()) <= now:
            out += rates.expire(due)
    assert not any(isinstance(m, Feedback) for m in out)
    assert rates.suppressed > 0


def test_expected_false_alarms_are_taken_off():
    rng = Random(2)
    wanted = 0b111 << 40
    doubt = Doubt((wanted,))
    alarms = believed = 0
    for _ in range(20_000):
        bits = 0b11 | sum(1 << rng.randrange(2, 64) for _ in range(32))
        doubt.judged(bits, 8, 0.1)
        if bits & wanted == wanted:
            alarms += 1
            believed += doubt.believe()
    assert alarms > 500
    assert believed < 0.35 * alarms


# -- simulation --------------------------------------------------------------------------


def test_tcp_fills_a_link_and_two_share_it():
    clock = VirtualClock()
    forward = Pipe(clock, Random(1), delay=0.01, bandwidth=1e6, queue_bytes=20_000)
    backward = Pipe(clock, Random(2), delay=0.01)
    flows = [TcpFlow(clock, forward, backward) for _ in range(2)]
    flows[0].start()
    clock.run(20)
    assert flows[0].received * 8 / 20 > 0.85e6
    flows[1].start()
    before = [f.received for f in flows]
    clock.run(120)
    shares = [f.received - b for f, b in zip(flows, before, strict=True)]
    assert 0.4 < shares[0] / sum(shares) < 0.6
    flows[0].stop()
    stopped = flows[0].received
    clock.run(130)
    assert flows[0].received - stopped < 60_000


@pytest.mark.parametrize(("window", "numbers", "seconds"), [(9, 2, 0.02), (1, 1, 0.06)])
def test_tcp_is_acknowledged_like_a_kernels(window, numbers, seconds):
    clock = VirtualClock()
    sent: list[tuple[float, int]] = []

    class Back(Pipe):
        def send(self, size, action, *arguments):
            sent.append((clock.now, arguments[0]))
            return super().send(size, action, *arguments)

    flow = TcpFlow(clock, Pipe(clock, Random(1), delay=0.01), Back(clock, Random(2), delay=0.01), window=window)
    flow.start()
    clock.run(2.0)
    gaps = [b - a for (_, a), (_, b) in pairwise(sent)]
    assert gaps[:10] == [1] * 10  # at first one by one
    assert set(gaps[20:]) == {numbers}  # then every second, or after 40 ms
    assert max(b - a for (a, _), (b, _) in pairwise(sent[20:])) == pytest.approx(seconds)


def test_tcp_mends_losses_without_waiting_for_its_timer():
    clock = VirtualClock()
    dropped = {40, 41, 47, 200}

    class Forward(Pipe):
        def send(self, size, action, *arguments):
            if arguments[0] in dropped:
                dropped.discard(arguments[0])
                return False
            return super().send(size, action, *arguments)

    forward = Forward(clock, Random(1), delay=0.05, bandwidth=10e6)
    flow = TcpFlow(clock, forward, Pipe(clock, Random(2), delay=0.05), window=32)
    flow.start()
    windows = []
    for i in range(40):
        clock.run(0.1 * (i + 1))
        windows.append(flow.window)
    assert not dropped
    assert (flow.retransmitted, flow.timeouts) == (4, 0)
    assert min(windows[6:]) >= 7  # halved twice, and grown by one per round trip
    assert flow.received > 250 * 1460


def test_tcp_survives_heavy_loss():
    clock = VirtualClock()
    flow = TcpFlow(clock, Pipe(clock, Random(1), delay=0.01, loss=0.3), Pipe(clock, Random(2), delay=0.01, loss=0.1))
    flow.start()
    clock.run(60)
    assert flow.received > 50_000
    assert flow.timeouts > 0


def test_links_queue_drop_and_change():
    clock = VirtualClock()
    link = Pipe(clock, Random(1), bandwidth=8000, queue_bytes=3000)
    out = []
    for i in range(5):
        link.send(1000, out.append, i)
    assert (link.sent, link.dropped) == (3, 2)
    assert link.backlog() == pytest.approx(3000)
    link.bandwidth = 16000
    assert link.backlog() == pytest.approx(3000)
    clock.run(5)
    assert out == [0, 1, 2]
    packets = Pipe(clock, Random(1), bandwidth=8000, queue=2)
    assert [packets.send(10, out.append, 9) for _ in range(3)] == [True, True, False]
    early = Pipe(clock, Random(1), bandwidth=8e6, queue_bytes=10_000, early_drop=True)
    assert 0 < sum(not early.send(100, out.append, 9) for _ in range(95)) < 40
    assert Pipe(clock, Random(1)).backlog() == 0


@pytest.mark.parametrize(("brokers", "diameter"), [(8, 3), (12, 5), (46, 15), (2, 1)])
def test_graphs_have_their_diameter(brokers, diameter):
    import networkx as nx

    graph = nx.Graph(low_degree_graph(brokers, diameter))
    assert (len(graph), nx.diameter(graph)) == (brokers, diameter)


@pytest.mark.parametrize(("brokers", "diameter"), [(3, 3), (3, 0), (9, 1)])
def test_impossible_graphs_are_refused(brokers, diameter):
    with pytest.raises(InvalidInput):
        low_degree_graph(brokers, diameter)


def test_rate_control_ends_congestion():
    def run(control):
        clock = VirtualClock()
        overlay = Overlay(
            clock, [(0, 1)],
            lambda a, _b: Pipe(clock, Random(1), delay=0.01, bandwidth=5e5 if a == 0 else None, queue=60),
            processing=0.0002,
        )  # fmt: skip
        got = []
        world = World(overlay, delivered=lambda _c, m: got.append(m))
        world.add_sender(P, 0, Sender(P, Publishing(rate_control=control, record=2, queue=50), epoch=1))
        receiver = Receiver(1, (0b1,), rate=RateControl() if control else None)
        world.add_receiver(1, 1, receiver)
        for i in range(4000):
            clock.call_at(i / 500, world.publish, P, 0b1, bytes(150), {1: [1]})
        clock.run(8.5)
        return len(got), overlay.links[0, 1].dropped

    free, controlled = run(False), run(True)
    assert controlled[1] < free[1] / 5  # most of it before the first feedback
    assert controlled[0] > 0.85 * free[0]


# -- what is believed, and what is given up ------------------------------------------------


def test_losses_of_one_who_wants_everything_are_believed():
    doubt = Doubt((0b11,))
    believed = 0
    for _ in range(1000):
        doubt.judged(0b11 | 0b100, 8, 0.95)  # everything has the wanted bits, and most of it came
        believed += doubt.believe()
    assert believed == 1000


def test_bits_that_tell_nothing_apart_are_not_believed_by_one_who_gets_little():
    doubt = Doubt((0b11,))
    believed = 0
    for _ in range(1000):
        doubt.judged(0b11 | 0b100, 8, 0.1)
        believed += doubt.believe()
    assert believed < 100


def test_real_losses_among_false_alarms_are_believed():
    rng = Random(3)
    wanted = 0b1111 << 40
    doubt = Doubt((wanted,))
    lost = believed = 0
    for i in range(20_000):
        bits = 0b11 | sum(1 << rng.randrange(2, 64) for _ in range(24))
        if i % 4 == 0:  # one in four was wanted, and is lost
            bits |= wanted
            lost += 1
        doubt.judged(bits, 8, 0.5)
        if bits & wanted == wanted:
            believed += doubt.believe()
    assert 0.8 * lost < believed < 1.3 * lost


def test_wishes_about_bits_of_another_width_mean_nothing():
    table = FlowTable(P, width=16)
    table.feedback(Feedback(5, P, 1.0, (FlowRequest(3, 8, 10.0), FlowRequest(3, 16, 10.0))), 1.0)
    assert len(table.flows) == 1
    assert table.absurd == 1
