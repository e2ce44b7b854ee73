"""Compiled code is loaded once per process, in a thread if asked for, and an event loop goes on meanwhile."""

import asyncio
import threading
import time

import pytest

from sievenet.index.cover.warmup import COVERS
from sievenet.jit.warmup import Warmup


def test_covers_are_loaded_once():
    first, second = COVERS.begin(), COVERS.begin()
    assert first is second
    first.join(60)
    COVERS.load()
    assert COVERS.done


def test_the_loop_goes_on_while_something_is_loaded_once_for_all():
    threads = []

    def work():
        threads.append(threading.current_thread().name)
        time.sleep(0.2)

    async def main():
        found, ticks = Warmup(work), 0
        waiting = [asyncio.create_task(found.ready()) for _ in range(3)]
        while not found.done:
            ticks += 1
            await asyncio.sleep(0.01)
        await asyncio.gather(*waiting)
        return ticks

    assert asyncio.run(main()) > 2
    assert threads == ["sievenet-loading"]


def test_what_goes_wrong_is_told_to_whoever_waits():
    def work():
        raise RuntimeError("no compiler")

    async def main():
        with pytest.raises(RuntimeError, match="no compiler"):
            await Warmup(work).ready()

    asyncio.run(main())
