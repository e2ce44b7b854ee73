"""Machine code from the cache is that of the present sources, whatever changed, broke or ran at the same time."""

import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import sievenet
from sievenet.jit import decorators
from sievenet.jit.store import Store

SOURCE = """
from sievenet.jit import compiled

FACTOR = 10

@compiled
def part(x):
    return FACTOR * x

@compiled
def whole(xs):
    total = 0
    for x in xs:
        total += part(x)
    return total
"""
NUMBERS = np.arange(4)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(decorators, "_store", Store([tmp_path / "cache"]))
    return tmp_path / "cache"


def run(source=SOURCE, numbers=NUMBERS):
    """What a process with this source would find: the result, and whether machine code came from the cache."""
    module = types.ModuleType("example")
    exec(compile(source, "example.py", "exec"), vars(module))
    return module.whole(numbers), sum(module.whole.stats.cache_hits.values())


def test_the_cache_is_used_and_never_out_of_date(folder):
    assert run() == (60, 0)
    assert run() == (60, 1)
    assert run(numbers=NUMBERS / 2) == (30.0, 0)  # another type
    for before, after, expected in (("= 10", "= 100", 600), ("* x", "+ x", 46)):
        changed = SOURCE.replace(before, after)
        assert run(changed) == (expected, 0)
        assert run(changed) == (expected, 1)
    assert run() == (60, 1)  # back again


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "swapped", "foreign", "folder"])
def test_damaged_files_are_compiled_again(folder, damage):
    run()
    paths = sorted(folder.glob("*.nbc"))
    assert len(paths) == 2
    contents = [path.read_bytes() for path in paths]
    for path, content, other in zip(paths, contents, reversed(contents), strict=True):
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 0x10
        bad = {"truncated": content[:-100], "flipped": flipped, "swapped": other, "foreign": b"\x80\x04."}
        path.write_bytes(bad.get(damage, b""))
        if damage == "folder":
            path.unlink()
            path.mkdir()
    assert run() == (60, 0)
    assert run() == (60, 0 if damage == "folder" else 1)


def test_what_is_whole_and_cannot_be_loaded_is_compiled_again(folder, monkeypatch, caplog):
    """As after a change inside numba that its version does not tell."""
    run()
    store = decorators._store
    monkeypatch.setattr(store, "load", lambda name, key: b"no pickle")
    with caplog.at_level(logging.INFO):
        assert run() == (60, 0)
    assert "compiled again" in caplog.text


def test_values_that_cannot_be_told_are_not_cached(folder, caplog):
    source = SOURCE.replace("total = 0", "total = 0 * len(PAIR)") + "\nfrom typing import NamedTuple\n"
    source += "class Pair(NamedTuple):\n    a: int\n\nPAIR = Pair(1)\n"
    for _ in range(2):
        assert run(source) == (60, 0)
    assert caplog.text.count("it refers to PAIR, a example.Pair") == 1


def test_a_cache_can_be_turned_off_and_emptied(folder):
    run()
    module = types.ModuleType("example")
    exec(compile(SOURCE, "example.py", "exec"), vars(module))
    module.whole._cache.disable()
    module.whole(NUMBERS)
    assert not module.whole.stats.cache_hits
    assert module.whole.stats.cache_path == str(folder)
    module.whole._cache.enable()
    module.whole.recompile()
    assert run() == (60, 1)
    module.whole._cache.flush()
    assert run() == (60, 0)


# -- processes -------------------------------------------------------------------------------


def start(folder, program, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "NUMBA"))}
    environment |= {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    words = [sys.executable, "-c", program]
    limit = more.pop("preexec_fn", None)
    environment |= more
    return subprocess.Popen(
        words, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit
    )


def end(process):
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(out), errors


@pytest.fixture
def package(tmp_path):
    """A copy of the package, and nothing compiled."""
    source = Path(sievenet.__file__).parent
    shutil.copytree(source, tmp_path / "sievenet", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


EXAMPLE = """
import json
import numpy as np
from example import whole
print(json.dumps([int(whole(np.arange(4))), sum(whole.stats.cache_hits.values())]))
"""

CONTROL = """
import json
import numpy as np
import sievenet
from sievenet.control.registrations import walk

one, owners, sphere = np.zeros(1, np.uint64), np.zeros(64, np.int32), np.ones(1, np.uint64)
walk._sphere(one, owners, np.zeros((1, 1), np.uint64), sphere)
file = walk.clear.py_func.__code__.co_filename
print(json.dumps([int(sphere[0]), sum(walk._sphere.stats.cache_hits.values()), file, sievenet.__file__]))
"""


def test_an_upgrade_in_place_needs_no_deleting(package):
    """One kernel of the package calls one of another file, which changes."""
    (found, hits, file, where), _ = end(start(package, CONTROL))
    assert Path(where).is_relative_to(package)
    assert Path(file).is_relative_to(package)
    assert (found, hits) == (0, 0)
    path = Path(file)
    text = path.read_text()
    assert text.count("row[w] = _NONE") == 1
    path.write_text(text.replace("row[w] = _NONE", "row[w] = _LOW + _LOW"))
    assert end(start(package, CONTROL))[0][:2] == [2, 0]
    assert end(start(package, CONTROL))[0][:2] == [2, 1]
    assert list((package / "sievenet" / "__pycache__" / "compiled").glob("*.nbc"))


@pytest.mark.slow
def test_processes_that_start_at_once_on_an_empty_cache(package):
    (package / "example.py").write_text(SOURCE)
    processes = [start(package, EXAMPLE) for _ in range(4)]
    assert [end(each)[0][0] for each in processes] == [60] * 4
    kept = package / "sievenet" / "__pycache__" / "compiled"
    assert sorted(path.suffix for path in kept.iterdir()) == [".nbc", ".nbc"]
    assert end(start(package, EXAMPLE))[0] == [60, 1]


def no_files():
    """Every write to a file fails, as on a full disk; pipes go on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("trouble", ["full", "forbidden"])
def test_nowhere_to_write_stops_nothing(package, trouble):
    (package / "example.py").write_text(SOURCE)
    if trouble == "full":
        process = start(package, EXAMPLE, preexec_fn=no_files)
    else:
        (package / "wanted").write_text("a file where a folder should be, which stops root too")
        process = start(package, EXAMPLE, NUMBA_CACHE_DIR=str(package / "wanted"))
    result, errors = end(process)
    assert result == [60, 0]
    assert errors.count("compiled code cannot be stored") == 1
