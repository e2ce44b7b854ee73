"""Flow control between a client and its switch: two ends and a fake network between them."""

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.dataplane.hostlink import PATIENCE, STALL, WINDOW, HostLink
from sievenet.dataplane.packet import DATAGRAM_HEADER, Kind, Packet, decode, encode_packet
from tests.seeds import seeds


def packet(number, size=100):
    return encode_packet(Packet(1, 0, 2, number, 0, 0, b"x" * size))


class Pair:
    """Two ends, and buffers of limited size between them."""

    def __init__(self, room=1 << 30, loss=0.0, seed=0):
        self.a, self.b = HostLink(7), HostLink(7)
        self.room, self.loss, self.rng = room, loss, random.Random(seed)
        self.got, self.overflowed, self.now = [], 0, 0.0

    def turn(self):
        """One turn: each end sends what it may, each reads all that its buffer held."""
        for sender, receiver in ((self.a, self.b), (self.b, self.a)):
            buffer, used = deque(), 0
            for data in sender.datagrams(self.now):
                if used + len(data) > self.room:
                    self.overflowed += 1
                elif self.rng.random() >= self.loss:
                    buffer.append(data)
                    used += len(data)
            for data in buffer:
                datagram = decode(data)
                receiver.heard(datagram.sequence, datagram.acknowledged, datagram.window, self.now, len(data))
                if receiver is self.b:
                    self.got += [p.sequence for p in datagram.packets]


@given(st.lists(st.integers(0, 30_000), max_size=60))
def test_everything_arrives_in_order_through_small_buffers(sizes):
    pair = Pair(room=WINDOW + 66_000)
    for i, size in enumerate(sizes):
        assert pair.a.push(packet(i, size))
    for _ in range(200):
        pair.turn()
    assert pair.got == list(range(len(sizes)))
    assert pair.overflowed == 0
    assert pair.a.idle
    assert pair.b.statistics().lost_datagrams == 0


def test_the_window_limits_what_is_under_way():
    link = HostLink(1)
    for i in range(1000):
        link.push(packet(i, 1000))
    first = sum(map(len, link.datagrams(0.0)))
    assert WINDOW * 0.7 < first < WINDOW * 1.3
    assert link.datagrams(0.0) == []
    assert link.queued > 800


def test_a_smaller_window_is_obeyed():
    pair = Pair()
    pair.b.grant = 4
    for i in range(1000):
        pair.a.push(packet(i, 1000))
    pair.turn()  # before the first word of the other end
    sent = len(pair.got)
    pair.turn()
    assert 1 <= len(pair.got) - sent <= 32  # one full datagram more


def test_a_stalled_end_probes_and_sends_nothing_else():
    link = HostLink(1)
    for i in range(1000):
        link.push(packet(i, 1000))
    link.datagrams(0.0)
    assert link.datagrams(STALL * 0.9) == []
    assert link.due() == STALL
    (probe,) = link.datagrams(STALL)
    assert decode(probe).packets == []
    # Ever more rarely: an end that sleeps for an hour does not find its buffer full of probes.
    sent, now = 1, STALL
    while now < 3600:
        now = link.due()
        sent += len(link.datagrams(now))
    assert link.statistics().stalls == sent < 800
    assert HostLink(2).due() is None


def test_a_probe_finds_out_that_the_last_datagrams_were_lost():
    pair = Pair()
    for i in range(1000):
        pair.a.push(packet(i, 1000))
    lost = pair.a.datagrams(0.0)
    assert len(lost) > 3
    for _ in range(60):
        pair.turn()
        pair.now += STALL
    assert pair.a.idle
    assert pair.a.statistics().stalls == 1
    assert pair.b.statistics().lost_datagrams == len(lost)
    assert pair.got[-1] == 999


def test_a_probe_tells_that_what_went_before_has_been_read():
    pair = Pair()
    assert pair.a.arrived(0)
    for i in range(5):
        pair.a.push(packet(i))
    [data] = pair.a.datagrams(0.0)
    number, probe = pair.a.probe(0.0)
    assert not pair.a.arrived(number)
    for each in (data, probe):
        found = decode(each)
        pair.b.heard(found.sequence, found.acknowledged, found.window, 0.0, len(each))
    [answer] = pair.b.datagrams(0.0)  # at once
    pair.a.push(packet(5))
    [later] = pair.a.datagrams(0.0)
    pair.a.heard(0, decode(answer).acknowledged, 64, 0.0, len(answer))
    assert pair.a.arrived(number)
    assert not pair.a.arrived(decode(later).sequence), "this one has not"


def test_an_end_that_does_not_read_loses_nothing():
    pair = Pair(room=WINDOW + 66_000)
    unread = []
    for i in range(300):
        pair.a.push(packet(i, 1000))
    while pair.now < 60:
        unread += pair.a.datagrams(pair.now)
        pair.now += STALL / 2
    assert sum(map(len, unread)) < WINDOW * 1.3  # it all fits the buffer
    for data in unread:
        datagram = decode(data)
        pair.b.heard(datagram.sequence, datagram.acknowledged, datagram.window, pair.now, len(data))
        pair.got += [p.sequence for p in datagram.packets]
    for _ in range(20):
        pair.turn()
        pair.now += STALL
    assert pair.got == list(range(300))


@pytest.mark.parametrize("seed", seeds(1))
def test_losses_are_counted_exactly(seed):
    pair = Pair(loss=0.3, seed=seed)
    for i in range(500):
        pair.a.push(packet(i, 10_000))
        pair.turn()
        pair.now += STALL
    pair.loss = 0.0
    for i in range(500, 600):
        pair.a.push(packet(i, 10_000))
        pair.turn()
        pair.now += 5.0
    stats = pair.b.statistics()
    assert stats.received_datagrams + stats.lost_datagrams == pair.a.statistics().sent_datagrams
    assert stats.lost_datagrams > 100
    assert pair.got == sorted(set(pair.got))


