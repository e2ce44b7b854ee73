"""External programs: which there may be, where they come from, and the one door through which they are started.

`programs.txt` beside this module is the one table (program, Debian package, part, what needs it);
`scripts/system-packages` reads it too. A program that is not in it would be there by luck: on the author's machine, and
not on a new one. So whoever starts a process passes its words through `command`, which refuses what the table lacks and
says which package to install for what this machine lacks:

    subprocess.run(command("ip", "netns", "add", "h1"), check=True)

`tests/test_programs.py` finds starts in the tree that do not, and in tests every start is checked as it happens
(tests/conftest.py), also those of libraries. This Python, and what is installed beside it in its environment, need no
row.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sievenet.errors import InvalidInput, Unavailable

__all__ = ["TABLE", "Program", "command", "find", "missing", "table", "unlisted"]

#: The file with the table.
TABLE: Final = Path(__file__).with_name("programs.txt")
#: Where servers and tools of root are; the PATH of other users often lacks it.
_SYSTEM: Final = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Program:
    """A row of the table."""

    name: str
    #: The Debian package that has it.
    package: str
    #: What `scripts/system-packages` calls the part that needs it.
    part: str
    #: What cannot be done without it.
    use: str


@functools.cache
def table() -> dict[str, Program]:
    """All programs by name."""
    rows = (line.split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    return {name: Program(name, package, part, use) for name, package, part, use in rows}


def find(name: str) -> str | None:
    """The path of a program of the table, or None if this machine lacks it."""
    if name not in table():
        raise InvalidInput(f"Expected a program of {TABLE.name}, got {name!r}: add a row for it")
    return shutil.which(name) or shutil.which(name, path=_SYSTEM)


def missing(part: str) -> list[Program]:
    """The programs of a part that this machine lacks."""
    return [each for each in table().values() if each.part == part and find(each.name) is None]


def command(*words: str) -> list[str]:
    """The words of a command, ready to be started, if the table has its programs and this machine the first of them."""
    for name in unlisted(words):
        raise InvalidInput(f"Expected a program of {TABLE.name}, got {name!r}: add a row for it")
    first = words[0]
    if os.sep in first:
        return list(words)
    path = find(first)
    if path is None:
        package = table()[first].package
        raise Unavailable(f"Expected the program {first}, got none: install Debian package {package}")
    return [path, *words[1:]]


def unlisted(words: Sequence[str]) -> list[str]:
    """The programs that a command starts and that the table lacks: its first word, and what that starts in turn."""
    return [word for word in _started(words) if not _is_ours(word) and Path(word).name not in table()]


def _started(words: Sequence[str]) -> Iterator[str]:
    """The first word, and behind programs that start others in a place of their own, the first of those."""
    if not words:
        return
    yield words[0]
    name, rest = Path(words[0]).name, list(words[1:])
    if name == "ip" and rest[:2] == ["netns", "exec"]:
        yield from _started(rest[3:])
    elif name in ("env", "nice", "unshare"):
        while rest and (rest[0].startswith("-") or (name == "env" and "=" in rest[0])):
            # `nice -n 5` has its number in a word of its own.
            del rest[: 2 if name == "nice" and rest[0] == "-n" else 1]
        yield from _started(rest)


def _is_ours(word: str) -> bool:
    """Whether this is our Python, or comes with our packages."""
    return word == sys.executable or (os.sep in word and Path(word).is_relative_to(sys.prefix))
