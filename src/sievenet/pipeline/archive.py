"""A class-data archive: half of the time that Spark takes to start is Java reading classes.

Java can keep the classes that it has read in a file and map that file next time.  The first local session writes one
when it ends; later ones begin with it:

    first      java -XX:ArchiveClassesAtExit=.KEY.PID.part    … at the end:  .KEY.PID.part ──rename──▶ KEY.jsa
    later      java -XX:SharedArchiveFile=KEY.jsa

The key is made of this Java and this Spark, so an update leads to a new file, and Java itself passes by a file that
does not fit.  A file appears whole or not at all.  Archives are in ``~/.cache/sievenet``, or where
SIEVENET_SPARK_ARCHIVE says (`off` for none); that folder must be ours alone, for classes are code.  An archive takes
about 200 MB, and some seconds at the end of the first session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sievenet import programs

__all__ = ["VARIABLE", "Archive", "archive_for", "java_binary"]

#: The folder for archives, or `off`.
VARIABLE: Final = "SIEVENET_SPARK_ARCHIVE"
#: Bytes that must be free before an archive is written.
_ROOM: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Archive:
    """Where an archive is, and where it is written if there is none yet."""

    path: Path
    part: Path | None

    @property
    def options(self) -> str:
        """What to say to Java."""
        # Java has much to say about classes that it leaves out.
        use = f"-XX:ArchiveClassesAtExit={self.part}" if self.part else f"-XX:SharedArchiveFile={self.path}"
        return f"{use} -Xshare:auto -Xlog:disable"

    def finish(self) -> None:
        """Java has ended: what it wrote is the archive from now on."""
        if self.part is not None:
            with contextlib.suppress(OSError):
                self.part.replace(self.path)

    def discard(self) -> None:
        """Java did not end well: what it wrote is not to be used."""
        if self.part is not None:
            self.part.unlink(missing_ok=True)


def java_binary() -> Path | None:
    """The Java that Spark is going to run."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else programs.find("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def archive_for(java: Path | None, spark: Path, version: str, name: str | None = None) -> Archive | None:
    """The archive for a Java and a Spark (its folder and version), or none if it cannot be kept safely."""
    said = name if name is not None else os.environ.get(VARIABLE, "")
    if said == "off" or java is None or any(c.isspace() for c in said):
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(said or f"{cache}/sievenet").expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o022:
            return None
        key = f"spark-{version}-{_key(java, spark, version)}"
        path = folder / f"{key}.jsa"
        if path.is_file():
            return Archive(path, None) if path.stat().st_uid == os.getuid() else None
        _remove_remains(folder)
        if shutil.disk_usage(folder).free < _ROOM:
            return None
    except OSError:
        return None
    return Archive(path, folder / f".{key}.{os.getpid()}.part")


def _key(java: Path, spark: Path, version: str) -> str:
    """Differs whenever Java or Spark do."""
    digest = hashlib.sha256(version.encode())
    for file in (java, java.parent.parent / "release", spark / "jars"):
        state = file.stat() if file.exists() else None
        digest.update(f"{file} {state.st_size, state.st_mtime_ns}".encode() if state else str(file).encode())
    return digest.hexdigest()[:16]


def _remove_remains(folder: Path) -> None:
    """Parts whose processes are gone."""
    for part in folder.glob(".spark-*.part"):
        owner = part.name.rsplit(".", 2)[1]
        if not (owner.isdigit() and Path(f"/proc/{owner}").exists()):
            part.unlink(missing_ok=True)
