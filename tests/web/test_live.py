"""The live view: shared by all who look, merge patches that fit, silent while nobody looks."""

import asyncio
import contextlib

from sievenet.web.live import Live
from sievenet.web.snapshot import merged
from tests.web.harness import Events, publish, reading, run, served


@contextlib.asynccontextmanager
async def viewer(http):
    async with http.get("/live") as response:
        assert response.status == 200
        stream = Events(response)
        name, state = await stream.next()
        assert name == "snapshot"
        yield stream, state


def test_all_viewers_share_one_look_and_see_the_same():
    async def test():
        async with served(web__every=0.1) as (_, server, http), contextlib.AsyncExitStack() as stack:
            assert server.live.looks == 0
            views = [await stack.enter_async_context(viewer(http)) for _ in range(5)]
            before = server.live.looks
            await publish(http, [reading(x) for x in range(10)])
            states = [state for _, state in views]
            for _ in range(5):
                for i, (stream, _) in enumerate(views):
                    name, patch = await stream.next()
                    assert name == "event"
                    states[i] = merged(states[i], patch)
            # However many look: five looks, give or take one that has just begun.
            assert 4 <= server.live.looks - before <= 7
            assert any(name.startswith("web-") for name in states[0]["clients"])
            ends = [state["traffic"]["uptime"] for state in states]
            assert max(ends) - min(ends) < 0.5

    run(test())


def test_nobody_looks_nothing_is_done():
    async def test():
        async with served(web__every=0.05) as (_, server, http):
            async with viewer(http) as (stream, _):
                await stream.next()
            async with asyncio.timeout(20):
                while server.live.streams or (server.live._task and not server.live._task.done()):
                    await asyncio.sleep(0.01)
            looks = server.live.looks
            await asyncio.sleep(0.3)
            assert server.live.looks == looks
            async with viewer(http) as (stream, state):
                assert state["switches"].keys() == {"s1", "s2", "s3"}
                assert (await stream.next())[0] == "event"

    run(test())


def test_what_counts_is_the_time_of_the_look_not_of_those_it_waits_for():
    async def test():
        async def look():
            for _ in range(10):
                await asyncio.sleep(0)
            return {"a": 1}

        async def busy():
            for _ in range(50):
                sum(range(200_000))
                await asyncio.sleep(0)

        live = Live(look, 1.0)
        task = asyncio.create_task(busy())
        await asyncio.sleep(0)
        begin = asyncio.get_running_loop().time()
        await live._take()
        passed = asyncio.get_running_loop().time() - begin
        await task
        assert live.took < passed / 5

        async def broken():
            await asyncio.sleep(0)
            raise RuntimeError("no")

        wrong = Live(broken, 1.0)
        with contextlib.suppress(RuntimeError):
            await wrong._take()
            raise AssertionError
        waits = asyncio.create_task(Live(lambda: asyncio.sleep(60, {}), 1.0)._take())
        await asyncio.sleep(0)
        waits.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waits
            raise AssertionError

    run(test())
