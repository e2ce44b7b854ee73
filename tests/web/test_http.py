"""HTTP and WebSocket as programs use them: publish, subscribe, resume, errors, limits."""

import asyncio
import base64
import contextlib
import json
import logging
import random

import aiohttp
import msgspec
import pytest

import sievenet
from sievenet.web import handlers
from sievenet.web.throttle import Throttle
from tests.seeds import seeds
from tests.web.harness import READING, Events, events, publish, reading, run, served


def test_what_is_published_by_http_reaches_http_and_the_client_library():
    async def test():
        async with (
            served() as (daemon, _, http),
            sievenet.connect(daemon.url, host="h3") as node,
            events(http, "reading: x < 10") as stream,
        ):
            feed = await node.subscribe("reading: x < 10")
            assert await publish(http, reading(7)) == (200, {"published": 1})
            assert await publish(http, [reading(500), reading(8)]) == (200, {"published": 2})
            assert await stream.values(2) == [7, 8]
            assert [(await anext(feed))["x"] for _ in range(2)] == [7, 8]
            await node.advertise(READING)
            await node.publish(READING.event(x=3, y=0.5, kind="cold"))
            name, data = await stream.next()
            assert (name, data["event"], data["schema"]) == ("event", reading(3, kind="cold"), "reading")

    run(test())


def test_json_lines_are_published_as_they_come_and_a_bad_one_is_named():
    async def test():
        async with served() as (_, _, http), events(http, "reading") as stream:
            seen = asyncio.Event()

            async def body():
                yield json.dumps(reading(1)).encode() + b"\n"
                # What came is published before the body ends.
                await seen.wait()
                yield json.dumps(reading(2)).encode() + b"\n"

            headers = {"Content-Type": "application/x-ndjson"}

            async def post(data):
                async with http.post("/publish/reading", data=data, headers=headers) as response:
                    return response.status, await response.json()

            going = asyncio.create_task(post(body()))
            assert await stream.values(1) == [1]
            seen.set()
            assert await going == (200, {"published": 2})
            status, answer = await post("\n".join([json.dumps(reading(3)), "{}", json.dumps(reading(4))]))
            assert (status, answer["published"]) == (400, 1)
            assert "line 2" in answer["error"]["message"]
            assert await stream.values(2) == [2, 3]

    run(test())


def test_payloads_go_both_ways():
    async def test():
        async with served() as (_, _, http), events(http, "reading") as stream:
            payload = base64.b64encode(b"hello \x00").decode()
            assert (await publish(http, {"event": reading(1), "payload": payload}))[0] == 200
            assert (await stream.next())[1]["payload"] == payload
            for wrong in ("?", "é", 5):
                status, answer = await publish(http, {"event": reading(1), "payload": wrong})
                assert status == 400
                assert "a payload in base64" in answer["error"]["message"]

    run(test())


def test_errors_are_json_and_say_what_was_expected():
    wrong = [
        ("/subscribe", 400, "filter"),
        ("/subscribe?filter=nothing", 404, "nothing"),
        ("/subscribe?filter=reading: x > ", 400, "x >"),
        ("/explain", 400, "event"),
        ("/explain?event=reading: x=1, y=2, kind=hot", 400, "y"),
        ("/flows/s99", 400, "a switch"),
        ("/schemas/none", 404, "none"),
        ("/clients/none", 400, "a client ("),
        (f"/subscribe?filter={'a' * 5000}", 404, "at most 256 characters"),
        ("/nowhere", 404, "Not Found"),
        ("/publish/reading", 405, "Method Not Allowed"),
    ]

    async def test():
        async with served() as (_, _, http):
            for path, status, says in wrong:
                async with http.get(path) as response:
                    assert response.status == status, path
                    said = (await response.json())["error"]
                    assert says in said["message"]
                    # What was got is shown once, however many processes it has passed.
                    assert not said.get("got", "").startswith("\"'"), said

    run(test())


