"""A process that forks daemons: everything is imported and compiled once, so that a daemon lives within milliseconds.

Reads one JSON object per line (settings of `load_config`), forks a daemon with them, and answers with one JSON line
once it is up: its pid, what it had recovered before the first client could speak to it, and whether its switches
agreed. Whoever asked kills the daemon before it asks for the next.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys

from sievenet.config import load_config
from sievenet.control import warmup
from sievenet.daemon import daemon as daemon_module
from sievenet.daemon.daemon import Daemon
from sievenet.session.listener import Listener


def live(settings: dict[str, object], report: int) -> None:
    """Be a daemon until killed; ``patch`` names a function (module:name) to call before."""
    if (patch := settings.pop("patch", None)) is not None:
        module, _, name = str(patch).partition(":")
        getattr(importlib.import_module(module), name)()

    async def main() -> None:
        daemon = Daemon(load_config(**settings))

        class Recording(Listener):
            async def start(self) -> None:
                found = {}
                for name in daemon.plane.clients():
                    advertisements, subscriptions = daemon.control.registrations_of(name)
                    found[name] = [sorted(advertisements), sorted(subscriptions)]
                checked = await daemon.answers.check()
                os.write(report, json.dumps({"recovered": found, "check": checked}).encode())
                await super().start()
                os.close(report)

        daemon_module.Listener = Recording
        await daemon.start()
        await asyncio.Event().wait()

    asyncio.run(main())


def main() -> None:
    warmup.load()
    say({})
    born = None
    for line in sys.stdin:
        if born is not None:
            os.waitpid(born, 0)  # killed; its ports are free once it is gone
        inside, outside = os.pipe()
        born = os.fork()
        if born == 0:
            os.close(inside)
            # The daemon must not hold on to the harness's pipe.
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            live(json.loads(line), outside)
            os._exit(0)
        os.close(outside)
        data = b""
        while piece := os.read(inside, 65536):
            data += piece
        os.close(inside)
        say({"pid": born, **(json.loads(data) if data else {})})


def say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
