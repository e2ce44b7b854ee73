"""Store: machine code in files, which may be damaged, deleted or forbidden at any time without harm.

A file belongs to one *key*, a digest of everything that the machine code depends on; it is in the file's name, so
nothing in a file ever becomes out of date, there is no index, and processes that write the same file write the same
content. A file is a checksum and a payload. The checksum covers the key and the payload:

    sievenet.matcher.level.find-0123456789abcdef….nbc  =  magic │ SHA-256 of key and payload │ payload

Files appear whole, by renaming. What does not fit its checksum is not there. A folder that cannot be written to is
passed over for the next one; if none is left, this is said once and code is compiled in every process.

Files that nobody has used for a month are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["Store", "places"]

log = logging.getLogger("sievenet.jit")

_MAGIC: Final = b"sievenet machine code 1\n"
_DAY: Final = 86_400.0
#: Seconds without use after which a file is removed.
_UNUSED: Final = 30 * _DAY


def places(wanted: str, package: Path) -> tuple[Path, ...]:
    """The folders for machine code, best first: the one that the user wants, or the package's own, or the user's."""
    if wanted:
        return (Path(wanted) / "sievenet",)
    found = [package / "__pycache__" / "compiled"]
    if cache := os.environ.get("XDG_CACHE_HOME"):
        found.append(Path(cache) / "sievenet" / "compiled")
    else:
        with contextlib.suppress(RuntimeError):  # no home
            found.append(Path.home() / ".cache" / "sievenet" / "compiled")
    return tuple(found)


class Store:
    """Payloads by name and key, in the first of some folders that allows it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._warned = False
        self._swept = False

    @property
    def folder(self) -> Path:
        """Where files are looked for first."""
        return self._folders[0]

    def load(self, name: str, key: str) -> bytes | None:
        """What was stored under a key, or None."""
        for folder in self._folders:
            path = _path(folder, name, key)
            try:
                content = path.read_bytes()
            except OSError:
                continue
            head = len(_MAGIC) + hashlib.sha256().digest_size
            payload = content[head:]
            if content[:head] == _MAGIC + _checksum(key, payload):
                _touch(path)
                return payload
            log.info("%s is damaged; the function is compiled again", path)
        return None

    def save(self, name: str, key: str, payload: bytes) -> None:
        """Store a payload; where that cannot be, say so once and go on."""
        content = _MAGIC + _checksum(key, payload) + payload
        failures = []
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _write(_path(folder, name, key), content)
            except OSError as error:
                failures.append(f"{folder}: {error.strerror or error}")
                continue
            if not self._swept:
                self._swept = True
                sweep(folder, time.time())
            return
        if not self._warned:
            self._warned = True
            log.warning(
                "compiled code cannot be stored, so every start compiles it again, for up to a minute (%s); "
                "make one of these folders writable, or name another in NUMBA_CACHE_DIR",
                "; ".join(failures),
            )

    def remove(self, name: str) -> None:
        """Forget all that is stored under a name."""
        for folder in self._folders:
            for path in folder.glob(f"{name}-*.nbc"):
                with contextlib.suppress(OSError):
                    path.unlink()


def sweep(folder: Path, now: float) -> None:
    """Remove files that have not been used for a month, and what a killed process left unfinished then."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.suffix in (".nbc", ".new") and now - path.stat().st_mtime > _UNUSED:
                path.unlink(missing_ok=True)


def _path(folder: Path, name: str, key: str) -> Path:
    return folder / f"{name}-{key}.nbc"


def _checksum(key: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(payload)
    return digest.digest()


def _touch(path: Path) -> None:
    """Remember that a file was used, to the day."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)


def _write(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, whoever else writes it."""
    new = path.with_name(f"{uuid.uuid4().hex}.new")
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
