"""A fabric whose output nobody reads goes on, and ends when it is told to."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from sievenet.cli import main


@pytest.mark.slow
def test_a_full_pipe_stops_nobody(monkeypatch):
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port = str(some.getsockname()[1])
    monkeypatch.setenv("SIEVENET_URL", f"sievenet://127.0.0.1:{port}")
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    words = [sys.executable, "-m", "sievenet", "up", "--json", "--every", "10ms", "--port", port]
    fabric = subprocess.Popen([*words, "--data-port", "0"], stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        end = time.monotonic() + 60

        def uptime():
            result = CliRunner().invoke(main, ["status", "--json"])
            return json.loads(result.stdout)["uptime"] if result.exit_code == 0 else 0.0

        # Two objects do not fit: by now it has tried to print a hundred.
        while uptime() < 2.0:
            assert time.monotonic() < end
            time.sleep(0.1)
        fabric.send_signal(signal.SIGINT)
        assert fabric.wait(30) in (0, 130)
    finally:
        fabric.kill()
        fabric.wait()
        os.close(read)
