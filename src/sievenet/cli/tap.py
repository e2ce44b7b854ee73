"""Options of commands that keep a sample of what they publish: `--tap` and `--tap-factor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sievenet.errors import InvalidInput

if TYPE_CHECKING:
    from sievenet.tap import Taps

__all__ = ["tap_options", "tapping"]

_F = TypeVar("_F", bound=Callable[..., object])


def tap_options(command: _F) -> _F:
    """Add both options."""
    factor = click.option(
        "--tap-factor",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="With --tap, keep one event in so many, at random.",
    )
    folder = click.option(
        "--tap", type=click.Path(file_okay=False), metavar="DIR", help="Keep published events here, for the pipeline."
    )
    return folder(factor(command))


def tapping(folder: str, factor: int) -> Taps:
    """The taps of a command; a folder that cannot be written is told before anything is published."""
    from sievenet.tap import Taps

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / ".writable.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(
            expected="a folder that can be written", got=f"{folder}: {error.strerror}", where="--tap"
        ) from None
    return Taps(folder, factor=factor)
