"""What the web server decides without a socket: windows, snapshots, frames, where requests come from."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.errors import Rejected
from sievenet.web import frame, publication
from sievenet.web.origin import check_host, check_origin
from sievenet.web.snapshot import delta, merged, snapshot
from sievenet.web.window import Window
from tests.web.harness import READING

MESSAGES = st.lists(st.integers(1, 30).map(lambda size: b"x" * size), max_size=60)


@given(MESSAGES, st.integers(1, 200), st.integers(1, 70), st.integers(1, 100))
def test_a_cursor_finds_everything_that_is_left_and_is_told_what_is_not(messages, size, cursor, most):
    window = Window(size)
    for message in messages:
        window.add(message)
    cursor = min(cursor, window.next)
    whole, missed, at = [], 0, cursor
    while True:
        part = window.read(at, most)
        assert sum(map(len, part.messages)) <= most or len(part.messages) == 1
        if not part.missed and not part.messages:
            break
        missed += part.missed
        whole += part.messages
        at = part.cursor
    assert at == window.next == len(messages) + 1
    assert missed + len(whole) == len(messages) - (cursor - 1)
    assert whole == messages[len(messages) - len(whole) :]
    # Bounded, and as much as the bound allows.
    kept = window.read(1, 10**9).messages
    assert sum(map(len, kept)) <= size or len(kept) == 1
    if len(kept) < len(messages):
        assert sum(map(len, messages[len(messages) - len(kept) - 1 :])) > size


@given(MESSAGES, st.integers(1, 200), st.integers(1, 200))
def test_a_smaller_window_forgets_the_oldest(messages, size, smaller):
    window, other = Window(size), Window(min(size, smaller))
    for message in messages:
        window.add(message)
        other.add(message)
    window.resize(min(size, smaller))
    assert window.held == other.held
    assert window.read(1, 10**9) == other.read(1, 10**9)


TREES = st.recursive(
    st.one_of(st.booleans(), st.integers(-3, 3), st.text(max_size=3), st.lists(st.integers(0, 3), max_size=2)),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)
SNAPSHOTS = st.dictionaries(st.text(max_size=2), TREES, max_size=5)


@given(SNAPSHOTS, SNAPSHOTS)
def test_a_delta_makes_one_snapshot_of_the_other(before, after):
    patch = json.loads(json.dumps(delta(before, after)))
    assert merged(before, patch) == after
    assert delta(after, after) == {}


def test_what_only_some_networks_have_is_a_table_wherever_it_is_told():
    status = {
        "version": "1",
        "topology": "t",
        "uptime": 1.0,
        "traffic": {"published": 0, "latency_p50": None},
        "switches": [],
        "clients": [],
        "categories": [],
        "hybrid": {"matchers": [{"name": "m1", "load": 3, "wrong": None}], "failures": 0},
        "caches": [{"name": "c1"}],
        "tuning": {"mode": "auto", "line": "tuning: …", "suggested": []},
    }
    found = snapshot(status, {"hosts": [], "links": [], "ports": []}, {"waiting": 0})
    assert found["matchers"] == {"m1": {"name": "m1", "load": 3}}
    assert found["caches"] == {"c1": {"name": "c1"}}
    assert "partitions" not in found
    assert found["tuning"]["line"] == "tuning: …"
    assert "tuning" not in snapshot(status | {"tuning": {"mode": "off"}}, {"hosts": [], "links": [], "ports": []}, {})


def test_frames_of_a_websocket_say_their_length():
    for size in (10, 125, 126, 5_000, 70_000):
        data = b'"' + b"x" * size + b'"'
        made = frame.message("ws", "event", data, "5f-1")
        body = b'{"id":"5f-1","type":"event","data":%b}' % data
        assert made.endswith(body)
        length, at = made[1], 2
        if length == 126:
            length, at = int.from_bytes(made[2:4]), 4
        elif length == 127:
            length, at = int.from_bytes(made[2:10]), 10
        assert (made[0], length, len(made)) == (0x81, len(body), at + len(body))


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:7480", True),
        ("[::1]:7480", True),
        ("localhost", True),
        ("LOCALHOST.:7480", True),
        ("sieve.example:7480", True),
        ("evil.example:7480", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_we_answer_to_our_own_names_only(host, good):
    if good:
        check_host(host, {"sieve.example"})
    else:
        with pytest.raises(Rejected):
            check_host(host, {"sieve.example"})


@pytest.mark.parametrize(
    ("origin", "site", "navigation", "good"),
    [
        (None, None, False, True),
        ("http://localhost:7480", "same-origin", False, True),
        (None, "none", True, True),
        (None, "cross-site", True, True),
        (None, "cross-site", False, False),
        (None, "same-site", False, False),
        ("null", None, False, False),
        ("http://localhost:7481", None, False, False),
        ("https://localhost:7480", None, False, False),
        ("http://evil.example", "same-origin", False, False),
        ("http://evil.example", None, True, False),
    ],
)
def test_pages_of_other_sites_get_nothing(origin, site, navigation, good):
    if good:
        check_origin("http", "localhost:7480", origin, site, navigation=navigation)
    else:
        with pytest.raises(Rejected):
            check_origin("http", "localhost:7480", origin, site, navigation=navigation)


ROWS = st.lists(st.fixed_dictionaries({"x": st.integers(0, 999), "y": st.floats(0, 1), "kind": st.just("hot")}))


@given(ROWS, st.lists(st.integers(1, 40), min_size=1), st.booleans())
def test_lines_are_the_same_however_they_are_cut(rows, cuts, ended):
    text = b"\n".join(json.dumps(row).encode() for row in rows) + (b"\n\n" if ended else b"")

    async def pieces():
        at, i = 0, 0
        while at < len(text):
            size = cuts[i % len(cuts)]
            yield text[at : at + size]
            at, i = at + size, i + 1

    async def read():
        return [event async for some in publication.lines_of(READING, pieces(), 1000) for event in some]

    assert [dict(event.items()) for event in asyncio.run(read())] == rows
    if rows:
        assert [dict(event.items()) for event in asyncio.run(publication.events_of(READING, text))] == rows
