"""Strangers and members who speak HTTP and WebSocket up to a point and then go wrong, beside an honest pair.

A stranger's connection begins with sound requests, or with a sound upgrade to a WebSocket and sound messages; then
something is damaged: a head, a body, a length, a frame, JSON. Whatever happens, the honest pair's events all arrive
once and in order, nothing is an internal error, and at the end nothing of the strangers is left.
"""

import asyncio
import base64
import contextlib
import json
import os
import random
import struct

import pytest

import sievenet
from sievenet.access.login import load_login
from sievenet.web.routes import ROUTES
from tests.access.harness import folder
from tests.fabric.harness import eventually
from tests.fuzz import connection, damaged
from tests.seeds import seeds
from tests.web.harness import READING, events, publish, reading, run, served

BODIES = (
    b"{}",
    b"[]",
    json.dumps(reading(900)).encode(),
    b'{"x": 1e999, "y": "no", "kind": null}',
    b'{"x":1}\n{"x":2}\nnot json\n',
    b"\xff\xfe\x00",
    b"[" * 3000,
    json.dumps([reading(1)] * 3).encode(),
)
KINDS = (b"application/json", b"application/x-ndjson", b"text/plain", b"multipart/form-data; boundary=x", b"")


def request(rng, token):
    """A request as a client would send it, to any route."""
    route = rng.choice(ROUTES)
    place = rng.choice((b"reading", b"h1", b"s1", b"nothing", b"%00", b"..%2f", "ä".encode()))
    path = route.path.encode().split(b"{")[0] + (place if "{" in route.path else b"")
    query = rng.choice(
        (
            b"",
            b"?filter=reading",
            b"?filter=reading:%20x%20%3C%205",
            b"?event=reading:%20x=1",
            b"?filter=%ff",
            b"?" + b"a=b&" * 50,
        )
    )
    body = rng.choice(BODIES) if route.method == "POST" or rng.random() < 0.1 else b""
    head = [b"%s %s%s HTTP/1.1" % (route.method.encode(), path, query), b"Host: 127.0.0.1"]
    head += [b"Authorization: Bearer %s" % rng.choice((token, token, b"bob.wrong"))] if token else []
    if rng.random() < 0.2:
        head.append(b"Last-Event-ID: %s" % rng.choice((b"x", b"0-0", b"ffffffff-99999999999999999999", b"\xff")))
    if body:
        head.append(b"Content-Type: " + rng.choice(KINDS))
    if body and rng.random() < 0.3:
        head.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    elif body:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def upgrade(rng, token):
    """The beginning of a WebSocket."""
    key = base64.b64encode(os.urandom(16))
    query = rng.choice((b"", b"?filter=reading", b"?filter=reading:%20x%20%3E%20900"))
    login = b"Authorization: Bearer %s\r\n" % token if token else b""
    return (
        b"GET /subscribe%s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%s"
        b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (query, login, key)
    )


def frame(rng, body, first=0x81):
    """A frame of a client."""
    length, mask = len(body), rng.randbytes(4)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length)
    return bytes([first]) + size + mask + bytes(each ^ mask[i % 4] for i, each in enumerate(body))


def said(rng):
    """A message of a WebSocket, sound or nearly."""
    event = rng.choice((reading(901), reading(-1), {}, 7, None, [reading(1)] * 2))
    what = rng.choice(({"publish": "reading", "event": event}, {"publish": "nothing", "event": event}, {}, [], 7))
    return json.dumps(what).encode()


def strange(rng):
    """Frames that no good client would send."""
    return rng.choice(
        (
            frame(rng, rng.randbytes(30), 0x80 | rng.randrange(16)),
            frame(rng, said(rng), 0x70 | rng.randrange(16)),
            b"\x81\x05hello",  # without a mask
            b"\x81\xff" + struct.pack(">Q", rng.choice((1 << 63, (1 << 63) - 1, 1 << 40))) + bytes(20),
            frame(rng, b"part", 0x01) + frame(rng, said(rng)),  # a second message within the first
            frame(rng, bytes(126), 0x89),  # a ping that is too long
            frame(rng, b"\xff\xfe", 0x88),
            frame(rng, b"\xc3\x28"),
            frame(rng, b"[" * 5000),
            damaged(rng, frame(rng, said(rng))),
            rng.randbytes(60),
        )
    )


async def stranger(rng, server, token, tls):
    """One connection, from its first request to whatever ends it."""
    async with connection(rng, server.door.address, tls) as (reader, writer):
        if rng.random() < 0.5:
            for _ in range(rng.randrange(4)):
                writer.write(request(rng, token))
            for _ in range(rng.randrange(1, 4)):
                writer.write(damaged(rng, request(rng, token)))
        else:
            writer.write(upgrade(rng, token))
            for _ in range(rng.randrange(4)):
                writer.write(frame(rng, said(rng)))
            for _ in range(rng.randrange(1, 4)):
                writer.write(strange(rng))
        await asyncio.wait_for(writer.drain(), 2)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1 << 16), rng.choice((0.01, 0.1)))


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_strangers_who_go_wrong(tmp_path, seed, caplog):
    """Where anybody is an operator, and where members are known; then they are members without rules, or nobody."""
    rng, known = random.Random(seed), seed % 2 == 1
    access = folder(tmp_path) if known else None
    changes = {"access__folder": str(access.path)} if known else {}
    logins = {name: load_login(access.login(name)) for name in ("olga", "carol", "eye")} if known else {}
    headers = {"Authorization": f"Bearer {logins['olga'].token}"} if known else {}
    honest = {"login": access.login("olga")} if known else {}

    async def test():
        async with (
            served(**changes) as (daemon, server, http),
            sievenet.connect(daemon.url, name="olga.pair", **honest) as node,
            events(http, "reading: kind = cold", headers=headers) as stream,
        ):
            feed = await node.subscribe("reading: kind = cold")
            for turn in range(8):
                crowd = []
                for _ in range(5):
                    login = logins[rng.choice(("carol", "eye"))] if known else None
                    token = login.token.encode() if login and rng.random() < 0.8 else b""
                    crowd.append(stranger(rng, server, token, login.dialling() if login else None))
                await asyncio.gather(*crowd)
                rows = [reading(10 * turn + i, kind="cold") for i in range(10)]
                assert await publish(http, rows, headers=headers) == (200, {"published": 10})
            assert await stream.values(80) == list(range(80))
            async with asyncio.timeout(20):
                assert [(await anext(feed))["x"] for _ in range(80)] == list(range(80))
            await eventually(lambda: server.residents.streams == 1)
            await eventually(lambda: server.door.connections <= 3)
            async with http.get("/status", headers=headers) as response:
                assert response.status == 200
            assert daemon.control.category("reading").epoch == 1 or not known
            assert daemon.server.errors == 0

    assert READING.name == "reading"
    run(test())
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
