"""Subscribers and caches in virtual time: whatever is accepted is delivered exactly once, in order per publisher."""

import pytest

from sievenet.cache.messages import Position
from sievenet.cache.ring import Ring
from sievenet.cache.spill import Spill
from sievenet.cache.states import State
from tests.cache.world import Application, World
from tests.seeds import seeds


def traffic(world, seconds, sources=3, low=20, high=400, values=4):
    """Quiet times and bursts, of several publishers."""
    rng, end = world.rng, world.now + seconds

    def one(source, rate_until, rate):
        if world.now >= end:
            return
        if world.now >= rate_until:
            rate = rng.choice([low, low, low, low, high])
            rate_until = world.now + rng.uniform(0.2, 2.0)
        world.publish(source, rng.randrange(values))
        world.clock.call_later(rng.expovariate(rate), one, source, rate_until, rate)

    for number in range(sources):
        one((100 + number, 7), 0.0, low)
    return end


@pytest.mark.parametrize("seed", seeds(4, 10))
def test_bursts_lose_nothing(seed):
    world = World(seed)
    limited = Application(world, 1, {0, 1, 2, 3}, limit=300, rate=330)
    narrow = Application(world, 2, {1}, limit=100, rate=120)
    fast = Application(world, 3, {0, 2}, limit=100_000, rate=1e6)
    world.clock.run(traffic(world, 20) + 60)
    for application in (limited, narrow, fast):
        world.check(application)
        assert application.core.state is State.IDLE
        assert not application.inbox
    assert limited.core.activations
    assert not fast.core.activations


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_subscribers_that_stand_still_miss_nothing(seed):
    world = World(seed)
    application = Application(world, 1, {0, 1}, limit=400, rate=500)
    end = traffic(world, 15)
    for _ in range(4):
        world.clock.call_at(world.now + world.rng.uniform(0, 15), application.stop, world.rng.uniform(0.1, 4))
    world.clock.run(end + 60)
    world.check(application)
    assert application.core.state is State.IDLE


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_a_cache_that_dies_is_replaced_and_losses_are_told(seed):
    world = World(seed, caches=2, seconds=world_seconds(seed))
    applications = [Application(world, n, {0, 1, 2}, limit=200, rate=220) for n in range(1, 4)]
    end = traffic(world, 15)
    world.clock.call_at(world.now + world.rng.uniform(2, 12), world.kill, 0)
    if seed % 3 == 0:
        world.clock.call_at(world.now + world.rng.uniform(5, 14), world.kill, 1)
    if seed % 3 == 1:
        world.clock.call_at(world.now + 13, world.start, 0)
    # A last event of each source shows what is missing before it.
    for source in range(3):
        world.clock.call_at(end + 70, world.publish, (100 + source, 7), 0)
    world.clock.run(end + 140)
    for application in applications:
        world.check(application, losses=True)
        assert application.core.state is State.IDLE


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_caches_that_stand_still_and_die_before_publishers_fall_silent_are_no_silent_loss(seed):
    world = World(seed, caches=2)
    rng, now = world.rng, world.now
    applications = [Application(world, n, {0, 1, 2}, limit=200, rate=220) for n in range(1, 5)]
    end = traffic(world, 12)
    begin = now + rng.uniform(1, 5)
    for index in range(2):
        world.clock.call_at(begin + rng.uniform(0, 0.5), world.freeze, index, rng.uniform(0.5, 6))
    # One after the other, perhaps before they move again; from some time on nobody says anything any more.
    world.clock.call_at(end - rng.uniform(0, 4), world.kill, 0)
    world.clock.call_at(end + rng.uniform(-2, 2), world.kill, 1)
    world.clock.run(end + 100)
    for application in applications:
        world.check(application, losses=True)
        assert application.core.state is State.IDLE


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_what_the_ports_of_caches_that_stand_still_drop_is_told_or_comes_by_another_way(seed):
    world = World(seed, caches=1 + seed % 2)
    rng, now = world.rng, world.now
    world.room = rng.choice([0, 5, 60])
    applications = [Application(world, n, {0, 1, 2}, limit=200, rate=220) for n in range(1, 4)]
    narrow = Application(world, 9, {3}, limit=80, rate=90)
    end = traffic(world, 14)
    for index in world.caches:
        for _ in range(2):
            world.clock.call_at(now + rng.uniform(1, 13), world.freeze, index, rng.uniform(0.2, 1.4))
    world.clock.run(end + 100)
    assert world.overflowed or seed > 11
    for application in (*applications, narrow):
        world.check(application, losses=True)
        assert application.core.state is State.IDLE
        # What no port has dropped and somebody wants is not told.
        told = {(e.publisher, e.incarnation, n) for e in application.lost for n in range(e.first, e.last + 1)}
        assert told & {*world.wanted(application)} <= world.overflowed


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_nobody_leaves_a_cache_whose_port_is_read_late_before_everything_came(seed):
    world = World(seed, caches=1 + seed % 2)
    rng, now = world.rng, world.now
    world.room = rng.choice([0, 5, 60, 1 << 30])
    applications = [Application(world, n, {0, 1, 2}, limit=200, rate=220) for n in range(1, 4)]
    narrow = Application(world, 9, {3}, limit=80, rate=90)
    end = traffic(world, 14)
    for index in world.caches:
        for _ in range(5):
            world.clock.call_at(now + rng.uniform(1, 13), world.clog, index, rng.uniform(0.05, 1.5))
    world.clock.run(end + 100)
    for application in (*applications, narrow):
        world.check(application, losses=bool(world.overflowed))
        assert application.core.state is State.IDLE
        told = {(e.publisher, e.incarnation, n) for e in application.lost for n in range(e.first, e.last + 1)}
        assert told & {*world.wanted(application)} <= world.overflowed


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_a_subscriber_that_crashes_and_returns_goes_on_behind_its_last_event(seed):
    world = World(seed)
    rng, now = world.rng, world.now
    before = Application(world, 1, {0, 1, 2}, limit=200, rate=220)
    end = traffic(world, 12, sources=1)
    world.clock.run(now + rng.uniform(2, 10))
    # It dies with what it has not taken, in whatever state it is; its cache hears nothing more from it.
    taken, gone = list(before.taken), world.applications.pop(1)
    gone.stop(1e9)
    world.caches[0].unassign(1)
    world.clock.run(world.now + rng.uniform(0.1, 3))
    after = Application(world, 2, {0, 1, 2}, limit=200, rate=220)
    after.core.awaits_past()
    world.clock.run(world.now + rng.uniform(0, 0.1))
    after.do(after.core.replay(world.now, 1e9, Position(*taken[-1])))
    world.clock.run(end + 60)
    assert taken + after.taken == world.wanted(after)
    assert after.core.state is State.IDLE


