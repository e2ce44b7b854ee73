"""The Makefile's promises: help by default, nothing done twice, one clear line when Python is too old."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sievenet import programs

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def clone(tmp_path):
    """The Makefile in a folder of its own, with a .venv that looks installed."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(folder, *arguments, **environment):
    # What a surrounding make says to its children is not meant for this one.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    start = programs.command("make", "-C", str(folder), "--no-print-directory", *arguments)
    return subprocess.run(start, env={**kept, **environment}, capture_output=True, text=True, check=False)


def install(folder):
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").touch()
    for stamp in (".installed-core", ".installed-web", ".installed-dev"):
        path = folder / ".venv" / stamp
        path.touch()
        later = (folder / "pyproject.toml").stat().st_mtime + 10
        os.utime(path, (later, later))


def test_help_is_the_default_and_names_every_target(clone):
    shown = make(clone).stdout
    targets = next(line for line in (clone / "Makefile").read_text().splitlines() if line.startswith(".PHONY"))
    for target in targets.split()[1:]:
        assert f"make {target} " in shown


def test_nothing_is_installed_twice(clone):
    install(clone)
    for target in ("run", "tests", "lint"):
        assert "pip" not in make(clone, "-n", target, "EXTRAS=dev").stdout
    os.utime(clone / "pyproject.toml", (2**32, 2**32))
    assert "pip" in make(clone, "-n", "run").stdout


def test_one_more_word_installs_once_more(clone):
    install(clone)
    shown = make(clone, "-n", "tests", "EXTRAS=dev pipeline").stdout
    assert "'.[dev,pipeline]'" in shown
    assert ".venv/.installed-dev-pipeline" in shown


def test_run_needs_the_core_and_the_page_only(clone):
    shown = make(clone, "-n", "run").stdout
    assert " -qq -e '.[web]'\n" in shown
    assert "pipeline" not in shown


def test_old_python_is_one_clear_line(clone, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "sh"):
        (tools / tool).symlink_to(shutil.which(tool))
    (tools / "python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    (tools / "python3").chmod(0o755)
    done = make(clone, "run", PATH=str(tools))
    assert done.returncode != 0
    said, *of_make = done.stderr.splitlines()
    assert said.startswith("Sievenet needs Python 3.11 or newer; python3 here is Python 3.9.2.")
    assert all(line.startswith("make") for line in of_make)
    assert not (clone / ".venv").exists()
