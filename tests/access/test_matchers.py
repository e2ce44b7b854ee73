"""Matchers of a daemon that knows its members: they have no login of their own, and rules hold through them."""

import asyncio
import os
import sys

from sievenet.cli.matcher import matchers, spread
from sievenet.index import Dz
from tests.access.harness import folder, guarded, join
from tests.fabric.harness import SCHEMA, eventually, reading, run


def test_matchers_of_the_daemon_send_each_member_what_its_rules_allow(tmp_path):
    access = folder(tmp_path)

    async def main():
        async with guarded(access, hybrid__interval=3600.0) as daemon:
            await daemon.control.register_schema(SCHEMA)
            got = {"bob": [], "olga": []}
            async with (
                matchers(daemon, spread(daemon.plane.topology, 3)),
                join(daemon, access, "alice", host="h1") as alice,
                join(daemon, access, "bob", host="h3") as bob,
                join(daemon, access, "olga", host="h2") as olga,
            ):
                hybrid = daemon.service.components.hybrid
                assert sorted(hybrid.matchers) == [f"daemon.matcher-{i}" for i in (1, 2, 3)]
                await alice.advertise("reading: x < 500")
                await bob.subscribe("reading: x < 100", lambda e: got["bob"].append(e["x"]))
                await olga.subscribe(SCHEMA, lambda e: got["olga"].append(e["x"]))
                number = daemon.control.category("reading").number
                switch = daemon.plane.topology.attachment("h1").switch
                (here,) = [each for each in hybrid.matchers.values() if each.switch == switch]
                await hybrid.divert(number, Dz(0, 0), switch)
                for x in range(0, 500, 5):
                    await alice.publish(reading(x=x))
                await eventually(lambda: len(got["olga"]) == 100 and len(got["bob"]) == 20)
                assert got == {"bob": list(range(0, 100, 5)), "olga": list(range(0, 500, 5))}
                await eventually(lambda: here.received == 100)
                assert here.sent == 120
                found = daemon.plane.statistics()
                assert (found.unsealed, found.replayed, found.unpermitted) == (0, 0, 0)
            await asyncio.sleep(0)
            assert not hybrid.matchers

    run(main())


def test_what_keeps_all_workers_from_serving_is_said_once_and_the_code_is_the_same(tmp_path):
    """No login: nobody is trusted. With one worker or with several, the command says the same."""
    access = folder(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "SIEVENET_LOGIN"}

    async def main():
        async with guarded(access) as daemon:

            async def said(*words):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "sievenet", "matcher", "--url", daemon.url, *words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=environment,
                )
                out, err = await process.communicate()
                lines = [line for line in err.decode().splitlines() if not line.startswith("loading")]
                return process.returncode, out, lines

            alone, several = await said(), await said("--workers", "3")
            assert alone[0] == 2
            assert len(alone[2]) == 1
            assert several == alone

    run(main(), timeout=120)
