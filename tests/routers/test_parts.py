"""Small parts of routers by themselves: channels, waves, merging, overlays, shipments."""

import asyncio
import random
import time

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Event, EventBatch, Filter, Record, Schema, ValueSet
from sievenet.errors import CodecError, SchemaError
from sievenet.routers.carriage import Seen
from sievenet.routers.channel import Holder, Teller
from sievenet.routers.dispatch import Alarm
from sievenet.routers.forwarding import Forwarding
from sievenet.routers.merging import Merger, excess, share
from sievenet.routers.messages import SUBSCRIPTION, Carried, Delta, Item, category_of
from sievenet.routers.overlay import LinkStates, Overlay
from sievenet.routers.overlay import Record as LinkRecord
from sievenet.routers.retransmission import Unconfirmed
from sievenet.routers.routing import Catalogue
from sievenet.routers.shipment import Shipment
from sievenet.routers.waves import Waves
from tests.seeds import examples, seeds

GRID = Schema("grid", (Attribute("x", "int", lo=0, hi=9), Attribute("y", "int", lo=0, hi=9)))


def box(x0, x1, y0, y1):
    return Filter(GRID, {"x": ValueSet.interval(x0, x1), "y": ValueSet.interval(y0, y1)})


boxes = st.builds(
    lambda a, b: box(*sorted(a), *sorted(b)),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
)


def points(filters):
    return {(x, y) for x in range(10) for y in range(10) if any(f.matches(Event(GRID, (x, y))) for f in filters)}


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(boxes, st.booleans()), max_size=25), st.sampled_from([0.0, 0.4]))
def test_mergers_cover_their_members(changes, bound):
    merger = Merger(bound)
    members, told = set(), set()
    for each, add in changes:
        if add:
            merger.add(each)
            members.add(each)
        else:
            merger.remove(each)
            members.discard(each)
        added, removed = merger.changes()
        assert not told & set(added)
        assert set(removed) <= told
        told = (told | set(added)) - set(removed)
        assert told == set(merger.merged)
        assert points(members) <= points(told)
        if not bound:
            assert points(members) == points(told)
    assert len(told) <= len(members)


def test_adjacent_boxes_become_one():
    merger = Merger()
    for x in range(0, 10, 2):
        for y in range(0, 10, 5):
            merger.add(box(x, x + 1, y, y + 4))
    assert list(merger.merged) == [Filter(GRID)]


def test_shares_and_excess():
    assert share(box(0, 4, 0, 9)) == pytest.approx(0.5)
    assert share(Filter.nothing(GRID)) == 0.0
    assert share(Filter(None)) is None
    # The merger has two values of each attribute: four points, of which two are wanted.
    assert excess(box(0, 0, 0, 0), box(9, 9, 9, 9)) == pytest.approx(0.5)
    assert excess(box(0, 4, 0, 4), box(2, 6, 0, 4)) == 0.0
    mixed = Schema("m", (Attribute("s", "str"), Attribute("e", "str", values=("a", "b")), Attribute("b", "bool")))
    assert share(Filter(mixed, {"s": ValueSet.of("x")})) is None
    assert share(Filter(mixed, {"e": ValueSet.of("a"), "b": ValueSet.of(True)})) == 0.25
    assert excess(Filter(mixed, {"s": ValueSet.of("x")}), Filter(mixed, {"e": ValueSet.of("a")})) == 1.0


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=30))
def test_channels_repair_themselves(changes):
    """Whatever is lost: a greeting tells, and the whole brings both sides together."""
    teller, holder = Teller(5), Holder()
    holder.whole(teller.whole({}))
    mirror = set()
    for number, add, lost in changes:
        item = Item(SUBSCRIPTION, 0, bytes((number,)))
        delta = teller.change([item] if add else [], [] if add else [item], {})
        if delta is None or lost:
            continue
        if holder.expects(delta):
            added, removed = holder.delta(delta)
            assert not mirror & set(added)
            mirror = (mirror | set(added)) - set(removed)
        if not holder.current(teller.epoch, teller.number, teller.digest):
            added, removed = holder.whole(teller.whole({}))
            mirror = (mirror | set(added)) - set(removed)
        assert mirror == set(holder.items) == set(teller.items)
    assert not holder.expects(Delta(6, teller.number + 1))
    assert set(holder.clear()) == mirror
    assert not holder.started


