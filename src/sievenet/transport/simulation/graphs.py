"""Broker graphs of a given size and diameter."""

from __future__ import annotations

from random import Random

from sievenet.errors import InvalidInput

__all__ = ["low_degree_graph"]


def low_degree_graph(brokers: int, diameter: int, seed: int = 1, degree: int = 4) -> list[tuple[int, int]]:
    """The edges of a tree with this many brokers and exactly this diameter; few links per broker.

    A path of the diameter's length is its backbone; the rest is attached where it lengthens nothing.
    """
    if not 1 <= diameter < brokers:
        raise InvalidInput(expected="a diameter from 1 to one less than the brokers", got=(brokers, diameter))
    rng = Random(seed)
    edges = [(i, i + 1) for i in range(diameter)]
    # How much longer a branch may still become at each broker.
    room = {i: min(i, diameter - i) for i in range(diameter + 1)}
    links = dict.fromkeys(range(diameter + 1), 2)
    for new in range(diameter + 1, brokers):
        fitting = [i for i, left in room.items() if left > 0 and links[i] < degree]
        if not fitting:
            fitting = [i for i, left in room.items() if left > 0]
        if not fitting:
            raise InvalidInput(expected=f"a diameter that holds {brokers} brokers", got=diameter)
        parent = rng.choice(fitting)
        edges.append((parent, new))
        room[new] = room[parent] - 1
        links[parent] += 1
        links[new] = 1
    return edges
