"""The datagram format: round trips, limits, and any bytes at all."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.seal import SEAL
from sievenet.dataplane.packet import (
    DATAGRAM_HEADER,
    FULL_DATAGRAM,
    MAX_BODY,
    MAX_DATAGRAM,
    MAX_NUMBER,
    PACKET_HEADER,
    Kind,
    Packet,
    decode,
    encode,
    encode_datagram,
    encode_packet,
    publisher_of,
)
from sievenet.errors import CodecError, InvalidInput

u64 = st.integers(0, (1 << 64) - 1)
packets = st.builds(
    Packet,
    st.integers(0, 0xFFFF),
    st.integers(0, (1 << 128) - 1),
    u64,
    st.integers(0, MAX_NUMBER),
    st.integers(0, MAX_NUMBER),
    st.integers(0, 255),
    st.binary(max_size=300),
    u64,
)


@given(u64, st.lists(packets, max_size=20))
def test_round_trip(token, sent):
    datagrams = encode(token, sent)
    got = [decode(d) for d in datagrams]
    assert [p for d in got for p in d.packets] == sent
    assert {d.token for d in got} == {token}
    assert all(d.kind is (Kind.DATA if sent else Kind.HELLO) for d in got)


@given(st.lists(packets, min_size=1, max_size=3), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_header_fields(sent, sequence, acknowledged):
    data = encode_datagram(7, map(encode_packet, sent), sequence=sequence, acknowledged=acknowledged, window=9)
    got = decode(data)
    assert (got.sequence, got.acknowledged, got.window) == (sequence, acknowledged, 9)
    assert len(data) == DATAGRAM_HEADER + sum(p.size for p in sent)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_datagram_or_an_error(data):
    with contextlib.suppress(CodecError):
        decode(data)


@given(st.lists(packets, min_size=1, max_size=3), st.data())
def test_damaged_datagrams_are_a_datagram_or_an_error(sent, data):
    good = encode(1, sent)[0]
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        decode(bytes(bad))


@given(st.lists(packets, min_size=1, max_size=3), st.data())
def test_truncated_and_extended_datagrams_are_errors(sent, data):
    good = encode(1, sent)[0]
    with pytest.raises(CodecError):
        decode(good[: data.draw(st.integers(0, len(good) - 1))])
    with pytest.raises(CodecError):
        decode(good + data.draw(st.binary(min_size=1, max_size=60)))


def test_limits():
    most = Packet(1, 0, 0, 0, 0, 0, b"x" * MAX_BODY)
    (datagram,) = encode(1, [most])
    assert len(datagram) == MAX_DATAGRAM - SEAL
    assert decode(datagram).packets == [most]
    with pytest.raises(InvalidInput, match="at most"):
        encode(1, [Packet(1, 0, 0, 0, 0, 0, b"x" * (MAX_BODY + 1))])
    with pytest.raises(InvalidInput):
        encode_datagram(1, [b"x" * MAX_DATAGRAM])
    with pytest.raises(CodecError, match=r"bytes"):
        decode(bytes(MAX_DATAGRAM + 1))


@pytest.mark.parametrize(
    "packet",
    [Packet(70000, 0, 0, 0, 0), Packet(1, 1 << 128, 0, 0, 0), Packet(1, 0, -1, 0, 0), Packet(1, 0, 0, 0, 0, 256)],
)
def test_numbers_that_do_not_fit(packet):
    with pytest.raises(InvalidInput):
        encode_packet(packet)


def test_many_packets_make_several_datagrams():
    sent = [Packet(1, i, 2, i, 0, 0, b"y" * 1000) for i in range(100)]
    datagrams = encode(1, sent)
    assert len(datagrams) > 5
    assert all(len(d) <= FULL_DATAGRAM for d in datagrams)


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [(0, 0, "magic"), (2, 9, "version"), (3, 7, "kind"), (4, 255, "room"), (DATAGRAM_HEADER + 5, 1, "body")],
)
def test_errors_name_what_is_wrong(at, value, says):
    data = bytearray(encode(1, [Packet(1, 2, 3, 4, 5, 0, b"abc")])[0])
    data[at] = value
    with pytest.raises(CodecError, match=says):
        decode(bytes(data))
    assert PACKET_HEADER == 54


def test_publishers_follow_from_tokens_and_do_not_show_them():
    numbers = {publisher_of(token) for token in range(1000)}
    assert len(numbers) == 1000
    assert publisher_of(5) == publisher_of(5) != 5
