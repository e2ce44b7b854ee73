"""Event loops that look before they sleep."""

import asyncio
import selectors
import socket

import pytest

from sievenet.client import busy_loop
from sievenet.errors import InvalidInput


def test_everything_runs_as_on_any_loop():
    async def main():
        near, far = socket.socketpair()
        near.setblocking(False)
        loop = asyncio.get_running_loop()
        with near, far:
            loop.call_later(0.001, far.send, b"hello")
            assert await loop.sock_recv(near, 10) == b"hello"
        begin = loop.time()
        await asyncio.sleep(0.003)
        assert loop.time() - begin >= 0.003

    for seconds in (0.0, 0.001, 1.0):
        with asyncio.Runner(loop_factory=busy_loop(seconds)) as runner:
            runner.run(main())


@pytest.mark.parametrize(
    ("seconds", "timeout", "asked"),
    [
        (0.0, 0.5, [0.5]),
        (1.0, 0, [0]),
        (1.0, 0.0, [0.0]),
        (0.001, None, [0, None]),
        (0.001, 0.5, [0, pytest.approx(0.499, abs=0.1)]),
        (1.0, 0.001, [0]),
    ],
)
def test_it_sleeps_only_after_it_has_looked(monkeypatch, seconds, timeout, asked):
    calls = []
    monkeypatch.setattr(selectors.DefaultSelector, "select", lambda self, timeout=None: calls.append(timeout) or [])
    loop = busy_loop(seconds)()
    try:
        assert loop._selector.select(timeout) == []
        assert sorted(set(calls), key=calls.index) == asked
    finally:
        loop.close()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_only_times_are_times(seconds):
    with pytest.raises(InvalidInput):
        busy_loop(seconds)()
