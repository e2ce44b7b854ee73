"""Headers and control messages: round trips, and bytes that are not what they claim to be."""

import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.errors import CodecError, InvalidInput
from sievenet.transport import control as c
from sievenet.transport.codec import (
    MAX_DIGEST,
    MAX_RECORD,
    NO_RECORD,
    Control,
    Header,
    Kind,
    Record,
    checked,
    decode_header,
    encode_header,
    kind_of,
)
from tests.seeds import examples

U64 = st.integers(0, (1 << 64) - 1)
U63 = st.integers(0, (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
F32 = st.floats(0, 1e6, width=32)
TIMES = st.floats(0, 1e12, exclude_max=True)


@st.composite
def records(draw, most=8):
    width = draw(st.integers(1, 64))
    entries = draw(st.lists(st.tuples(U32, st.integers(0, (1 << 8 * width) - 1)), max_size=most))
    return Record.of(entries, width), entries


controls = st.none() | st.builds(Control, U64, F32, F32, st.floats(-1e9, 1e9))


@given(U64, U32, st.integers(0, (1 << 63) - 1), TIMES, U32, records(), controls, st.booleans(), st.binary(max_size=40))
def test_header_round_trip(publisher, epoch, sequence, departure, previous, record, control, digest, body):
    header = Header(publisher, epoch, sequence, departure, previous, record[0], control, digest)
    if digest:
        body = b""
    data = encode_header(header) + body
    found, at = decode_header(data)
    assert found == header
    assert data[at:] == body
    age = previous
    for (seconds, bits), (apart, wanted) in zip(found.record.walk(previous, len(record[1])), record[1], strict=True):
        assert seconds == pytest.approx(age * 1e-6)
        assert bits == wanted
        age += apart


flows = st.integers(1, 64).flatmap(
    lambda w: st.builds(c.FlowRequest, st.integers(0, (1 << 8 * w) - 1), st.just(w), F32)
)
HEADER = encode_header(Header(7, 1, 3, 2.0, 10))
messages = st.one_of(
    st.integers(1, 64).flatmap(
        lambda w: st.builds(
            c.Request,
            U64,
            U32,
            U63,
            U64,
            st.integers(0, 255),
            st.floats(0, 10, width=32),
            st.floats(0, 3600, width=32),
            st.integers(0, (1 << 8 * w) - 1),
            st.just(w),
        )
    ),
    st.builds(c.Repair, U64, U64, st.binary(max_size=50).map(lambda b: HEADER + b)),
    st.tuples(U64, U32, U63, U63).map(lambda t: c.Gone(t[0], t[1], min(t[2:]), max(t[2:]))),
    st.tuples(U64, U32, U63, st.binary(max_size=50)).map(lambda t: c.Gone(t[0], t[1], t[2], t[2], t[3])),
    st.tuples(U64, U32, U63, U63, U64).map(lambda t: c.Inquiry(t[0], t[1], min(t[2:4]), max(t[2:4]), t[4])),
    st.builds(c.Feedback, U64, U64, TIMES, st.lists(flows, max_size=5).map(tuple)),
    st.builds(c.Echo, U64, U64, TIMES, st.booleans()),
)


@given(messages)
def test_control_round_trip(message):
    assert c.decode(c.encode(message)) == message


@settings(max_examples=examples(300))
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_decoded(data):
    for read in (decode_header, c.decode, kind_of):
        with suppress(CodecError):
            read(data)


@settings(max_examples=examples(300))
@given(messages, st.data())
def test_damaged_messages_are_refused(message, data):
    raw = bytearray(c.encode(message))
    match data.draw(st.sampled_from(["cut", "flip", "grow"])):
        case "cut":
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        case "flip":
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case _:
            raw += data.draw(st.binary(min_size=1, max_size=8))
    with pytest.raises(CodecError):
        c.decode(bytes(raw))


@given(records(), controls, st.booleans(), st.data())
def test_a_flipped_bit_anywhere_in_a_header_is_noticed(record, control, digest, data):
    raw = bytearray(encode_header(Header(1, 2, 3, 4.0, 5, record[0], control, digest)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CodecError):
        decode_header(bytes(raw) + (b"" if digest else b"body"))


@given(st.integers(0, 49))
def test_truncated_header_is_refused(size):
    data = encode_header(Header(1, 1, 1, 1.0, 1, Record.of([(1, 3)], 4), Control(1, 1.0, 1.0, 0.0)))
    with pytest.raises(CodecError):
        decode_header(data[: min(size, len(data) - 1)])


def patched(**changes):
    fields = {"departure": 1.0, "sequence": 1, "width": 0, "count": 0, "first": 0x21, "flags": 0} | changes
    data = struct.pack(
        ">BBQIQdIBH", fields["first"], fields["flags"], 1, 1, fields["sequence"], fields["departure"], 0,
        fields["width"], fields["count"],
    )  # fmt: skip
    return checked(data + bytes(fields["count"] * (4 + fields["width"]))) + b"x" * 100


def test_a_header_made_by_hand_is_a_good_one():
    assert decode_header(patched(width=16, count=2))[0].sequence == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"departure": math.nan}, {"departure": math.inf}, {"departure": -1.0}, {"departure": 1e300},
        {"sequence": 1 << 63}, {"width": 65, "count": 1}, {"width": 16, "count": MAX_RECORD + 1},
        {"first": 0x11}, {"first": 0x23}, {"flags": 2}, {"width": 0, "count": 3},
        {"first": 0x22, "width": 1, "count": MAX_DIGEST + 1}, {"first": 0x22},
    ],
)  # fmt: skip
def test_absurd_headers_are_refused(changes):
    with pytest.raises(CodecError):
        decode_header(patched(**changes))


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, 1e30])
def test_absurd_rates_are_refused(rate):
    control = Control(1, 1.0, 1.0, 0.0)
    data = bytearray(encode_header(Header(1, 1, 1, 1.0, 1, NO_RECORD, control)))
    data[37 + 8 : 37 + 12] = struct.pack(">f", rate)
    with pytest.raises(CodecError, match="rates"):
        decode_header(checked(bytes(data[:-4])))
    feedback = bytearray(c.encode(c.Feedback(1, 2, 3.0, (c.FlowRequest(5, 2, 1.0),))))
    feedback[27:31] = struct.pack(">f", rate)
    with pytest.raises(CodecError, match="rate"):
        c.decode(checked(bytes(feedback[:-4])))


def test_unencodable_values_are_refused():
    with pytest.raises(InvalidInput):
        encode_header(Header(1 << 64, 1, 1, 1.0, 1))
    with pytest.raises(InvalidInput):
        c.encode(c.Gone(1, 1 << 40, 1, 1))


def test_other_kinds_are_refused():
    with pytest.raises(CodecError):
        c.decode(HEADER)
    with pytest.raises(CodecError):
        c.decode(c.encode(c.Echo(1, 2, 3.0)) + b"x")
    with pytest.raises(CodecError):
        c.decode(b"\x24" + bytes(70_000))
    with pytest.raises(CodecError):
        c.decode(c.encode(c.Repair(1, 2, encode_header(Header(1, 1, 1, 1.0, 1, digest=True)))))
    assert kind_of(HEADER) is Kind.DATA
