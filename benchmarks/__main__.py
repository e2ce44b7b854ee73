"""`python -m benchmarks [NAME]`: list the benchmarks, or run one and report it.

Progress goes to standard error, tables to standard output, and the last line of standard output is one JSON object.
A goal that is missed is reported, not failed: the exit code is 0 whenever the benchmark ran to its end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console

from benchmarks.harness import Bench
from benchmarks.harness.registry import UnknownBenchmark, discover, find

#: Columns of a report that goes to a file or a pipe, where no terminal says how wide it is.
_PIPE_WIDTH = 120


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Small sizes that end in seconds: shows that it works, proves no claim.")
@click.option("--json", "json_only", is_flag=True, help="Print the JSON line only.")
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Draw plots into this folder."
)
def main(name: str | None, quick: bool, json_only: bool, plots: Path | None) -> None:
    """List the benchmarks, or run the one called NAME."""
    if name is None:
        _list()
        return
    try:
        entry = find(name)
    except UnknownBenchmark as error:
        raise click.ClickException(str(error)) from None
    try:
        run = entry.load()
    except ModuleNotFoundError as error:
        missing = f"benchmark {entry.name!r} needs the module {error.name!r}, which is not installed"
        raise click.ClickException(missing) from error
    bench = Bench(quick=quick, plots=plots)
    start = time.perf_counter()
    report = run(bench)
    bench.say(f"{entry.name} took {time.perf_counter() - start:.1f} s")
    if not json_only:
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        console.print(entry.summary, style="bold", markup=False, highlight=False)
        report.show(console)
        if quick:
            console.print("note: a quick run; its sizes are too small for any claim", highlight=False)
    click.echo(report.to_json(entry.name, quick=quick))


def _list() -> None:
    entries = discover()
    if not entries:
        click.echo("no benchmarks yet")
        return
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        click.echo(f"{entry.name:<{width}}  {entry.summary}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
