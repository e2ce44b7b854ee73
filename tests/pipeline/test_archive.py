"""The archive of Java's classes: found again, renewed when Java or Spark change, kept where it is safe."""

import os

import pytest

from sievenet.pipeline.archive import VARIABLE, archive_for, java_binary


@pytest.fixture
def java(tmp_path):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    (home / "bin" / "java").write_text("")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return home / "bin" / "java"


def of(java, tmp_path, version="4.3.0", folder="cache"):
    return archive_for(java, tmp_path / "spark", version, str(tmp_path / folder))


def test_first_written_then_used(java, tmp_path):
    first = of(java, tmp_path)
    assert f"-XX:ArchiveClassesAtExit={first.part}" in first.options
    first.part.write_bytes(b"classes")
    first.finish()
    again = of(java, tmp_path)
    assert again.part is None
    assert again.path.read_bytes() == b"classes"
    assert f"-XX:SharedArchiveFile={again.path}" in again.options
    # Whoever uses an archive has nothing to finish or to discard.
    again.finish()
    again.discard()
    assert again.path.exists()


def test_another_java_or_spark_has_another(java, tmp_path):
    paths = {of(java, tmp_path).path, of(java, tmp_path, "4.3.1").path}
    (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.16-ea"\n')
    paths.add(of(java, tmp_path).path)
    assert len(paths) == 3


def test_what_did_not_end_well_is_not_used(java, tmp_path):
    first = of(java, tmp_path)
    first.part.write_bytes(b"torn")
    first.discard()
    first.finish()
    assert list((tmp_path / "cache").iterdir()) == []


def test_remains_of_dead_processes_are_removed(java, tmp_path):
    mine = of(java, tmp_path).part
    mine.write_bytes(b"being written")
    dead = mine.with_name(mine.name.replace(str(os.getpid()), "999999999"))
    dead.write_bytes(b"torn")
    of(java, tmp_path)
    assert (mine.exists(), dead.exists()) == (True, False)


def test_only_where_it_is_safe(java, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert of(java, tmp_path, folder="shared") is None
    (tmp_path / "file").write_text("")
    assert of(java, tmp_path, folder="file") is None
    assert of(java, tmp_path, folder="with space") is None
    assert archive_for(None, tmp_path, "4.3.0", str(tmp_path)) is None
    monkeypatch.setenv(VARIABLE, "off")
    assert archive_for(java, tmp_path / "spark", "4.3.0") is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert archive_for(java, tmp_path / "spark", "4.3.0").path.parent == tmp_path / "xdg" / "sievenet"


def test_which_java(java, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    assert java_binary() == java
    monkeypatch.setenv("JAVA_HOME", "/no/such/place")
    assert java_binary() is None