def test_bad_events_publish_nothing():
    async def test():
        async with served() as (_, server, http), events(http, "reading") as stream:
            for rows in ([reading(1), {"x": 1}], [reading(1), reading(5000)], "x", 7, [[]], {"x": [1]}, None):
                status, answer = await publish(http, rows)
                assert (status, answer["error"]["kind"]) == (400, "EventError"), rows
            async with http.post("/publish/reading", data=b"\xff{") as response:
                assert response.status == 400
            assert (await publish(http, reading(1), category="other"))[0] == 404
            assert (await publish(http, reading(2)))[0] == 200
            assert await stream.values(1) == [2]
            assert sum(channel.events for channel in server.residents.channels) == 1

    run(test())


def test_whoever_comes_back_misses_nothing():
    async def test():
        async with served() as (_, server, http):
            async with events(http, "reading") as stream:
                await publish(http, [reading(x) for x in range(5)])
                assert await stream.values(3) == [0, 1, 2]
                last = stream.last
            await publish(http, [reading(x) for x in range(5, 9)])
            async with events(http, "reading", last) as stream:
                assert await stream.values(6) == [3, 4, 5, 6, 7, 8]
            # Before the first event too: the opening message has an identifier.
            async with events(http, "reading") as stream:
                last = stream.last
            await publish(http, reading(9))
            async with events(http, "reading", last) as stream:
                assert await stream.values(1) == [9]
            # One subscription for all of them.
            assert len(server.residents.channels) == 1

    run(test())


def test_what_is_gone_from_the_window_is_told():
    async def test():
        async with served(web__window=2000) as (_, _, http):
            async with events(http, "reading") as stream:
                await publish(http, reading(0))
                assert await stream.values(1) == [0]
                last = stream.last
            await publish(http, [reading(x) for x in range(1, 101)])
            async with events(http, "reading", last) as stream:
                found = await stream.values(100)
                missed = found.count(None)
                assert 80 < missed < 100
                assert found[missed:] == list(range(1 + missed, 101))
            # Of another life nobody knows what was missed; that is said.
            headers = {"Last-Event-ID": "dead-7"}
            async with http.get("/subscribe", params={"filter": "reading"}, headers=headers) as response:
                stream = Events(response)
                assert (await stream.next())[0] == "open"
                name, data = await stream.next()
                assert (name, data["missed"]) == ("missed", None)

    run(test())


@pytest.mark.parametrize("seed", seeds(2))
def test_every_stream_gets_what_its_filter_matches(seed):
    """Many filters, connections that break and come back, other plans: what brute force says, in order, once."""

    async def test():
        rng = random.Random(seed)
        spans = [sorted(rng.sample(range(1000), 2)) for _ in range(12)]
        rows = [reading(rng.randrange(1000)) for _ in range(400)]
        async with (
            served(control__forwarding_delay=0.05) as (daemon, _, http),
            sievenet.connect(daemon.url, host="h3") as node,
        ):
            await node.advertise(READING)

            async def change():
                for bits in (6, 12):
                    async with http.post(f"/plans/reading?regular={bits}") as response:
                        assert response.status == 200

            async def follow(low, high, ready):
                wanted = [row["x"] for row in rows if low <= row["x"] <= high]
                found, last, turn = [], "", random.Random(seed + low)
                while len(found) < len(wanted):
                    async with events(http, f"reading: x in {low}..{high}", last) as stream:
                        ready.set()
                        found += await stream.values(min(turn.randrange(1, 40), len(wanted) - len(found)))
                        last = stream.last
                ready.set()
                assert found == wanted

            flags = [asyncio.Event() for _ in spans]
            async with asyncio.TaskGroup() as group:
                for (low, high), flag in zip(spans, flags, strict=True):
                    group.create_task(follow(low, high, flag))
                for flag in flags:
                    await flag.wait()
                group.create_task(change())
                for row in rows:
                    await node.publish(READING.event(**row))
                    await asyncio.sleep(0.001)

    run(test())


