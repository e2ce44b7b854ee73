"""Offloading: with clients that are good, slow, silent, dead or lying, the table is as brute force has it."""

import random
import subprocess
import sys
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievenet.content import Attribute, Filter, Record, Schema, ValueSet, encode_filter
from sievenet.content.codec import encode_schema
from sievenet.routers.messages import category_of
from sievenet.routers.offload.choice import Chooser
from sievenet.routers.offload.disguise import Disguise
from sievenet.routers.offload.fixed import Assign, Claim, FixedSet, Placer
from sievenet.routers.offload.messages import Answer, Compute, Computed, Relations, VectorUpdate, encode_answer
from sievenet.routers.offload.reputation import STRIKES, Standing, majority
from sievenet.routers.offload.rto import Ask, Offloader, RtoSettings
from sievenet.routers.offload.shell import Joined, Workers
from sievenet.routers.offload.tables import ForestTable, PosetTable
from sievenet.routers.offload.vectors import Vectors
from sievenet.routers.offload.worker import Worker
from sievenet.routers.poset import Poset
from sievenet.testing import strategies
from tests.routers.bruteforce import PLANE, check_forest, check_poset, strictly
from tests.seeds import examples

WIDE = Schema("wide", (Attribute("x", "int", lo=0, hi=31), Attribute("y", "int", lo=0, hi=31)))


def boxes(count, seed, schema=WIDE):
    rng = random.Random(seed)
    for _ in range(count):
        sides = {
            a.name: ValueSet.interval(*sorted((rng.randint(0, 31), rng.randint(0, 31)))) for a in schema.attributes
        }
        yield Filter(schema, sides)


class Pool:
    """Clients of all sorts, answering at once when asked to."""

    def __init__(self, offloader, kinds):
        self.offloader = offloader
        self.kinds = kinds
        self.workers = {name: Worker(lambda category: WIDE if category else None) for name in kinds}
        self.bytes = self.messages = 0
        self.late = []
        for name in kinds:
            offloader.join(name)

    def serve(self, asks, now):
        """Answer, and whatever comes of that."""
        waiting = list(asks)
        while waiting:
            ask = waiting.pop(0)
            data = msgspec.msgpack.encode(ask.request)
            self.bytes += len(data)
            self.messages += 1
            request = msgspec.msgpack.decode(data, type=Compute)
            answer = self.answer(ask.client, request)
            if answer is not None:
                waiting += self.offloader.answered(ask.client, answer, now)

    def answer(self, client, request):
        kind = self.kinds[client]
        if kind == "silent":
            return None
        answer = self.workers[client].compute(request)
        if kind == "slow":
            self.late.append((client, answer))
            return None
        if kind == "forgetful":
            self.workers[client] = Worker(lambda category: WIDE if category else None)
        if kind == "lying":
            count = len(request.inputs)
            every = tuple(sorted(n for v in request.vectors for n in v.added))
            lie = encode_answer(Relations((every,) * count, ((),) * count))
            return Computed(request.job, tuple(Answer(a.vector, lie) for a in answer.answers), encode_answer(()))
        if kind == "garbled":
            return Computed(request.job, tuple(Answer(a.vector, b"\xc1") for a in answer.answers), b"\xc1")
        return answer


def fill(filters, kinds, *, forest=False, eliminate=False, interfaces=3, **options):
    table = (ForestTable if forest else PosetTable)(eliminate=eliminate)
    ticks = iter(range(10**9))
    offloader = Offloader(table, 1, RtoSettings(**{"mode": "always", **options}), cpu=lambda: next(ticks) * 1e-6)
    pool = Pool(offloader, kinds)
    wanted = {}
    for i, box in enumerate(filters):
        interface = i % interfaces
        wanted.setdefault(box, set()).add(interface)
        late, pool.late = pool.late, []
        while offloader.waiting and offloader.due() <= i:
            pool.serve(offloader.tick(float(i)), float(i))
        # What the slow say comes when nobody waits for it any more.
        for client, answer in late:
            pool.serve(offloader.answered(client, answer, float(i)), float(i))
        pool.serve(offloader.submit([(box, interface)], float(i)), float(i))
    end = float(len(wanted) + 10)
    pool.serve(offloader.flush(end), end)
    while offloader.waiting:
        end += 10.0
        pool.serve(offloader.tick(end), end)
    return offloader, pool, wanted


