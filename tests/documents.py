"""Running the examples of a Markdown file, so that what the documents show is what happens.

The convention, told to writers in CONTRIBUTING.md. Blocks of one document run in order, in one folder of their own:

    ```python                run; all Python blocks of a document share their names
    ```output                what the Python block just above prints
    ```pycon                 run as a doctest, with the same names
    ```console               lines `$ command` run if they call sievenet or python, followed by what they print
    ```LANGUAGE file=NAME    written to the file NAME for the blocks below

`...` stands for any text. A command ends well, or its line ends in `# fails`; `# needs …` says why it is not run here.
`<!-- skip: reason -->` above a block leaves that block alone.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from sievenet import programs

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL)
_SKIP = re.compile(r"<!--\s*skip:\s*(\S.*?)\s*-->\s*$")
#: Commands that a document may run; whatever else it shows (make, git, pip …) is for the reader.
_RUNNABLE = re.compile(r"(?:^|[|;&]\s*)(?:sievenet|python)\b")
_COMMENT = re.compile(r"\s+# ([^'\"]*)$")


class Mismatch(AssertionError):
    """A document shows something else than what happens."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the file it is to be written to, its text, its line, why it is skipped."""

    language: str
    file: str
    body: str
    line: int
    skip: str


@dataclass(frozen=True, slots=True)
class Command:
    """A `$ command` with the output shown below it."""

    text: str
    expected: str
    fails: bool
    needs: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = []
    for fence in _FENCE.finditer(text):
        language, *rest = fence["info"].split() or [""]
        file = next((word.removeprefix("file=") for word in rest if word.startswith("file=")), "")
        indent = len(fence["indent"])
        body = "".join(line[indent:] if line.strip() else line for line in fence["body"].splitlines(keepends=True))
        skip = _SKIP.search(text[: fence.start()].rstrip())
        found.append(Block(language, file, body, text.count("\n", 0, fence.start()) + 2, skip[1] if skip else ""))
    return found


def commands(body: str) -> Iterator[Command]:
    """The commands of a console block; a trailing backslash continues one on the next line."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        first, _, rest = part.replace("\\\n", " ").partition("\n")
        yield command(first, rest)


def command(line: str, expected: str = "") -> Command:
    """A command line with its closing comment, if any, understood."""
    found = _COMMENT.search(line)
    comment = found[1].strip() if found else ""
    text = line[: found.start()] if found else line
    return Command(text.strip(), expected, comment == "fails", comment if comment.startswith("needs ") else "")


def run_document(path: Path, folder: Path) -> int:
    """Run the examples of a document in `folder`; returns how many ran, raises `Mismatch` at the first lie."""
    session = Session(folder, str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name)
    for block in blocks(path.read_text(encoding="utf-8")):
        if not block.skip:
            session.run(block)
    return session.ran


class Session:
    """The blocks of one document share names, a folder with `examples/` in it, and the output of the last one."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.names: dict[str, object] = {"__name__": "__document__"}
        #: What the last Python block printed, for an `output` block; None if the last block was something else.
        self.printed: str | None = None
        self.ran = 0
        with contextlib.suppress(FileExistsError):
            (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, block: Block) -> None:
        """Do what a block asks for."""
        where = f"{self.name}:{block.line}"
        printed, self.printed = self.printed, None
        if block.file:
            target = (self.folder / block.file).resolve()
            if not target.is_relative_to(self.folder.resolve()):
                raise Mismatch(f"{where}: expected a file of the document's own folder, got {block.file}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            self.printed = self._python(block, where)
            self.ran += 1
        elif block.language == "output":
            if printed is None:
                raise Mismatch(f"{where}: expected a Python block just above the output block, got none")
            compare(block.body, printed, where)
        elif block.language == "pycon":
            self._pycon(block, where)
            self.ran += 1
        elif block.language == "console":
            for item in commands(block.body):
                if _RUNNABLE.search(item.text) and not item.needs:
                    run_command(item, self.folder, where)
                    self.ran += 1

    def _python(self, block: Block, where: str) -> str:
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            # Blank lines in front make a traceback name the line of the document.
            exec(compile("\n" * (block.line - 1) + block.body, self.name, "exec"), self.names)
        return out.getvalue()

    def _pycon(self, block: Block, where: str) -> None:
        test = doctest.DocTestParser().get_doctest(block.body, self.names, where, self.name, block.line - 1)
        test.globs = self.names
        report = io.StringIO()
        with contextlib.chdir(self.folder):
            outcome = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.write, clear_globs=False)
        if outcome.failed:
            raise Mismatch(f"{where}:\n{report.getvalue()}")


def run_command(item: Command, folder: Path, where: str) -> None:
    """Run one command in `folder`; compare its exit and, if the document shows any, its output."""
    code, output = _in_process(item.text, folder) if _is_simple(item.text) else _in_shell(item.text, folder)
    if (code != 0) != item.fails:
        raise Mismatch(
            f"{where}: $ {item.text}\nexpected exit {'other than 0' if item.fails else '0'}, got {code}:\n{output}"
        )
    if item.expected.strip():
        compare(item.expected, output, f"{where}: $ {item.text}")


def compare(expected: str, got: str, where: str) -> None:
    """Compare as doctest does: white space counts once, `...` is anything."""
    if not doctest.OutputChecker().check_output(_flat(expected), _flat(got), OPTIONS):
        raise Mismatch(f"{where}\nexpected:\n{expected}\ngot:\n{got}")


def _flat(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def _is_simple(text: str) -> bool:
    """Whether `text` is one call of sievenet that needs no shell: quoted, a `<` or `*` means nothing to the shell."""
    bare = re.sub(r"'[^']*'|\"[^\"$`]*\"", "", text)
    return text.startswith("sievenet") and not re.search(r"[|;&<>$`*]", bare)


def _in_process(text: str, folder: Path) -> tuple[int, str]:
    from sievenet.cli import main

    _, *arguments = shlex.split(text)
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, arguments, prog_name="sievenet")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise Mismatch(f"$ {text}") from result.exception
    return result.exit_code, result.output


def _in_shell(text: str, folder: Path) -> tuple[int, str]:
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run(
        programs.command("sh", "-c", text), cwd=folder, env=environment, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
