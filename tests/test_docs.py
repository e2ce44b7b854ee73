"""The documents are true: every example of README, docs, command help and docstrings runs and prints what it shows."""

import contextlib
import doctest
import importlib
import importlib.util
import re

import click
import pytest

from tests.documents import OPTIONS, ROOT, command, run_command, run_document

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = ROOT / "src" / "sievenet"
#: Modules that show `>>>`; one that shows only what it skips has nothing to run.
DOCTESTED = [
    path for path in sorted(SOURCES.rglob("*.py")) if re.search(r">>> (?!.*\+SKIP)", path.read_text(encoding="utf-8"))
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def relative(path):
    return str(path.relative_to(ROOT))


def module_name(path):
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def command_tree():
    """Every command of the command line as (words, command), found through click."""
    if not any(SOURCES.glob("cli*/__init__.py")):
        return
    from sievenet.cli import main

    waiting = [(("sievenet",), main)]
    while waiting:
        words, found = waiting.pop()
        yield words, found
        if isinstance(found, click.Group):
            context = click.Context(found, info_name=words[-1])
            names = found.list_commands(context)
            waiting.extend(((*words, name), found.get_command(context, name)) for name in names)


COMMANDS = sorted(command_tree())
#: `up` has a dozen examples, each of which starts a fabric.
LEAVES = [
    pytest.param(words, found, marks=[pytest.mark.slow] if words[-1] == "up" else [], id=" ".join(words))
    for words, found in COMMANDS
    if not isinstance(found, click.Group)
]


def help_examples(found):
    """The `$ sievenet …` lines under "Examples:" in a command's help."""
    text = f"{found.help or ''}\n{found.epilog or ''}"
    _, _, examples = text.partition("Examples:")
    joined = examples.replace("\\\n", " ")
    return [command(line.strip().removeprefix("$ ")) for line in joined.splitlines() if line.strip().startswith("$ ")]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_page_is_true(page, tmp_path):
    run_document(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{relative(page)} links to {target}, which is not there"


def test_attacks_have_the_tests_that_are_named():
    page = (ROOT / "docs" / "topics" / "security.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{file} has no {test}"


def test_index_leads_to_every_page():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index.read_text("utf-8"))}
    missing = [relative(page) for page in PAGES if page.is_relative_to(index.parent) and page not in linked | {index}]
    assert not missing, f"docs/index.md should link to {missing}"


def test_readme_opens_with_an_example():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40])
    assert re.search(r"^```(python|pycon|console)", first_screen, re.MULTILINE)


@pytest.mark.parametrize(("words", "found"), LEAVES)
def test_help_examples_run(words, found, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    examples = help_examples(found)
    assert examples, f"the help of `{' '.join(words)}` should have an Examples: block with `$ sievenet …` lines"
    for item in examples:
        assert item.text.startswith(" ".join(words)) or "|" in item.text, f"an example of another command: {item.text}"
        if not item.needs:
            run_command(item, tmp_path, f"help of {' '.join(words)}")


@pytest.mark.parametrize("path", DOCTESTED, ids=relative)
def test_docstrings_are_true(path, tmp_path):
    module = importlib.import_module(module_name(path))
    with contextlib.chdir(tmp_path):
        outcome = doctest.testmod(module, optionflags=OPTIONS)
    assert outcome.attempted, f"{relative(path)} shows >>> outside of docstrings"
    assert not outcome.failed


@pytest.mark.parametrize("path", EXAMPLES, ids=relative)
def test_example_programs_run(path, tmp_path, capsys):
    """A program of examples/ runs to its end by itself and says something."""
    spec = importlib.util.spec_from_file_location(f"examples_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    with contextlib.chdir(tmp_path):
        spec.loader.exec_module(module)
        module.main()
    assert capsys.readouterr().out.strip()


def test_no_page_names_a_machine():
    """Paths of somebody's machine are true nowhere else."""
    for page in PAGES:
        assert not re.search(r"/(root|home)/\w", page.read_text(encoding="utf-8")), relative(page)