def test_a_client_that_does_not_read_holds_nobody_up_and_is_told_what_it_missed():
    async def test():
        async with served(web__window=50_000) as (_, server, http):
            reader, writer = await asyncio.open_connection(*server.door.address, limit=1 << 10)
            writer.write(b"GET /subscribe?filter=reading HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"event: open")
            big = {"event": reading(1), "payload": base64.b64encode(bytes(3000)).decode()}
            count, quick_got = 0, 0
            async with events(http, "reading") as quick:
                (channel,) = server.residents.channels
                # Until what the kernel and our side hold for it is full, and the window has moved on.
                while not any(stream.full for stream in channel.streams) or count < 3000:
                    status, answer = await publish(http, [big] * 10)
                    assert status == 200
                    count += answer["published"]
                    for _ in range(10):
                        assert (await quick.next())[0] == "event"
                        quick_got += 1
                for _ in range(10):
                    count += (await publish(http, [big] * 10))[1]["published"]
                    quick_got += len(await quick.values(10))
            assert quick_got == count
            assert channel.window.held <= 50_000 + 5000
            got = missed = 0
            text = b""
            async with asyncio.timeout(60):
                while got + missed < count:
                    text += await reader.read(1 << 16)
                    *whole, text = text.split(b"\n\n")
                    for each in whole:
                        if b"event: missed" in each:
                            missed += json.loads(each.split(b"data: ")[1])["missed"]
                        elif b"data: {" in each and b'"filter"' not in each:
                            got += 1
            assert got + missed == count
            assert missed > 0
            writer.close()

    run(test())


@pytest.mark.parametrize("content", ["", ": x < 10"])
def test_the_same_filter_of_two_categories_is_two_streams(content):
    async def test():
        async with served() as (_, _, http):
            async with http.post("/schemas", data=READING.to_json().replace(b'"reading"', b'"other"')) as response:
                assert response.status == 201
            async with events(http, f"reading{content}") as first, events(http, f"other{content}") as second:
                await publish(http, reading(1))
                await publish(http, reading(2), "other")
                assert await first.values(1) == [1]
                assert await second.values(1) == [2]

    run(test())


def test_a_websocket_subscribes_publishes_and_resumes():
    async def test():
        async with served() as (_, _, http):
            async with http.ws_connect("/subscribe?filter=reading: x < 100") as socket:
                opened = await socket.receive_json(timeout=20)
                assert (opened["type"], opened["data"]) == ("open", {"filter": "reading: x <= 99"})
                await socket.send_json({"publish": "reading", "events": [reading(1), reading(500)], "ref": 7})
                said = [await socket.receive_json(timeout=20) for _ in range(2)]
                by_type = {each["type"]: each for each in said}
                assert by_type["published"]["data"] == {"published": 2, "ref": 7}
                assert by_type["event"]["data"]["event"] == reading(1)
                await socket.send_json({"publish": "reading", "event": {"x": 1}, "ref": 8})
                said = await socket.receive_json(timeout=20)
                assert (said["type"], said["data"]["ref"]) == ("error", 8)
                await socket.send_str("no JSON")
                assert (await socket.receive_json(timeout=20))["type"] == "error"
                last = by_type["event"]["id"]
            await publish(http, reading(2))
            async with http.ws_connect(f"/subscribe?filter=reading: x < 100&last_event_id={last}") as socket:
                assert (await socket.receive_json(timeout=20))["type"] == "open"
                assert (await socket.receive_json(timeout=20))["data"]["event"] == reading(2)

    run(test())


def test_questions_have_the_answers_of_the_command_line():
    async def test():
        async with (
            served() as (daemon, _, http),
            sievenet.connect(daemon.url, name="n", host="h3") as node,
            sievenet.connect(daemon.url, name="p", host="h1") as publisher,
        ):
            await node.subscribe("reading: x < 10")
            await publisher.advertise(READING)
            async with http.get("/explain", params={"event": "reading: x=5, y=0.5, kind=hot"}) as response:
                found = await response.json()
            assert [hop["switch"] for hop in found["hops"]] == ["s1", "s2", "s3"]
            assert [each["client"] for each in found["delivered"]] == ["n"]
            async with http.get("/flows/s2") as response:
                assert (await response.json())["flows"][0]["category"] == "reading"
            async with http.get("/clients/n") as response:
                assert (await response.json())["clients"][0]["subscriptions"] == ["reading: x <= 9"]
            async with http.get("/schemas") as response:
                assert [each["name"] for each in await response.json()] == ["reading"]
            async with http.post("/schemas", data=READING.to_json().replace(b'"reading"', b'"other"')) as response:
                assert response.status == 201
            async with http.post("/schemas", data=b"{}") as response:
                assert response.status == 400
            async with http.get("/schemas/other") as response:
                assert (await response.json())["name"] == "other"
            async with http.get("/plans/reading") as response:
                before = await response.json()
            async with http.post("/plans/reading?regular=8") as response:
                assert (await response.json())["epoch"] == 2
            async with http.get("/plans/reading") as response:
                assert await response.json() != before
            async with http.post("/plans/reading", json=before) as response:
                assert (await response.json())["epoch"] == 3
            for wrong in ("?builtin=../secret", "?builtin=/etc/hosts", "?regular=x", ""):
                async with http.post(f"/plans/reading{wrong}", data=b"{}") as response:
                    assert response.status == 400

    run(test())


def test_what_nobody_uses_is_taken_back():
    async def test():
        async with served(web__linger=0.3) as (daemon, server, http):
            async with events(http, "reading"):
                assert await publish(http, reading(1)) == (200, {"published": 1})
                assert len(daemon.plane.clients()) == 1
            async with asyncio.timeout(20):
                while daemon.plane.clients():
                    await asyncio.sleep(0.05)
            assert not server.residents.channels
            async with events(http, "reading") as stream:
                await publish(http, reading(2))
                assert await stream.values(1) == [2]

    run(test())


def test_limits_hold():
    async def test():
        changes = {"web__max_streams": 3, "web__max_filters": 2, "web__max_body": 1000, "web__max_connections": 20}
        async with served(**changes) as (_, server, http):
            async with contextlib.AsyncExitStack() as stack:
                for wanted in ("reading: x < 1", "reading: x < 1", "reading: x < 2"):
                    await stack.enter_async_context(events(http, wanted))
                async with http.get("/subscribe?filter=reading") as response:
                    assert response.status == 429
            async with asyncio.timeout(20):
                while server.residents.streams:
                    await asyncio.sleep(0.01)
            async with http.get("/subscribe?filter=reading: x < 3") as response:
                assert response.status == 403
                assert "different filters" in await response.text()
            assert (await publish(http, [reading(1)] * 100))[0] == 413
            async with http.get("/status", headers={"X-Long": "x" * 9000}) as response:
                assert response.status == 400
            async with http.get("/status", headers={f"X-{i}": "x" for i in range(200)}) as response:
                assert response.status == 400
            # Connections that say nothing take no more than there is, and the rest is told.
            opened = [await asyncio.open_connection(*server.door.address) for _ in range(25)]
            async with asyncio.timeout(20):
                tasks = [asyncio.create_task(reader.read(12)) for reader, _ in opened]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                while server.door.turned_away < 5:
                    await asyncio.sleep(0.01)
            assert any(task.done() and task.result() == b"HTTP/1.1 503" for task in tasks)
            assert server.door.turned_away < 25
            for task in tasks:
                task.cancel()
            for _, writer in opened:
                writer.close()

    run(test())


DEEP = '{"x": ' * 20_000 + "1" + "}" * 20_000


def test_json_that_is_nested_too_deeply_is_refused_like_any_other(caplog):
    async def test():
        async with served(web__max_line=1 << 18) as (_, _, http):
            for kind in ("application/json", "application/x-ndjson"):
                for body in (DEEP, "[" * 20_000 + "]" * 20_000):
                    async with http.post("/publish/reading", data=body, headers={"Content-Type": kind}) as response:
                        assert response.status == 400
                        assert "nested too deeply" in (await response.json())["error"]["message"]
            async with http.ws_connect("/subscribe") as socket:
                await socket.send_str(f'{{"publish": "reading", "event": {DEEP}}}')
                said = await socket.receive_json(timeout=20)
                assert said["type"] == "error"
                await socket.send_json({"publish": "reading", "event": reading(1), "ref": 7})
                assert (await socket.receive_json(timeout=20))["data"] == {"published": 1, "ref": 7}

    run(test())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_one_filter_is_one_filter():
    async def test():
        async with (
            served() as (_, _, http),
            http.get("/subscribe?filter=reading&filter=reading: x < 5") as response,
        ):
            assert response.status == 400
            assert "one filter" in await response.text()

    run(test())


def test_garbage_does_no_harm(caplog):
    async def test():
        async with served() as (_, server, http):
            rng = random.Random(1)
            good = b"POST /publish/reading HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{}   "
            for _ in range(60):
                data = bytearray(good)
                for _ in range(rng.randrange(1, 8)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                _, writer = await asyncio.open_connection(*server.door.address)
                writer.write(bytes(data) if rng.random() < 0.7 else rng.randbytes(200))
                await writer.drain()
                writer.close()
            reader, writer = await asyncio.open_connection(*server.door.address)
            writer.write(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()
            assert (await publish(http, reading(1)))[0] == 200

    run(test())
    # Strangers do not fill the log.
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_that_is_not_what_its_head_says_is_refused_and_fills_no_log(caplog):
    async def test():
        async with served() as (_, server, http):
            for encoding in ("gzip", "deflate"):
                headers = {"Content-Encoding": encoding}
                for path, kind in (
                    ("/sign-in", "application/json"),
                    ("/schemas", "application/json"),
                    ("/plans/reading", "application/json"),
                    ("/publish/reading", "application/json"),
                    ("/publish/reading", "application/x-ndjson"),
                ):
                    said = headers | {"Content-Type": kind}
                    async with http.post(path, data=b"not compressed", headers=said) as response:
                        assert response.status == 400, path
                        assert encoding in (await response.json())["error"]["message"]
                # Where nobody reads the body.
                said = headers | {"Connection": "close"}
                async with http.request("GET", "/healthz", data=b"not compressed", headers=said) as response:
                    assert response.status == 200
            reader, writer = await asyncio.open_connection(*server.door.address)
            head = b"POST /publish/reading HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head + b"zz\r\nno chunk\r\n")
            assert b" 400 " in await reader.readline()
            writer.close()
            assert (await publish(http, reading(1)))[0] == 200

    run(test())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_tracebacks_are_logged_once_a_second_and_the_rest_is_counted():
    throttle = Throttle()

    def logged(created):
        record = logging.makeLogRecord({"msg": "error at %s", "args": ("/",), "exc_info": (None,) * 3})
        record.created = created
        return record.getMessage() if throttle.filter(record) else None

    assert [logged(created) for created in (10.0, 10.1, 10.2, 11.5)] == [
        "error at /",
        None,
        None,
        "error at / (2 more since the last one)",
    ]
    assert throttle.filter(logging.makeLogRecord({"msg": "no traceback"}))


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(handlers, "_MORE", 0.3)

    async def test():
        async with served() as (_, server, http):
            head = b"POST /publish/reading HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
            reader, writer = await asyncio.open_connection(*server.door.address)
            writer.write(head + b"\r\n{")
            assert b" 408 " in await reader.readline()
            writer.close()
            # JSON lines may come whenever they like.
            reader, writer = await asyncio.open_connection(*server.door.address)
            line = msgspec.json.encode(reading(7)) + b"\n"
            writer.write(head.replace(b"50", b"%d" % (2 * len(line))))
            writer.write(b"Content-Type: application/x-ndjson\r\n\r\n" + line)
            async with events(http, "reading") as stream:
                await asyncio.sleep(0.5)
                writer.write(line)
                assert b" 200 " in await reader.readline()
                assert await stream.values(1) == [7]
            writer.close()

    run(test())


def test_browsers_of_other_sites_get_nothing():
    async def test():
        async with served() as (_, server, http):
            foreign = (
                {"X-Forwarded-For": "10.1.2.3"},
                {"Host": "evil.example"},
                {"Origin": "http://evil.example"},
                {"Sec-Fetch-Site": "cross-site"},
            )
            for headers in foreign:
                async with http.get("/status", headers=headers) as response:
                    assert response.status == 403
                assert (await publish(http, reading(1), headers=headers))[0] == 403
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await http.ws_connect("/subscribe?filter=reading", headers=headers)
            async with http.get("/") as response:
                assert response.status == 200
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
                assert response.headers["Server"] == "sievenet"
            assert server.url.startswith("http://127.0.0.1:")

    run(test())
