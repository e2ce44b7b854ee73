"""Bytes: round trips, one spelling per value, and nothing but `CodecError` for anything else."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.content import (
    Attribute,
    EventBatch,
    Filter,
    Record,
    Schema,
    StringColumn,
    Subscription,
    ValueSet,
    decode_batch,
    decode_event,
    decode_filter,
    decode_record,
    decode_schema,
    decode_subscription,
    encode_batch,
    encode_event,
    encode_filter,
    encode_record,
    encode_schema,
    encode_subscription,
    parse_filter,
)
from sievenet.content.batch_codec import MAX_BATCH
from sievenet.content.binary import Reader, opening, varint, zigzag
from sievenet.content.filter_codec import MAX_CUTS
from sievenet.errors import CodecError
from sievenet.testing import strategies

STOCK = Schema(
    "stock",
    (
        Attribute("symbol", "str", values=("AAPL", "IBM", "MSFT")),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=-5, hi=10_000),
        Attribute("halted", "bool"),
        Attribute("traded", "bool"),
        Attribute("note", "str"),
    ),
    version=300,
)
EVENT = STOCK.event(b"pay", symbol="MSFT", price=421.5, volume=7, halted=True, traded=False, note="né")


def rows(batch):
    return list(batch)


# -- round trips ------------------------------------------------------------------------------


@given(st.data())
def test_events_come_back(data):
    schema = data.draw(strategies.schemas())
    event = data.draw(strategies.events(schema))
    assert decode_event(schema, encode_event(event)) == event


@given(strategies.records())
def test_records_come_back(record):
    found = decode_record(encode_record(record))
    assert found == record
    assert [type(v) for _, v in found.items()] == [type(v) for _, v in record.items()]


@given(st.data(), st.booleans())
def test_filters_and_subscriptions_come_back(data, small):
    schema = data.draw(st.none() | strategies.schemas(small=small))
    each = data.draw(strategies.filters(schema, small))
    assert decode_filter(schema, encode_filter(each)) == each
    many = data.draw(strategies.subscriptions(schema, small))
    assert decode_subscription(schema, encode_subscription(many)) == many


@given(st.data())
def test_equal_filters_have_equal_bytes(data):
    schema = data.draw(strategies.schemas(small=True))
    a, b = data.draw(strategies.filters(schema, small=True)), data.draw(strategies.filters(schema, small=True))
    assert (a == b) == (encode_filter(a) == encode_filter(b))


@given(strategies.schemas())
def test_schemas_come_back(schema):
    assert decode_schema(encode_schema(schema)) == schema
    assert Schema.from_json(schema.to_json()) == schema


@given(st.data())
def test_batches_come_back(data):
    schema = data.draw(strategies.schemas())
    batch = data.draw(strategies.batches(schema))
    found = decode_batch(schema, encode_batch(batch))
    assert rows(found) == rows(batch)
    for mine, theirs in zip(batch.columns, found.columns, strict=True):
        if isinstance(mine, StringColumn):
            assert theirs.codes.dtype == np.int32
        else:
            assert theirs.dtype == mine.dtype
    assert encode_batch(found) == encode_batch(batch)


def test_a_whole_64_bit_domain_comes_back():
    top = (1 << 63) - 1
    schema = Schema("wide", (Attribute("x", "int", lo=-top, hi=top),))
    batch = EventBatch.of(schema, {"x": [-top, -1, 0, 1, top]})
    assert [e["x"] for e in decode_batch(schema, encode_batch(batch))] == [-top, -1, 0, 1, top]
    for each in batch:
        assert decode_event(schema, encode_event(each)) == each
    some = Filter(schema, {"x": ValueSet.of(-top, 3, top)})
    assert decode_filter(schema, encode_filter(some)) == some


def test_sizes_are_compact():
    assert len(encode_event(EVENT)) == 3 + 1 + 8 + 2 + 1 + (1 + 3) + (1 + 3)
    assert encode_event(EVENT)[0] == 0x11
    assert len(encode_filter(Filter(STOCK, {"volume": ValueSet.interval(100, 500)}))) == 3 + 1 + 1 + 1 + 1 + 2


def test_numbers_beyond_64_bits_come_back():
    for value in (1 << 63, -(1 << 1000) - 1, 1e300, 2**53 + 1, 5e-324, -0.0):
        each = Filter(None, {"x": ValueSet.of(value)})
        assert decode_filter(None, encode_filter(each)) == each
    assert encode_filter(Filter(None, {"x": ValueSet.of(5.0)})) == encode_filter(Filter(None, {"x": ValueSet.of(5)}))


# -- anything else ----------------------------------------------------------------------------


@st.composite
def mutated(draw, data):
    """Bytes changed, dropped, added or cut in a few places."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(out)))
        match draw(st.integers(0, 3)):
            case 0 if at < len(out):
                out[at] = draw(st.integers(0, 255))
            case 1:
                out[at:at] = draw(st.binary(min_size=1, max_size=3))
            case 2:
                del out[at : at + draw(st.integers(1, 3))]
            case _:
                del out[at:]
    return bytes(out)


