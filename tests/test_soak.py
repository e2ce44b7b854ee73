"""`make soak`: fresh seeds in every round; a failure tells how to repeat it; neither it nor Ctrl-C ends the count."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import soak

ROOT = Path(__file__).resolve().parent.parent

#: One test with seeds, one property and one that is neither; `rare` fails for every third seed.
SOURCE = """
import os, pathlib, pytest, time
from hypothesis import given, strategies as st
from tests.seeds import seeds

def note(text):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(text + "\\n")

@pytest.mark.parametrize("seed", seeds(3))
def test_rare(seed):
    note(f"seed {seed}")
    assert seed % 3, f"the unlucky {seed}"

@given(st.integers(0, 1 << 60))
def test_property(number):
    note(f"drawn {number}")

def test_plain(): note("plain")
"""
SLEEPER = """
import pytest, time
from tests.seeds import seeds

@pytest.mark.parametrize("seed", seeds(2))
def test_sleeper(seed):
    if seed % 2:
        time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    """Start a soak over a test file of its own, which has the project's settings."""
    dropped = ("PYTEST", "COV", "HYPOTHESIS", "SIEVENET_SEED", "CI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    kept |= {"NOTES": str(tmp_path / "notes")}
    file = tmp_path / "test_it.py"
    begin = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "--rootdir", str(tmp_path), str(file)]

    def start(source, *arguments):
        file.write_text(source)
        command = [sys.executable, "-m", "tests.soak", "--jobs", "0", *arguments, "--", *begin]
        return subprocess.Popen(command, cwd=ROOT, env=kept, stdout=subprocess.PIPE, text=True)

    return start


def test_rounds_have_fresh_seeds_and_failures_say_how_to_repeat_them(start, tmp_path):
    with start(SOURCE, "--seed", "7", "--rounds", "2") as process:
        said = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert said.startswith("soak: master seed 7;")
    rounds = re.findall(r"^soak: round \d, SIEVENET_SEED=(\d+)$", said, re.MULTILINE)
    assert len(set(rounds)) == 2
    notes = (tmp_path / "notes").read_text().splitlines()
    seen = [int(line.split()[1]) for line in notes if line.startswith("seed")]
    assert seen == [int(first) + i for first in rounds for i in range(3)]
    assert len({line for line in notes if line.startswith("drawn")}) > 300  # 300 at most in each of two rounds
    assert "plain" not in notes
    unlucky = [seed for seed in seen if seed % 3 == 0]
    assert len(unlucky) == 2
    for seed in unlucky:
        assert f"the unlucky {seed}" in said
    summary = re.search(r"^soak: 2 rounds, 8 tests, (\d+) examples, 2 failures in \d+ s$", said, re.MULTILINE)
    assert summary, said
    assert int(summary[1]) > 500

    # What it says repeats the failure, and the same master seed gives the same rounds.
    said_to_repeat = re.findall(r"repeat: (.*)$", said, re.MULTILINE)[0]
    settings, command = said_to_repeat.split(" HYPOTHESIS_PROFILE=soak ")
    assert settings == f"SIEVENET_SEED={rounds[0]}"
    assert shlex.split(command)[1:4] == ["-m", "pytest", "-n0"]
    assert f"test_rare[{unlucky[0]}]" in shlex.split(command)[-1]
    with start(SOURCE, "--seed", "7", "--rounds", "1") as process:
        assert f"SIEVENET_SEED={rounds[0]}\n" in process.communicate(timeout=120)[0]
    again = (tmp_path / "notes").read_text().splitlines()[len(notes) :]
    assert again == notes[: len(again)]


def test_ctrl_c_and_the_clock_end_it_with_a_summary(start):
    with start(SLEEPER, "--for", "1h") as process:
        said = process.stdout.readline() + process.stdout.readline()
        assert "SIEVENET_SEED=" in said
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert "soak: interrupted" in said
    assert "0 failures" in said.splitlines()[-1]
    with start(SLEEPER, "--for", "4s") as process:
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert re.search(r"^soak: 1 rounds, [01] tests, [01] examples, 0 failures", said.splitlines()[-1]), said


def test_a_round_that_runs_nothing_is_a_failure(start):
    with start("def test_plain(): pass\n", "--rounds", "1") as process:
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "FAILED pytest" in said
    with start("import no_such_module_at_all\n", "--rounds", "1") as process:
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "no_such_module_at_all" in said


def test_a_test_that_hangs_is_named(start, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(soak, "PATIENCE", 5.0)
    file = tmp_path / "test_it.py"
    file.write_text(SLEEPER)
    begin = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "--rootdir", str(tmp_path), str(file)]
    assert soak.main(["--rounds", "1", "--jobs", "0", "--", *begin]) == 1
    said = capfd.readouterr().out
    assert re.search(r"FAILED .*test_sleeper\[\d+\] \(round 1", said), said


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("5m", 300), ("1h30m", 5400), ("0.5s", 0.5)])
def test_lengths_of_time(text, expected):
    assert soak.seconds(text) == expected


@pytest.mark.parametrize("bad", ["", "h", "5 minutes", "-3"])
def test_bad_lengths_of_time(bad):
    with pytest.raises(Exception, match="length of time"):
        soak.seconds(bad)
