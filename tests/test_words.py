"""The glossary speaks of things that exist, each word once; modules are named by nouns."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "sievenet"
PAGE = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| ([a-z][^|]*?) \| ([^|]+?) \| `([\w.]+)` \|$", PAGE, re.MULTILINE)

#: Words in -ing that the field uses as nouns.
NOUNS = {
    "caching", "clustering", "covering", "encoding", "forwarding", "framing", "mapping", "merging", "pacing", "ring",
    "routing", "stabbing", "testing", "tiling", "tracing", "tuning",
}  # fmt: skip


def names(path):
    """What a module defines at its top."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                yield target.id


@pytest.mark.parametrize(("word", "place"), [(word, place) for word, _, place in TERMS])
def test_the_place_exists(word, place):
    path = PACKAGE.joinpath(*place.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return
    module, name = path.parent, path.name
    module = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    assert module.exists(), f"{word}: {place} is not there"
    assert name in set(names(module)), f"{word}: {place} is not there"


def test_every_word_has_one_meaning():
    words = [word for word, _, _ in TERMS]
    assert len(TERMS) == len(re.findall(r"^\| [a-z]", PAGE, re.MULTILINE)) - PAGE.count("| word |")
    assert len(words) == len(set(words)) > 50


def test_modules_are_nouns():
    gerunds = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*ing.py") if p.stem not in NOUNS}
    assert not gerunds, f"name these by a noun of the field: {sorted(gerunds)}"
