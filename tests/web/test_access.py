"""The web where members are known: tokens, sign-ins, roles, rules, quotas, what changes while somebody is connected."""

import asyncio
import contextlib
import json

import aiohttp
import msgspec
import pytest

from sievenet.access.login import load_login
from sievenet.errors import InvalidInput
from sievenet.session.pace import Pace
from sievenet.web import handlers
from sievenet.web.routes import ROUTES
from tests.access.harness import RULES, folder, now
from tests.web.harness import READING, Events, events, publish, reading, run, served


def bearer(access, member):
    return {"Authorization": f"Bearer {load_login(access.login(member)).token}"}


def guarded(access, tmp_path, **changes):
    return served(access__folder=str(access.path), access__audit=str(tmp_path / "audit.jsonl"), **changes)


def audit(tmp_path):
    return [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_other_addresses_need_members_that_are_known(address):
    async def test():
        with pytest.raises(InvalidInput, match=r"sievenet keys authority.*--insecure.*web\.listen"):
            async with served(web__listen=address):
                pass

    run(test())


def test_nobody_gets_anything_without_a_name(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (_, server, http):
            assert server.url.startswith("https://")
            for path in ("/status", "/metrics", "/live", "/schemas", "/subscribe?filter=reading", "/explain?event=x"):
                for headers in ({}, {"Authorization": "Bearer alice.s3cr3t"}, {"Authorization": "Basic YTpi"}):
                    async with http.get(path, headers=headers) as response:
                        assert response.status == 401, path
                        assert response.headers["WWW-Authenticate"] == "Bearer"
            assert (await publish(http, reading(1)))[0] == 401
            for path in ("/", "/healthz", "/readyz", "/me"):
                async with http.get(path) as response:
                    assert response.status == 200
        refused = [each for each in audit(tmp_path) if each["outcome"] != "done"]
        assert refused
        assert "s3cr3t" not in (tmp_path / "audit.jsonl").read_text()

    run(test())


#: A request of every route that is answered, and not refused, if whoever asks may ask for it.
REQUESTS = {
    "page": "/",
    "static": "/static/style.css",
    "health": "/healthz",
    "readiness": "/readyz",
    "me": "/me",
    "sign_in": "/sign-in",
    "sign_out": "/sign-out",
    "metrics": "/metrics",
    "status": "/status",
    "topology": "/topology",
    "live": "/live",
    "flows": "/flows/s1",
    "schemas": "/schemas",
    "schema": "/schemas/reading",
    "register": "/schemas",
    "explain": "/explain?event=reading: x=1, y=0.5, kind=hot",
    "client": "/clients/nobody",
    "plan": "/plans/reading",
    "apply": "/plans/reading?regular=8",
    "publish": "/publish/reading",
    "subscribe": "/subscribe?filter=reading: any",
}
WHO = ("eye", "ann", "olga")  # an observer, a client, an operator
#: Who may ask for what, besides nobody at all; written down once more, and not taken from the table of routes.
MAY = {
    **dict.fromkeys(("page", "static", "health", "readiness", "me", "sign_in", "sign_out"), (None, *WHO)),
    **dict.fromkeys(("metrics", "status", "topology", "live", "schemas", "schema", "plan"), WHO),
    **dict.fromkeys(("register", "publish", "subscribe"), ("ann", "olga")),
    # What shows what others want is for operators, wherever it is asked for.
    **dict.fromkeys(("explain", "client", "flows", "apply"), ("olga",)),
}


def test_every_route_from_every_role_and_from_nobody(tmp_path):
    """Allowed or refused, nothing else; and whoever is refused has changed nothing."""
    assert {*REQUESTS} == {*MAY} == {route.name for route in ROUTES}
    rules = "[members.ann]\nrole = 'client'\nrules = ['publish *: any', 'subscribe *: any']\n"
    body = msgspec.json.encode(READING)
    bodies = {"register": body, "publish": msgspec.json.encode(reading(1)), "sign_in": b'{"token": "x"}'}

    async def test():
        access = folder(tmp_path, RULES + rules)

        async def ask(http, route, headers):
            async with http.request(
                route.method, REQUESTS[route.name], headers=headers, data=bodies.get(route.name)
            ) as response:
                return response.status

        async with guarded(access, tmp_path) as (daemon, _, http):
            for who in (None, *WHO):
                headers = {} if who is None else bearer(access, who)
                epoch = daemon.control.category("reading").epoch
                for route in ROUTES:
                    got = await ask(http, route, headers)
                    if None in MAY[route.name]:
                        assert got == (401 if route.name == "sign_in" else 200), (who, route.name)
                    elif who not in MAY[route.name]:
                        assert got == (401 if who is None else 403), (who, route.name)
                    elif route.name == "client":
                        assert got == 400  # nobody of that name
                    else:
                        assert got in (200, 201), (who, route.name)
                assert (daemon.control.category("reading").epoch > epoch) == (who == "olga")

    run(test())


def test_handshakes_at_the_web_port_have_a_pace_and_share_it_with_the_control_port(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (daemon, server, http):
            assert server.door._pace is daemon.server.pace
            server.door._pace = Pace(10)
            tls = load_login(access.login("eye")).dialling()
            done = []

            async def come():
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(*server.door.address, ssl=tls)
                    done.append(writer)

            async with http.get("/status", headers=bearer(access, "eye")) as response:
                assert response.status == 200
            clock = asyncio.get_running_loop().time
            begin = clock()
            coming = [asyncio.create_task(come()) for _ in range(40)]
            async with asyncio.timeout(30):
                while len(done) < 5:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            assert len(done) <= 11 + 10 * (clock() - begin)  # ten at once, then ten per second
            # Who is in already notices nothing; garbage is no handshake, and counts for several.
            async with http.get("/status", headers=bearer(access, "eye")) as response:
                assert response.status == 200
            for task in coming:
                task.cancel()
            await asyncio.gather(*coming, return_exceptions=True)
            for writer in done:
                writer.close()

    run(test())


def test_what_costs_a_stranger_nothing_is_answered_at_a_bounded_rate(tmp_path, monkeypatch):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (_, server, http):
            server.desk._pace = Pace(2, 1.0)
            answered = []
            clock = asyncio.get_running_loop().time

            async def ask(path, headers):
                while True:
                    async with http.get(path, headers=headers) as response:
                        answered.append(response.status)

            asking = [
                asyncio.create_task(ask(path, headers))
                for path, headers in (("/status", {}), ("/me", {}), ("/plans/none", {"Authorization": "Bearer a.b"}))
            ]
            begin = clock()
            while len(answered) < 3:
                await asyncio.sleep(0.1)
            assert len(answered) <= 2 + 2 * (clock() - begin) + 1  # two at once, then two per second
            # Members are not behind them: at that rate 30 answers would take 15 seconds.
            begin = clock()
            for _ in range(30):
                async with http.get("/schemas", headers=bearer(access, "eye")) as response:
                    assert response.status == 200
            assert clock() - begin < 12.0
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    run(test())


def test_strangers_shut_nobody_out(tmp_path, monkeypatch):
    """Connections without a login, each with half of a request, as many as there may be and more."""
    monkeypatch.setattr(handlers, "_STRANGER", 5.0)

    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path, web__max_connections=12) as (_, server, http):
            eye = bearer(access, "eye")
            async with events(http, "reading", headers=bearer(access, "alice")) as stream:
                tls = load_login(access.login("eye")).dialling()
                held = []
                for _ in range(16):
                    reader, writer = await asyncio.open_connection(*server.door.address, ssl=tls)
                    writer.write(b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
                    held.append((reader, writer))
                async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as fresh:
                    for _ in range(3):
                        async with fresh.get(f"{server.url}status", headers=eye | {"Connection": "close"}) as response:
                            assert response.status == 200
                async with asyncio.timeout(20):
                    while server.door.connections > 12:
                        await asyncio.sleep(0.01)
                # Those who have a login stay; of the others those go that came first, and the rest is not waited for.
                assert (await publish(http, reading(5), headers=bearer(access, "olga")))[0] == 200
                assert await stream.values(1) == [5]
                first = [await reader.readline() for reader, _ in held]
                assert first[0] == b"HTTP/1.1 503 Service Unavailable\r\n"
                assert first[-1] == b"HTTP/1.1 408 Request Timeout\r\n"
                for _, writer in held:
                    writer.close()

    run(test())


def test_connections_of_one_member_are_bounded(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path, web__max_connections_each=3) as (_, _, http):
            alice = bearer(access, "alice")
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(3):
                    await stack.enter_async_context(http.ws_connect("/subscribe", headers=alice))
                async with http.get("/schemas", headers=alice) as response:
                    assert response.status == 429
                    assert "connections of alice (quota)" in await response.text()
                async with http.get("/schemas", headers=bearer(access, "eye")) as response:
                    assert response.status == 200
            async with asyncio.timeout(20):
                while True:
                    async with http.get("/schemas", headers=alice) as response:
                        if response.status == 200:
                            break
                    await asyncio.sleep(0.05)

    run(test())


def test_roles_and_rules_are_those_of_the_person(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (daemon, _, http):
            alice, bob, eye, olga = (bearer(access, name) for name in ("alice", "bob", "eye", "olga"))

            async def status_of(method, path, headers, **settings):
                async with http.request(method, path, headers=headers, **settings) as response:
                    return response.status, await response.text()

            # An observer looks, and neither publishes nor subscribes.
            assert (await status_of("GET", "/status", eye))[0] == 200
            assert (await publish(http, reading(1), headers=eye))[0] == 403
            assert (await status_of("GET", "/subscribe?filter=reading", eye))[0] == 403
            # What others want is for operators; so are plans.
            trace = "/explain?event=reading: x=1, y=0.5, kind=hot"
            for path in (trace, "/clients/bob"):
                assert (await status_of("GET", path, alice))[0] == 403
            assert (await status_of("POST", "/plans/reading?regular=8", alice))[0] == 403
            assert (await status_of("POST", "/plans/reading?regular=8", olga))[0] == 200
            # Rules: bob may subscribe to x < 100; alice may publish x < 500.
            async with events(http, "reading: x < 100", headers=bob) as stream:
                status, answer = await publish(http, [reading(7), reading(300)], headers=alice)
                assert (status, answer) == (200, {"published": 2})
                status, answer = await publish(http, [reading(700)], headers=alice)
                assert status == 403
                assert "No rule lets alice publish" in answer["error"]["message"]
                assert (await publish(http, [reading(8)], headers=alice))[0] == 200
                assert await stream.values(2) == [7, 8]
            status, text = await status_of("GET", '/subscribe?filter=reading: x < 200 and kind = "cold"', bob)
            assert status == 403
            assert "subscribe reading: x < 100" in text
            # Two people are two nodes.
            assert {name.partition(".")[0] for name in daemon.plane.clients()} == {"alice", "bob"}
        who = {(each["who"], each["what"]) for each in audit(tmp_path) if each["outcome"] == "done"}
        assert {("bob", "Subscribe"), ("alice", "Advertise"), ("olga", "ApplyPlan")} <= who

    run(test())


def test_every_refusal_is_in_the_audit_log_with_what_was_asked_for(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (_, _, http):
            alice, carol, eye = (bearer(access, name) for name in ("alice", "carol", "eye"))
            assert (await publish(http, reading(700), headers=alice))[0] == 403
            lines = {"Content-Type": "application/x-ndjson", **alice}
            async with http.post("/publish/reading", data=msgspec.json.encode(reading(701)), headers=lines) as response:
                assert response.status == 403
            async with http.ws_connect("/subscribe", headers=alice) as socket:
                await socket.send_json({"publish": "reading", "event": reading(702)})
                assert (await socket.receive_json(timeout=20))["type"] == "error"
            assert (await publish(http, reading(1), headers=carol))[0] == 403
            async with http.post("/plans/reading?regular=8", headers=eye) as response:
                assert response.status == 403
            async with http.get("/explain?event=reading: x=1, y=0.5, kind=hot", headers=alice) as response:
                assert response.status == 403
            async with http.get("/status", headers={**eye, "Origin": "https://evil.example"}) as response:
                assert response.status == 403
        refused = [each for each in audit(tmp_path) if each["outcome"] != "done"]
        found = [(each["who"], each["role"], each["what"], each["about"]) for each in refused]
        for expected in (
            ("alice", "client", "POST /publish/{category}", "/publish/reading"),
            ("alice", "client", "WebSocket publish", "reading"),
            ("carol", "client", "POST /publish/{category}", "/publish/reading"),
            ("eye", "observer", "POST /plans/{category}", "/plans/reading?regular=8"),
            ("", "", "GET /status", "/status"),
        ):
            assert expected in found
        assert any(each[:3] == ("alice", "client", "GET /explain") for each in found)
        assert not any(each[2] == "Message" for each in found)
        assert [x for x in (700, 701, 702) if any(f"x={x}" in each["outcome"] for each in refused)] == [700, 701, 702]

    run(test())


def test_quotas_are_those_of_the_person(tmp_path):
    async def test():
        access = folder(tmp_path, RULES + "[members.slow]\nrole = 'client'\nquota = {requests = 2}\n")
        async with guarded(access, tmp_path, web__max_streams_each=1) as (_, _, http):
            slow, eye = bearer(access, "slow"), bearer(access, "eye")
            found = []
            for _ in range(6):
                async with http.get("/topology", headers=slow) as response:
                    found.append(response.status)
            assert 200 in found
            assert 429 in found
            async with http.get("/topology", headers=eye) as response:
                assert response.status == 200
            # Streams of one member leave room for others.
            alice, olga = bearer(access, "alice"), bearer(access, "olga")
            async with events(http, "reading", headers=alice):
                async with http.get("/subscribe?filter=reading", headers=alice) as response:
                    assert response.status == 429
                async with events(http, "reading", headers=olga):
                    pass

    run(test())


def test_an_answer_about_publishing_is_true_over_a_quota(tmp_path):
    """What is said to be published arrives, the rest does not: bodies whole or not at all, lines from the first on."""

    async def test():
        quotas = "[members.fast]\nrole = 'client'\nrules = ['publish *: any']\nquota = {events = 50}\n"
        quotas += "[members.wide]\nrole = 'client'\nrules = ['publish *: any']\nquota = {bytes = 1000}\n"
        access = folder(tmp_path, RULES + quotas)
        async with (
            guarded(access, tmp_path) as (daemon, _, http),
            events(http, "reading", headers=bearer(access, "olga")) as got,
        ):
            fast, wide = bearer(access, "fast"), bearer(access, "wide")
            status, answer = await publish(http, [reading(1)] * 300, headers=fast)
            assert status == 429
            assert "none was published" in answer["error"]["message"]
            assert (await publish(http, [reading(i) for i in range(45)], headers=fast)) == (200, {"published": 45})
            lines = b"".join(msgspec.json.encode(reading(100 + i)) + b"\n" for i in range(200))
            kind = {"Content-Type": "application/x-ndjson"}
            async with http.post("/publish/reading", data=lines, headers=fast | kind) as response:
                assert response.status == 429
                assert int(response.headers["Retry-After"]) >= 1
                said = await response.json()
            assert 5 <= said["published"] < 200
            expected = [*range(45), *range(100, 100 + said["published"])]
            assert await got.values(len(expected)) == expected
            # By a WebSocket the same.
            async with http.ws_connect("/subscribe", headers=fast) as socket:
                await socket.send_json({"publish": "reading", "events": [reading(1)] * 300, "ref": 1})
                assert (await socket.receive_json())["type"] == "error"
            # By bytes: as many as fit.
            async with http.post("/publish/reading", data=lines, headers=wide | kind) as response:
                assert response.status == 429
                some = (await response.json())["published"]
            assert 5 <= some < 100
            assert await got.values(some) == list(range(100, 100 + some))
            assert daemon.plane.statistics().over_quota == 0

    run(test())


def test_of_json_lines_those_before_one_that_is_not_allowed_are_published(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with (
            guarded(access, tmp_path) as (_, _, http),
            events(http, "reading", headers=bearer(access, "olga")) as got,
        ):
            # Alice may publish x < 500.
            lines = b"".join(msgspec.json.encode(reading(x)) + b"\n" for x in (1, 2, 700, 3))
            headers = bearer(access, "alice") | {"Content-Type": "application/x-ndjson"}
            async with http.post("/publish/reading", data=lines, headers=headers) as response:
                assert response.status == 403
                answer = await response.json()
            assert answer["published"] == 2
            assert "No rule lets alice publish `reading: x=700" in answer["error"]["message"]
            assert await got.values(2) == [1, 2]

    run(test())


async def offered(http, access, member):
    """How many advertisements the nodes of a member have."""
    async with http.get("/status", headers=bearer(access, "olga")) as response:
        clients = (await response.json())["clients"]
    return sum(each["advertisements"] for each in clients if each["name"].partition(".")[0] == member)


async def soon(condition):
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.05)


def test_whoever_may_publish_again_publishes_again(tmp_path):
    """Rules take away what a person may publish, give it back, and allow more, while the person is there."""

    async def test():
        access = folder(tmp_path)
        members = access.path / "members.toml"
        rules = members.read_text()
        async with (
            guarded(access, tmp_path) as (_, _, http),
            events(http, "reading", headers=bearer(access, "olga")) as got,
        ):
            alice = bearer(access, "alice")

            async def is_published(x):
                return (await publish(http, reading(x), headers=alice))[0] == 200

            async def nothing_offered():
                return not await offered(http, access, "alice")

            assert await is_published(1)
            members.write_text(rules.replace('"publish reading: x < 500", ', ""))
            await soon(nothing_offered)
            assert not await is_published(2)
            members.write_text(rules)
            await soon(lambda: is_published(3))
            assert await is_published(4)
            members.write_text(rules.replace("publish reading: x < 500", "publish reading: any"))
            await soon(lambda: is_published(700))
            assert await is_published(701)
            assert await offered(http, access, "alice") == 1
            assert await got.values(5) == [1, 3, 4, 700, 701]

    run(test())


@pytest.mark.slow
def test_publishers_that_pause_for_long_go_on(tmp_path):
    """JSON lines, and a WebSocket that only publishes: what is not used is taken back meanwhile."""

    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path, web__linger=0.1, web__every=0.1) as (_, _, http):

            async def state(count):
                return await offered(http, access, "alice") == count

            async def pause():
                await soon(lambda: state(1))
                await soon(lambda: state(0))
                await asyncio.sleep(2.5)  # residents are looked after once a second

            async def body():
                yield json.dumps(reading(1)).encode() + b"\n"
                await pause()
                yield json.dumps(reading(2)).encode() + b"\n"

            async with http.ws_connect("/subscribe", headers=bearer(access, "alice")) as socket:
                for number in range(2):
                    await socket.send_json({"publish": "reading", "events": [reading(1)], "ref": number})
                    assert (await socket.receive_json())["data"] == {"published": 1, "ref": number}
                    await pause()

            headers = bearer(access, "alice") | {"Content-Type": "application/x-ndjson"}
            async with http.post("/publish/reading", data=body(), headers=headers) as response:
                assert (response.status, await response.json()) == (200, {"published": 2})

    run(test())


def test_a_sign_in_is_a_cookie_that_pages_of_others_cannot_use(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with (
            guarded(access, tmp_path) as (_, server, _),
            aiohttp.ClientSession(
                server.url,
                connector=aiohttp.TCPConnector(ssl=False),
                cookie_jar=aiohttp.CookieJar(unsafe=True),
            ) as http,
        ):
            for wrong in ({"token": "olga.wrong"}, {}, {"token": 7}):
                async with http.post("/sign-in", json=wrong) as response:
                    assert response.status in (400, 401)
            token = load_login(access.login("olga")).token
            async with http.post("/sign-in", json={"token": token}) as response:
                assert response.status == 200
                said = await response.json()
                cookie = response.headers["Set-Cookie"]
            for flag in ("__Host-sievenet=", "HttpOnly", "SameSite=Strict", "Secure", "Path=/"):
                assert flag in cookie
            assert token not in cookie
            assert (said["name"], said["role"]) == ("olga", "operator")
            async with http.get("/me") as response:
                assert (await response.json())["csrf"] == said["csrf"]
            async with http.get("/status") as response:
                assert response.status == 200
            for headers, status in (
                ({}, 403),
                ({"X-CSRF-Token": "x"}, 403),
                ({"X-CSRF-Token": said["csrf"], "Origin": "https://evil.example"}, 403),
                ({"X-CSRF-Token": said["csrf"]}, 200),
            ):
                async with http.post("/plans/reading?regular=8", headers=headers) as response:
                    assert response.status == status
            async with http.post("/sign-out") as response:
                assert response.status == 403
            async with http.post("/sign-out", headers={"X-CSRF-Token": said["csrf"]}) as response:
                assert response.status == 200
            async with http.get("/status", headers={"Cookie": cookie.partition(";")[0]}) as response:
                assert response.status == 401

    run(test())


def test_whoever_asks_is_told_who_it_is(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (_, server, http):
            for headers, name, role in (({}, "", None), (bearer(access, "bob"), "bob", "client")):
                async with http.get("/me", headers=headers) as response:
                    said = await response.json()
                    assert (said["name"], said["role"]) == (name, role)
            access.certificate("alice", None, 10, now())
            tls = load_login(access.login("alice")).dialling()
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as alice,
                alice.get(f"{server.url}me") as response,
            ):
                assert (await response.json())["name"] == "alice"

    run(test())


def test_a_stream_is_told_what_it_is_cut_to(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (_, _, http):
            bob, alice = bearer(access, "bob"), bearer(access, "alice")
            async with (
                http.get("/subscribe", params={"filter": "reading: x < 300"}, headers=bob) as cut,
                http.get("/subscribe", params={"filter": "reading"}, headers=alice) as whole,
            ):
                cut, whole = Events(cut), Events(whole)
                _, opened = await cut.next()
                assert "hot" in opened["filter"]
                assert opened["filter"] != "reading: x < 300"
                assert (await whole.next())[1] == {"filter": "reading: any"}
                members = access.path / "members.toml"
                members.write_text(
                    members.read_text().replace("subscribe reading: any", "subscribe reading: x < 9 narrow")
                )
                assert await whole.next() == ("narrowed", {"filter": "reading: x <= 8"})
                assert (await publish(http, [reading(300), reading(3)], headers=alice))[0] == 200
                assert await whole.values(1) == [3]

    run(test())


@pytest.mark.parametrize("socket", [False, True])
def test_what_was_kept_for_a_client_is_held_to_the_rules_of_when_it_comes_back(tmp_path, socket):
    """Rules become narrower, then nothing is left of them, while a client is away: neither lets it have more."""

    async def test():
        access = folder(tmp_path)
        members = access.path / "members.toml"
        any_, narrow, other = (
            "subscribe reading: any",
            "subscribe reading: x < 9 narrow",
            "subscribe reading: x > 990",
        )

        async def change(before, after, keeper):
            rules = keeper.member("alice").permissions
            members.write_text(members.read_text().replace(before, after))
            async with asyncio.timeout(20):
                while keeper.member("alice").permissions == rules:
                    await asyncio.sleep(0.02)

        async with guarded(access, tmp_path) as (daemon, server, http):
            alice, olga = bearer(access, "alice"), bearer(access, "olga")

            async def back(last):
                """What comes first for alice, who saw ``last``."""
                if not socket:
                    async with events(http, "reading", last, headers=alice) as stream:
                        return await stream.values(2)
                params = {"filter": "reading", "last_event_id": last}
                async with http.ws_connect("/subscribe", params=params, headers=alice) as stream:
                    said = [await stream.receive_json(timeout=20) for _ in range(3)]
                    assert said[0]["type"] == "open"
                    return [each["data"]["event"]["x"] for each in said[1:]]

            async with events(http, "reading", headers=alice) as stream:
                await publish(http, [reading(1), reading(500)], headers=olga)
                assert await stream.values(2) == [1, 500]
                last = stream.last
            await publish(http, [reading(400), reading(2), reading(300), reading(3)], headers=olga)
            async with asyncio.timeout(20):
                while sum(channel.events for channel in server.residents.channels) < 6:
                    await asyncio.sleep(0.01)
            await change(any_, narrow, daemon.keeper)
            assert await back(last) == [2, 3]
            await change(narrow, other, daemon.keeper)
            async with http.get(
                "/subscribe", params={"filter": "reading"}, headers={**alice, "Last-Event-ID": last}
            ) as response:
                assert response.status == 403

    run(test())


@pytest.mark.slow
def test_who_is_no_member_any_more_is_sent_away_and_new_certificates_are_met(tmp_path):
    async def test():
        access = folder(tmp_path)
        async with guarded(access, tmp_path) as (daemon, server, http):
            async with http.get(
                "/subscribe", params={"filter": "reading: x < 100"}, headers=bearer(access, "bob")
            ) as response:
                stream = Events(response)
                assert (await stream.next())[0] == "open"
                tls = daemon.keeper.tls
                members = access.path / "members.toml"
                members.write_text(members.read_text().replace("[members.bob]", "[members.bert]"))
                name, data = await stream.next()
                assert name == "end"
                assert data["reason"]
            async with http.get("/status", headers=bearer(access, "bob")) as response:
                assert response.status == 401
            async with asyncio.timeout(20):
                while daemon.keeper.tls is tls:
                    await asyncio.sleep(0.05)
            async with http.get("/status", headers={**bearer(access, "eye"), "Connection": "close"}) as response:
                assert response.status == 200
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as fresh:
                async with fresh.get(f"{server.url}status", headers=bearer(access, "eye")) as response:
                    assert response.status == 200
                async with fresh.post(
                    f"{server.url}publish/reading", json=reading(1), headers=bearer(access, "alice")
                ) as response:
                    assert response.status == 200

    run(test())