@st.composite
def spoiled(draw, encoded, kind):
    """Arbitrary bytes, arbitrary bytes behind a right start, or a spoiled good message."""
    good = draw(encoded)
    return draw(
        st.one_of(
            st.binary(max_size=60),
            st.binary(max_size=60).map(lambda rest: opening(kind) + rest),
            st.binary(max_size=60).map(lambda rest: good[:3] + rest),
            mutated(good),
        )
    )


def check(data, decode, encode):
    """Bytes decode to something whose bytes they are, or raise the one error."""
    try:
        found = decode(data)
    except CodecError:
        pass
    else:
        assert encode(found) == data
        assert decode(encode(found)) == found


@given(spoiled(strategies.events(STOCK).map(encode_event), 1))
def test_any_bytes_are_an_event_or_an_error(data):
    check(data, lambda d: decode_event(STOCK, d), encode_event)


@given(spoiled(strategies.records().map(encode_record), 2))
def test_any_bytes_are_a_record_or_an_error(data):
    check(data, decode_record, encode_record)


@given(spoiled(strategies.filters(STOCK).map(encode_filter), 3))
def test_any_bytes_are_a_filter_or_an_error(data):
    check(data, lambda d: decode_filter(STOCK, d), encode_filter)


@given(spoiled(strategies.filters(None).map(encode_filter), 3))
def test_any_bytes_are_a_schemaless_filter_or_an_error(data):
    check(data, lambda d: decode_filter(None, d), encode_filter)


@given(spoiled(strategies.subscriptions(None, small=True).map(encode_subscription), 4))
def test_any_bytes_are_a_subscription_or_an_error(data):
    check(data, lambda d: decode_subscription(None, d), encode_subscription)


@given(spoiled(strategies.schemas().map(encode_schema), 5))
def test_any_bytes_are_a_schema_or_an_error(data):
    check(data, decode_schema, encode_schema)


@given(spoiled(strategies.batches(STOCK, 5).map(encode_batch), 6))
def test_any_bytes_are_a_batch_or_an_error(data):
    try:
        found = decode_batch(STOCK, data)
    except CodecError:
        pass
    else:
        assert encode_batch(found) == data
        for event in found:  # in their domains
            STOCK.event_of(dict(event.items()), event.payload)


GOOD = encode_event(EVENT)
TINY = Schema("tiny", (Attribute("x", "int", lo=10, hi=12),))
FLAG = Schema("flag", (Attribute("b", "bool"),))
FREE = Schema("free", (Attribute("s", "str"),))
REAL = Schema("real", (Attribute("f", "float", lo=0, hi=1),))
NAN = struct.pack("<d", float("nan"))


