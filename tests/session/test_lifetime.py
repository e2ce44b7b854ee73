"""What is begun ends with its owner."""

import asyncio
import functools
import gc

import pytest

from sievenet.errors import Unavailable
from sievenet.session.lifetime import Closing, Starting, Tasks, ended


def in_loop(test):
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(**names):
        asyncio.run(test(**names))

    return run


@in_loop
async def test_tasks_are_held_until_they_are_done_and_end_together():
    tasks, log = Tasks(), []

    async def short():
        log.append("short")

    async def long():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # an end that takes a while is waited for
            log.append("long")

    async def broken():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("does not end well") from None

    tasks.begin(short())
    running = [tasks.begin(long(), "long"), tasks.begin(broken())]
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert len(tasks) == 2
    assert running[0].get_name() == "long"
    await tasks.close()
    assert log == ["short", "long"]
    assert all(task.done() for task in running)
    assert len(tasks) == 0
    await tasks.close()


@pytest.mark.parametrize("error", [ValueError("broken"), Unavailable("gone")])
def test_an_error_that_ends_a_task_is_logged_at_once(error, caplog):
    kept = []

    async def main():
        tasks = Tasks()

        async def work():
            raise error

        kept.append(tasks.begin(work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        [told] = caplog.records
        assert told.name == "sievenet.session"
        assert "work" in told.message
        assert ("please report" in told.message) == bool(told.exc_info) == isinstance(error, ValueError)
        assert not tasks
        await tasks.close()

    asyncio.run(main())
    kept.clear()
    gc.collect()
    assert len(caplog.records) == 1, "once is enough"


@in_loop
async def test_a_task_may_close_its_owner():
    tasks = Tasks()
    other = asyncio.Event()

    async def waiting():
        try:
            await asyncio.Event().wait()
        finally:
            other.set()

    tasks.begin(waiting())
    closer = tasks.begin(tasks.close())
    async with asyncio.timeout(5):
        await closer
    assert other.is_set()
    assert not closer.cancelled()


@in_loop
async def test_a_task_that_was_never_begun_has_ended():
    await ended()
    await ended(None)


@pytest.mark.parametrize("fails", [False, True])
@in_loop
async def test_async_with(fails):
    log = []

    class Part(Starting):
        async def start(self):
            log.append("start")
            return self

        async def close(self):
            log.append("close")

    class Lease(Closing):
        async def close(self):
            log.append("given back")

    async def use():
        async with Part() as part, Lease():
            assert isinstance(part, Part)
            if fails:
                raise KeyError

    if fails:
        with pytest.raises(KeyError):
            await use()
    else:
        await use()
    assert log == ["start", "given back", "close"]