def test_schemas_travel_with_the_first_entry_that_needs_them():
    category = category_of(GRID)
    catalogue = Catalogue()
    assert catalogue.add(GRID) == category
    teller = Teller(1)
    first = teller.change([Item(0, category, b"a")], [], catalogue.encoded)
    second = teller.change([Item(0, category, b"b")], [], catalogue.encoded)
    assert first.schemas == (catalogue.encoded[category],)
    assert second.schemas == ()
    other = Catalogue()
    with pytest.raises(SchemaError, match="category"):
        other.want(Item(0, category, b"a"))
    other.learn(first.schemas)
    assert other.named("grid") == (category, GRID)
    with pytest.raises(SchemaError, match="known schema"):
        other.named("else")


def test_waves_come_back_once():
    waves = Waves()
    assert waves.start("a", 1, None, [], 9.0) == [("a", 1, None, True)]
    assert waves.start("a", 2, "x", ["y", "z"], 9.0) == []
    assert waves.answered("a", 2, "y") == []
    assert waves.answered("a", 2, "y") == []
    assert waves.answered("a", 2, "z") == [("a", 2, "x", True)]
    assert waves.answered("a", 2, "z") == []
    waves.start("b", 3, None, ["y", "z"], 5.0)
    waves.start("b", 4, None, ["z"], 5.0)
    waves.start("b", 5, None, ["z"], 9.0)
    assert waves.answered("b", 3, "y", done=False) == [("b", 3, None, False)]
    assert waves.answered("b", 3, "z") == []
    assert waves.expire(4.0) == []
    assert waves.expire(5.0) == [("b", 4, None, False)]
    assert waves.fail() == [("b", 5, None, False)]


@pytest.mark.parametrize("seed", seeds(6))
def test_trees_and_paths_of_random_graphs(seed):
    rng = random.Random(seed)
    graph = nx.gnm_random_graph(9, rng.randint(8, 20), seed=seed)
    names = {n: f"r{n}" for n in graph}
    graph = nx.relabel_nodes(graph, names)
    overlay = Overlay({n: tuple(graph[n]) for n in graph})
    for part in nx.connected_components(graph):
        tree = nx.Graph((n, m) for n in part for m in overlay.tree_neighbours(n))
        tree.add_nodes_from(part)
        assert nx.is_tree(tree)
        for source in part:
            for other in part - {source}:
                path = [other]
                while path[-1] != source:
                    path.append(overlay.next_hop(path[-1], source))
                assert len(path) - 1 == nx.shortest_path_length(graph, source, other)
                back = [source]
                while back[-1] != other:
                    back.append(overlay.next_hop(back[-1], other))
                assert back == path[::-1]
                assert other in overlay.reach(source, source)
                assert path[-2] in overlay.children(source, source)


def test_links_count_when_both_ends_tell():
    states = LinkStates("a", lease=10.0)
    assert states.take(LinkRecord("a", 1, ("b", "c")), 0.0)
    assert states.take(LinkRecord("b", 1, ("a",)), 0.0)
    assert not states.take(LinkRecord("b", 1, ()), 0.0)
    assert states.overlay.links == {"a": ("b",), "b": ("a",)}
    graph = states.overlay.graph("a")
    assert states.overlay.graph("b") == graph
    assert states.take(LinkRecord("b", 2, ("a",)), 5.0)
    # Who is not linked does not matter; what is claimed of links does.
    assert states.take(LinkRecord("z", 1, ("y",)), 0.0)
    assert states.overlay.graph("a") == graph
    assert states.take(LinkRecord("b", 3, ("a", "z")), 5.0)
    assert states.overlay.graph("a") != graph
    assert states.take(LinkRecord("b", 4, ("a",)), 5.0)
    assert states.overlay.graph("a") == graph
    assert states.number("b") == 4
    assert states.number("x") == -1
    states.expire(12.0)
    assert states.overlay.tree_neighbours("a") == ("b",)
    states.expire(15.0)
    assert states.overlay.links == {"a": ()}


def test_forwarding_counts_additions():
    forwarding = Forwarding(GRID)
    events = EventBatch.from_events(GRID, [Event(GRID, (1, 1)), Event(GRID, (8, 8))])
    assert forwarding.interfaces(events) == {}
    forwarding.add("a", box(0, 5, 0, 5))
    forwarding.add("a", box(0, 5, 0, 5))
    forwarding.add("b", Filter(GRID))
    forwarding.remove("a", box(0, 5, 0, 5))
    found = forwarding.interfaces(events)
    assert {i: rows.tolist() for i, rows in found.items()} == {"a": [0], "b": [0, 1]}
    assert set(forwarding.wants("b")) == {box(0, 5, 0, 5)}
    forwarding.remove("a", box(0, 5, 0, 5))
    forwarding.remove("a", box(0, 5, 0, 5))
    assert set(forwarding.interfaces(events)) == {"b"}
    assert len(forwarding) == 1


