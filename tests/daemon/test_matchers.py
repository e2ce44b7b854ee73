"""What the daemon makes of a matcher's signs of life."""

from types import SimpleNamespace

from sievenet.control.protocol import Matched
from sievenet.daemon.matchers import BACKLOG, LONGEST, REST, SILENCE, WAY, Matcher, Serving, uneven
from sievenet.index import Dz

PLACE = SimpleNamespace(switch="s1", port=3, host="h1")


def matcher(load=True):
    found = Matcher("m", PLACE, 0.0)
    if load:
        found.serving[1] = Serving()
        found.serving[1].regions.add(Dz(0, 1))
    return found


def sign(received=0, backlog=0):
    return Matched(received, 0, 0, backlog, 0.001)


def test_whoever_is_silent_is_given_up_and_given_nothing():
    one = matcher()
    assert one.well(SILENCE)
    assert "no sign of life" in one.wrong(SILENCE + 0.1)
    assert not one.well(SILENCE + 0.1)
    one.beat(sign(), SILENCE + 0.1)
    assert one.well(SILENCE + 0.1)


def test_whoever_has_too_much_to_do_for_two_signs_in_a_row_is_given_up():
    one = matcher()
    one.beat(sign(backlog=BACKLOG + 1), 0.2)
    assert not one.wrong(0.2)  # once may be a moment
    assert not one.well(0.2)  # but it is given no more
    one.beat(sign(backlog=10), 0.4)
    one.beat(sign(backlog=BACKLOG + 1), 0.6)
    assert not one.wrong(0.6)
    one.beat(sign(), 0.8, (BACKLOG + 1, 0))  # also if they wait at the switch
    assert f"{BACKLOG + 1} packets wait" in one.wrong(0.8)


def test_packets_that_were_dropped_count_only_while_something_is_diverted():
    one = matcher(load=False)
    one.beat(sign(), 0.2, (0, 7))
    assert not one.wrong(0.2)
    two = matcher()
    two.beat(sign(), 0.2, (0, 0))
    two.beat(sign(), 0.4, (0, 7))
    assert "7 packets for it were dropped" in two.wrong(0.4)
    two.rest("dropped", 0.4)
    assert not two.wrong(0.5)


def test_a_rest_doubles_until_it_serves_again():
    one, now, rests = matcher(), 0.0, []
    for _ in range(8):
        one.rest("again", now)
        rests.append(one.resting - now)
        now = one.resting
        one.beat(sign(), now)
        assert one.well(now)
    assert rests[:3] == [REST, 2 * REST, 4 * REST]
    assert rests[-1] == LONGEST
    one.serves()
    one.rest("again", now)
    assert one.resting - now == REST


def test_what_came_before_counts_as_passed_on_when_nothing_of_it_waits():
    one = matcher()
    one.beat(sign(received=100, backlog=40), 10.0)
    assert one.passed < 0  # of the 100 some wait
    one.beat(sign(received=50, backlog=50), 11.0)
    assert one.passed == 10.0 - WAY  # all of the first 100 are gone
    one.beat(sign(backlog=0), 12.0, (5, 0))
    assert one.passed == 11.0 - WAY  # five are at the switch
    one.beat(sign(received=5), 13.0)
    assert one.passed == 13.0 - WAY


def serving(name, *regions, number=1, switch="s1", resting=0.0):
    found = Matcher(name, SimpleNamespace(switch=switch, port=3, host="h1"), 0.0)
    found.serving[number] = Serving()
    found.serving[number].regions.update(regions)
    found.resting = resting
    return found


def test_a_matcher_that_has_come_gets_its_share_of_the_subspaces_at_its_switch():
    quarters = [Dz(i, 2) for i in range(4)]
    full = serving("a", *quarters)
    assert uneven([full], 1, 0.5) == []
    assert uneven([full, serving("b")], 1, 0.5) == [("s1", dz) for dz in quarters[:2]]
    assert uneven([full, serving("b")], 2, 0.5) == []  # of another category it has none to give
    # Nobody there, or not well: nothing changes hands.
    assert uneven([full, serving("b", switch="s2")], 1, 0.5) == []
    assert uneven([full, serving("b", resting=9.0)], 1, 0.5) == []
    # Half as many is enough, and a single subspace is not passed back and forth.
    assert uneven([full, serving("b", Dz(0, 3), Dz(1, 3))], 1, 0.5) == []
    assert uneven([serving("a", Dz(0, 0)), serving("b")], 1, 0.5) == []
    assert uneven([serving("a", Dz(0, 1), Dz(1, 1)), serving("b")], 1, 0.5) == [("s1", Dz(0, 1))]
    # What it does for other categories counts too.
    assert uneven([full, serving("b", *quarters, number=2)], 1, 0.5) == []
