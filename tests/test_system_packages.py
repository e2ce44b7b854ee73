"""scripts/system-packages, run for real with stand-ins for the commands that it looks for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sievenet import programs

SCRIPT = Path(__file__).parent.parent / "scripts" / "system-packages"
TOOLS = ("sh", "cat", "sed", "grep", "cut", "tr", "touch", "chmod", "cp", "dirname", "sort")


@pytest.fixture
def machine(tmp_path):
    """A PATH that holds ordinary tools only, a user who is not root, and no apt-get."""
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    stand_in(tmp_path, "id", "echo 1000")
    return tmp_path


def stand_in(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def give_root(folder, installs=""):
    stand_in(folder, "id", "echo 0")
    stand_in(folder, "apt-get", f'echo "$@" >> {folder}/apt.log\ncase "$*" in *install*) {installs or ":"} ;; esac')


def java(folder, version):
    stand_in(folder, "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")


def run(folder, *names):
    # The shell is named in full: PATH is the stand-in's.
    return subprocess.run(
        programs.command("sh", str(SCRIPT), *names),
        env={"PATH": str(folder), "SBIN": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_needing_nothing_does_nothing(machine):
    result = run(machine)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_that_is_there_is_left_alone(machine, version):
    give_root(machine)
    java(machine, version)
    result = run(machine, "java")
    assert (result.returncode, result.stderr) == (0, "")
    assert not (machine / "apt.log").exists()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_java_that_is_too_old_is_missing(machine, version):
    java(machine, version)
    result = run(machine, "java")
    assert result.returncode == 0
    assert result.stderr.startswith("missing: Java 17 or newer; skipped without it: the Spark pipeline and its tests (")


def test_each_missing_thing_is_one_line(machine):
    result = run(machine, "java", "openvswitch")
    assert result.returncode == 0
    first, second = result.stderr.splitlines()
    assert "Java 17" in first
    assert "default-jre-headless" in first
    assert "the OpenFlow data plane and its tests" in second


def test_root_installs_what_is_missing(machine):
    names = [each.name for each in programs.table().values() if each.part == "openvswitch"]
    for name in names:
        stand_in(machine, f"new-{name}", ":")
    installs = "; ".join(f"cp {machine}/new-{name} {machine}/{name}" for name in names)
    give_root(machine, installs)
    result = run(machine, "openvswitch")
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        "installing Debian packages for openvswitch: iproute2 openvswitch-common openvswitch-switch"
    ]
    update, install = (machine / "apt.log").read_text().splitlines()
    assert update.startswith("update")
    assert install.endswith(" iproute2 openvswitch-common openvswitch-switch")
    # The second time it is there.
    assert run(machine, "openvswitch").stderr == ""


def test_install_that_fails_is_told_and_forgiven(machine):
    give_root(machine, "exit 100")
    result = run(machine, "java", "openvswitch")
    assert result.returncode == 0
    assert result.stderr.count("missing:") == 2
    assert (machine / "apt.log").read_text().count("update") == 1


def test_unknown_name_is_an_error(machine):
    result = run(machine, "jaba")
    assert result.returncode == 2
    parts = "brokers browser compiler debian java mqtt openvswitch optional prometheus systemd tls"
    assert f"expected one of: {parts} , got: jaba" in result.stderr


def test_script_may_be_run():
    assert os.access(SCRIPT, os.X_OK)
