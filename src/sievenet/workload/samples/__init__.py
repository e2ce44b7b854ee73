"""Schemas and a plan that ship with the package, so that examples need no files.

* stock: symbol, price, volume; the running example, and what `Ticks` generates
* sensor: every type of attribute, free text too
* plane: two whole numbers x and y, for pictures

The plan of stock is what the pipeline's search finds for the market of `sievenet up --sample stock` and its watchers: a
rectangle for each interest, and the rest of the space as one more region, for whoever comes later.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sievenet.content import Schema
from sievenet.errors import InvalidInput, SchemaError, SievenetError
from sievenet.index.plan import Plan

__all__ = ["load_plan", "load_schema", "plan_names", "sample_names"]

#: Largest file of a schema or plan that is read, in bytes.
_MAX_BYTES = 1 << 20


def sample_names() -> list[str]:
    """The names of the built-in schemas."""
    return _names(resources.files(__name__))


def plan_names() -> list[str]:
    """The names of the built-in plans, which are those of their schemas."""
    return _names(resources.files(__name__) / "plans")


def load_schema(name_or_path: str | Path) -> Schema:
    """A built-in schema by its name, or one from a JSON file by its path.

    >>> load_schema("plane").attributes[0].name
    'x'
    """
    data, where = _read(name_or_path, resources.files(__name__), "schema", SchemaError)
    try:
        return Schema.from_json(data)
    except SchemaError as error:
        raise SchemaError(str(error), where=where) from None


def load_plan(name_or_path: str | Path) -> Plan:
    """A built-in index plan by the name of its schema, or one from a JSON file by its path.

    >>> len(load_plan("stock").regions)
    19
    """
    data, where = _read(name_or_path, resources.files(__name__) / "plans", "plan", InvalidInput)
    try:
        return Plan.from_json(data)
    except SievenetError as error:
        raise InvalidInput(str(error), where=where) from None


def _names(folder: Traversable) -> list[str]:
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def _read(name_or_path: str | Path, folder: Traversable, what: str, failure: type[InvalidInput]) -> tuple[bytes, str]:
    """The bytes of a built-in thing by its name, or of a file by its path; and where they come from."""
    text = str(name_or_path)
    names = _names(folder)
    if text in names:
        return (folder / f"{text}.json").read_bytes(), text
    try:
        with Path(text).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or error
        raise failure(
            f"Expected a {what} file or a built-in {what} ({', '.join(names)}), got {text!r}: {reason}"
        ) from None
    if len(data) > _MAX_BYTES:
        raise failure(f"Expected at most {_MAX_BYTES} bytes of {what}", where=text)
    return data, text
