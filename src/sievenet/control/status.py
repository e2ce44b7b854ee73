"""What the control plane tells about itself and its clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from sievenet.control.state import Client
from sievenet.dataplane.plane import Attached
from sievenet.errors import SievenetError, Unavailable

if TYPE_CHECKING:
    from sievenet.control.controller import Controller

__all__ = ["Member", "Placement", "Status", "member_of", "mistake", "status_of"]


class Placement(msgspec.Struct, frozen=True):
    """A client's place."""

    client: str
    host: str
    #: Seconds that it may be silent.
    lease: float
    #: What the data plane gave it.
    attachment: Attached


class Member(msgspec.Struct, frozen=True):
    """A client and how much is registered for it; looking costs nothing, however much that is."""

    client: str
    host: str
    #: The ids, as they are while one looks.
    advertisements: Collection[int]
    subscriptions: Collection[int]
    #: Advertisements and subscriptions by the name of their category.
    by_category: dict[str, tuple[int, int]]


class Status(msgspec.Struct, frozen=True):
    """The control plane at a glance."""

    clients: int
    advertisements: int
    subscriptions: int
    categories: int
    #: Switches in use, and those that are not.
    switches_up: int
    switches_down: tuple[str, ...]
    links_down: tuple[tuple[str, str], ...]
    #: Requests that wait for an answer.
    waiting: int
    #: Switches whose state nobody knows, per category.
    undefined: dict[str, tuple[str, ...]]
    #: Categories on their way to another plan, and how far they are.
    transitions: dict[str, str]
    #: Requests answered since the start, and those of them that were refused.
    answered: int
    refused: int


def mistake(error: Exception) -> SievenetError:
    """What to tell clients about an error that nobody expected."""
    return Unavailable(
        f"Internal error (please report): {type(error).__name__}: {error}; whether the request took effect is unknown"
    )


def member_of(client: Client, names: Mapping[int, str]) -> Member:
    """A client at a glance; `names` are those of the categories."""
    return Member(
        client.name,
        client.host,
        client.advertisements.keys(),
        client.subscriptions.keys(),
        {names[number]: (ads, subs) for number, (ads, subs) in client.counts.items() if ads or subs},
    )


def status_of(controller: Controller, answered: int, refused: int) -> Status:
    """The state of things."""
    state, trees = controller.state, controller.fleet.trees
    names = {number: category.name for number, category in state.categories.items()}
    undefined = {
        names.get(n, str(n)): tuple(sorted({s for lane in space.lanes if lane.rollout for s in lane.rollout.undefined}))
        for n, space in controller.spaces.items()
    }
    return Status(
        clients=len(state.clients),
        advertisements=sum(len(x.advertisements) for x in state.clients.values()),
        subscriptions=sum(len(x.subscriptions) for x in state.clients.values()),
        categories=len(names),
        switches_up=len(controller.fleet.wires.out) - len(trees.down_switches),
        switches_down=tuple(sorted(trees.down_switches)),
        links_down=tuple(sorted(trees.down_links)),
        waiting=controller.open_requests,
        undefined={name: switches for name, switches in undefined.items() if switches},
        transitions={names[n]: t.stage for n, t in controller.transitions.items()},
        answered=answered,
        refused=refused,
    )