def test_overtaking_is_not_loss():
    link = HostLink(1)
    for number in (1, 3, 2, 4):
        link.heard(number, 0, 64, 0.0, 100)
    assert link.statistics().lost_datagrams == 0


def test_the_queue_is_bounded_and_counts():
    link = HostLink(1, max_packets=3)
    assert [link.push(b"x") for _ in range(5)] == [True, True, True, False, False]
    assert link.statistics().dropped_packets == 2
    small = HostLink(1, max_bytes=10)
    assert [small.push(b"123456"), small.push(b"123456")] == [True, False]


def test_acknowledgements_without_data():
    link = HostLink(9)
    assert link.datagrams(0.0) == []
    assert link.due() is None
    link.heard(5, 0, 64, 0.0, 1000)
    link.heard(6, 0, 64, 0.01, 1000)
    assert link.datagrams(0.01) == []
    assert link.due() == PATIENCE  # from the first on
    (only,) = link.datagrams(PATIENCE)
    assert (decode(only).acknowledged, decode(only).packets, decode(only).sequence) == (6, [], 0)
    assert link.datagrams(1.0) == []
    link.heard(0, 0, 64, 1.0, 24)  # an acknowledgement is not acknowledged
    assert link.datagrams(2.0) == []
    assert decode(link.hello()).kind is Kind.HELLO


def test_much_is_acknowledged_at_once_and_so_is_a_probe():
    link = HostLink(9)
    link.heard(1, 0, 64, 0.0, WINDOW // 4)
    assert decode(link.datagrams(0.0)[0]).acknowledged == 1
    link.heard(2, 0, 64, 0.0, 1000)
    assert link.datagrams(0.0) == []
    link.heard(3, 0, 64, 0.0, DATAGRAM_HEADER)
    assert decode(link.datagrams(0.0)[0]).acknowledged == 3
    link.grant = 4
    link.heard(4, 0, 64, 0.0, 500)
    assert decode(link.datagrams(0.0)[0]).acknowledged == 4


def test_data_acknowledges_too():
    link = HostLink(9)
    link.heard(1, 0, 64, 0.0, 100)
    link.push(packet(1))
    assert decode(link.datagrams(0.0)[0]).acknowledged == 1
    assert link.due() is None
    assert link.datagrams(1.0) == []


@pytest.mark.parametrize("acknowledged", [0, 1, 2, 0xFFFFFFFF, 1 << 31])
def test_wild_acknowledgements_do_no_harm(acknowledged):
    link = HostLink(1)
    link.push(packet(1))
    link.datagrams(0.0)
    link.heard(0xFFFFFFFF, acknowledged, 0, 0.0, 100)
    assert link._under_way_bytes >= 0
    link.push(packet(2))
    link.datagrams(STALL)
    assert link.queued <= 1
    link.restart()
    link.datagrams(STALL)
    assert link.idle


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 300), st.booleans()), max_size=30))
def test_blocks_and_single_packets_arrive_in_order(parts):
    pair, sent = Pair(room=WINDOW + 66_000), 0
    for count, size, block in parts:
        packets = [packet(sent + i, size) for i in range(count)]
        if block and count:
            assert pair.a.push_rows(b"".join(packets), len(packets[0])) == count
        else:
            assert all(pair.a.push(each) for each in packets)
        sent += count
        assert pair.a.queued == sent
    for _ in range(400):
        pair.turn()
    assert pair.got == list(range(sent))
    assert pair.a.idle
    assert pair.a.queued == pair.a.statistics().queued_packets == 0
    assert pair.a.sent_packets == sent


def test_what_of_a_block_does_not_fit_is_dropped_and_counted():
    link = HostLink(1, max_packets=10, max_bytes=1 << 20)
    assert link.push(packet(0))
    assert link.push_rows(b"".join(packet(i) for i in range(1, 15)), len(packet(0))) == 9
    assert not link.push(packet(15))
    assert (link.queued, link.dropped) == (10, 6)
    full = HostLink(1, max_bytes=3 * len(packet(0)))
    assert full.push_rows(b"".join(packet(i) for i in range(5)), len(packet(0))) == 3
    assert full.dropped == 2


@given(st.data())
def test_a_number_is_left_out_exactly_where_packets_were_dropped(data):
    link, other = HostLink(1, max_packets=6), HostLink(1)
    story, dropped, count = [], [], 0

    def send():
        for each in map(decode, link.datagrams(0.0)):
            before = other.lost
            other.heard(each.sequence, 0, 64, 0.0, 100)
            story.extend(["hole"] * (other.lost > before))
            story.extend(each.sequence for each in each.packets)
        link.heard(0, link._next - 1, 64, 0.0, 100)

    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            rows = data.draw(st.integers(1, 9))
            taken = link.push_rows(b"".join(packet(count + i) for i in range(rows)), len(packet(0)))
            dropped += range(count + taken, count + rows)
            count += rows
        else:
            dropped += [] if link.push(packet(count)) else [count]
            count += 1
        if data.draw(st.booleans()):
            send()
    send()
    assert [each for each in story if each != "hole"] == [n for n in range(count) if n not in dropped]
    for i, each in enumerate(story):
        before = next((n for n in reversed(story[:i]) if n != "hole"), -1)
        if each == "hole":
            assert before + 1 in dropped
        elif each > before + 1:
            assert "hole" in story[story.index(before) + 1 if before >= 0 else 0 : i]
    assert ("hole" in story) == bool(dropped)
