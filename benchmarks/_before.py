"""One controller now, against one before there were configurators: the same flood, in processes that take turns.

Run as a program it floods the control plane of whatever `sievenet` Python finds, and prints requests per second and
microseconds of processor per request.
"""

from __future__ import annotations

import asyncio
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from sievenet.programs import command

__all__ = ["off_over_before"]

#: The last commit without configurators.
BEFORE = "cded990"
ROOT = Path(__file__).resolve().parent.parent


def off_over_before(rounds: int, count: int) -> float | None:
    """Throughput by processor time, now over before; None if the history is not at hand."""
    if not rounds:
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            packed = subprocess.run(
                command("git", "-C", str(ROOT), "archive", BEFORE, "src", "benchmarks"), capture_output=True, check=True
            ).stdout
        except Exception:
            return None
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        ratios = []
        _flood(folder, 64)  # kernels are compiled
        for _ in range(rounds):
            before, now, again = (_flood(tree, count) for tree in (folder, str(ROOT), folder))
            ratios.append((before + again) / 2 / now)
    return statistics.median(ratios)


def _flood(tree: str, count: int) -> float:
    """Microseconds of processor per request."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}/src{os.pathsep}{tree}"}
    program = str(Path(__file__))
    done = subprocess.run(
        [sys.executable, program, str(count)], capture_output=True, text=True, check=True, env=environment, cwd=tree
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    from benchmarks.control import fabric
    from sievenet.control import warmup
    from sievenet.daemon.collector import collecting_seldom
    from sievenet.workload import Uniform, grid

    count = int(sys.argv[1])

    async def flood() -> None:
        async with fabric(Uniform(schema=grid(10, hi=1024), seed=3), "fine") as (driver, _):
            await driver.flood(count // 4, 0)
            spent = await driver.flood(count, 0)
            print(spent.requests / spent.wall, 1e6 * spent.cpu / spent.requests)

    warmup.load()
    with collecting_seldom():
        asyncio.run(flood())


if __name__ == "__main__":
    main()
