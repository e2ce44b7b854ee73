"""Commands of `sievenet` as processes that start within milliseconds: one process imports and compiles, and forks them.

As a program (`python -m tests.transport.commands`) it is that process: a JSON line with arguments and a file for the
output comes in, the pid goes out. All tests of one process share it; it ends with them. In a test, `Commands.open()`
makes sure that it runs, and `start` gives a `Process` to kill with -9.
"""

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path


class Process:
    """A command under way."""

    def __init__(self, pid, output):
        self.pid, self.output = pid, output

    @property
    def alive(self):
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def text(self):
        return self.output.read_text()

    def events(self, kind):
        """Lines of JSON that are an `event` or a `gap`."""
        whole = [line for line in self.text().splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]
        return [said[kind] for line in whole if kind in (said := json.loads(line))]

    async def says(self, text, timeout=60.0):
        """Wait until it has printed a text; the line with it."""
        end = time.monotonic() + timeout
        while text not in self.text():
            assert self.alive, f"it ended without {text!r}: {self.text()!r}"
            assert time.monotonic() < end, f"no {text!r} in {self.text()!r}"
            await asyncio.sleep(0.02)
        return next(line for line in self.text().splitlines() if text in line)

    async def url(self):
        """Where it listens, once it does."""
        return next(word.strip(".,") for word in (await self.says("://")).split() if "://" in word)

    def code(self):
        """The exit code of one that has ended by itself."""
        return int(self.output.with_suffix(".code").read_text())

    async def ends(self, timeout=60.0):
        end = time.monotonic() + timeout
        while self.alive:
            assert time.monotonic() < end, f"it goes on: {self.text()!r}"
            await asyncio.sleep(0.02)

    async def kill(self, how=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        await self.ends()


@functools.cache
def forker():
    """The process that forks commands, once it is ready."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-m", "tests.transport.commands"], stdin=pipe, stdout=pipe)
    assert process.stdout.readline() == b"ready\n"
    return process


class Commands:
    """Starts commands; all of them are killed in the end."""

    def __init__(self, folder):
        self._folder = folder
        self._started = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, folder):
        await asyncio.to_thread(forker)
        commands = cls(folder)
        try:
            yield commands
        finally:
            for process in commands._started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    async def start(self, *arguments):
        output = self._folder / f"{len(self._started)}-{arguments[0]}.txt"
        said = {"arguments": [str(each) for each in arguments], "output": str(output)}
        output.touch()
        process = forker()
        process.stdin.write(json.dumps(said).encode() + b"\n")
        process.stdin.flush()
        self._started.append(Process(int(process.stdout.readline()), output))
        return self._started[-1]


def be(arguments, output):
    """Be a command, in a process of its own."""
    from sievenet.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), stream)
    code = 70
    try:
        main(arguments, prog_name="sievenet", standalone_mode=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    Path(output).with_suffix(".code").write_text(str(code or 0))
    os._exit(0)


def say(word):
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def serve():
    from sievenet.control import warmup as control
    from sievenet.matcher import warmup as matcher

    control.load()
    matcher.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who ends is gone, not a zombie
    say("ready")
    for line in sys.stdin:
        said = json.loads(line)
        if (pid := os.fork()) == 0:
            be(said["arguments"], said["output"])
        say(pid)


if __name__ == "__main__":
    serve()
