"""What the selector makes of what was seen; the algorithms have tests of their own."""

import asyncio
import random
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from sievenet.config import HybridConfig
from sievenet.control.descriptions import Report, Seen, Way
from sievenet.control.hybrid import Choice, Observation
from sievenet.daemon.selector import Selector
from sievenet.index import Dz

LINE = ["s1", "s2", "s3"]


def path(a, b):
    i, j = LINE.index(a), LINE.index(b)
    return tuple(LINE[i : j + 1])


def chosen(seen, matchers, present=frozenset(), **config):
    selector = Selector(None, None, None, HybridConfig(**config))
    return selector._chosen(seen, path, Counter(matchers), frozenset(present), [])[:4]


def seen(cells):
    return [Observation("pub", "s1", cell << 8, "s3", 10.0, 90.0) for cell in cells]


@pytest.mark.parametrize("matchers", [1, 2, 4])
def test_matchers_at_one_switch_share_the_space_even_if_whole_switches_are_chosen(matchers):
    found, choice, removable, _ = chosen(seen(range(0, 256, 8)), {"s1": matchers}, method="ssa", latency_bound=1e9)
    assert {switch for switch, _ in found} == {"s1"}
    assert len(found) == matchers
    # Together they are the whole space, and they are disjoint.
    assert sum(2.0**-dz.length for _, dz in found) == 1.0
    assert choice.benefit == removable


def test_without_a_bound_everything_is_chosen_and_with_0_nothing():
    observations = seen(range(0, 256, 8))
    found, choice, removable, deliveries = chosen(observations, {"s1": 1}, latency_bound=float("inf"))
    assert choice.benefit == removable
    assert choice.penalty == deliveries
    assert found == {("s1", Dz(0, 0))}  # also what nobody has seen yet
    assert not chosen(observations, {"s1": 1}, latency_bound=0.0)[0]
    # What is there goes back.
    assert not chosen(observations, {"s1": 1}, present={("s1", Dz(0, 0))}, latency_bound=0.0)[0]


def test_less_is_chosen_if_more_goes_through_matchers_than_was_expected():
    selector = Selector(None, None, None, HybridConfig(latency_bound=0.003))
    selector._network.add(600, 0.6)
    selector._matcher.add(400, 2.0)  # 1 ms and 5 ms: half of the deliveries may
    assert selector._limit(100.0) == pytest.approx(50.0)
    selector._worth[1] = Choice((), 1.0, 20.0), 1.0, 100.0  # 20 of 100 were chosen, but 400 of 1,000 came
    assert selector._limit(100.0) == pytest.approx(25.0)
    selector._worth[1] = Choice((), 1.0, 60.0), 1.0, 100.0
    assert selector._limit(100.0) == pytest.approx(50.0)
    selector._worth[1] = Choice((), 1.0, 0.1), 1.0, 100.0
    assert selector._limit(100.0) == pytest.approx(50.0 / 3)
    selector.config = HybridConfig(latency_bound=float("inf"))
    assert selector._limit(100.0) == 100.0


def test_another_choice_has_to_be_better_by_the_hysteresis():
    observations = seen(range(0, 256, 8))
    present = {("s1", Dz(0, 1)), ("s1", Dz(1, 1))}
    assert chosen(observations, {"s1": 1}, present, latency_bound=1e9)[0] == present
    assert chosen(observations, {"s1": 1}, {("s1", Dz(0, 1))}, latency_bound=1e9)[0] != {("s1", Dz(0, 1))}


def test_if_the_bound_is_exceeded_some_goes_back_and_the_rest_stays():
    # Four quarters with the same number of deliveries, of which the first are worth most.
    counts = enumerate([400.0, 300.0, 200.0, 100.0])
    observations = [Observation("pub", "s1", quarter << 14, "s3", 10.0, unwanted) for quarter, unwanted in counts]
    present = {("s1", Dz(quarter, 2)) for quarter in range(4)}
    selector = Selector(None, None, None, HybridConfig(latency_bound=0.003))
    selector._network.add(100, 0.1)
    selector._matcher.add(1000, 4.0)  # two thirds of the deliveries may, less a tenth
    where = Counter({"s1": 1})
    found, choice, _, deliveries, _ = selector._chosen(observations, path, where, frozenset(present), [])
    assert found == {("s1", Dz(0, 2)), ("s1", Dz(1, 2))}
    assert choice.penalty <= deliveries * 2 / 3
    # Whatever the model expects: as long as what is measured is within the bound, nothing changes.
    selector._network.add(1000, 1.0)
    assert selector._chosen(observations, path, where, frozenset(present), [])[0] == present


