"""Doctor, completion in a real shell, and what is in deploy/."""

import configparser
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from sievenet import programs
from sievenet.cli import doctor as module
from sievenet.cli import main
from sievenet.cli.table import COMMANDS
from sievenet.config import load_config

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"


def examined():
    return {each.name: each for each in module.examine()}


def test_doctor_tells_what_there_is():
    result = CliRunner().invoke(main, ["doctor"], prog_name="sievenet")
    assert result.exit_code == 0, result.output
    for name in ("Python", "Java", "Open vSwitch", "BPF", "root", "extra web", "extra mqtt", "port 7400/tcp"):
        assert name in result.output
    found = {each["name"]: each for each in json.loads(CliRunner().invoke(main, ["doctor", "--json"]).output)}
    assert found["Python"]["ok"]
    assert found["Python"]["found"] == ".".join(map(str, sys.version_info[:3]))


def test_doctor_says_what_to_install(monkeypatch):
    monkeypatch.setattr(programs, "find", lambda name: None)
    monkeypatch.setattr(module, "_importable", lambda name: name != "pyspark")
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(main, ["doctor"], prog_name="sievenet")
    assert result.exit_code == 2, "nothing works with that Python"
    for text in (
        "install Python 3.11",
        "apt install default-jre-headless",
        "openvswitch-switch",
        "pip install 'sievenet[pipeline]'",
        "no, user 1000",
    ):
        assert text in result.output, result.output


def test_doctor_sees_a_taken_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        ports = module.PORTS
        try:
            module.PORTS = ((port, "tcp", "clients"),)
            found = examined()[f"port {port}/tcp"]
        finally:
            module.PORTS = ports
    assert not found.ok
    assert "in use" in found.found


def test_a_look_that_fails_is_told(monkeypatch):
    def _broken():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr(module, "_LOOKS", (_broken, module._python))
    found = list(module.examine())
    assert "no such thing" in found[0].found
    assert found[1].name == "Python"


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    """What bash completes, by the script that the documents tell to source."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "sievenet"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sievenet "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def complete(*words):
        script = (
            'eval "$(_SIEVENET_COMPLETE=bash_source sievenet)"; complete -p sievenet >/dev/null || exit 9; '
            f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            f'_sievenet_completion sievenet {words[-1]!r}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        command = programs.command("bash", "--norc", "-c", script)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return complete


def test_bash_completes_commands_and_options(completion):
    assert completion("sievenet", "st") == [name for name in COMMANDS if name.startswith("st")]
    assert "bridge" in completion("sievenet", "''")
    assert completion("sievenet", "plan", "sug") == ["suggested"]
    assert completion("sievenet", "up", "--tu") == ["--tune"]
    assert completion("sievenet", "up", "--tune", "s") == ["suggest"]


def test_completing_commands_imports_none_of_them():
    program = (
        "import sys, os\n"
        "os.environ.update(_SIEVENET_COMPLETE='bash_complete', COMP_WORDS='sievenet s', COMP_CWORD='1')\n"
        "from sievenet.cli import main\n"
        "try: main(prog_name='sievenet')\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name.startswith(('numpy', 'sievenet.cli.s')) for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain,status" in done.stdout


# -- deploy/ ----------------------------------------------------------------------------------


def test_systemd_accepts_the_unit(tmp_path):
    # What it starts must exist for the check; nothing else of it is changed.
    text = (DEPLOY / "sievenet.service").read_text().replace("/opt/sievenet/bin/sievenet", "/bin/true")
    (tmp_path / "sievenet.service").write_text(text)
    command = programs.command("systemd-analyze", "verify", "--man=no", str(tmp_path / "sievenet.service"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    own = [line for line in done.stderr.splitlines() if "sievenet" in line]
    assert done.returncode == 0, done.stderr
    assert not own
    # It can fail: a unit with a mistake is found.
    (tmp_path / "sievenet.service").write_text(text.replace("Type=exec", "Type=exce"))
    assert "exce" in subprocess.run(command, capture_output=True, text=True, timeout=60).stderr


def test_the_unit_starts_what_there_is():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "sievenet.service")
    words = unit["Service"]["ExecStart"].split()
    assert words[1:] == ["up", "--config", "/etc/sievenet/sievenet.toml"]
    config = load_config(DEPLOY / "sievenet.toml")
    assert config.state == "/var/lib/sievenet" == unit["Service"]["WorkingDirectory"]
    assert unit["Service"]["StateDirectory"] == "sievenet"


def test_the_container_file_names_what_there_is():
    """No engine runs here: instructions, files and ports are checked, a build is not."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    said = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    known = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()
    assert {word for word, _ in said} <= set(known)
    for word, rest in said:
        if word == "COPY" and not rest.startswith("--from"):
            for path in rest.split()[:-1]:
                assert (ROOT / path).exists(), path
        if word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(each, str) for each in json.loads(rest))
    text = "\n".join(lines)
    extras = re.search(r"'\.\[(.*?)\]'", text)[1].split(",")
    assert set(extras) <= set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    config = load_config(DEPLOY / "sievenet.toml")
    assert f"EXPOSE {config.listen.port}/tcp {config.data.port}/udp" in text
    users = [rest for word, rest in said if word == "USER"]
    assert users == ["sievenet"], "it does not run as root"
