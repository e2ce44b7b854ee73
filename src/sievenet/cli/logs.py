"""Logs of commands that run for long: as text or JSON, from a level on, on stderr or in a file.

--log json            one object per line: time, level, logger, message, and the traceback if there is one
--log-level info      debug, info, warning or error
--log-file FILE       appended to; a file that was moved away (logrotate) is begun anew
"""

from __future__ import annotations

import datetime
import functools
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any, Final, TypeVar

import click

__all__ = ["JsonFormatter", "configure", "log_arguments", "log_options"]

F = TypeVar("F", bound=Callable[..., Any])

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_NAME: Final = "sievenet"
LEVELS: Final = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        import msgspec

        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(found).decode()


class _PrivateFile(logging.handlers.WatchedFileHandler):
    """A log that its owner and their group may read: it names what members want."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        return open(handle, "a", encoding=self.encoding)


def configure(form: str = "text", level: str = "warning", file: str | None = None) -> None:
    """Log so from now on; what was configured before is replaced."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = _PrivateFile(file, encoding="utf-8")
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    handler.set_name(_NAME)
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.get_name() == _NAME]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())


def log_arguments(command: F) -> F:
    """``--log``, ``--log-level`` and ``--log-file``, as arguments of the command."""
    for option in (
        click.option("--log-file", type=click.Path(dir_okay=False), help="Log into this file. Default: stderr."),
        click.option("--log-level", type=click.Choice(LEVELS), help="Log from this level on. Default: warning."),
        click.option("--log", type=click.Choice(["text", "json"]), help="How to log: lines, or an object per line."),
    ):
        command = option(command)
    return command


def log_options(command: F) -> F:
    """The same options, which count before the command begins; it does not see them."""

    @functools.wraps(command)
    def logged(*arguments: Any, log: str | None, log_level: str | None, log_file: str | None, **names: Any) -> Any:
        if (log, log_level, log_file) != (None, None, None):
            configure(log or "text", log_level or "warning", log_file)
        return command(*arguments, **names)

    return log_arguments(logged)  # type: ignore[return-value]
