"""What the core of a subscriber tells its shell to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sievenet.cache.messages import Missing, Word

__all__ = ["Deliver", "Instruction", "Lost", "Over", "Pause", "Resume", "Say"]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an event to the application."""

    item: Any


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the cache."""

    word: Word


@dataclass(frozen=True, slots=True)
class Pause:
    """Take the plain path away."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Get the plain path back; `Subscriber.resumed` when it stands."""


@dataclass(frozen=True, slots=True)
class Lost:
    """These numbers may be lost."""

    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True)
class Over:
    """The subscription has ended, and why."""

    reason: str


Instruction = Deliver | Say | Pause | Resume | Lost | Over