GOOD = {f"c{i}": "good" for i in range(5)}
MIXED = {**GOOD, "liar": "lying", "mute": "silent", "sloth": "slow", "garbler": "garbled", "goldfish": "forgetful"}


@pytest.mark.parametrize("kinds", [GOOD, MIXED], ids=["good", "mixed"])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("check", [False, True])
def test_poset_is_as_without_offloading(kinds, batch, check):
    offloader, pool, wanted = fill(boxes(150, 1), kinds, batch=batch, vector=8, check=check, copies=3, timeout=0.5)
    check_poset(offloader.table.poset, wanted)
    assert offloader.counts.offloaded > 100
    assert pool.messages > 10
    if kinds is GOOD and not check:
        # The first batch finds an empty table, and is searched for.
        assert offloader.table.tests <= batch**2


@pytest.mark.parametrize("kinds", [GOOD, MIXED], ids=["good", "mixed"])
@pytest.mark.parametrize("check", [False, True])
def test_forest_is_pure_after_offloading(kinds, check):
    offloader, _, wanted = fill(boxes(150, 2), kinds, forest=True, batch=5, vector=8, check=check, timeout=0.5)
    check_forest(offloader.table.forest)
    assert {n.filter: set(n.subscribers) for n in offloader.table.forest} == wanted
    assert offloader.counts.offloaded > 100


def test_elimination_agrees_with_the_plain_insert():
    for forest in (False, True):
        offloader, _, _ = fill(boxes(200, 3), GOOD, forest=forest, eliminate=True, batch=6, vector=8, interfaces=4)
        if forest:
            check_forest(offloader.table.forest)
            continue
        plain = PosetTable(eliminate=True)
        for i, box in enumerate(boxes(200, 3)):
            plain.insert(box, i % 4)
        got = {e.filter: set(e.subscribers) for e in offloader.table.poset}
        assert got == {e.filter: set(e.subscribers) for e in plain.poset}


def test_liars_and_mutes_are_found_out():
    offloader, _, _ = fill(boxes(200, 4), MIXED, batch=5, vector=8, timeout=0.5)
    assert {"liar", "mute", "garbler", "sloth"} <= set(offloader.standing.excluded())
    assert set(GOOD) <= set(offloader.standing.trusted())
    assert offloader.counts.late > 0


def test_a_majority_of_liars_is_caught_by_checks():
    """Without checks such a table is wrong; with checks every link that is made holds."""
    kinds = {f"liar{i}": "lying" for i in range(3)}
    offloader, _, wanted = fill(boxes(60, 5), kinds, batch=5, vector=8, check=True, timeout=0.5)
    poset = offloader.table.poset
    assert {e.filter: set(e.subscribers) for e in poset} == wanted
    for entry in poset:
        for pred in entry.preds:
            assert strictly(poset.entries[pred].filter, entry.filter)
    assert offloader.counts.failed_checks > 0


def test_nobody_there_means_searching():
    offloader, pool, wanted = fill(boxes(40, 6), {}, batch=5)
    check_poset(offloader.table.poset, wanted)
    assert pool.messages == 0
    assert offloader.counts.searched > 0


def test_clients_that_leave_in_the_middle_are_not_waited_for():
    offloader = Offloader(PosetTable(), 1, RtoSettings(batch=2, mode="always"), cpu=lambda: 0.0)
    for box in boxes(6, 7):
        offloader.submit([(box, 0)], 0.0)
    for name in ("a", "b"):
        offloader.join(name)
    asks = []
    for box in boxes(10, 8):
        asks += offloader.submit([(box, 1)], 0.0)
    assert {a.client for a in asks} == {"a", "b"}
    for name in ("a", "b"):
        offloader.leave(name, 0.1)
    assert offloader.waiting == 0
    assert len(offloader.table) == len({*boxes(6, 7), *boxes(10, 8)})
    check_poset(offloader.table.poset, {e.filter: set(e.subscribers) for e in offloader.table.poset})


