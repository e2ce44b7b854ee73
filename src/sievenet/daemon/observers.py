"""Observers: those who only look. They hold nothing, so of too many the one that has been silent longest goes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sievenet.control import protocol as p
from sievenet.dataplane.packet import MAX_BODY

if TYPE_CHECKING:
    from sievenet.daemon.service import Peer

__all__ = ["make_room", "welcome"]


def make_room(peers: Collection[Peer], most: int) -> None:
    """Let one go if there are that many."""
    observers = [each for each in peers if each.client is None]
    if len(observers) >= most:
        min(observers, key=lambda each: each.heard).goodbye("there are too many observers, and this one was silent")


def welcome(message: p.Hello) -> p.Welcome:
    """What an observer is told: nothing of it ends."""
    return p.Welcome(p.PROTOCOL, message.name or message.role, lease=3600.0, heartbeat=3600.0, max_event=MAX_BODY)
