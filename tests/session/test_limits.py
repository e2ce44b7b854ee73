"""What waits for those who do not read: of one member, and in all, never more than it may."""

import asyncio
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from sievenet.control import protocol as p
from sievenet.daemon import daemon as daemons
from sievenet.session.limits import Limits, Unread
from tests.access.harness import folder, guarded
from tests.fabric.harness import eventually, run
from tests.session.test_turns import bare


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 60)), max_size=60))
def test_nobody_holds_more_than_it_may_and_whoever_holds_most_goes(steps):
    """Connections a and b are of one member, and so on; bytes leave without a word."""
    limits, waiting = Limits(buffer=25, waiting=90), dict.fromkeys("abcdef", 0)
    unread = Unread(limits, lambda each: "abcdef".index(each) // 2, waiting.__getitem__)
    for connection, read, more in steps:
        waiting[connection] = max(0, waiting[connection] - read) + more
        gone = unread.note(connection, waiting[connection])
        while gone is not None:
            mine = [each for each in waiting if "abcdef".index(each) // 2 == "abcdef".index(gone) // 2]
            assert sum(waiting.values()) > 90 or sum(map(waiting.get, mine)) > 50
            assert waiting[gone] == max(map(waiting.get, mine))
            waiting[gone] = 0
            gone = unread.note(gone, 0) or unread.note(connection, waiting[connection])
        assert sum(waiting.values()) <= 90
        for pair in ("ab", "cd", "ef"):
            assert sum(map(waiting.get, pair)) <= 50 or connection not in pair


def test_a_member_with_many_connections_that_reads_nothing_holds_no_more_than_one(tmp_path, monkeypatch):
    monkeypatch.setattr(daemons, "_BUFFER", 1 << 22)

    async def main():
        access = folder(tmp_path)
        async with guarded(access) as daemon, contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(bare(daemon, access, "alice"))
            await stack.enter_async_context(bare(daemon, access, "bob"))
            await eventually(lambda: len(daemon.service._everyone) == 5)
            peers = {each.client.partition(".")[0]: [] for each in daemon.service._everyone}
            for each in daemon.service._everyone:
                peers[each.client.partition(".")[0]].append(each)
            held = 0
            for _ in range(100):  # 10 MB to each; the system's own buffers take a part of them
                for peer in peers["alice"]:
                    peer.send(p.Done(1, "x" * 100_000))
                    held = max(held, sum(each.waiting for each in peers["alice"] if not each.closing))
                await asyncio.sleep(0)
            assert 1 << 22 < held <= (2 << 22) + 200_000
            assert any(each.closing for each in peers["alice"])
            assert not any(each.closing for each in peers["bob"])

    run(main())
