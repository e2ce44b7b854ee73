"""Placement: at which switch a cache costs the network least.

Every switch is a position. A *host state* says which hosts publish, which subscribe, which do both or neither, and how
fast. For each state and position five things are counted on the network's tree, with the cache as one more host:

    flows to the cache       flow entries that publishers' events need to reach it, beyond those they need anyway
    flows from the cache     flow entries from it to every subscriber
    published                transmissions per second when all publish
    cached                   transmissions per second when the cache sends everything to every subscriber
    overload                 events per second that links cannot carry

Each becomes a score from 0 (the worst position) to 1 (the best) of its state; the weighted mean counts, averaged over
many random states, or over those that were observed.

A tree's link cuts it in two. So with one row per direction of a link, which hosts (and switches) are behind it, all of
this is products of 0/1 matrices, for all states and positions at once:

    used[state, direction] = some publisher before it  ∧  (some subscriber behind it  ∨  the cache behind it)

Cost: states · links · switches. Pure, but for NumPy. The thesis has the five counts (algorithms 5 to 9) and leaves open
how a count becomes a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sievenet.errors import InvalidInput
from sievenet.network.topology import Topology
from sievenet.network.tree import SpanningTree

__all__ = ["METRICS", "Placement", "Scores", "States", "observed_states", "random_states"]

METRICS: Final = ("flows to the cache", "flows from the cache", "published", "cached", "overload")
#: States that are scored together.
_CHUNK: Final = 64

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Host states, one in each row: who publishes how many events per second, and who subscribes."""

    rates: _Floats
    subscribes: _Bools

    def __len__(self) -> int:
        return len(self.rates)


def random_states(hosts: int, count: int, seed: int, rate: float = 1000.0) -> States:
    """Each host publishes, subscribes, does both or neither, with equal chances."""
    roles = np.random.default_rng(seed).integers(0, 4, (count, hosts))
    return States(np.where(roles & 1, rate, 0.0), (roles & 2) > 0)