def test_seen_forgets_the_publisher_heard_least_lately():
    import numpy as np

    seen = Seen(publishers=2)
    first = np.arange(3)
    assert seen.fresh(1, first)[0].tolist() == [0, 1, 2]
    assert seen.fresh(1, first)[0].tolist() == []
    seen.fresh(2, first)
    seen.fresh(3, first)
    assert seen.fresh(1, first)[0].tolist() == [0, 1, 2]
    assert seen.repeated == 3


def test_what_went_by_tables_may_go_to_everybody_once():
    import numpy as np

    seen = Seen()
    assert [r.tolist() for r in seen.fresh(1, np.array([0, 1]))] == [[0, 1], [0, 1]]
    assert [r.tolist() for r in seen.fresh(1, np.array([1, 2]), flood=True)] == [[1], [0, 1]]
    assert [r.tolist() for r in seen.fresh(1, np.array([1, 2]), flood=True)] == [[], []]
    assert [r.tolist() for r in seen.fresh(1, np.array([1, 2, 3]))] == [[2], [2]]
    # Numbers of another round of the ring: the older ones are too old to tell.
    far = np.array([(1 << 14) + 1])
    assert [r.tolist() for r in seen.fresh(1, far)] == [[0], [0]]
    assert [r.tolist() for r in seen.fresh(1, np.array([1]), flood=True)] == [[], []]


def test_events_are_kept_until_they_are_confirmed():
    def carried(number):
        return Carried("r", 1, 0, bytes(8 * number), bytes(8 * number), batch=bytes(100))

    kept = Unconfirmed(moment=1.0, limit=1000)
    messages = [carried(n) for n in (1, 2, 3)]
    for each in messages:
        kept.sent(each)
    assert kept.kept() == messages
    kept.confirmed(2, now=5.0)
    kept.confirmed(99, now=5.0)  # more than were sent: of an earlier connection
    kept.tidy(5.5)
    assert kept.kept() == messages
    kept.tidy(6.0)
    assert kept.kept() == messages[2:]
    for _ in range(8):
        kept.sent(carried(1))
    # The oldest were let go: three events, then one, and they count until they are confirmed.
    assert len(kept.kept()) == 5
    assert kept.doubtful == 6
    kept.confirmed(4, now=7.0)
    assert kept.doubtful == 2
    kept.confirmed(11, now=7.0)
    assert kept.doubtful == 0
    kept.tidy(9.0)
    assert kept.kept() == []


def test_shipments_are_checked():
    batch = EventBatch.from_events(GRID, [Event(GRID, (1, 2)), Event(GRID, (3, 4))])
    shipment = Shipment.publish("r", 7, category_of(GRID), 5, 99, batch)
    message = shipment.message()
    again = Shipment.of(message, GRID)
    assert again.rows() == shipment.rows()
    assert again.sequences.tolist() == [5, 6]
    records = Shipment.publish("r", 7, 0, 0, 1, [Record({"a": 1})])
    assert Shipment.of(records.message(), None).rows() == (Record({"a": 1}),)

    def changed(**fields):
        values = {f: getattr(message, f) for f in message.__struct_fields__}
        return Carried(**{**values, **fields})

    for bad in (
        changed(sequences=b"123"),
        changed(sequences=message.sequences[:8], departures=message.departures[:8]),
        changed(sequences=message.sequences[8:] + message.sequences[:8]),
        changed(batch=b"\x01\x00"),
    ):
        with pytest.raises(CodecError):
            Shipment.of(bad, GRID)


def test_an_alarm_is_set_once_for_what_is_due_once():
    async def main():
        loop, due, rung = asyncio.get_running_loop(), [time.monotonic() + 60.0], asyncio.Event()
        alarm = Alarm(lambda: due[0], rung.set)
        alarm.set()
        first = alarm._timer
        for same in (due[0], due[0] + 5.0, None):
            due[0] = same
            alarm.set()
            assert alarm._timer is first
        # Earlier counts, and what has rung can be set again.
        due[0] = time.monotonic() - 1.0
        alarm.set()
        assert first.cancelled()
        await asyncio.wait_for(rung.wait(), 10)
        assert alarm._timer is None
        due[0] = time.monotonic() + 60.0
        alarm.set()
        assert alarm._timer.when() > loop.time() + 30.0
        alarm.cancel()
        assert alarm._timer is None

    asyncio.run(main())
