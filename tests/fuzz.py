"""Going wrong: what a peer may say that speaks a protocol up to a point. Seeded by the random numbers that it is given.

A fuzzer begins as a good peer would, with sound messages in a sound order, and then says one of these. Everything but
the connection works on bytes and plain data, so it is the same for every protocol of `sievenet.session`.
"""

import asyncio
import contextlib
import math

import msgspec

from sievenet.session.framing import frame

WHOLE = (-(1 << 63), -1, 0, (1 << 16) - 1, (1 << 32) - 1, 1 << 32, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63)
EXTREMES = (*WHOLE, (1 << 64) - 1, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324)
OTHERS = (None, "", "x\n", b"\xff", [], {}, True, [[]], "a" * 100, {"type": "Hello"})


@contextlib.asynccontextmanager
async def connection(rng, address, tls=None):
    """Reader and writer, until the other side has had enough; then it takes leave, or breaks off."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        yield reader, writer
        await asyncio.wait_for(writer.drain(), 1)
    except (OSError, TimeoutError):
        pass
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()
        writer.close()


def leaves(value, path=()):
    """The ways to all numbers in plain data."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from leaves(each, (*path, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def put(value, path, new):
    """Plain data with another value at the end of a way."""
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: put(value[path[0]], path[1:], new)}
    return [put(each, path[1:], new) if i == path[0] else each for i, each in enumerate(value)]


def plain(message):
    """A message as plain data, bytes as they are, defaults included."""
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    for name in message.__struct_fields__:
        found.setdefault(name, msgspec.to_builtins(getattr(message, name), builtin_types=(bytes,)))
    return found


def framed(data):
    body = msgspec.msgpack.encode(data)
    return len(body).to_bytes(4, "big") + body


def damaged(rng, data):
    """Bytes, with something flipped, cut off, added or overwritten."""
    data = bytearray(data)
    match rng.randrange(4):
        case 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(len(data)) :]
        case 2:
            data[:4] = rng.randbytes(4)
        case 3:
            data += rng.randbytes(rng.randrange(40))
    return bytes(data)


def wrong(rng, sample):
    """Bytes that no good peer would send, made of a sound message."""
    data, whole = plain(sample), frame(sample)
    match rng.randrange(7):
        case 0 if ways := list(leaves(data)):
            return framed(put(data, rng.choice(ways), rng.choice(EXTREMES)))
        case 1 if len(data) > 1:
            field = rng.choice([key for key in data if key != "type"])
            return framed({**data, field: rng.choice(OTHERS)})
        case 2:
            return whole  # sound, but perhaps not its turn
        case 3:
            return rng.randbytes(rng.randrange(1, 200))
        case 4:
            return rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1\xc1", b"\x7f\xff\xff\xff" + bytes(100)))
        case 5:
            deep = 500
            return (2 * deep).to_bytes(4, "big") + b"\x91" * deep + b"\xc0" * deep
    return damaged(rng, whole)
