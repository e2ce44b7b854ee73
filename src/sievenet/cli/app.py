"""The `sievenet` command: finds commands in the table, turns our errors into clean messages."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from sievenet import __version__
from sievenet.cli.table import COMMANDS, CommandRow
from sievenet.errors import SievenetError, shortened

__all__ = ["LazyGroup", "Refusal", "main"]


class Refusal(click.ClickException):
    """What was asked for cannot be done: one message on stderr, exit code 2, no traceback."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *args: Any, table: Mapping[str, CommandRow] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the table's order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.target.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands from the table alone: the shell should not wait for imports."""
        if incomplete and not incomplete[0].isalnum():
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(n, help=e.summary) for n, e in self.table.items() if n.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a hint at the nearest name."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.table, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.table)}."
            ctx.fail(f"No command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their lines, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of ours, or of the machine (a file, the disk, the network), becomes a message."""
        try:
            return super().invoke(ctx)
        except SievenetError as error:
            raise Refusal(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has seen enough
                raise
            where = f" - at {shortened(os.fsdecode(error.filename))}" if isinstance(error.filename, str | bytes) else ""
            raise Refusal(f"{error.strerror or error}{where}") from error


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`sievenet COMMAND --help` shows what a command takes, with examples. Most take --json.",
)
@click.version_option(__version__, "-V", "--version", message="sievenet %(version)s")
def main() -> None:
    """Publish/subscribe in which the network itself filters by content."""
