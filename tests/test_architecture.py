"""The tree shows the architecture, and these tests keep it so: imports run downwards only, the core stays light."""

import functools
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sievenet"

#: The one list: a part imports only from rows before its own, and from itself; parts of one row do not know each
#: other. docs/topics/architecture.md shows the same list, and a test below compares the two.
LAYERS = (
    ("errors",),
    ("append",),
    ("programs",),
    ("jit",),
    ("content",),
    ("tap",),
    ("access",),
    ("session",),
    ("index",),
    ("matcher",),
    ("workload",),
    ("network",),
    ("simulation",),
    ("tuning",),
    ("dataplane",),
    ("control",),
    ("config",),
    ("transport",),
    ("cache",),
    ("routers",),
    ("client", "daemon"),
    ("gateway", "cachehost", "bridge"),
    ("sync",),
    ("web",),
    ("pipeline",),
    ("testing",),
    ("cli",),
)
LEVEL = {part: level for level, row in enumerate(LAYERS) for part in row}

#: What is not of the core belongs to one part each, so that nothing else can come to need it.
OWNERS = {
    "pyspark": {"pipeline"},
    "pandas": {"pipeline"},
    "pyarrow": {"pipeline"},
    "py4j": {"pipeline"},
    "os_ken": set(),
    "hypothesis": {"testing"},
    "pytest": {"testing"},
    "scipy": set(),
    "matplotlib": set(),
    "cryptography": {"access"},
    "aiohttp": {"web"},
    "prometheus_client": {"web"},
    "opentelemetry": {"web"},
    "selenium": set(),
    "paho": {"bridge"},
    "nats": {"control"},
    "nkeys": {"control"},
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}

#: Slow to import or not of the core: whoever only says `import sievenet` or `sievenet --help` should not wait for it.
HEAVY = {
    "cryptography",
    "numba",
    "llvmlite",
    "scipy",
    "matplotlib",
    "hypothesis",
    "pytest",
    "pyspark",
    "pandas",
    "pyarrow",
    "aiohttp",
    "prometheus_client",
    "opentelemetry",
}

#: Modules of more than 400 lines, each with the reason why it is one noun all the same.
LARGE: dict[str, str] = {}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def relative(path):
    return str(path.relative_to(ROOT))


def part_of(path):
    """The part that a file belongs to: `content` for content/event.py, `errors` for errors.py."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def every_module(check):
    """A test that runs a check on each module, and reports all that fail."""

    def test():
        failed = []
        for path in modules():
            try:
                check(path)
            except AssertionError as error:
                failed.append(str(error).splitlines()[0])
        assert not failed, "\n".join(failed)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


@functools.cache
def graph_script():
    loader = importlib.machinery.SourceFileLoader("import_graph", str(ROOT / "scripts" / "import-graph"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("import_graph", loader))
    loader.exec_module(module)
    return module


def docstring_of(path):
    return graph_script().read(path)[0]


def imports(path):
    """Every absolute module name that a file imports, wherever in it, with the line."""
    return graph_script().read(path)[1]


@every_module
def test_imports_run_downwards(path):
    part = part_of(path)
    # The package's own __init__ offers names of every part, lazily; __main__ starts the command line.
    if path.parent == PACKAGE and part in ("__init__", "__main__"):
        return
    assert part in LEVEL, f"{relative(path)}: give {part!r} its place in LAYERS and in docs/topics/architecture.md"
    for name, line in imports(path):
        words = name.split(".")
        if words[0] != "sievenet" or words[1] in (part, "__version__"):
            continue
        other = words[1]
        assert other in LEVEL, f"{relative(path)}:{line} imports {name}: expected a part of LAYERS"
        assert LEVEL[other] < LEVEL[part], f"{relative(path)}:{line}: {part} may not import {other}, not below it"


@every_module
def test_extras_stay_with_their_owners(path):
    for name, line in imports(path):
        top = name.split(".")[0]
        if top in OWNERS:
            assert part_of(path) in OWNERS[top], (
                f"{relative(path)}:{line}: only {OWNERS[top] or 'nobody'} may import {top}"
            )


#: What compiled code may take from numba itself; the decorators are those of `jit`, whose cache is never out of date.
NUMBA = {"numba.types", "numba.np.arrayobj.make_array", "numba.np.numpy_support.carray"}


@every_module
def test_only_jit_compiles(path):
    if part_of(path) != "jit":
        for name, line in imports(path):
            assert name.split(".")[0] != "numba" or name in NUMBA, (
                f"{relative(path)}:{line} imports {name}: use the decorators of sievenet.jit, or add the name to NUMBA"
            )


def test_the_picture_of_imports_is_that_of_the_code():
    page = (ROOT / "docs" / "topics" / "architecture.md").read_text(encoding="utf-8")
    assert graph_script().graph() in page, "the imports have changed: run scripts/import-graph --write"


def test_packages_say_what_they_import():
    """A sentence of a package's docstring names the parts that it imports, all of them and no others."""
    for path, text, wanted in graph_script().packages():
        assert "\nImports " in text, f"{relative(path)} should end with a sentence: Imports only …"
        assert text == wanted, f"{relative(path)}: the imports have changed: run scripts/import-graph --write"


#: Words in docstrings of packages that are neither files nor names: arguments, methods of other parts, values.
WORDS = {"sievenet", "now", "subscribe", "advertise", "one", "sea", "sna", "leader"}