def test_removals_while_a_batch_is_under_way():
    """Answers that speak of filters which are gone meanwhile are still of use."""
    offloader = Offloader(PosetTable(), 1, RtoSettings(batch=8, mode="always"), cpu=lambda: 0.0)
    before = list(dict.fromkeys(boxes(40, 9)))
    for box in before:
        offloader.submit([(box, 0)], 0.0)
    offloader.flush(0.0)
    pool = Pool(offloader, GOOD)
    new = [b for b in dict.fromkeys(boxes(30, 10)) if b not in before][:8]
    asks = [a for b in new for a in offloader.submit([(b, 1)], 0.0)]
    assert asks
    for box in before[::2]:
        offloader.table.poset.unsubscribe(box, 0)
    pool.serve(asks, 0.1)
    wanted = {b: {0} for b in before[1::2]} | {b: {1} for b in new}
    check_poset(offloader.table.poset, wanted)


def test_filters_that_are_taken_back_on_their_way():
    """Before their batch, and while it is under way; marks are reached in order."""
    offloader = Offloader(PosetTable(), 1, RtoSettings(batch=4, mode="always"), cpu=lambda: 0.0)
    first, *filters = list(dict.fromkeys(boxes(20, 21)))[:13]
    offloader.submit([(first, 0)], 0.0)
    pool = Pool(offloader, GOOD)
    asks = [a for f in filters[:4] for a in offloader.submit([(f, 1)], 0.0)]
    assert asks
    for each in filters[4:8]:
        offloader.submit([(each, 1)], 0.0)
    mark = offloader.mark()
    for each in filters[8:]:
        offloader.submit([(each, 1)], 0.0)
    # All of the last batch and some of the others go away again; one of them comes back.
    for each in (filters[0], filters[5], *filters[8:]):
        assert offloader.withdraw(each, 1)
    assert not offloader.withdraw(filters[5], 1)
    assert not offloader.withdraw(first, 0)
    offloader.submit([(filters[5], 1)], 0.0)
    assert not offloader.reached(mark)
    pool.serve(asks, 0.1)
    assert offloader.reached(mark)
    pool.serve(offloader.flush(0.2), 0.2)
    assert offloader.waiting == 0
    assert offloader.reached(offloader.mark())
    wanted = {first: {0}} | {f: {1} for f in (*filters[1:5], *filters[5:8])}
    check_poset(offloader.table.poset, wanted)


def test_vectors_are_sent_once_and_then_as_changes():
    filters = list(dict.fromkeys(boxes(400, 11)))
    offloader, pool, _ = fill(filters[:300], GOOD, batch=10, vector=20, copies=2)
    before = pool.bytes
    for i, box in enumerate(filters[300:340]):
        pool.serve(offloader.submit([(box, i)], 400.0), 400.0)
    later = (pool.bytes - before) / 4
    whole = 2 * sum(len(d or b"") for v in offloader.vectors for d in v.members.values())
    assert later < whole


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.booleans()), max_size=60), st.integers(1, 5))
def test_vectors_follow_the_levels(moves, size):
    vectors = Vectors(size)
    levels = {}
    mirror = {}
    for number, level, gone in moves:
        was = levels.get(number)
        if gone and was is None:
            continue
        now = None if gone else level
        if now == was:
            continue
        vectors.moved(number, was, now)
        if gone:
            del levels[number]
        else:
            levels[number] = level
        for vector in vectors:
            assert 0 < len(vector.members) <= size
            assert {levels[n] for n in vector.members} == {vector.level}
            # A client that follows the updates has the same members, from whatever version it starts.
            version, members = mirror.get(vector.id, (0, {}))
            update = vector.update(version, lambda number: b"%d" % number)
            members = dict(members) if update.base else {}
            for each in update.removed:
                del members[each]
            members.update(update.added)
            assert members == {n: b"%d" % n for n in vector.members}
            if number % 3:
                mirror[vector.id] = (update.version, members)
    assert sorted(n for v in vectors for n in v.members) == sorted(levels)


def test_majority_needs_more_than_half_of_those_asked():
    assert majority({"a": b"x", "b": b"x"}, 3) == b"x"
    assert majority({"a": b"x", "b": b"y"}, 3) is None
    assert majority({"a": b"x"}, 1) == b"x"
    assert majority({}, 3) is None
    standing = Standing()
    standing.join("a")
    for _ in range(STRIKES):
        standing.bad("a")
    standing.good("a")
    assert standing.excluded() == ["a"]
    standing.bad("nobody")
    standing.leave("a")
    assert standing.trusted() == standing.excluded() == []


