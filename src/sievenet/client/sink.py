"""Where deliveries go, as the receive path sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sievenet.client.delivery import Delivery

__all__ = ["Sink", "Straight"]


class Sink(Protocol):
    """Where deliveries of one subscription go; a transport may stand in between."""

    false_positives: int

    def accept(self, delivery: Delivery) -> bool:
        """Take a delivery; False if it has to be offered again later."""


class Straight:
    """A sink that is a function: for what must not wait in a queue."""

    def __init__(self, accept: Callable[[Delivery], bool]) -> None:
        self.accept = accept
        self.false_positives = 0
