"""What subscribers want, for the pipeline: from the control plane's journal, from a table, or from a text file.

    journal   the file of a fabric: every category, client, advertisement and subscription, as they are now
    parquet   the table `interests` (see `tables`), as `snapshot` writes it
    text      one filter per line, as `sievenet sub` takes it; `#` begins a comment

Subscriptions are the small side of every job: they are read on the driver and broadcast.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sievenet.content import Schema, Subscription, decode_subscription, encode_subscription, parse_subscription
from sievenet.errors import InvalidInput, SievenetError

if TYPE_CHECKING:
    from sievenet.control.state import State

__all__ = [
    "Wanted",
    "interests_table",
    "is_journal",
    "load_wanted",
    "read_journal",
    "save_wanted",
    "wanted_from",
    "wanted_of",
]

_FIELDS: Final = pa.schema(
    [
        ("key", pa.int64()),
        ("kind", pa.string()),
        ("client", pa.string()),
        ("host", pa.string()),
        ("content", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Subscriptions (or advertisements) of one schema, each with its client and the client's host."""

    schema: Schema
    subscriptions: tuple[Subscription, ...]
    clients: tuple[str, ...]
    hosts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.subscriptions)

    def take(self, rows: Iterable[int]) -> Wanted:
        """Some of them."""
        some = list(rows)
        return Wanted(
            self.schema,
            tuple(self.subscriptions[i] for i in some),
            tuple(self.clients[i] for i in some),
            tuple(self.hosts[i] for i in some),
        )


def is_journal(path: str | Path) -> bool:
    """Whether a file is the journal of a fabric."""
    from sievenet.control.logfile import MAGIC
    from sievenet.control.old_journal import SQLITE

    with Path(path).open("rb") as opened:
        return opened.read(len(SQLITE)).startswith((MAGIC, SQLITE))


def load_wanted(path: str | Path, schema: Schema) -> Wanted:
    """The subscriptions of a schema from a journal, a table or a text file."""
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(
            "Expected a journal, a Parquet file or a text file of subscriptions, got no file", where=str(path)
        )
    if is_journal(file):
        return wanted_of(read_journal(file), schema)
    with file.open("rb") as opened:
        start = opened.read(4)
    return wanted_from(file.read_bytes(), schema, where=str(file)) if start == b"PAR1" else _from_text(file, schema)


def _from_text(file: Path, schema: Schema) -> Wanted:
    found: list[Subscription] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"Expected text, a Parquet file or a journal; {error}", where=str(file)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found.append(parse_subscription(line, schema))
        except SievenetError as error:
            raise InvalidInput(f"{error}", where=f"{file}, line {number}") from error
    return Wanted(schema, tuple(found), ("",) * len(found), ("",) * len(found))


def wanted_from(data: bytes, schema: Schema, kind: str = "subscription", where: str = "interests") -> Wanted:
    """The subscriptions (or advertisements) of a table `interests`."""
    try:
        table = pq.read_table(pa.BufferReader(data), schema=_FIELDS)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"Expected a table with {', '.join(_FIELDS.names)}: {error}", where=where) from error
    rows = [row for row in table.to_pylist() if row["kind"] == kind]
    wanted = tuple(decode_subscription(schema, row["content"]) for row in rows)
    return Wanted(schema, wanted, tuple(r["client"] for r in rows), tuple(r["host"] for r in rows))


def interests_table(wanted: Wanted, kind: str = "subscription") -> pa.Table:
    """The table `interests`."""
    columns: list[Iterable[object]] = [
        range(len(wanted)),
        [kind] * len(wanted),
        wanted.clients,
        wanted.hosts,
        [encode_subscription(s) for s in wanted.subscriptions],
    ]
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, _FIELDS, strict=True)], schema=_FIELDS)


def save_wanted(wanted: Wanted, path: str | Path, kind: str = "subscription") -> None:
    """Write the table `interests`, all at once."""
    target = Path(path)
    staged = target.with_name(f".{target.name}.part")
    pq.write_table(interests_table(wanted, kind), staged)
    staged.replace(target)


def read_journal(path: str | Path) -> State:
    """The control plane's state as its journal has it; the fabric may be running meanwhile."""
    from sievenet.control.journal import read_records
    from sievenet.control.recovery import replay
    from sievenet.control.state import State

    state = State()
    replay(state, read_records(path))
    return state


def wanted_of(state: State, schema: Schema, *, advertised: bool = False) -> Wanted:
    """The subscriptions (or advertisements) of a schema in a state."""
    category = next((each for each in state.versions(schema.name) if each.schema == schema), state.named(schema.name))
    if category.schema != schema:
        raise InvalidInput(
            expected=f"{schema.name} version {schema.version} as given",
            got=f"`version {category.schema.version}`",
            where="journal",
        )
    rows = [
        (entry.subscription(schema), client.name, client.host)
        for client in state.clients.values()
        for entry in (client.advertisements if advertised else client.subscriptions).values()
        if entry.category == category.number
    ]
    return Wanted(schema, tuple(r[0] for r in rows), tuple(r[1] for r in rows), tuple(r[2] for r in rows))