def chosen(costs, steps, setup=0.0, **options):
    """Seconds spent in all, and the ways that a chooser took; ``costs`` may change at any step."""
    chooser, spent, ways, there = Chooser(least=10, **options), 0.0, [], False
    for step in range(steps):
        way = chooser.choose(100, 10, 0.0 if there else setup)
        seconds = 10 * costs(step)[way] + (setup if way == "offload" and not there else 0.0)
        there = there or way == "offload"
        chooser.cost(way, seconds, 10)
        spent += seconds
        ways.append(way)
    return spent, ways, chooser


def test_chooser_takes_the_cheaper_way_and_looks_again():
    def costs(step):
        return {"plain": 1.0 if step < 600 else 50.0, "offload": 3.0}

    _, ways, chooser = chosen(costs, 1200)
    assert 3 <= ways[:600].count("offload") < 20
    assert ways[700:].count("plain") < 12
    assert chooser.best == "offload"
    assert set(chooser.costs()) == {"plain", "offload"}
    assert Chooser(least=10).choose(5, 10, 0.0) == "plain"
    quick = Chooser(least=10, floor=1.0)
    quick.cost(quick.choose(100, 1, 0.0), 0.5, 1)
    assert quick.needless()
    assert quick.choose(100, 1, 0.0) == "plain"


@pytest.mark.parametrize("dear", [1.5, 10.0, 1000.0])
def test_choosing_costs_a_small_share_whatever_the_other_way_costs(dear):
    """Beyond the share, at most one trial that turned out dearer than expected."""
    setup, steps = 200.0, 4000
    spent, ways, _ = chosen(lambda step: {"plain": 1.0, "offload": dear}, steps, setup, share=0.02)
    assert spent <= 1.02 * 10 * steps + setup + 3 * 10 * dear
    spent, ways, _ = chosen(lambda step: {"plain": dear, "offload": 1.0}, steps, setup, share=0.02)
    assert ways.count("offload") > 0.8 * steps


def test_where_much_can_be_gained_the_first_trial_comes_early():
    """Where three batches could make up for bringing the table; otherwise it waits for its budget."""
    _, ways, _ = chosen(lambda step: {"plain": 1.0, "offload": 0.4}, 100, setup=20.0)
    assert ways.index("offload") == 1
    assert ways.count("plain") < 10
    _, ways, _ = chosen(lambda step: {"plain": 1.0, "offload": 3.0}, 100, setup=20.0)
    assert ways.count("offload") == 3
    _, ways, _ = chosen(lambda step: {"plain": 1.0, "offload": 0.4}, 100, setup=40.0)
    assert "offload" not in ways


def test_trials_that_do_not_pay_become_rare():
    """And frequent again when searching has become twice as dear."""

    def costs(step):
        return {"plain": 1.0 if step < 20_000 else 2.5, "offload": 3.0}

    _, ways, _ = chosen(costs, 21_000)
    begins = [i for i in range(1, len(ways)) if ways[i] == "offload" != ways[i - 1]]
    early = [i for i in begins if i < 20_000]
    assert len(early) >= 3
    assert early[-1] - early[-2] > 1.8 * (early[1] - early[0])
    assert len(begins) > len(early)
    # As cheap is not cheaper.
    _, ways, chooser = chosen(lambda step: {"plain": 1.0, "offload": 0.95}, 2000)
    assert chooser.best == "plain"
    assert ways.count("offload") < 50


