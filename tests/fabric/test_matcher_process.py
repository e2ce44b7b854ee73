"""Matchers as processes: killed, stopped and come back under traffic; an oracle knows what should have arrived."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import sievenet
from sievenet.index import Dz
from tests.fabric.harness import eventually, publisher, run
from tests.fabric.test_hybrid import by_hand, switch_of, traffic

pytestmark = [pytest.mark.slow, pytest.mark.unwatched]


async def started(daemon, name, host="h2"):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sievenet", "matcher", "--url", daemon.url, "--name", name, "--host", host),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    line = "loading"
    while line.startswith("loading"):  # on a slow machine it says so
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
    assert line.startswith(f"matcher {name}"), line
    return process


def test_processes_that_are_killed_or_stopped_lose_nothing():
    async def main():
        async with (
            by_hand() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
            sievenet.connect(daemon.url, name="near", host="h1") as near,
        ):
            hybrid, stop, sent = daemon.service.components.hybrid, asyncio.Event(), []
            got = {"far": [], "near": []}
            await far.subscribe("reading: x in [100, 900]", lambda e: got["far"].append(e.payload))
            await near.subscribe("reading: x > 500", lambda e: got["near"].append(e.payload))
            number, switch = daemon.control.category("reading").number, switch_of(daemon, "h2")
            task = asyncio.create_task(traffic(pub, stop, sent))
            processes = [await started(daemon, f"m{i}") for i in range(2)]
            for turn, how in enumerate((signal.SIGKILL, signal.SIGSTOP)):
                await eventually(lambda turn=turn: len(hybrid.at(switch)) == 2 - turn)
                for dz in (Dz(0, 1), Dz(1, 1)):
                    await hybrid.divert(number, dz, switch)
                await asyncio.sleep(0.3)  # under traffic
                victim = next(m for m in hybrid.matchers.values() if m.load)
                os.kill(processes[int(victim.name[1:])].pid, how)
                await eventually(lambda victim=victim: not victim.load, timeout=20)
                await asyncio.sleep(0.2)
                for matcher in list(hybrid.matchers.values()):
                    for dz in list(matcher.regions(number)):
                        await hybrid.release(number, dz, switch)
            stopped = next(each for each in processes if each.returncode is None)
            os.kill(stopped.pid, signal.SIGCONT)  # it sends what it still has: duplicates
            await asyncio.sleep(0.3)
            stop.set()
            await task
            wanted = {
                "far": [payload for x, payload in sent if 100 <= x <= 900],
                "near": [payload for x, payload in sent if x > 500],
            }
            await eventually(lambda: all(len(got[name]) >= len(wanted[name]) for name in got), timeout=40)
            assert {name: sorted(each) for name, each in got.items()} == {n: sorted(w) for n, w in wanted.items()}
            assert hybrid.failures == 2
            await eventually(lambda: hybrid.at(switch), timeout=20)  # it is used again
            for process in processes:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()

    run(main(), timeout=120)


def child(process, name):
    """The process of a worker, by its name."""
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").endswith(name.encode()):
            return int(pid)
    raise AssertionError(f"{name} is not there")


def running(pid):
    """Whether a process is there, and not merely waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_when_the_command_that_started_them_is_killed():
    async def main():
        async with by_hand() as daemon:
            hybrid = daemon.service.components.hybrid
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sievenet", "matcher", "--url", daemon.url, "--name", "w", "--host", "h2"),
                *("--workers", "2"),
                stdout=asyncio.subprocess.PIPE,
            )
            await eventually(lambda: sorted(hybrid.matchers) == ["w-1", "w-2"], timeout=60)
            workers = [child(process, name) for name in ("w-1", "w-2")]
            os.kill(workers[0], signal.SIGKILL)  # one that was started again ends as well
            await eventually(lambda: "w-1" not in hybrid.matchers, timeout=60)
            await eventually(lambda: "w-1" in hybrid.matchers, timeout=60)
            workers[0] = child(process, "w-1")
            process.kill()
            await process.wait()
            await eventually(lambda: not any(map(running, workers)), timeout=30)
            await eventually(lambda: not hybrid.matchers)

    run(main(), timeout=150)


def test_workers_share_the_subspaces_of_their_switch_and_return_and_end_together_under_traffic():
    async def main():
        async with (
            by_hand() as daemon,
            publisher(daemon, name="pub", host="h1") as pub,
            sievenet.connect(daemon.url, name="far", host="h3") as far,
        ):
            hybrid, stop, sent, got = daemon.service.components.hybrid, asyncio.Event(), [], []
            await far.subscribe("reading: x in [100, 900]", lambda e: got.append(e.payload))
            number, switch = daemon.control.category("reading").number, switch_of(daemon, "h2")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sievenet", "matcher", "--url", daemon.url, "--name", "w", "--host", "h2"),
                *("--workers", "2"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            await eventually(lambda: sorted(hybrid.matchers) == ["w-1", "w-2"], timeout=60)
            assert len(hybrid.at(switch)) == 2
            for dz in Dz(0, 0).children:
                await hybrid.divert(number, dz, switch)
            assert [each.load for each in hybrid.matchers.values()] == [1, 1]
            task = asyncio.create_task(traffic(pub, stop, sent))
            await eventually(lambda: all(each.sent > 50 for each in hybrid.matchers.values()))
            victim = hybrid.matchers["w-1"]
            os.kill(child(process, "w-1"), signal.SIGKILL)
            # It is started again, and can be used as before.
            await eventually(lambda: hybrid.matchers.get("w-1") not in (None, victim), timeout=60)
            await eventually(lambda: len(hybrid.at(switch)) == 2, timeout=20)
            lost = next(dz for dz in Dz(0, 0).children if dz not in hybrid.matchers["w-2"].regions(number))
            await hybrid.divert(number, lost, switch)
            assert [hybrid.matchers[name].load for name in ("w-1", "w-2")] == [1, 1]
            await eventually(lambda: hybrid.matchers["w-1"].sent > 50)
            process.terminate()
            assert await process.wait() == 0
            await eventually(lambda: not hybrid.matchers)
            stop.set()
            await task
            wanted = [payload for x, payload in sent if 100 <= x <= 900]
            await eventually(lambda: len(got) >= len(wanted))
            assert sorted(got) == sorted(wanted)

    run(main(), timeout=120)
