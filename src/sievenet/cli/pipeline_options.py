"""What the commands of the pipeline share: options, a store on a Spark session, reports."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from sievenet.cli.output import show_json

if TYPE_CHECKING:
    from sievenet.pipeline.report import Report
    from sievenet.pipeline.store import Store

__all__ = [
    "Searching",
    "budget_of",
    "budget_option",
    "bundled",
    "finish",
    "interests_option",
    "load_plan",
    "master_option",
    "opened",
    "report_option",
    "say",
    "search_options",
    "store_argument",
]

F = TypeVar("F", bound=Callable[..., Any])
#: Bytes up to which Java had better compile quickly than well.
_SMALL = 64 << 20


def master_option(command: F) -> F:
    """``--master``."""
    return click.option(
        "--master", metavar="URL", help="Where Spark runs: local[*] (the default), spark://…, yarn, k8s://…"
    )(command)


def report_option(command: F) -> F:
    """``--report``."""
    return click.option(
        "--report",
        "folder",
        type=click.Path(file_okay=False),
        help="Folder for a page with charts (HTML, Markdown, SVG).",
    )(command)


def store_argument(command: F) -> F:
    """STORE and CATEGORY."""
    return click.argument("store")(click.argument("category")(command))


def interests_option(command: F) -> F:
    """``--subscriptions``."""
    return click.option(
        "--subscriptions",
        "interests",
        required=True,
        type=click.Path(),
        help="Who wants what: the journal of a fabric, a Parquet table, or text with a filter per line.",
    )(command)


def budget_option(command: F) -> F:
    """``--budget``."""
    return click.option(
        "--budget",
        help="Most entries per subscription, or `any` for as many as it takes. Default: that in use, else 8.",
    )(command)


def bundled(name: str, make: Callable[..., object], *options: Callable[[F], F]) -> Callable[[F], F]:
    """Options that a command gets as one argument: what ``make`` makes of them, by the names of its parameters."""
    keys = list(inspect.signature(make).parameters)

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            mine = {key: given.pop(key) for key in keys}
            return command(**given, **{name: make(**mine)})

        found = cast("F", called)
        for option in reversed(options):
            found = option(found)
        return found

    return decorate


def budget_of(text: str) -> int | None:
    """A budget as said on the command line."""
    if text == "any":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise click.BadParameter(f"Expected 1 to 4096 entries or `any`, got {text!r}", param_hint="--budget")
    return int(text)


@dataclass(frozen=True)
class Searching:
    """How a plan is searched for."""

    bits: int
    budget: str | None
    seconds: float
    objective: Any

    def settings(self, in_use: int | None, known: bool) -> dict[str, Any]:
        """What `plan_for` takes; ``in_use`` is the budget of the fabric, if it is ``known``."""
        asked = budget_of(self.budget) if self.budget else 8
        budget = in_use if known and not self.budget else asked
        return {"bits": self.bits, "budget": budget, "seconds": self.seconds, "objective": self.objective}


def search_options(seconds: float) -> Callable[[F], F]:
    """``--bits``, ``--budget``, ``--seconds`` and ``--objective``, as the argument ``searching``."""
    return bundled(
        "searching",
        Searching,
        click.option("--bits", default=23, show_default=True, help="Bits of a code."),
        budget_option,
        click.option("--seconds", default=seconds, show_default=True, help="How long to search."),
        click.option(
            "--objective",
            type=click.Choice(["links", "host", "subscription"]),
            default="links",
            show_default=True,
            help="What is to be least: transmissions, packets received by hosts, or the rate per subscription.",
        ),
    )


def say(text: str) -> None:
    """A line of progress."""
    click.echo(f"… {text}", err=True)


@contextmanager
def opened(root: str, master: str | None, inputs: Sequence[str] | None = None) -> Iterator[Store]:
    """A store on a Spark session that ends with the block; ``inputs`` are what is read, if it is not the store."""
    from sievenet.pipeline.spark import spark_session
    from sievenet.pipeline.store import Store

    say(f"starting Spark on {master or 'local[*]'}")
    with spark_session(master, small=_small([f"{root}/events"] if inputs is None else inputs)) as spark:
        yield Store(spark, root)


def _small(inputs: Sequence[str]) -> bool:
    """Whether some local files have a few megabytes together."""
    if any("://" in path for path in inputs):
        return False
    found = [Path(match) for path in inputs for match in glob(path)]
    files = [each for path in found for each in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file()) <= _SMALL


def finish(report: Report, folder: str | None, as_json: bool, text: str) -> None:
    """Print what was found, and write the report if one is wanted."""
    if folder:
        say(f"report in {report.write(folder)}")
    if as_json:
        show_json(report.figures)
    else:
        click.echo(text)


def load_plan(path: str) -> Any:
    """A plan from a file."""
    from sievenet.errors import PlanError
    from sievenet.index import Plan

    try:
        return Plan.from_json(Path(path).read_bytes())
    except OSError as error:
        raise PlanError(f"Expected a plan file; {error.strerror}", where=path) from error
