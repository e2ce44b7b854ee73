"""What switches hold is compared with what they should hold, also while that changes."""

import asyncio

import pytest

import sievenet
from sievenet.daemon import comparison as module
from sievenet.daemon.comparison import comparison
from sievenet.index import Dz
from sievenet.network import Delete, Flow, FlowTable
from tests.fabric.harness import SCHEMA, fabric, publisher, run

A, B, C = (Flow.of(1, Dz.parse(digits), 1) for digits in ("0", "10", "11"))


class Belief:
    """A control plane of which each look at the switch sees the next state: believed, held, whether it changes."""

    def __init__(self, *states):
        self.states, self.looks = states, 0

    def next(self):
        self.now = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        return FlowTable(self.now[1])

    def table(self, switch):
        return FlowTable(self.now[0])

    @property
    def under_way(self):
        return self.now[2]


class Switch:
    def __init__(self, belief):
        self.belief = belief

    async def table(self, switch):
        return self.belief.next()


@pytest.mark.parametrize(
    ("states", "missing", "surplus", "looks"),
    [
        ([([A, B], [A, B], True)], [], [], 1),
        # What is on its way is not missing.
        ([([A, B], [A], True), ([A, B], [A, B], False)], [], [], 2),
        ([([A, B], [A], True), ([A, B, C], [A, B], True), ([A, B, C], [A, B, C], True)], [], [], 2),
        ([([A], [A, B], True), ([A, C], [A, B], True), ([A, C], [A, C], False)], [], [], 3),
        # A change ended between what the switch said and what is believed.
        ([([A, B], [A], False), ([A, B], [A, B], False)], [], [], 2),
        # What is lost is missing whatever else changes.
        ([([A, B], [B], False)], [A], [], 2),
        ([([A, B], [], True), ([A, B], [B], True), ([A], [B], True), ([A], [], False)], [A], [], 4),
        ([([A], [A, B], True)], [], [B], 5),
    ],
)
def test_what_is_on_its_way_is_neither_missing_nor_too_much(monkeypatch, states, missing, surplus, looks):
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    monkeypatch.setattr(module, "_LOOKS", 5)
    belief = Belief(*states)
    found = asyncio.run(comparison(belief, Switch(belief), ["s1"]))
    assert [each["missing"] for each in found["differing"]] == ([list(map(str, missing))] if missing or surplus else [])
    assert [each["surplus"] for each in found["differing"]] == ([list(map(str, surplus))] if missing or surplus else [])
    assert found["ok"] is not bool(missing or surplus)
    assert belief.looks == looks


def test_a_check_during_a_change_waits_for_it_and_finds_what_is_lost(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    monkeypatch.setattr(module, "_LOOKS", 1 << 30)

    async def main():
        async with fabric() as daemon, publisher(daemon, host="h1"), sievenet.connect(daemon.url, host="h3") as node:
            plane, looked, may_apply = daemon.plane, asyncio.Event(), asyncio.Event()
            apply, table = plane.apply, plane.table

            async def late(switch, changes):
                await may_apply.wait()
                return await apply(switch, changes)

            async def seen(switch):
                found = await table(switch)
                if switch == "s3":  # the last one
                    looked.set()
                return found

            assert (await daemon.answers.check())["ok"]
            monkeypatch.setattr(plane, "apply", late)
            monkeypatch.setattr(plane, "table", seen)
            subscribing = asyncio.create_task(node.subscribe(SCHEMA))
            while not daemon.control.under_way:
                await asyncio.sleep(0)
            checking = asyncio.create_task(daemon.answers.check())
            await looked.wait()
            assert not checking.done()
            may_apply.set()
            await subscribing
            assert (await checking)["ok"]
            # And what a switch has really lost is told.
            held = await table("s2")
            await apply("s2", [Delete(each) for each in held])
            [told] = (await daemon.answers.check())["differing"]
            assert (told["switch"], len(told["missing"]), told["surplus"]) == ("s2", len(held), [])

    run(main())
