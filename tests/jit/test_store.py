"""A store gives back what was stored or nothing, whatever happens to its files."""

import errno
import logging
import os
import time
from pathlib import Path

import pytest

from sievenet.jit.store import Store, places, sweep

KEY, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def store(tmp_path):
    return Store([tmp_path / "one", tmp_path / "two"])


def file_of(folder):
    (path,) = folder.glob("*.nbc")
    return path


def test_what_is_stored_comes_back(store, tmp_path):
    assert store.load("f", KEY) is None
    store.save("f", KEY, b"code")
    store.save("f", OTHER, b"other")
    assert (store.load("f", KEY), store.load("f", OTHER), store.load("g", KEY)) == (b"code", b"other", None)
    assert not (tmp_path / "two").exists()
    store.remove("f")
    assert store.load("f", KEY) is None


def test_every_truncation_and_every_flipped_byte_is_found(store):
    store.save("f", KEY, bytes(range(40)))
    path = file_of(store.folder)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert store.load("f", KEY) is None
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert store.load("f", KEY) is None
    path.write_bytes(whole + b"\0")
    assert store.load("f", KEY) is None
    store.save("f", KEY, b"new")
    assert store.load("f", KEY) == b"new"


def test_a_file_under_another_name_is_nothing(store):
    store.save("f", KEY, b"code")
    path = file_of(store.folder)
    path.rename(path.with_name(path.name.replace(KEY, OTHER)))
    assert store.load("f", OTHER) is None


def test_a_folder_that_cannot_be_used_is_passed_over(store, tmp_path):
    (tmp_path / "one").write_text("not a folder")
    store.save("f", KEY, b"code")
    assert file_of(tmp_path / "two")
    assert store.load("f", KEY) == b"code"


def test_a_damaged_file_does_not_hide_a_whole_one(tmp_path):
    Store([tmp_path / "two"]).save("f", KEY, b"code")
    Store([tmp_path / "one"]).save("f", KEY, b"code")
    file_of(tmp_path / "one").write_bytes(b"")
    assert Store([tmp_path / "one", tmp_path / "two"]).load("f", KEY) == b"code"


def test_a_full_disk_is_told_once_and_leaves_nothing_behind(store, tmp_path, monkeypatch, caplog):
    def fill(path, content):
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fill)
    with caplog.at_level(logging.WARNING):
        for key in (KEY, OTHER):
            store.save("f", key, b"code")
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text
    assert not list((tmp_path / "one").iterdir())
    monkeypatch.undo()
    store.save("f", KEY, b"code")
    assert store.load("f", KEY) == b"code"


def test_what_nobody_uses_goes(store):
    store.save("f", KEY, b"code")
    path = file_of(store.folder)
    left = path.with_name("0.new")
    left.write_bytes(b"")
    foreign = path.with_name("README")
    foreign.write_text("")
    week, month = 7 * 86_400, 31 * 86_400
    for each in (path, left, foreign):
        os.utime(each, (time.time() - week,) * 2)
    sweep(store.folder, time.time())
    assert path.exists()
    assert store.load("f", KEY) == b"code"  # used: it counts from now
    sweep(store.folder, time.time() - week + month)
    assert path.exists()
    assert not left.exists()
    assert foreign.exists()
    sweep(store.folder, time.time() + month)
    assert not path.exists()


def test_places(monkeypatch, tmp_path):
    package = tmp_path / "package"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert places("", package) == (package / "__pycache__" / "compiled", tmp_path / "cache" / "sievenet" / "compiled")
    assert places("/wanted", package) == (Path("/wanted/sievenet"),)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places("", package)[1] == tmp_path / ".cache" / "sievenet" / "compiled"
