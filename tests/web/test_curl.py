"""The examples of the how-to of HTTP, run by a real curl against a fabric in a process of its own."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sievenet import programs
from sievenet.cli import main
from tests.documents import blocks, commands, compare

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments):
    """`sievenet up` with these arguments, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sievenet", "up", "--port", "0", "--data-port", "0", "--web", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    found = re.search(r"at (http\S+)/$", line.strip())
    if found is None:
        process.kill()
        process.wait()
        raise AssertionError(f"expected the address first, got {line!r}")
    return process, found[1]


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(20) == 0


@pytest.mark.slow
def test_every_curl_of_the_how_to_does_what_it_shows():
    if programs.missing("browser"):
        pytest.skip("needs curl (scripts/system-packages browser)")
    page = ROOT / "docs" / "howto" / "web.md"
    found = [item for block in blocks(page.read_text()) if block.language == "console" for item in commands(block.body)]
    found = [item for item in found if "curl" in item.text and not item.needs]
    assert len(found) > 8
    process, url = start("--schema", "stock")
    try:
        streams = []
        for item in found:
            text = item.text.replace("http://localhost:7480", url)
            if "-sN" in shlex.split(item.text):
                words = programs.command("sh", "-c", text)
                going = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
                # The stream stands when its first message is there.
                head = b""
                while b"event: open" not in head:
                    head += os.read(going.stdout.fileno(), 4096)
                streams.append((item, going, head))
            else:
                words = programs.command("sh", "-c", text)
                done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
                compare(item.expected, done.stdout, item.text)
        for item, going, head in streams:
            while head.count(b"\n\n") < 3:
                head += os.read(going.stdout.fileno(), 65536)
            os.killpg(going.pid, signal.SIGTERM)
            head += going.communicate(timeout=10)[0]
            compare(item.expected, head.decode(), item.text)
    finally:
        stop(process)


def test_up_refuses_what_is_not_safe_and_says_what_to_do():
    def refused(*arguments):
        start = ["up", "--port", "0", "--data-port", "0", "--for", "1s", *arguments]
        result = CliRunner().invoke(main, start, prog_name="sievenet")
        assert result.exit_code == 2
        return result.output

    assert "--access FOLDER" in refused("--web", "0.0.0.0:0")
    assert "an address such as" in refused("--web", "nonsense")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "say another one: --web" in refused("--web", f"127.0.0.1:{port}")
