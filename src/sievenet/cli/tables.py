"""`sievenet tables`: flow tables of switches that hold few entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from sievenet.cli.app import LazyGroup
from sievenet.cli.fabric import asked, run, seconds_text, url_option
from sievenet.cli.output import json_option, marked, show, show_json
from sievenet.cli.table import CommandRow

if TYPE_CHECKING:
    from sievenet.control.traffic import Traffic
    from sievenet.index import Plan

__all__ = ["ROWS", "fit", "show_tables", "tables"]

_HERE = "sievenet.cli.tables"
_SHARE = click.FloatRange(0.0, 1.0, min_open=True)
#: Rows of a traffic table that fit a request.
ROWS = 40_000


@click.group(
    cls=LazyGroup,
    table={
        "show": CommandRow(f"{_HERE}:show_tables", "Show which tables have a limit, and what merging costs."),
        "fit": CommandRow(f"{_HERE}:fit", "Choose anew which entries to merge."),
    },
)
def tables() -> None:
    """Show and fit flow tables of limited switches."""


@click.command("show")
@url_option
@json_option
def show_tables(url: str | None, as_json: bool) -> None:
    """Show which tables have a limit, and what merging costs.

    For each switch that holds a limited number of entries: how many it holds, how many there should be, how many of its
    entries are merged, how many entries those stand for, and about how many packets per second they send too far (as if
    what they carry were spread evenly, since the last look).

    \b
    Examples:
      $ sievenet tables show  # needs a running fabric
    """
    found = [each for each in asked(url, "status")["switches"] if "merged" in each]
    if as_json:
        show_json(found)
        return
    if not found:
        click.echo("no switch has a limit")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("switch", "capacity", "entries", "ideal", "merged", "stand for", "unwanted/s"):
        table.add_column(name, justify="left" if name == "switch" else "right")
    for each in found:
        numbers = [f"{each[key]:,}" for key in ("capacity", "flows", "ideal", "merged", "stand_for")]
        table.add_row(each["name"], *numbers, f"{each['unwanted']:,.1f}")
    show(table)


@click.command()
@click.option("--tap", type=click.Path(exists=True, file_okay=False), metavar="DIR", help="What was published.")
@click.option("--traffic", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="The same, counted.")
@click.option("--share", default=1.0, show_default=True, type=_SHARE, help="How much of that to use.")
@url_option
@json_option
def fit(tap: str | None, traffic: str | None, share: float, url: str | None, as_json: bool) -> None:
    """Choose anew which entries to merge.

    Where a switch holds fewer entries than there should be, some are merged, and it sends more than is wanted. This
    chooses merges for the whole network, so that this is as little as possible. The daemon does so by itself from time
    to time (`control.fit`).

    Without --tap it goes by how much each publisher has sent. With a tap (`sievenet pub --tap DIR`) it goes by what,
    which is much better where some content is far more frequent than other. --traffic is a file of `sievenet pipeline
    aggregate`, for more events than one process should count.

    \b
    Examples:
      $ sievenet tables fit  # needs a running fabric
      $ sievenet tables fit --tap tap --share 0.4  # needs a running fabric
      $ sievenet tables fit --traffic traffic.json  # needs a running fabric
    """
    from sievenet.client.connector import connect
    from sievenet.client.operator import fit_tables

    async def ask() -> Any:
        async with connect(url, operator=True, reconnect=False, timeout=120.0) as node:
            if tap is None and traffic is None:
                return await fit_tables(node)
            known = {each["name"]: each for each in (await node.ask("status"))["categories"]}
            plans = {name: (await node.plan(name), known[name]["epoch"]) for name in known}
            found = [] if tap is None else counted(Path(tap), plans, share)
            found += [] if traffic is None else [read_traffic(Path(traffic), plans)]
            return await fit_tables(node, msgspec.msgpack.encode(found))

    found = run(ask())
    if as_json:
        show_json(found)
        return
    how = "by what was published" if found["method"] == "pattern" else "by how much was published"
    click.echo(
        marked(
            f"✓ {found['merged']} of {found['switches']} limited switches have merged entries: {found['deployed']:,} "
            f"for {found['ideal']:,}, chosen {how} in {seconds_text(found['seconds'])}"
        )
    )


def counted(folder: Path, plans: dict[str, tuple[bytes, int]], share: float, seed: int = 1) -> list[Traffic]:
    """What a tap holds, as packets by publisher and code; some of it at random if there is too much."""
    import numpy as np

    from sievenet.control.traffic import Traffic
    from sievenet.index.plan import Plan
    from sievenet.tap import SUFFIX, read_segment

    ready: dict[str, Plan] = {name: Plan.from_json(data) for name, (data, _) in plans.items()}
    random = np.random.default_rng(seed)
    rows: dict[str, dict[tuple[str, int], float]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        segment = read_segment(path.read_bytes(), str(path))
        plan = ready.get(segment.schema.name)
        if plan is None or plan.schema != segment.schema:
            continue
        into = rows.setdefault(segment.schema.name, {})
        for part in segment.parts:
            codes = plan.encode_batch(part.batch).hi
            values, counts = np.unique(codes[random.random(codes.size) < share], return_counts=True)
            for code, count in zip(values.tolist(), counts.tolist(), strict=True):
                key = segment.publisher, code
                into[key] = into.get(key, 0.0) + count * segment.factor / share
    room = ROWS // max(1, len(rows))
    for name, into in rows.items():
        if len(into) > room:
            keep = random.choice(len(into), room, replace=False)
            every = list(into.items())
            rows[name] = {every[i][0]: every[i][1] * len(into) / room for i in keep}
    return [Traffic.of(name, plans[name][1], into) for name, into in rows.items()]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What `sievenet pipeline aggregate` writes."""

    category: str
    plan: str
    rows: list[tuple[str, int, float]]


def read_traffic(path: Path, plans: dict[str, tuple[bytes, int]]) -> Traffic:
    """A file of `sievenet pipeline aggregate`; it must be of the plan in use."""
    from sievenet.control.traffic import Traffic
    from sievenet.errors import CodecError, PlanError
    from sievenet.index.plan import Plan

    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"Expected a file of `sievenet pipeline aggregate`, got {path}: {error}") from None
    known = plans.get(found.category)
    if known is None or Plan.from_json(known[0]) != Plan.from_json(found.plan.encode()):
        raise PlanError(
            f"Expected traffic counted by the plan of {found.category} in use, got another in {path}: "
            f"give `sievenet plan show {found.category} --json` to `sievenet pipeline aggregate --plan`"
        )
    rows = {(name, code): count for name, code, count in found.rows[:ROWS]}
    return Traffic.of(found.category, known[1], rows)
