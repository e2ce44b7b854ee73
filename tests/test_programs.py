"""One table of external programs: nothing is started that it lacks, and scripts/system-packages reads the same one."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sievenet import programs
from sievenet.errors import InvalidInput, Unavailable

ROOT = Path(__file__).resolve().parent.parent

#: Calls that start a process: the module's name and the function's.
STARTS = {
    *(("subprocess", name) for name in ("run", "Popen", "call", "check_call", "check_output", "getoutput")),
    *(("asyncio", name) for name in ("create_subprocess_exec", "create_subprocess_shell")),
    *(("os", name) for name in ("system", "popen", "posix_spawn", "posix_spawnp", "startfile")),
    *(
        ("os", f"{kind}{ends}")
        for kind in ("exec", "spawn")
        for ends in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
    ),
    ("pty", "spawn"),
}


def starts(tree):
    """Every call in a module that starts a process, however its function was imported."""
    modules = {name for name, _ in STARTS}
    functions = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            functions |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            found = (called.value.id, called.attr)
        elif isinstance(called, ast.Name):
            found = functions.get(called.id)
        else:
            continue
        if found in STARTS:
            yield node


def scopes(tree):
    """For every call of a module, the functions around it, the innermost first, and the module."""
    found = {}

    def visit(node, around):
        if isinstance(node, ast.Call):
            found[node] = around
        inner = [node, *around] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else around
        for child in ast.iter_child_nodes(node):
            visit(child, inner)

    visit(tree, [tree])
    return found


def assigned(name, scope):
    """Everything that a function or module ever assigns to a name; None stands for what a caller passes."""
    if not isinstance(scope, ast.Module) and any(name == a.arg for a in ast.walk(scope.args) if isinstance(a, ast.arg)):
        return [None]
    return [
        found.value
        for found in ast.walk(scope)
        if isinstance(found, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in found.targets)
    ]


def is_checked(node, around, depth=0):
    """Whether an expression for the words of a command surely comes from `command(…)`, or starts this Python."""
    if isinstance(node, ast.Starred):
        return is_checked(node.value, around, depth)
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) == "command"
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and is_checked(node.elts[0], around, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_checked(node.left, around, depth)
    if isinstance(node, ast.Subscript):
        return is_checked(node.value, around, depth)
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) == "sys.executable"
    if isinstance(node, ast.Name) and depth < 5:
        values = next((values for scope in around if (values := assigned(node.id, scope))), [])
        return bool(values) and all(is_checked(value, around, depth + 1) for value in values)
    return False


def unchecked(source):
    """The lines of a module that start a process whose words nobody has checked."""
    if not any(module in source and name in source for module, name in STARTS):
        return []  # most modules: nothing in them could start one
    tree = ast.parse(source)
    calls = list(starts(tree))
    around = scopes(tree) if calls else {}
    found = []
    for call in calls:
        first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "args"), None)
        if first is None or not is_checked(first, around[call]):
            found.append(call.lineno)
    return found


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_programs_are_started_through_the_table(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        lines = [] if path == Path(__file__) else unchecked(path.read_text(encoding="utf-8"))
        assert not lines, (
            f"{path.relative_to(ROOT)}:{lines[0]} starts a process whose words do not come from "
            "sievenet.programs.command(…), nor begin with sys.executable"
        )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import subprocess\nsubprocess.run(['ip', 'link'])", [2]),
        ("import subprocess\nsubprocess.run(words)", [2]),
        ("from subprocess import Popen as start\nstart(args=['ip'])", [2]),
        ("import os\nos.execvpe('ip', ['ip'], {})", [2]),
        ("import asyncio\nasyncio.create_subprocess_exec('ip')", [2]),
        ("import os\nos.system('ls')", [2]),
        ("import subprocess\ndef f(x):\n subprocess.run(x)\nx = [sys.executable]", [3]),
        ("import subprocess\nx = ['sh']\nx = [sys.executable]\nsubprocess.run(x)", [4]),
        ("import subprocess\nsubprocess.run(command('ip', 'link'))", []),
        ("import subprocess\nx = [sys.executable, '-c']\ny = [*x, '1']\nsubprocess.run([*y, '2'])", []),
        ("import asyncio\nasyncio.create_subprocess_exec(sys.executable, '-c', '')", []),
    ],
)
def test_the_check_finds_starts(source, found):
    assert unchecked(source) == found


def test_the_table_is_well_formed():
    rows = programs.table()
    lines = [line for line in programs.TABLE.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(rows), "expected one row for each program"
    assert list(rows)[:2] == ["java", "ip"]
    for row in rows.values():
        assert re.fullmatch(r"[a-z0-9_-]+", row.name), row
        assert re.fullmatch(r"[a-z0-9.+-]+", row.package), row
        parts = "java openvswitch tls browser prometheus mqtt systemd compiler debian brokers optional"
        assert row.part in parts.split(), row
        assert row.use, row


def test_make_installs_every_part_that_tests_need():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.search(r"^SYSTEM := (.*)$", makefile, re.MULTILINE)[1].split())
    assert named == {row.part for row in programs.table().values()} - {"debian", "brokers", "optional"}


def test_a_command_is_of_the_table():
    assert programs.command("sh", "-c", ":")[1:] == ["-c", ":"]
    assert programs.command(sys.executable, "-c", "") == [sys.executable, "-c", ""]
    inside = ["ip", "netns", "exec", "n"]
    for words in (["telnet"], ["/usr/bin/telnet"], ["env", "A=1", "-i", "telnet"], [*inside, "telnet"]):
        with pytest.raises(InvalidInput, match=r"Expected a program of programs\.txt, got '.*telnet'"):
            programs.command(*words)
    assert programs.unlisted(["ip", "netns", "exec", "n", "env", "A=1", "ip", "link"]) == []
    assert programs.unlisted(["nice", "-n", "5", "env", "A=1", "telnet"]) == ["telnet"]
    assert programs.unlisted(["nice", "--adjustment=5", "sh"]) == []
    assert programs.unlisted(["unshare", "--pid", "--fork", "telnet"]) == ["telnet"]
    with pytest.raises(InvalidInput):
        programs.find("telnet")


def test_what_this_machine_lacks_is_told_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_SYSTEM", str(tmp_path))
    with pytest.raises(
        Unavailable, match="Expected the program ovs-vsctl, got none: install Debian package openvswitch-switch"
    ):
        programs.command("ovs-vsctl", "init")
    assert [each.name for each in programs.missing("java")] == ["java"]


def start_run():
    subprocess.run(["no-such-program"], check=False)


def start_exec():
    pid = os.fork()
    if not pid:
        try:
            os.execvp("no-such-program", ["no-such-program"])
        except BaseException as error:
            os._exit(7 if "programs.txt" in str(error) else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    raise AssertionError("programs.txt")


def start_asyncio():
    asyncio.run(asyncio.create_subprocess_exec("no-such-program"))


def start_system():
    os.system("no-such-program")


@pytest.mark.parametrize("start", [start_run, start_exec, start_asyncio, start_system], ids=lambda f: f.__name__)
def test_a_test_that_starts_another_program_fails(start):
    """Whoever starts it, and however: a hook of the interpreter sees all of them."""
    with pytest.raises(AssertionError, match=r"programs\.txt"):
        start()