def observed_states(topology: Topology, clients: Iterable[Mapping[str, Any]]) -> States:
    """The state of a running fabric, from the clients of its status: what each published, and who has subscriptions."""
    index = {host: i for i, host in enumerate(topology.hosts)}
    rates, wants = np.zeros((1, len(index))), np.zeros((1, len(index)), np.bool_)
    for client in clients:
        at = index.get(client["host"])
        if at is None:
            raise InvalidInput(expected="clients at hosts of the topology", got=client["host"], where="placement")
        rates[0, at] += client["published"]
        wants[0, at] |= client["subscriptions"] > 0
    if not rates.any() or not wants.any():
        raise InvalidInput("Expected a fabric with publishers that publish and subscribers, got none of one of them")
    return States(rates, wants)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Sums over states, for each switch and metric; parts of a computation are added."""

    sums: _Floats
    #: Sums of transmissions per second, published and cached.
    traffic: _Floats
    states: int

    def __add__(self, other: Scores) -> Scores:
        return Scores(self.sums + other.sums, self.traffic + other.traffic, self.states + other.states)

    def weighted(self, weights: Iterable[float] | None = None) -> _Floats:
        """The score of each switch."""
        chosen = np.ones(len(METRICS)) if weights is None else np.asarray(list(weights), np.float64)
        if chosen.shape != (len(METRICS),) or (chosen < 0).any() or not chosen.any():
            expected = f"{len(METRICS)} weights of 0 or more, not all of them 0"
            raise InvalidInput(expected=expected, got=chosen.tolist(), where="weights")
        found: _Floats = self.sums @ chosen / (chosen.sum() * max(1, self.states))
        return found


class Placement:
    """Scores the switches of one network."""

    def __init__(self, topology: Topology, link_rate: float = 10_000.0) -> None:
        if not topology.switches or not topology.hosts:
            raise InvalidInput(expected="a network with switches and hosts", got=topology, where="placement")
        self.topology = topology
        self._tree = SpanningTree.shortest(topology)
        self._link_rate = link_rate

    @cached_property
    def _cut(self) -> tuple[_Floats, _Floats, _Bools]:
        """For each direction of a link: the hosts and the switches behind it, and whether it leads to a switch.

        Directions 2i and 2i + 1 are those of one link, away from the root and back; hosts' links come last.
        """
        topology, tree = self.topology, self._tree
        at = [topology.attachment(host).switch for host in topology.hosts]
        hosts, switches, inward = [], [], []
        for below, above in tree.parent.items():
            if above is None:
                continue
            under = np.array([tree.below(each, below) for each in topology.switches])
            mine = np.array([tree.below(each, below) for each in at])
            hosts += [mine, ~mine]
            switches += [under, ~under]
            inward += [True, True]
        for i in range(len(at)):
            only = np.arange(len(at)) == i
            hosts += [only, ~only]
            nowhere = np.zeros(len(topology.switches), np.bool_)
            switches += [nowhere, ~nowhere]
            inward += [False, True]
        return np.array(hosts, np.float64), np.array(switches, np.float64), np.array(inward)

    def scores(self, states: States) -> Scores:
        """The sums of the scores of all switches."""
        total = Scores(
            np.zeros((len(self.topology.switches), len(METRICS))), np.zeros((len(self.topology.switches), 2)), 0
        )
        for start in range(0, len(states), _CHUNK):
            part = slice(start, start + _CHUNK)
            counts = self.counts(States(states.rates[part], states.subscribes[part]))
            low, high = counts.min(axis=1, keepdims=True), counts.max(axis=1, keepdims=True)
            span = np.where(high > low, high - low, 1.0)
            each = 1.0 - (counts - low) / span
            total += Scores(each.sum(axis=0), counts[:, :, 2:4].sum(axis=0), len(counts))
        return total

    def counts(self, states: States) -> _Floats:
        """The five counts, of each state, switch and metric."""
        hosts, switches, inward = self._cut
        rates, wants = states.rates, states.subscribes.astype(np.float64)
        before = rates @ (1 - hosts).T  # events per second from before each direction
        behind = wants @ hosts.T  # subscribers behind it
        needed = behind > 0
        extra = (before > 0) & ~needed  # used for the cache alone, if it is behind
        all_rates, subscribers = rates.sum(axis=1, keepdims=True), wants.sum(axis=1, keepdims=True)
        to_cache = extra[:, inward].astype(np.float64) @ switches[inward]
        from_cache = needed[:, inward].astype(np.float64) @ (1 - switches[inward]) + (subscribers > 0)
        base = (before * needed).sum(axis=1, keepdims=True)
        published = base + (before * ~needed) @ switches + all_rates
        cached = all_rates * (behind @ (1 - switches) + subscribers)
        one, other = slice(0, None, 2), slice(1, None, 2)
        usage = np.zeros((len(states), switches.shape[1], len(switches) // 2))
        for way in (one, other):
            usage += (before[:, way] * needed[:, way])[:, None, :]
            usage += (before[:, way] * ~needed[:, way])[:, None, :] * switches[way].T[None]
        overload = np.maximum(0.0, usage - self._link_rate).sum(axis=2) + np.maximum(0.0, all_rates - self._link_rate)
        return np.stack([to_cache, from_cache, published, cached, overload], axis=2)

    def hosts(self, switches: Iterable[str], count: int) -> list[str]:
        """Hosts for so many caches, at the best switches (best first) or as near to them as hosts are."""
        homes = {host: self.topology.attachment(host).switch for host in self.topology.hosts}
        found: list[str] = []
        ranked = list(switches)
        for number in range(count):
            best = ranked[number % len(ranked)]
            free = [host for host in homes if host not in found] or list(homes)
            found.append(min(free, key=lambda host: (len(self._tree.path(best, homes[host])), host)))
        return found

    def ranked(self, scores: Scores, weights: Iterable[float] | None = None) -> list[tuple[str, float]]:
        """The switches with their scores, best first."""
        values = scores.weighted(weights)
        order = sorted(range(len(values)), key=lambda i: (-values[i], i))
        return [(self.topology.switches[i], float(values[i])) for i in order]
