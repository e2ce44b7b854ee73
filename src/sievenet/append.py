"""Append: lines added to a file whole or not at all.

    {"who": "alice", …}⏎        a line that did not fit is taken back …
    {"who": "bob", "wh│         … and one that a crash has cut is ended before the next begins

A disk that fills takes a part of what is written, without an error. So a reader of lines would find half a line, joined
to the first one written when there is room again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

__all__ = ["append"]


def append(path: Path, lines: bytes, *, sync: bool = False) -> None:
    """Add lines to a file that only its owner can read; `OSError` if not all of them could be written.

    With ``sync``, this returns when they are safe.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append(Path(folder, "log"), b"one\\n")
    ...     append(Path(folder, "log"), b"two\\n")
    ...     Path(folder, "log").read_text()
    'one\\ntwo\\n'
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(handle)
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        written = 0
        try:
            written = os.write(handle, lines)
            if written != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                if written and os.fstat(handle).st_size == size + written:  # and nobody has written behind it
                    os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
