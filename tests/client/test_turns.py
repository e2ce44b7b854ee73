"""Short turns: asked for by whoever subscribes, for that thread alone, and only where nobody chose otherwise."""

import asyncio
import ctypes
import os
import sys
import threading

import pytest

from sievenet.client import turns
from tests.fabric.harness import fabric, publisher

#: Kernels before 6.12 have no turns to choose, and say 0.
needs_turns = pytest.mark.skipif(turns.turn() is None, reason="this kernel lets nobody choose the length of turns")


def in_thread(work):
    """Do something on a thread of its own, with turns that no earlier test has asked for."""
    found = []

    def begin():
        attributes = turns._ATTRIBUTES.pack(turns._ATTRIBUTES.size, turns._OTHER, 0, 0, 0, 3_000_000, 0, 0)
        turns._call(0, ctypes.create_string_buffer(attributes, len(attributes)), 0)
        found.append(work())

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.may_skip("kernels before 6.12 let nobody choose")
@needs_turns
def test_they_are_of_the_thread_that_asks():
    def work():
        before = turns.turn()
        turns.shorten()
        turns.shorten(10 * turns.TURN)  # longer ones than it has are no reason to change
        return before, turns.turn()

    here = turns.turn()
    before, after = in_thread(work)
    assert after == turns.TURN < before
    assert turns.turn() == here


@pytest.mark.skipif(sys.platform != "linux", reason="policies of Linux")
def test_a_policy_that_was_chosen_stays():
    def work():
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        turns.shorten()
        return os.sched_getscheduler(0), turns.turn()

    assert in_thread(work) == (os.SCHED_BATCH, None)


def test_a_machine_that_is_not_known_is_left_alone(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert turns.turn() is None
    turns.shorten()


@pytest.mark.may_skip("kernels before 6.12 let nobody choose")
@needs_turns
def test_whoever_subscribes_asks_and_whoever_publishes_does_not():
    async def main():
        async with fabric() as daemon, publisher(daemon) as node:
            published = turns.turn()
            await node.subscribe("reading: x > 3")
            return published, turns.turn()

    published, subscribed = in_thread(lambda: asyncio.run(main()))
    assert published > subscribed == turns.TURN
