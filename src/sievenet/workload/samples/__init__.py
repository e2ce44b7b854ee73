"""Schemas that ship with the package, so that examples need no files.

* stock: symbol, price, volume; the running example, and what `Ticks` generates
* sensor: every type of attribute, free text too
* plane: two whole numbers x and y, for pictures
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from sievenet.content import Schema
from sievenet.errors import SchemaError

__all__ = ["load_schema", "sample_names"]

#: Largest schema file that is read, in bytes.
_MAX_BYTES = 1 << 20


def sample_names() -> list[str]:
    """The names of the built-in schemas."""
    folder = resources.files(__name__)
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_schema(name_or_path: str | Path) -> Schema:
    """A built-in schema by its name, or one from a JSON file by its path.

    >>> load_schema("plane").attributes[0].name
    'x'
    """
    text = str(name_or_path)
    if text in sample_names():
        return Schema.from_json(resources.files(__name__).joinpath(f"{text}.json").read_bytes())
    try:
        with Path(text).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        known = ", ".join(sample_names())
        raise SchemaError(
            f"Expected a schema file or a built-in schema ({known}), got {text!r}: {error.strerror or error}"
        ) from None
    if len(data) > _MAX_BYTES:
        raise SchemaError(f"Expected at most {_MAX_BYTES} bytes of schema", where=text)
    try:
        return Schema.from_json(data)
    except SchemaError as error:
        raise SchemaError(str(error), where=text) from None