def test_while_nothing_is_to_be_decided_filters_enter_as_without_offloading():
    seconds = [1e-5]

    def cpu():
        clock[0] += seconds[0] / 2
        return clock[0]

    clock = [0.0]
    first, second, third, *more = dict.fromkeys(boxes(40, 30))
    offloader = Offloader(PosetTable(), 1, RtoSettings(batch=5), cpu=cpu)
    assert offloader.submit([(first, 0)], 0.0) == []
    # Nobody is there: until somebody comes.
    assert offloader.rest.on
    assert offloader.due() is None
    offloader.tick(100.0)
    assert offloader.rest.on
    offloader.join("a")
    assert not offloader.rest.on
    lengths = []
    for _ in range(8):
        # A search is quick: for a while, longer each time.
        offloader.submit([(second, 0)], 100.0)
        assert offloader.rest.on
        lengths.append(offloader.due() - 100.0)
        before = clock[0]
        offloader.submit([(third, 0)], 100.0)
        assert clock[0] == before
        offloader.tick(offloader.due())
        assert not offloader.rest.on
        offloader.table.poset.unsubscribe(second, 0)
    assert lengths == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    seconds[0] = 1.0
    for each in more:
        offloader.submit([(each, 0)], 200.0)
    assert not offloader.rest.on
    assert offloader.statistics()["resting"] is False


def test_auto_mode_avoids_what_does_not_pay():
    clock = [0.0]

    def cpu():
        clock[0] += 1.0
        return clock[0]

    offloader = Offloader(PosetTable(), 1, RtoSettings(batch=5), cpu=cpu)
    pool = Pool(offloader, GOOD)
    for i, box in enumerate(boxes(2000, 12)):
        # Each look at the clock costs a second: offloading looks more often, so it never pays here.
        pool.serve(offloader.submit([(box, i)], float(i)), float(i))
    assert offloader.counts.offloaded < 0.2 * offloader.counts.searched
    offloader.charge(1, 1.0)


# -- disguise -------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(
    st.one_of(st.none(), strategies.schemas()).flatmap(
        lambda s: st.tuples(strategies.filters(s), strategies.filters(s))
    )
)
def test_disguise_keeps_relations(pair):
    one, other = pair
    if one.empty or other.empty:
        return
    disguise = Disguise(b"secret")
    a, b = disguise.filter(one), disguise.filter(other)
    assert a.covers(b) == one.covers(other)
    assert b.covers(a) == other.covers(one)
    assert (a == b) == (one == other)
    assert a.overlaps(b) == one.overlaps(other)


def test_disguise_hides_names_and_values():
    wanted = Filter(None, {"price": ValueSet.of("IBM")})
    text = str(Disguise(b"k").filter(wanted))
    assert "price" not in text
    assert "IBM" not in text
    large = Filter(None, {"n": ValueSet.interval((1 << 62) + 1, (1 << 62) + 3)})
    inner = Filter(None, {"n": ValueSet.of((1 << 62) + 2)})
    disguise = Disguise(b"k")
    assert disguise.filter(large).covers(disguise.filter(inner))
    assert not disguise.filter(inner).covers(disguise.filter(large))
    assert not disguise.filter(wanted).matches(Record({"price": "IBM"}))


def test_offloading_in_disguise():
    offloader, _, wanted = fill(boxes(80, 13), GOOD, batch=5, vector=8, secret=b"hush")
    check_poset(offloader.table.poset, wanted)
    assert offloader.counts.offloaded > 50
    long = Filter(None, {"s": ValueSet.of("x" * 4000)})
    hidden = Offloader(PosetTable(), 0, RtoSettings(batch=1, secret=b"k"), cpu=lambda: 0.0)
    hidden.join("a")
    assert hidden.submit([(Filter(None, {"s": ValueSet.of("y")}), 0)], 0.0) == []
    with pytest.raises(ValueError, match="disguise"):
        hidden._writing.filter(long)


# -- the fixed filterset ---------------------------------------------------------------------


def test_fixed_set_saves_tests_and_keeps_the_poset_exact():
    filters = list(dict.fromkeys(boxes(260, 14)))
    poset, plain = Poset(index=False), Poset(index=False)
    fixed = FixedSet(poset, 1, size=64)
    wanted = {}
    for i, box in enumerate(filters[:130]):
        fixed.subscribe(box, i, None)
        plain.subscribe(box, i)
        wanted[box] = {i}
    assert fixed.stale()
    message = msgspec.msgpack.decode(msgspec.msgpack.encode(fixed.assign()), type=Assign)
    assert not fixed.stale()
    placer = Placer(message, WIDE)
    before, before_plain = poset.tests, plain.tests
    for i, box in enumerate(filters[130:]):
        fixed.subscribe(box, i, placer.claim(box))
        plain.subscribe(box, i)
        wanted[box] = {i}
        if i % 10 == 0:  # what is in the set may go away
            gone = filters[i]
            poset.unsubscribe(gone, i)
            plain.unsubscribe(gone, i)
            del wanted[gone]
    check_poset(poset, wanted)
    assert fixed.helped > 100
    assert poset.tests - before < 0.9 * (plain.tests - before_plain)
    # Of a filter that is in the set, as of any other: it may be gone from the table.
    placed = Placer(Assign(1, 1, tuple(encode_filter(f) for f in (filters[5], Filter(WIDE)))), WIDE)
    assert placed.claim(filters[5]) == Claim(1, preds=(1,))