def world_seconds(seed):
    """Rings that reach back far enough, or not."""
    return 30.0 if seed % 2 else 0.5


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_groups_share_a_stream(seed):
    world = World(seed, loss=0.0)
    group = [Application(world, n, {0, 1, 2, 3}, limit=300, rate=330) for n in range(1, 6)]
    alone = Application(world, 9, {0, 1, 2, 3}, limit=300, rate=330)
    end = traffic(world, 15)
    world.clock.call_at(world.now + 4, alone.stop, 6.0)
    world.clock.run(end + 90)
    for application in (*group, alone):
        world.check(application)
    together, single = sum(each.core.cached for each in group), alone.core.cached
    # By some seeds, so little is published that the group needs no cache.
    assert world.caches[0].sent < together + single or not together, "one transmission should serve several"
    assert together or seed > 7


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("away", [0.15, 6.0])
def test_a_durable_cache_that_comes_back_goes_on_where_it_was(seed, away, tmp_path):
    def make(index):
        return Ring(seconds=300, max_bytes=100_000, spill=Spill(tmp_path / str(index), 1 << 24), durable=True)

    world = World(seed, make=make)
    world.patience = 10.0
    application = Application(world, 1, {0, 1, 2, 3}, limit=200, rate=220)
    end = traffic(world, 10)
    world.clock.run(end)
    for i in range(400):
        world.publish((100, 7), i % 4)
    world.clock.run(end + 0.05)
    waiting = len(world.wanted(application)) - len(application.taken)
    # Everything is published; much of it waits in the cache, which dies.
    world.kill(0)
    world.clock.run(end + 0.05 + away)
    world.start(0)
    world.clock.run(end + 120)
    assert waiting > 100
    world.check(application)


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("policy", ["end", "oldest", "newest"])
def test_a_full_queue_ends_or_drops_as_was_chosen(seed, policy):
    world = World(seed, loss=0.05 * (seed % 2))
    cache = world.caches[0]
    cache._max_events = 500
    application = Application(world, 1, {0, 1, 2, 3}, limit=100, rate=110, on_full=policy)
    world.clock.run(traffic(world, 15, high=1000) + 60)
    got = application.taken
    assert len(set(got)) == len(got)
    if policy == "end":
        assert "500 events wait" in application.over
        assert application.core.state is State.OVER
        return
    assert application.over is None
    missing = len(world.wanted(application)) - len(got)
    # What the cache dropped may have come by the plain path before that was taken away.
    assert 0 < missing <= cache.statistics().dropped
    if not world.loss:
        world.check(application, losses=True)


def test_without_a_cache_everything_still_comes():
    world = World(5, caches=0)
    application = Application(world, 1, {0, 1, 2, 3}, limit=100, rate=1000, hold=50)
    world.clock.run(traffic(world, 10) + 60)
    world.check(application)
    assert not application.core.activations
