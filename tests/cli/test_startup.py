"""Signals to a command that still compiles: it ends at once, since nothing is open yet."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from sievenet.cli import main, startup
from sievenet.cli.up import up
from sievenet.control import warmup
from sievenet.errors import Unavailable


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (("up", "--port", "0", "--data-port", "0"), signal.SIGTERM),
        (("router", "--listen", "127.0.0.1:0"), signal.SIGINT),
        (("matcher", "--url", "sievenet://127.0.0.1:1"), signal.SIGTERM),
    ],
)
def test_a_command_that_compiles_can_be_ended(tmp_path, command, number):
    with subprocess.Popen(
        [sys.executable, "-m", "sievenet", *command],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert "they are compiled" in process.stderr.readline()
            process.send_signal(number)
            begin = time.monotonic()
            assert process.wait(60) == -number
            assert time.monotonic() - begin < 3, "it should not have waited for the compiler"
        finally:
            process.kill()


@pytest.mark.parametrize(("flags", "more"), [((), ()), (("--capacity", "20"), (warmup.LIMITS,))])
def test_a_fabric_with_limits_loads_what_keeps_them_before_anything_is_open(monkeypatch, flags, more):
    loaded = []

    async def load_first(load):
        loaded.append(load)
        raise Unavailable("enough")

    monkeypatch.setattr("sievenet.cli.up.load_first", load_first)
    found = CliRunner().invoke(up, ["--port", "0", "--data-port", "0", *flags])
    assert isinstance(found.exception, Unavailable), found.output
    assert [(each.func, each.args) for each in loaded] == [(warmup.load, more)]


def test_a_process_that_is_to_end_with_its_input_ends_when_that_does_whatever_it_is_doing():
    code = "from sievenet.cli.shutdown import end_with_input; end_with_input(); print('there', flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-c", code + "import threading; threading.Event().wait()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "there\n"
            process.stdin.write("words mean nothing\n")
            process.stdin.flush()
            assert process.poll() is None
            process.stdin.close()
            assert process.wait(60) == -signal.SIGTERM
        finally:
            process.kill()


def test_workers_are_refused_with_a_login_and_the_way_out_is_said(tmp_path):
    (tmp_path / "mat.login").touch()
    found = CliRunner().invoke(main, ["matcher", "--workers", "2"], env={"SIEVENET_LOGIN": str(tmp_path / "mat.login")})
    assert found.exit_code == 2
    assert "sievenet keys certificate FOLDER NAME --role component" in found.stderr
    assert "start `sievenet matcher --host HOST --login NAME.login` once for each" in found.stderr


@pytest.mark.parametrize(("soon", "told"), [(0.0, "for the compiler\n"), (60.0, "")])
def test_who_waits_long_is_told_for_what(monkeypatch, capsys, soon, told):
    monkeypatch.setattr(startup, "_SOON", soon)

    async def main():
        with startup.told_if_long("for the compiler"):
            for _ in range(3):
                await asyncio.sleep(0)

    asyncio.run(main())
    assert capsys.readouterr().err == told