def test_what_is_diverted_is_not_cut_otherwise_because_counts_vary():
    rng, where = random.Random(1), Counter({"s1": 1})
    selector = Selector(None, None, None, HybridConfig(latency_bound=0.003, clusters=8))
    selector._network.add(500, 0.5)
    selector._matcher.add(500, 2.5)  # half of the deliveries may
    regions, cuts = [], set()
    for _ in range(10):
        counts = [Observation("pub", "s1", i << 10, "s3", 10.0, rng.uniform(60, 140)) for i in range(64)]
        *_, regions = selector._chosen(counts, path, where, frozenset(), regions)
        cuts.add(tuple(regions))
    assert len(cuts) == 1
    # If most of it is elsewhere, they follow.
    skewed = [Observation("pub", "s1", i << 6, "s3", 10.0, 100.0) for i in range(64)]
    *_, after = selector._chosen(skewed, path, where, frozenset(), regions)
    assert len(after) == 8
    assert tuple(after) not in cuts


def test_after_the_bound_was_exceeded_less_is_chosen_for_a_while():
    # No matcher, no category: only latencies are looked at.
    nothing = SimpleNamespace(matchers={}, refresh=lambda: asyncio.sleep(0), is_category=lambda number: False)
    selector = Selector(nothing, None, nothing, HybridConfig(latency_bound=0.003))
    limits = []
    for seconds in (2.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        selector._network.add(1000, 1.0)
        selector._matcher.add(1000, 2 * seconds - 1.0)
        asyncio.run(selector.choose())
        selector._network._past, selector._matcher._past = 0.001, 0.005
        limits.append(selector._limit(100.0))
    assert limits[0] == pytest.approx(50.0)
    assert limits[1] == pytest.approx(50.0 / 1.5)
    assert limits[2] == pytest.approx(50.0 / 1.5**2)
    assert limits[2:] == sorted(limits[2:])
    assert limits[-1] == pytest.approx(50.0)


def test_while_there_is_no_bound_to_keep_none_is_exceeded():
    nothing = SimpleNamespace(matchers={}, refresh=lambda: asyncio.sleep(0), is_category=lambda number: False)
    selector = Selector(nothing, None, nothing, HybridConfig(latency_bound=0.0))
    for bound in (0.0, 0.0, float("inf"), 0.01):
        selector.config = HybridConfig(latency_bound=bound)
        selector._network.add(1000, 1.0)
        selector._matcher.add(1000, 5.0)
        asyncio.run(selector.choose())
        assert bound == 0.0 or selector._limit(100.0) == 100.0


def test_where_the_network_itself_is_unsteady_a_choice_leaves_room_for_that():
    def limit(network):
        """After intervals with these mean latencies of the network, in milliseconds; 5 ms through matchers."""
        selector = Selector(None, None, None, HybridConfig(latency_bound=0.003))
        for milliseconds in network:
            selector._network.add(1000, milliseconds)
            selector._matcher.add(1000, 5.0)
            selector._network.turn()
            selector._matcher.turn()
        selector._network._past = 0.001
        return selector._limit(100.0)

    assert limit([1.0] * 20) == pytest.approx(50.0)
    unsteady, wild = limit([0.8, 1.2] * 10), limit([0.4, 1.6] * 10)
    assert 0 < wild < unsteady < 50.0
    assert limit([0.4, 1.6] * 10 + [1.0] * 20) == pytest.approx(50.0, rel=0.01)  # it is forgotten


def test_a_choice_keeps_the_bound_in_nearly_every_interval_of_an_unsteady_network():
    """The share that is allowed after some intervals, against the means of the next one."""
    rng, kept = random.Random(5), 0
    for _ in range(200):
        selector = Selector(None, None, None, HybridConfig(latency_bound=0.003))
        for last in range(12):
            network, matcher = rng.gauss(1.0, 0.2), rng.gauss(5.0, 0.4)
            if last == 11:
                share = selector._limit(100.0) / 100.0 / (1 + selector.config.hysteresis)
                kept += (1 - share) * network + share * matcher <= 3.0
            selector._network.add(600, 0.6 * network)
            selector._matcher.add(400, 0.4 * matcher)
            if last < 10:
                selector._network.turn()
                selector._matcher.turn()
    assert kept >= 186


def test_a_few_late_events_do_not_stand_for_the_network_while_everything_is_diverted():
    nothing = SimpleNamespace(matchers={}, refresh=lambda: asyncio.sleep(0), now=lambda: 0.0, failures=0)
    nothing.last_failure, nothing.is_category = "", lambda number: False
    selector = Selector(nothing, None, nothing, HybridConfig(latency_bound=float("inf"), interval=5.0))
    assert selector.answer()["latency_network"] is None
    for _ in range(10):
        selector.report("c", Report(by_content=Way(1000, 0.4)))
        asyncio.run(selector.choose())
    selector.report("c", Report(by_content=Way(2, 0.2), directed=Way(1000, 2.0)))  # held in a handover, or sent again
    asyncio.run(selector.choose())
    for _ in range(9):
        selector.report("c", Report(directed=Way(1000, 2.0)))
        asyncio.run(selector.choose())
    found = selector.answer()
    assert found["latency_network"] == pytest.approx(0.0004, rel=0.3)
    assert found["latency_network_age"] == 45.0
    assert found["latency_matcher"] == pytest.approx(0.002)
    assert found["latency_matcher_age"] == 0.0
    # Faster than the network once was: each is shown as it was measured.
    for _ in range(30):
        selector.report("c", Report(directed=Way(1000, 0.1)))
        asyncio.run(selector.choose())
    assert selector.answer()["latency_matcher"] == pytest.approx(0.0001, rel=0.01)


def test_nobody_stops_the_choice_by_what_it_reports():
    """Categories that are not there, or go, and ever more cells."""
    known = {1}

    class Control:
        def is_category(self, number):
            return number in known

        def changing(self, number):
            return True

    hybrid = SimpleNamespace(matchers={"m": SimpleNamespace(received=0, serving={})}, refresh=lambda: asyncio.sleep(0))
    selector = Selector(Control(), None, hybrid, HybridConfig(latency_bound=0.1))
    liar = Report(cells=tuple(Seen(60_000, cell, 1, 1, 1) for cell in range(256)))
    for publisher in range(100):
        selector.report("liar", liar)
        selector.report("liar", Report(cells=tuple(Seen(1, cell, publisher, 1, 1) for cell in range(256))))
    selector.report("honest", Report(cells=(Seen(1, 5, 1, 1, 1),)))
    assert {key[0] for key in selector._fresh} == {1}
    assert len(selector._fresh) == 16 * 256 + 1
    known.clear()  # removed meanwhile
    asyncio.run(selector.choose())
    for wrong in (float("nan"), float("inf"), -1.0):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert([1, wrong], Way)


def test_while_the_bound_is_exceeded_nothing_more_is_diverted():
    where, present = Counter({"s1": 1}), frozenset({("s1", Dz(0, 2))})
    observations = seen(range(0, 256, 4))

    def found(seconds):
        """After many intervals with 1 and 5 ms, so that half of it may be diverted, and one with this mean."""
        selector = Selector(None, None, None, HybridConfig(latency_bound=0.003))
        selector._network._past, selector._network._weight = 0.001, 1e9
        selector._matcher._past, selector._matcher._weight = 0.005, 1e9
        selector._network.add(1000, 1000 * seconds)
        assert selector._limit(100.0) == pytest.approx(50.0, rel=0.01)
        pairs, choice, _, deliveries, _ = selector._chosen(observations, path, where, present, [])
        return pairs, choice.penalty / deliveries

    assert found(0.0031) == (present, 0.25)
    assert found(0.0029)[1] > 0.4


@pytest.mark.parametrize(("more", "worth"), [(0.2, False), (0.9, False), (1.1, True), (5.0, True)])
def test_a_change_that_saves_less_than_a_hundredth_of_all_is_not_made(more, worth):
    """What it saves more, in hundredths; what there is saves one, so that by the hysteresis each would do."""
    # The first two cross three links and hosts from the matcher's switch on; the rest crosses two, without a matcher.
    there = Observation("pub", "s1", 0, "s3", 1.0, 1 / 3)
    other = Observation("pub", "s1", 3 << 14, "s3", 1.0, more / 3)
    rest = Observation("far", "s2", 2 << 14, "s3", 1.0, (100 - 1 - more) / 2)
    present = {("s1", Dz(0, 2))}
    found, choice, removable, _ = chosen([there, other, rest], {"s1": 1}, present, latency_bound=1e9)
    assert removable == pytest.approx(100.0)
    assert choice.benefit == pytest.approx(1.0 + worth * more)
    assert (found != present) == worth


@pytest.mark.parametrize("method", ["csa", "ssa"])
@pytest.mark.parametrize("bound", [float("inf"), 1e9])
def test_a_second_matcher_at_a_switch_gets_half_of_what_one_has_and_keeps_it(method, bound):
    """One of two died, the other has it all, the first is back: nothing is saved by it, but one has nothing to do."""
    selector = Selector(None, None, None, HybridConfig(method=method, latency_bound=bound))
    observations, both, one = seen(range(0, 256, 8)), Counter({"s1": 2}), Counter({"s1": 1})
    halves = {("s1", Dz(0, 1)), ("s1", Dz(1, 1))}
    whole = method == "ssa" or bound == float("inf")
    regions, present = [], frozenset()
    for where, wanted in [(both, halves), (one, {("s1", Dz(0, 0))}), (both, halves), (both, halves)]:
        present = frozenset(list(present)[:1]) if where is one else present  # what the dead one had is given up
        present, *_, regions = selector._chosen(observations, path, where, present, regions)
        assert present == wanted if whole else len(present) >= sum(where.values())


def test_while_the_bound_is_exceeded_subspaces_are_not_cut_for_another_matcher():
    present = frozenset({("s1", Dz(0, 0))})

    def found(seconds):
        selector = Selector(None, None, None, HybridConfig(method="ssa", latency_bound=0.01))
        selector._matcher.add(1000, 1000 * seconds)
        return selector._chosen(seen(range(0, 256, 8)), path, Counter({"s1": 2}), present, [Dz(0, 0)])[0]

    assert found(0.002) == {("s1", Dz(0, 1)), ("s1", Dz(1, 1))}
    assert len(found(0.011)) <= 1