@every_module
def test_packages_speak_of_what_is_there(path):
    """What a package's docstring names in backticks, or in a table of its modules, is there."""
    if path.name != "__init__.py":
        return
    here, docstring = path.parent, docstring_of(path).partition("\nImports ")[0]
    inside, parts = ({each.stem for each in folder.iterdir()} for folder in (here, PACKAGE))
    source = "".join(each.read_text("utf-8") for each in here.rglob("*.py"))
    names = set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", source, re.MULTILINE))
    for said in re.findall(r"(?<!`)`([a-z_][\w./]*)`(?!`)", docstring):
        first = said.removeprefix("sievenet.").split(".")[0].rstrip("/")
        there = first in inside | parts | names | WORDS or any((root / said).exists() for root in (here, ROOT))
        assert there, f"{relative(path)} speaks of {said}, which is not there"
    rows = re.findall(r"^ {4}([a-z_]+/?(?:, [a-z_]+/?)*) {2,}\S", docstring, re.MULTILINE)
    words = {word for row in rows for word in re.findall(r"[a-z_]+", row)}
    assert not words & inside or words <= inside, f"{relative(path)} speaks of {sorted(words - inside)}: not there"


def test_every_module_is_used():
    """Nothing is left over: each module is imported by another one, by a test or by a benchmark."""
    # Commands are loaded by their names.
    modules = [path for path in PACKAGE.rglob("*.py") if path.name[:2] != "__" and part_of(path) != "cli"]
    used = {name for path in PACKAGE.rglob("*.py") for name, _ in imports(path)}
    used |= {name.rpartition(".")[0] for name in used}
    folders = (ROOT / "tests", ROOT / "benchmarks")
    others = "".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    for path in modules:
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        assert name in used or name in others, f"{relative(path)} is imported by nobody: remove it"


@pytest.mark.slow
@pytest.mark.unwatched
def test_the_way_of_an_event_and_of_a_subscription_does_not_grow_unnoticed():
    """The files that `scripts/hops` counts are about as many as the page says."""
    start = [sys.executable, str(ROOT / "scripts" / "hops")]
    said = subprocess.run(start, capture_output=True, text=True, check=True, timeout=120).stdout
    found = {(what, where): int(count) for what, where, count in re.findall(r"one (\w+) in (\w+): (\d+) files", said)}
    page = (ROOT / "docs" / "topics" / "architecture.md").read_text(encoding="utf-8")
    for what in ("event", "subscription"):
        # In brackets stands what it was before.
        row = re.search(rf"^\| one {what} \| (\d+) \(\d+\) \| (\d+) \(\d+\) \|$", page, re.MULTILINE)
        assert row, f"the page has no row for one {what}"
        for where, told in zip(("fabric", "routers"), row.groups(), strict=True):
            assert 0.8 * int(told) <= found[what, where] <= 1.1 * int(told), (
                f"one {what} in {where}: the page says {told}"
            )


#: What a module may not import that says of itself that it is pure, or does no I/O.
OUTSIDE = {"socket", "asyncio", "time", "ssl", "select", "selectors", "subprocess"}
PURE = re.compile(r"\b(pure|no I/O|without I/O|no socket|no clock)\b", re.IGNORECASE)


@every_module
def test_what_is_called_pure_is(path):
    docstring = docstring_of(path)
    # A module may also hold the shell around a pure part, if it says so; a package speaks of its modules.
    if path.name == "__init__.py" or not PURE.search(docstring) or re.search(r"\bthe (one )?shell around\b", docstring):
        return
    for name, line in imports(path):
        assert name.split(".")[0] not in OUTSIDE, f"{relative(path)}:{line} imports {name}, but says that it is pure"


def test_documents_show_the_same_layers():
    page = (ROOT / "docs" / "topics" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(errors.*?)```", page, re.DOTALL)
    assert block, "docs/topics/architecture.md should show the layers in a block that starts with errors"
    rows = [re.match(r"[a-z]+(?: / [a-z]+)*", line)[0].split(" / ") for line in block[1].splitlines() if line.strip()]
    assert tuple(tuple(row) for row in rows) == LAYERS


@every_module
def test_package_says_what_it_is(path):
    if path.name != "__init__.py":
        return
    docstring = docstring_of(path)
    assert docstring, f"{relative(path)} should say what lives there, what to import from it and what it may import"
    assert len(docstring) >= 60, f"{relative(path)}: the docstring should say more than a name"


@every_module
def test_modules_stay_small(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400 or relative(path) in LARGE, f"{relative(path)} has {lines} lines: is it one noun?"


@pytest.mark.parametrize("name", ["sievenet", *(["sievenet.cli"] if any(PACKAGE.glob("cli*/__init__.py")) else [])])
def test_import_is_light(name):
    # Processor time, without coverage: a busy machine or a tracer is no fault of the import.
    program = f"from time import process_time as t; a = t(); import {name}, sys; print(t() - a, *sys.modules)"
    start = [sys.executable, "-c", program]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    runs = [
        subprocess.run(start, env=bare, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)
    ]
    loaded = {word.split(".")[0] for word in runs[0][1:]}
    assert not loaded & HEAVY
    assert min(float(run[0]) for run in runs) < 0.5


def test_a_node_that_subscribes_to_nothing_needs_no_compiler():
    program = "import sievenet.client.fabric_node, sievenet.client.overlay.node, sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"numba", "llvmlite"} & set(said.split())


def test_public_names_exist():
    """What `__all__` promises is there, at the top and in every part."""
    import importlib

    names = ["sievenet", *(f"sievenet.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py"))]
    for name in names:
        if LEVEL.get(name.removeprefix("sievenet."), 0) >= LEVEL["pipeline"]:
            continue  # may need an extra; their own tests import them
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", []):
            assert hasattr(module, public), f"{name}.__all__ promises {public}, which is not there"