@pytest.mark.parametrize(
    ("decode", "data", "message"),
    [
        (lambda d: decode_event(STOCK, d), b"", "got `no bytes` - at byte 0"),
        (lambda d: decode_event(STOCK, d), "text", "Expected bytes"),
        (lambda d: decode_event(STOCK, d), bytes(1 << 21), "at most 1048576 bytes"),
        (lambda d: decode_event(STOCK, d), b"\x21" + GOOD[1:], "first byte 0x11.*got `0x21`"),
        (lambda d: decode_event(STOCK, d), encode_record(Record({})), "got `0x12`"),
        (lambda d: decode_event(TINY, d), GOOD, "Expected tiny version 1, got `version 300`"),
        (lambda d: decode_event(STOCK, d), GOOD + b"x", "Expected the end, got `1 more bytes`"),
        (lambda d: decode_event(STOCK, d), GOOD[:-1], "Expected 3 more bytes, got 2 - at byte 20 of event of stock"),
        (lambda d: decode_event(TINY, d), b"\x11\x01\x03\x00", r"int in \[10, 12\] for x, got 13"),
        (lambda d: decode_event(TINY, d), b"\x11\x81\x00\x01\x00", "a minimal varint"),
        (lambda d: decode_event(TINY, d), b"\x11" + b"\xff" * 200, "the end of a varint"),
        (lambda d: decode_event(FLAG, d), b"\x11\x01\x02\x00", "1 bools, got `0x2`"),
        (lambda d: decode_event(REAL, d), b"\x11\x01" + NAN + b"\x00", "got nan"),
        (lambda d: decode_event(FREE, d), b"\x11\x01\x01\xff\x00", "Expected UTF-8"),
        (lambda d: decode_event(FREE, d), b"\x11\x01\x81\x20" + b"x" * 4097 + b"\x00", "a number up to 4096"),
        (decode_record, b"\x12\x02\x01b\x00\x01a\x00\x00", "ascending attribute names, got 'a'"),
        (decode_record, b"\x12\x01\x01b\x03" + NAN + b"\x00", "a finite number"),
        (decode_record, b"\x12\x01\x01b\x02" + zigzag(1 << 63) + b"\x00", "a 64-bit whole number"),
        (decode_record, b"\x12\x01\x01b\x05\x00", "a number up to 4"),
        (lambda d: decode_filter(None, d), encode_filter(Filter(TINY)), "a schemaless form, got `version 1`"),
        (lambda d: decode_filter(TINY, d), encode_filter(Filter()), "got `a schemaless form`"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x01\x00\x01\x00", "an even number of cuts"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x01\x00\x00", "an even number of cuts"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x01\x00\x02\x00\x03", "canonical form"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x01\x00\x02\x01\x00", "ascending cuts"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x01\x00\x02\x01\x03", "a number up to 2"),
        (lambda d: decode_filter(TINY, d), b"\x13\x01\x02\x00\x02\x00\x01\x00\x02\x00\x01", "constraints in order"),
        (lambda d: decode_filter(None, d), b"\x13\x00\x01\x01x\x02\x04\x01", "ascending cuts"),
        (lambda d: decode_filter(None, d), b"\x13\x00\x01\x01x\x02\x02\x09\x00", "behind the empty string"),
        (lambda d: decode_filter(None, d), b"\x13\x00\x01\x01x\x02\x02\x07" + NAN, "a finite number"),
        (
            lambda d: decode_filter(None, d),
            b"\x13\x00\x01\x01x\x02\x02\x07" + struct.pack("<d", 5.0),
            "one spelling of a cut, got `before 5.0`",
        ),
        (lambda d: decode_filter(None, d), b"\x13\x00\x01\x01x\x02\x00\x04", "canonical form"),
        (lambda d: decode_filter(None, d), b"\x13\x00\x01\x01x\x02\x02\x05" + zigzag(1 << 60), "one spelling of a cut"),
        (lambda d: decode_filter(STOCK, d), b"\x13\xac\x02\x01\x00\x02\x03\x00", "an ordinal below 3"),
        (
            lambda d: decode_subscription(TINY, d),
            b"\x14\x01\x02\x01\x00\x02\x00\x01\x01\x00\x02\x00\x01",
            "filters in order",
        ),
        (decode_schema, b"\x15\x01", "Expected a schema"),
        (decode_schema, encode_schema(TINY) + b"x", "Expected a schema"),
        (lambda d: decode_batch(TINY, d), b"\x16\x01\x02\x00", "2 more bytes"),
        (lambda d: decode_batch(TINY, d), b"\x16\x01\x02\x00\x03\x00", "for x in row 1, got 13"),
        (lambda d: decode_batch(TINY, d), b"\x16\x01" + varint(MAX_BATCH + 1), "a number up to 1048576"),
        (lambda d: decode_batch(TINY, d), b"\x16\x01\x01\x00\x01\x00\x00", "a payload, got `none`"),
        (lambda d: decode_batch(TINY, d), b"\x16\x01\x01\x00\x01\xff\xff", "payloads of at most 32768 bytes"),
        (lambda d: decode_batch(FLAG, d), b"\x16\x01\x01\x02\x00", "zeros behind the last bool"),
        (lambda d: decode_batch(REAL, d), b"\x16\x01\x01" + NAN + b"\x00", "for f in row 0, got nan"),
        (lambda d: decode_batch(FREE, d), b"\x16\x01\x01\x00\x00\x00", "at least one string"),
        (lambda d: decode_batch(FREE, d), b"\x16\x01\x01\x01\x01a\x01\x00", "string number 1"),
        (lambda d: decode_batch(FREE, d), b"\x16\x01\x02\x02\x01a\x01b\x00\x00\x00", "every string in use"),
        (lambda d: decode_batch(FREE, d), b"\x16\x01\x02\x02\x01a\x01a\x00\x01\x00", "distinct strings, got `1 re"),
    ],
)
def test_bad_bytes_are_refused_with_what_and_where(decode, data, message):
    with pytest.raises(CodecError, match=message):
        decode(data)


def test_schema_errors_say_where():
    bad = encode_schema(TINY).replace(b"\xa2lo\x0a", b"\xa2lo\x0d")
    with pytest.raises(CodecError, match=r"Expected lo <= hi, got \(13, 12\).*\$\.attributes"):
        decode_schema(bad)
    good = encode_schema(Schema("e", (Attribute("x", "str", values=("a", "b")),)))
    unsorted = good.replace(b"\xa1a\xa1b", b"\xa1b\xa1a")
    with pytest.raises(CodecError, match="the shortest form"):
        decode_schema(unsorted)


def test_what_is_too_large_is_not_encoded():
    many = EventBatch.of(TINY, {"x": np.full(MAX_BATCH + 1, 11)})
    with pytest.raises(CodecError, match="at most 1048576 events"):
        encode_batch(many)
    with pytest.raises(CodecError, match="at most 254 constraints"):
        encode_filter(Filter(None, {f"x{i}": ValueSet.of(1) for i in range(255)}))
    with pytest.raises(CodecError, match=f"at most {MAX_CUTS} cuts"):
        encode_filter(Filter(None, {"x": ValueSet.of(*range(MAX_CUTS))}))
    with pytest.raises(CodecError, match="at most 1024 filters"):
        encode_subscription(Subscription(parse_filter(f"x{i} = 1") for i in range(1025)))
    with pytest.raises(CodecError, match="at most 1048576 bytes"):
        encode_filter(Filter(None, {f"x{i}": ValueSet.of("y" * 4096, "z" * 4096) for i in range(250)}))


def test_other_buffers_are_read_too():
    assert decode_event(STOCK, memoryview(GOOD)) == EVENT
    assert decode_event(STOCK, bytearray(GOOD)) == EVENT


@given(st.integers(-(1 << 200), 1 << 200))
def test_varints_come_back(value):
    assert Reader(opening(1) + zigzag(value), 1, "number", 100).zigzag(1 << 200) == value
    assert Reader(opening(1) + varint(abs(value)), 1, "number", 100).varint(1 << 200) == abs(value)
