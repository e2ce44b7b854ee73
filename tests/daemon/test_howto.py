"""The commands of docs/howto/configurators.md: three machines' worth of a control plane on one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sievenet.dataplane import namespaces
from sievenet.programs import command
from sievenet.testing.nats_server import nats_program

pytestmark = [
    pytest.mark.root,
    pytest.mark.ovs,
    pytest.mark.slow,
    pytest.mark.unwatched,
    pytest.mark.xdist_group("ovs"),
]

PAGE = (Path(__file__).parents[2] / "docs/howto/configurators.md").read_text(encoding="utf-8")


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


def test_three_machines_on_one():
    # Short: the paths of Unix sockets are.
    folder, name = Path(tempfile.mkdtemp(prefix="sv")), f"svh{os.getpid() % 1_000_000:x}"
    nats, port = free_port(), free_port()
    settings = folder / "sievenet.toml"
    settings.write_text(f'[listen]\nport = {port}\n[openflow]\nname = "{name}"\nrun_dir = "{folder}/run"\n')
    start, use, kill = (
        block.replace("4222", str(nats)).replace("sievenet up", f"sievenet up --config {settings}")
        for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    )
    programs = folder / "bin"
    programs.mkdir()
    for program, words in (("sievenet", f"{sys.executable} -m sievenet"), ("nats-server", nats_program())):
        (programs / program).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / program).chmod(0o755)
    waits = "until sievenet status 2> /dev/null | grep -q 'c2 .* well'; do sleep 0.2; done\n"
    script = start + waits + use + kill + "wait $receiver; touch done; sleep 60"
    script = script.replace("2> sub.log &", "2> sub.log & receiver=$!")
    shell = subprocess.Popen(
        command("bash", "-e", "-c", script),
        cwd=folder,
        env={**os.environ, "SIEVENET_URL": f"sievenet://127.0.0.1:{port}", "PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=(folder / "out").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not (folder / "done").exists() and time.monotonic() < deadline and shell.poll() is None:
            time.sleep(0.1)
        said = (folder / "out").read_text()
        assert (folder / "done").exists(), said
        received = (folder / "received").read_text()
        assert "421.5" in received, said
        assert "422.5" in received, said
        before, after = ((folder / each).read_text() for each in ("before", "after"))
        assert "leads in term 1" in before
        assert re.search(r"^c1 +\d+ +well +[1-9]", before, re.MULTILINE), before
        assert re.search(r"^c2 +\d+ +well +[1-9]", before, re.MULTILINE), before
        assert re.search(r"^c1 +\d+ +well +[1-9]", after, re.MULTILINE), after
        assert not re.search(r"^c2 +\d+ +well", after, re.MULTILINE), after
        assert re.search(r"[1-9]\d* taken over", after), after
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(30)
        deadline = time.monotonic() + 30
        while namespaces.listing(name) and time.monotonic() < deadline:
            time.sleep(0.2)
        shutil.rmtree(folder, ignore_errors=True)