def test_wrong_claims_are_refuted():
    filters = list(dict.fromkeys(boxes(100, 15)))
    fixed = FixedSet(Poset(), 1, size=32)
    wanted = {}
    for i, box in enumerate(filters[:60]):
        fixed.subscribe(box, i, None)
        wanted[box] = {i}
    version = fixed.assign().version
    for i, box in enumerate(filters[60:]):
        lie = Claim(version, preds=(i % 30,), succs=((i + 7) % 30,)) if i % 2 else Claim(version, preds=(99999,))
        fixed.subscribe(box, i, lie, f"c{i % 12}")
        wanted[box] = {i}
    check_poset(fixed.poset, wanted)
    # Who lied three times is not listened to any more.
    assert fixed.refuted > 20
    excluded = fixed.standing.excluded()
    assert excluded
    before = fixed.statistics()["refuted"]
    fixed.subscribe(Filter(WIDE, {"x": ValueSet.of(3)}), 0, Claim(version, preds=(99999,)), excluded[0])
    assert fixed.refuted == before


def test_worker_forgets_what_it_did_not_use():
    worker = Worker(lambda category: PLANE, limit=5)
    data = {i: encoded(i) for i in range(4)}
    for job, vector in enumerate((1, 2)):
        answer = worker.compute(Compute(job, 1, (encoded(0),), (VectorUpdate(vector, 0, 4, data),)))
        assert answer.missing == ()
    again = worker.compute(Compute(3, 1, (encoded(0),), (VectorUpdate(1, 4, 5, {}), VectorUpdate(2, 4, 5, {}))))
    assert again.missing == (1,)
    assert [a.vector for a in again.answers] == [2]
    assert isinstance(Ask("a", Compute(1, 1, (), ())), Ask)


def encoded(i):
    return encode_filter(Filter(PLANE, {"x": ValueSet.of(i)}))


def test_worker_processes():
    """Real processes, one of them lying and one silent: the table is right, and bytes and messages are counted."""
    workers = Workers()
    command = [sys.executable, "-m", "sievenet.routers.offload.shell", *map(str, workers.address)]
    options = ([], [], [], ["--lying"], ["--silent"], ["--slow", "0.01"])
    started = [subprocess.Popen([*command, f"w{i}", *each]) for i, each in enumerate(options)]
    try:
        settings = RtoSettings(batch=5, vector=20, mode="always", timeout=0.3, copies=3)
        offloader = Offloader(
            PosetTable(), category_of(WIDE), settings, cpu=time.process_time, schema=encode_schema(WIDE)
        )
        wanted = {}
        joined = 0
        while joined < len(options):
            for name, message in workers.poll(5.0):
                assert isinstance(message, Joined)
                offloader.join(name)
                joined += 1
        for i, box in enumerate(boxes(60, 16)):
            wanted.setdefault(box, set()).add(i)
            workers.ask(offloader.submit([(box, i)], time.monotonic()))
            if i == 40:
                started[0].kill()
        workers.ask(offloader.flush(time.monotonic()))
        end = time.monotonic() + 30
        while offloader.waiting:
            assert time.monotonic() < end
            for name, message in workers.poll(0.05):
                if isinstance(message, Computed):
                    workers.ask(offloader.answered(name, message, time.monotonic()))
                else:
                    workers.ask(offloader.leave(name, time.monotonic()))
            workers.ask(offloader.tick(time.monotonic()))
        check_poset(offloader.table.poset, wanted)
        assert offloader.counts.offloaded > 20
        assert workers.sent_bytes > 1000
        assert workers.received_messages > 10
    finally:
        workers.close()
        for each in started:
            each.wait(timeout=10)
